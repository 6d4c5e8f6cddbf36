"""PP-DocLayoutV3 on several devices at once: a replica on each, batches to whichever is free."""

import copy
import warnings
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from resources.layout.pp_doclayout.model import Outputs, PageModel, StageSeconds, pin

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from resources.layout.pp_doclayout.model import Pixels


class Replicas:
    """A `PageModel` on each of some devices, used as one: batches go to whichever is free, in their order.

    `network` is used up; the others run copies of it. `options` are those of `PageModel`. Their first passes begin
    at once.
    """

    def __init__(self, network: Any, devices: Sequence[str], **options: Any) -> None:
        self.seconds = StageSeconds()
        networks = [network, *(copy.deepcopy(network) for _ in devices[1:])]
        self._models = [
            PageModel(each, device=device, seconds=self.seconds, **options)
            for each, device in zip(networks, devices, strict=True)
        ]
        self._free: SimpleQueue[PageModel] = SimpleQueue()
        for model in self._models:
            # They tune one after the other, and the first that has done so begins.
            model.first_pass().add_done_callback(lambda _, model=model: self._free.put(model))
        self._threads = ThreadPoolExecutor(len(devices), "layout-replica")
        self._devices = tuple(devices)
        self._not_pinned: list[str] = []

    @property
    def under_way(self) -> int:
        """Batches that keep every device busy: one in each, and one that waits for the first to be free."""
        return len(self._models) + 1

    @property
    def batch_size(self) -> int:
        """Pages of one batch; a device that had to halve its own takes several passes."""
        return max(model.batch_size for model in self._models)

    @property
    def fallbacks(self) -> list[str]:
        """What happened on the devices, by device where there are several."""
        one = len(self._models) == 1
        return self._not_pinned + [
            what if one else f"{device}: {what}"
            for device, model in zip(self._devices, self._models, strict=True)
            for what in model.fallbacks
        ]

    @property
    def memory_peak(self) -> int:
        """Most bytes of memory that were allocated on one GPU at once; 0 without a GPU."""
        return max(model.memory_peak for model in self._models)

    def pin(self, memory: "NDArray[np.uint8]") -> None:
        """Let the GPUs read what is submitted of `memory` directly."""
        if any(device.startswith("cuda") for device in self._devices) and not pin(memory):
            self._not_pinned = ["pages not pinned"]
            warnings.warn("layout: pages not pinned, which is slower", RuntimeWarning, stacklevel=2)

    def submit(self, pages: "Pixels") -> "Future[Outputs]":
        """As `PageModel.submit`, on the device that is free first."""
        return self._threads.submit(self._run, pages)

    def _run(self, pages: "Pixels") -> Outputs:
        # There are as many threads as models, so one is always free, once it has made its first pass.
        model = self._free.get()
        try:
            return model.submit(pages).result()
        finally:
            self._free.put(model)

    def close(self) -> None:
        """Wait for the batches under way, and give the memory of every device back."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        for model in self._models:
            model.close()
