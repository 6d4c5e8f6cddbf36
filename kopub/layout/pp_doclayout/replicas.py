"""PP-DocLayoutV3 on several devices, with a replica on each; batches go to a free one."""

import copy
import gc
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

from kopub.errors import EngineError
from kopub.layout.pp_doclayout.model import NO_GPU, Outputs, PageModel, StageSeconds, fall_back
from kopub.layout.pp_doclayout.page_regions import PageFindings, PageInput, PageRules, find_regions
from kopub.parallel import BackgroundTask

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kopub.layout.pp_doclayout.model import Pixels


_FOR_EVERY_GPU = 1
"""The flag `cudaHostRegisterPortable` of CUDA."""
ALL = "all"
"""The name for all GPUs that CUDA_VISIBLE_DEVICES lets this process see."""


class Replicas:
    """A `PageModel` on each of several devices, used as one.

    Batches go, in order, to a free device. The first device takes over `network`, and the others run copies of it.
    `options` are those of `PageModel`. First passes begin at once. A thread finds the regions in the outputs of a batch
    while the devices run the next ones.
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
        one = len(self._models) == 1
        return self._not_pinned + [
            what if one else f"{device}: {what}"
            for device, model in zip(self._devices, self._models, strict=True)
            for what in model.fallbacks
        ]

    @property
    def memory_peak(self) -> int:
        """Most bytes allocated at once on any one GPU; 0 without a GPU."""
        return max(model.memory_peak for model in self._models)

    def pin(self, memory: "NDArray[np.uint8]") -> None:
        """Let the GPUs read pages submitted from `memory` directly."""
        if any(device.startswith("cuda") for device in self._devices) and (error := pin(memory)):
            fall_back(self._not_pinned, "pages not pinned", f"CUDA error {error}")

    def submit(self, pages: Sequence[PageInput], pixels: "Pixels") -> Future[list[PageFindings]]:
        """Find the regions of decoded pages on the first free device.

        `pixels` are those of the pages, see `PageModel.submit`. The future holds anything that the model raised.
        """
        return self._finder.submit(self._found, pages, self._threads.submit(self._run, pixels))

    def _found(self, pages: Sequence[PageInput], outputs: Future[Outputs]) -> list[PageFindings]:
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
        """Wait for the batches in progress, and free the memory on every device."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._finder.shutdown(wait=True, cancel_futures=True)
        for model in self._models:
            model.close()


def named_devices(device: str) -> list[str]:
    """Return the devices that `layout.device` names.

    It names one, several separated by commas, or `ALL`. Raises `EngineError` for `ALL` if there is none.
    """
    if device != ALL:
        return [name.strip() for name in device.split(",") if name.strip()]
    import torch

    count = torch.cuda.device_count()
    if not count:
        raise EngineError(NO_GPU)
    return [f"cuda:{index}" for index in range(count)]


def visible_gpus(device: str) -> int:
    """Count the GPUs among the devices of `layout.device`; 0 if none is visible."""
    try:
        return len({name for name in named_devices(device) if name.startswith("cuda")})
    except EngineError:
        return 0


def import_packages(devices: Sequence[str] = ()) -> None:
    """Import what `load` needs, while CUDA starts on `devices`, which takes a second."""
    # Garbage collection would take a quarter of the time.
    gc.disable()
    try:
        import torch  # noqa: F401

        for device in devices:
            if device.startswith("cuda"):
                BackgroundTask(partial(_begin_gpu, device))  # loading the model reports any error
        from transformers import PPDocLayoutV3ForObjectDetection  # noqa: F401
    finally:
        gc.enable()


def _begin_gpu(device: str) -> None:
    """Start CUDA, cuDNN and cuBLAS on a device."""
    import torch

    one = torch.ones(8, 8, 8, 8, dtype=torch.float16, device=device)
    torch.nn.functional.conv2d(one, one)
    torch.matmul(one, one)
    torch.cuda.synchronize(device)


def pin(memory: "NDArray[np.uint8]") -> int:
    """Let GPUs read host memory without the driver's copy; return CUDA's error, or 0."""
    import torch

    cudart: Any = torch.cuda.cudart()
    # CUDA keeps an error for the thread that caused it, so this must not be a thread that runs a network.
    return int(cudart.cudaHostRegister(memory.ctypes.data, memory.nbytes, _FOR_EVERY_GPU))
