"""PP-DocLayoutV3 on several devices at once: a replica on each, batches to whichever is free, regions out."""

import copy
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from resources.layout.pp_doclayout.model import Outputs, PageModel, StageSeconds, fall_back, pin
from resources.layout.pp_doclayout.page_regions import Found, PageRules, find_regions
from resources.layout.pp_doclayout.preprocess import Prepared

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from resources.layout.pp_doclayout.model import Pixels


class Replicas:
    """A `PageModel` on each of some devices, used as one: batches go to whichever is free, in their order.

    `network` is used up; the others run copies of it. `options` are those of `PageModel`. Their first passes begin
    at once. A thread finds the regions in the outputs of a batch while the devices run the next ones.
    """

    def __init__(self, network: Any, devices: Sequence[str], rules: PageRules, **options: Any) -> None:
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
        self._rules = rules
        self._finder = ThreadPoolExecutor(1, "layout-regions")
        self._devices = tuple(devices)
        self._not_pinned: list[str] = []

    @property
    def under_way(self) -> int:
        """Batches that keep all busy: one in each device, one that waits for it, one whose regions are found."""
        return len(self._models) + 2

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
        if any(device.startswith("cuda") for device in self._devices) and (error := pin(memory)):
            fall_back(self._not_pinned, "pages not pinned", f"CUDA error {error}")

    def submit(self, pages: Sequence[Prepared], pixels: "Pixels") -> Future[list[Found]]:
        """What is found on decoded pages, by the device that is free first.

        `pixels` are those of the pages, see `PageModel.submit`. The future holds what the model raised.
        """
        return self._finder.submit(self._found, pages, self._threads.submit(self._run, pixels))

    def _found(self, pages: Sequence[Prepared], outputs: Future[Outputs]) -> list[Found]:
        made = outputs.result()
        started = time.perf_counter()
        found = find_regions(pages, made, self._rules)
        self.seconds.add("post", time.perf_counter() - started)
        return found

    def _run(self, pixels: "Pixels") -> Outputs:
        # There are as many threads as models, so one is always free, once it has made its first pass.
        model = self._free.get()
        try:
            return model.submit(pixels).result()
        finally:
            self._free.put(model)

    def close(self) -> None:
        """Wait for the batches under way, and give the memory of every device back."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._finder.shutdown(wait=True, cancel_futures=True)
        for model in self._models:
            model.close()
