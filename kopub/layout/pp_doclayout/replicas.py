"""PP-DocLayoutV3 on several devices, with a replica on each; batches go to a free one."""

import copy
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kopub.layout.pp_doclayout.devices import StageSeconds, fall_back
from kopub.layout.pp_doclayout.model import LayoutModel, Outputs, Pixels
from kopub.layout.pp_doclayout.page_regions import Findings, LayoutRules, ModelInput, find_regions

_FOR_EVERY_GPU = 1
"""The flag `cudaHostRegisterPortable` of CUDA."""


class Replicas:
    """A `LayoutModel` on each of several devices, used as one.

    Batches go, in order, to a free device. The first device takes over `network`, and the others run copies of it.
    `options` are those of `LayoutModel`. First passes begin at once. A thread finds the regions in the outputs of a
    batch while the devices run the next ones.
    """

    def __init__(self, network: Any, devices: Sequence[str], rules: LayoutRules, **options: Any) -> None:
        self.seconds = StageSeconds()
        networks = [network, *(copy.deepcopy(network) for _ in devices[1:])]
        self._models = [
            LayoutModel(own_network, device=device, seconds=self.seconds, **options)
            for own_network, device in zip(networks, devices, strict=True)
        ]
        self._free: SimpleQueue[LayoutModel] = SimpleQueue()
        for model in self._models:
            # The models tune one after another, and each starts work as soon as it has done so.
            model.first_pass().add_done_callback(lambda _, model=model: self._free.put(model))
        self._threads = ThreadPoolExecutor(len(devices), "layout-replica")
        self._rules = rules
        self._finder = ThreadPoolExecutor(1, "layout-regions")
        self._devices = tuple(devices)
        self._not_pinned: list[str] = []

    @property
    def under_way(self) -> int:
        """Batches that keep all busy: one per device, one waiting, one in post-processing."""
        return len(self._models) + 2

    @property
    def batch_size(self) -> int:
        """Pages of one batch; a device that had to halve its batches takes several passes."""
        return max(model.batch_size for model in self._models)

    @property
    def fallbacks(self) -> list[str]:
        """The fallbacks on the devices, prefixed with the device if there are several."""
        fallbacks = list(self._not_pinned)
        for device, model in zip(self._devices, self._models, strict=True):
            prefix = "" if len(self._models) == 1 else f"{device}: "
            fallbacks += [prefix + what for what in model.fallbacks]
        return fallbacks

    @property
    def memory_peak(self) -> int:
        """Most bytes allocated at once on any one GPU; 0 without a GPU."""
        return max(model.memory_peak for model in self._models)

    def pin(self, memory: NDArray[np.uint8]) -> None:
        """Let the GPUs read pages submitted from `memory` directly, without the driver's copy."""
        if any(device.startswith("cuda") for device in self._devices):
            cudart: Any = torch.cuda.cudart()
            # CUDA keeps an error for the thread that caused it, so this must not be a thread that runs a network.
            if error := int(cudart.cudaHostRegister(memory.ctypes.data, memory.nbytes, _FOR_EVERY_GPU)):
                fall_back(self._not_pinned, "pages not pinned", f"CUDA error {error}")

    def submit(self, pages: Sequence[ModelInput], pixels: Pixels) -> Future[list[Findings]]:
        """Find the regions of decoded pages on the first free device.

        `pixels` are those of the pages, see `LayoutModel.submit`. The future holds anything that the model raised.
        """
        return self._finder.submit(self._find, pages, self._threads.submit(self._run, pixels))

    def _find(self, pages: Sequence[ModelInput], batch: Future[Outputs]) -> list[Findings]:
        outputs = batch.result()
        started = time.perf_counter()
        findings = find_regions(pages, outputs, self._rules)
        self.seconds.add("post", time.perf_counter() - started)
        return findings

    def _run(self, pixels: Pixels) -> Outputs:
        # There are as many threads as models, so one is always free, once it has made its first pass.
        model = self._free.get()
        try:
            return model.submit(pixels).result()
        finally:
            self._free.put(model)

    def close(self) -> None:
        """Wait for the batches in progress, and free the memory on every device."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._finder.shutdown(wait=True, cancel_futures=True)
        for model in self._models:
            model.close()
