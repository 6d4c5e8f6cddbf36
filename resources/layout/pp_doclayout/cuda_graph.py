"""A pass over a batch as one CUDA graph."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from resources.layout.pp_doclayout.network import Raw

if TYPE_CHECKING:
    from torch import Tensor


class CudaGraph:
    """The kernels of `run` for one shape of batch, recorded once and then launched as one.

    Run one by one they are launched by the interpreter, which the threads that decode pages want too. `run` has made a
    pass over a batch of this shape before, so that what it loads and chooses the first time is not recorded. `pixels`
    are the graph's own from then on. Raises what torch raises where the pass cannot be recorded.
    """

    def __init__(self, run: "Callable[[Tensor], Raw]", pixels: "Tensor") -> None:
        import torch

        self._pixels = pixels
        self._graph = torch.cuda.CUDAGraph()
        # Other threads may use their device meanwhile: what they do is no part of this.
        stream = torch.cuda.Stream(pixels.device)
        with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
            self._raw = run(self._pixels)

    def __call__(self, pixels: "Tensor") -> Raw:
        """One pass over a batch of the recorded shape. The next one overwrites all outputs but the masks'."""
        self._pixels.copy_(pixels)
        self._graph.replay()
        raw = self._raw
        if raw.mask_queries is None or raw.mask_features is None:
            return raw
        return raw._replace(mask_queries=raw.mask_queries.clone(), mask_features=raw.mask_features.clone())
