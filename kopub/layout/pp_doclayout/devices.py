"""The devices of PP-DocLayoutV3, what loading it imports, and what goes wrong on them.

PyTorch is imported only where it is needed, because a run that has the model in a process of its own never imports it.
"""

import gc
import threading
import warnings
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

from kopub.errors import EngineError, first_line
from kopub.parallel import BackgroundTask

ALL = "all"
"""The name for all GPUs that CUDA_VISIBLE_DEVICES lets this process see."""
NO_GPU = "no CUDA GPU is visible here; use a profile without one, or set layout.device to cpu"


def batch_error(error: BaseException) -> EngineError:
    """Return the error to report for a batch that raised `error`."""
    if isinstance(error, EngineError):
        return error
    return EngineError("the layout model stopped: {error}", first_line(f"{type(error).__name__}: {error}"))


def fall_back(fallbacks: list[str], what: str, why: str) -> None:
    """Note that layout continues in a slower way, and warn about it."""
    fallbacks.append(what)
    warnings.warn(f"layout: {what}, which is slower: {why}", RuntimeWarning, stacklevel=2)


class StageSeconds(defaultdict[str, float]):
    """Seconds by stage, to which the threads of several devices add."""

    def __init__(self) -> None:
        super().__init__(float)
        self._lock = threading.Lock()

    def add(self, stage: str, seconds: float) -> None:
        with self._lock:
            self[stage] += seconds


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
