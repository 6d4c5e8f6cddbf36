"""PP-DocLayoutV3 on one device: compilation, batches, and fallbacks if memory or compiler fail."""

import gc
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kopub.errors import EngineError, first_line
from kopub.layout.pp_doclayout.devices import NO_GPU, StageSeconds, fall_back
from kopub.layout.pp_doclayout.network import (
    RawOutputs,
    ReluFusionError,
    forward,
    fuse,
    fuse_relu,
    load,
    order_votes,
    unfuse_relu,
)
from kopub.layout.pp_doclayout.page_regions import SIDE

Pixels = Sequence[NDArray[np.uint8]] | NDArray[np.uint8]
"""RGB pages of (SIDE, SIDE, 3) each, as one array or as several."""
_TUNING = threading.Lock()
"""Lets one device tune at a time. cuDNN's timing of algorithms is a process-wide setting, and no graph may be recorded
while tuning frees memory."""
TUNING_MEMORY = 10e9
"""Most bytes of GPU memory that layout uses while it tunes; a batch of 64 pages takes 4 GB, or 6 GB uncompiled."""


class Outputs(NamedTuple):
    """A batch's outputs, shaped as `RawOutputs`.

    All are fp32 on the host except the masks, which stay on the device.
    """

    scores: NDArray[np.float32]
    boxes: NDArray[np.float32]
    votes: NDArray[np.float32]
    mask_queries: torch.Tensor | None
    mask_features: torch.Tensor | None

    def masks(self, page: int, queries: NDArray[np.intp]) -> NDArray[np.float32]:
        """Return mask logits (n, 200, 200) of a page's queries, which need `polygons`."""
        if self.mask_queries is None or self.mask_features is None:
            raise ValueError("the model was made without polygons")
        with torch.inference_mode():
            of_page = self.mask_queries[page, torch.as_tensor(queries, device=self.mask_queries.device)]
            return torch.tensordot(of_page, self.mask_features[page], 1).float().cpu().numpy()


def reference(repo: str, revision: str, pixels: NDArray[np.uint8]) -> Outputs:
    """Run transformers' own forward pass in float32 on the host.

    `pixels` is one page, uint8 (SIDE, SIDE, 3) RGB. Raises `EngineError` if there are no weights.
    """
    network = load(repo, revision)
    with torch.inference_mode():
        outputs = network(torch.from_numpy(pixels)[None].permute(0, 3, 1, 2).float() / 255)
        votes = order_votes(outputs.order_logits)
    return Outputs(outputs.logits.sigmoid().numpy(), outputs.pred_boxes.numpy(), votes.numpy(), None, None)


class LayoutModel:
    """The network on one device, ready for batches of at most `batch_size` pages.

    On a GPU, a batch runs as one CUDA graph. `batch_size` is halved if the GPU's memory does not suffice, and a network
    that cannot be compiled or recorded as a graph runs without; `fallbacks` says what happened. `seconds` is kept by
    stage.
    """

    def __init__(
        self,
        network: Any,
        *,
        device: str,
        dtype: str,
        compiled: bool,
        batch_size: int,
        polygons: bool,
        seconds: StageSeconds | None = None,
    ) -> None:
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise EngineError(NO_GPU)
        fuse(network)
        network.to(device=torch.device(device), dtype=getattr(torch, dtype))
        self._network = network.to(memory_format=torch.channels_last)
        self._on_gpu = device.startswith("cuda")
        self._device = device
        self._eager = self._run = partial(forward, self._network, polygons=polygons)
        if compiled:
            self._run = torch.compile(self._eager, dynamic=False)
        # cuDNN keeps what it learns about convolutions per thread, so one thread runs every batch. Calls that name no
        # device are for the model's GPU there.
        is_one_of_several = self._on_gpu and torch.device(device).index is not None
        begin = partial(torch.cuda.set_device, device) if is_one_of_several else None
        self._thread = ThreadPoolExecutor(1, "layout-model", begin)
        # Tuning delays a run by 3 s and saves 9 ms per batch, which gains nothing if decoding is the bottleneck.
        self._tunes = self._on_gpu and compiled
        self._tuned = not self._tunes
        self._gathered: torch.Tensor | None = None
        self._pixels: torch.Tensor | None = None
        self._records = self._on_gpu
        self._graph: CudaGraph | None = None
        self.batch_size = batch_size
        self.fallbacks: list[str] = []
        self.seconds = StageSeconds() if seconds is None else seconds
        if self._on_gpu:
            try:
                fuse_relu(self._network)
            except RuntimeError as error:
                fall_back(self.fallbacks, "ReLU not fused", first_line(error))

    def close(self) -> None:
        """Finish the submitted batches, and free the memory for good."""
        self._thread.shutdown(wait=True)
        del self._network, self._eager, self._run
        self._gathered = self._pixels = self._graph = None
        if self._on_gpu:
            gc.collect()
            torch.cuda.empty_cache()

    @property
    def memory_peak(self) -> int:
        """Most bytes of GPU memory allocated at once; 0 without a GPU."""
        return torch.cuda.max_memory_allocated(self._device) if self._on_gpu else 0

    def submit(self, pages: Pixels) -> Future[Outputs]:
        """Run on any number of pages, after the batches submitted before.

        More than `batch_size` pages take several passes. The future holds an `EngineError` if not even one page fits in
        memory.
        """
        return self._thread.submit(self._all, pages, self.seconds)

    def first_pass(self) -> "Future[Any]":
        """Begin a batch of blank pages, so that no real page waits for tuning.

        The batch loads, compiles and tunes; on a GPU, the pass is then recorded. Its outputs and seconds are dropped;
        anything that it raises, the first real batch would raise too. If there is nothing to tune or record, as on the
        host, nothing is done.
        """
        if self._tuned and not self._records:
            nothing: Future[Any] = Future()
            nothing.set_result(None)
            return nothing
        return self._thread.submit(self._begin)

    def _begin(self) -> None:
        self._all(np.zeros((self.batch_size, SIDE, SIDE, 3), np.uint8), StageSeconds())
        if not self._records:
            return
        try:
            with _TUNING, torch.inference_mode():
                blank = torch.zeros((self.batch_size, SIDE, SIDE, 3), dtype=torch.uint8, device=self._device)
                self._graph = CudaGraph(self._run, blank)
        # Memory, a driver, a kernel that waits for the host: whatever the cause, the network runs without a graph.
        except Exception as error:
            fall_back(self.fallbacks, "no CUDA graph", first_line(error))

    def _all(self, pages: Pixels, seconds: StageSeconds) -> Outputs:
        parts: list[Outputs] = []
        done = 0
        while done < len(pages):
            batch = pages[done : done + self.batch_size]
            try:
                parts.append(self._batch(batch, seconds))
            except torch.OutOfMemoryError as error:
                why = str(error).partition(". ")[0]
            else:
                done += len(batch)
                continue
            # Outside of the handler, no traceback holds the tensors of the batch that did not fit.
            if self.batch_size == 1:
                form = "one page does not fit into GPU memory: free some, or use a smaller layout.dtype ({error})"
                raise EngineError(form, why)
            self.batch_size //= 2
            self._gathered = self._pixels = self._graph = None
            self._tuned = not self._tunes
            torch.cuda.empty_cache()
            fall_back(self.fallbacks, f"batch halved to {self.batch_size}", why)
        if len(parts) == 1:
            return parts[0]
        mask_queries = [part.mask_queries for part in parts if part.mask_queries is not None]
        mask_features = [part.mask_features for part in parts if part.mask_features is not None]
        return Outputs(
            np.concatenate([part.scores for part in parts]),
            np.concatenate([part.boxes for part in parts]),
            np.concatenate([part.votes for part in parts]),
            torch.cat(mask_queries) if mask_queries else None,
            torch.cat(mask_features) if mask_features else None,
        )

    def _batch(self, pages: Pixels, seconds: StageSeconds) -> Outputs:
        n = len(pages)
        with torch.inference_mode():
            started = time.perf_counter()
            pixels = self._pixels
            if pixels is None:
                shape = (self.batch_size, SIDE, SIDE, 3)
                pixels = self._pixels = torch.zeros(shape, dtype=torch.uint8, device=self._device)
            if isinstance(pages, np.ndarray):
                host = torch.from_numpy(pages)
            else:
                # Single pages are copied into one array, which a GPU can read directly.
                if self._gathered is None:
                    self._gathered = torch.zeros(pixels.shape, dtype=torch.uint8, pin_memory=self._on_gpu)
                host = self._gathered[:n]
                # numpy copies them, because torch would wake a thread on every core, and the cores are decoding.
                for place, page in zip(host.numpy(), pages, strict=True):
                    place[:] = page
            pixels[:n].copy_(host, non_blocking=True)
            # A compiled network and a graph accept only one shape, so their last batch is padded.
            any_shape = self._run is self._eager and self._graph is None
            staged = self._now()
            raw = self.run(pixels[:n] if any_shape else pixels)
            computed = self._now()
            outputs = Outputs(
                raw.scores[:n].cpu().numpy(),
                raw.boxes[:n].cpu().numpy(),
                raw.votes[:n].cpu().numpy(),
                None if raw.mask_queries is None else raw.mask_queries[:n],
                None if raw.mask_features is None else raw.mask_features[:n],
            )
            seconds.add("copy", staged - started + self._now() - computed)
            seconds.add("model", computed - staged)
        return outputs

    def run(self, pixels: torch.Tensor) -> RawOutputs:
        """Run one pass over a batch on the device, uint8 (B, SIDE, SIDE, 3).

        B is always the same if batches are padded. In the first pass, cuDNN times its convolution algorithms: its
        default choices took 1.7 ms instead of 0.4 for each 48-channel convolution, and 52 ms instead of 43 for the
        network (H200, 64 pages); timing takes 3 s.
        """
        if self._graph is not None:
            return self._graph(pixels)
        if self._tuned:
            return self._forward(pixels)
        self._tuned = True
        with _TUNING:
            # An algorithm may request any amount of scratch space, so there is a limit.
            device = pixels.device
            limit = min(1.0, TUNING_MEMORY / torch.cuda.get_device_properties(device).total_memory)
            torch.cuda.set_per_process_memory_fraction(limit, device)
            torch.backends.cudnn.benchmark = True
            try:
                return self._forward(pixels)
            except torch.OutOfMemoryError:
                # The batch itself needs more than the limit, so it runs without tuning.
                pass
            finally:
                torch.backends.cudnn.benchmark = False
                torch.cuda.set_per_process_memory_fraction(1.0, device)
                torch.cuda.empty_cache()
            return self._forward(pixels)

    def _forward(self, pixels: torch.Tensor) -> RawOutputs:
        try:
            return self._run(pixels)
        except torch.OutOfMemoryError:
            raise
        except ReluFusionError as error:
            # Only one small convolution was tried at the start, and cuDNN may refuse another shape.
            unfuse_relu(self._network)
            fall_back(self.fallbacks, "ReLU not fused", first_line(error))
            if self._run is not self._eager:
                self._run = torch.compile(self._eager, dynamic=False)
            return self._forward(pixels)
        except Exception as error:
            if self._run is self._eager:
                raise
            # Compilers fail in many ways; if the network itself is at fault, eager mode raises the error again.
            self._run = self._eager
            fall_back(self.fallbacks, "not compiled", first_line(f"{type(error).__name__}: {error}"))
        return self._eager(pixels)

    def _now(self) -> float:
        """Return the time once the device has finished its work."""
        if self._on_gpu:
            # A plain wait would keep a core busy that could decode.
            done = torch.cuda.Event(blocking=True)
            done.record(torch.cuda.current_stream(self._device))
            done.synchronize()
        return time.perf_counter()


class CudaGraph:
    """The kernels of `run` for one shape of batch, recorded once and launched as one.

    Otherwise the interpreter would launch each kernel, and the threads that decode pages compete for it. `run` must
    have made a pass over a batch of this shape before, so that its first-time loading and choices are not recorded.
    From then on, `pixels` belongs to the graph. Raises what torch raises if the pass cannot be recorded.
    """

    def __init__(self, run: Callable[[Tensor], RawOutputs], pixels: Tensor) -> None:
        self._pixels = pixels
        self._graph = torch.cuda.CUDAGraph()
        # Other threads may use their devices meanwhile, and their work must not become part of this graph.
        stream = torch.cuda.Stream(pixels.device)
        with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
            self._raw = run(self._pixels)

    def __call__(self, pixels: Tensor) -> RawOutputs:
        """Run one pass over a batch of the recorded shape.

        The next pass overwrites all outputs except the masks.
        """
        self._pixels.copy_(pixels)
        self._graph.replay()
        raw = self._raw
        if raw.mask_queries is None or raw.mask_features is None:
            return raw
        return raw._replace(mask_queries=raw.mask_queries.clone(), mask_features=raw.mask_features.clone())
