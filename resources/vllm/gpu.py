"""Turns on a GPU: one server specification at a time, or all that say they fit beside others. Standard library only."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from resources.vllm.folder import try_lock

_WISH_SECONDS = 5.0
"""A wish is renewed every `POLL` seconds, so one this old has been given up."""


@contextmanager
def turn(runtime: Path, gpus: Sequence[str], share: bool, wait: Callable[[str], None]) -> Iterator[tuple[int, ...]]:
    """Hold the GPUs; the descriptors keep them held in any process that inherits one.

    `wait(gpu)` is called until the GPU is free, and ends the wait by raising. All take their GPUs
    in the same order, and a holder nobody uses gives way to a wish, so none waits in a circle.
    """
    held: list[int] = []
    try:
        for gpu in sorted(set(gpus)):
            while (fd := try_lock(runtime / f"gpu-{gpu}", fcntl.LOCK_SH if share else fcntl.LOCK_EX)) is None:
                _wish(runtime, gpu).touch()
                wait(gpu)
            held.append(fd)
        yield tuple(held)
    finally:
        for fd in held:
            os.close(fd)


def wanted(runtime: Path, gpus: Sequence[str]) -> bool:
    """Whether another server waits for one of the GPUs."""
    for gpu in gpus:
        try:
            if time.time() - _wish(runtime, gpu).stat().st_mtime < _WISH_SECONDS:
                return True
        except FileNotFoundError:
            continue
    return False


def visible(indexes: Sequence[int], visible_devices: str | None) -> tuple[str, ...]:
    """Names of GPUs, as CUDA_VISIBLE_DEVICES takes them, from their indexes among those this process may use."""
    if visible_devices is None:
        return tuple(str(index) for index in indexes)
    names = [name.strip() for name in visible_devices.split(",") if name.strip()]
    missing = [index for index in indexes if index >= len(names)]
    if missing:
        raise ValueError(f"GPU {missing[0]} is asked for, but CUDA_VISIBLE_DEVICES is {visible_devices!r}")
    return tuple(names[index] for index in indexes)


def _wish(runtime: Path, gpu: str) -> Path:
    return runtime / f"gpu-{gpu}.wanted"
