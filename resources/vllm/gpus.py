"""Which GPUs there are, without PyTorch: as CUDA_VISIBLE_DEVICES and nvidia-smi tell."""

import os
import subprocess
from functools import cache

from resources.errors import EngineError
from resources.vllm.supervisor.gpu_lock import visible

_SMI = ("nvidia-smi", "--query-gpu=index", "--format=csv,noheader")
_SECONDS = 30.0
"""nvidia-smi takes seconds where the driver is not kept loaded."""


def named_gpus(indexes: list[int]) -> tuple[str, ...]:
    """Names of GPUs, as CUDA_VISIBLE_DEVICES takes them, from their indexes. Raises `EngineError`."""
    try:
        return visible(indexes, os.environ.get("CUDA_VISIBLE_DEVICES"))
    except ValueError as error:
        raise EngineError(f"{error}; change the server's `gpus`") from None


def all_gpus() -> tuple[str, ...]:
    """The names of every GPU that this process may use. Raises `EngineError` where there is none."""
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None:
        return _of_this_machine(os.environ.get("PATH"))
    names = tuple(name.strip() for name in allowed.split(",") if name.strip())
    if not names:
        raise EngineError("the server's `gpus` are all, and CUDA_VISIBLE_DEVICES hides every one")
    return names


@cache
def _of_this_machine(path: str | None) -> tuple[str, ...]:
    """Asked once for each search path of programs."""
    try:
        told = subprocess.run(_SMI, capture_output=True, text=True, timeout=_SECONDS, check=True).stdout.split()
    except (OSError, subprocess.SubprocessError) as error:
        raise EngineError(
            f"the server's `gpus` are all, and nvidia-smi does not tell which there are ({error}); list their indexes"
        ) from None
    if not told:
        raise EngineError("the server's `gpus` are all, and nvidia-smi finds none")
    return tuple(told)
