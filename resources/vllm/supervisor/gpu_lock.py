"""The locks on GPUs: one server at a time, or all that fit beside others. Standard library only.

The kernel drops a lock with the last process that holds its descriptor, however that process ends.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_REQUEST_SECONDS = 5.0
"""A waiting supervisor renews its request every `POLL` seconds, so one this old has been given up."""


@contextmanager
def hold_gpus(
    runtime: Path, gpus: Sequence[str], share: bool, wait: Callable[[str], None]
) -> Iterator[tuple[int, ...]]:
    """Hold the locks of `gpus`; yields their descriptors, which child processes may inherit.

    `wait(gpu)` is called until the GPU is free, and ends the wait by raising. All supervisors lock their GPUs in the
    same order, and one that nobody uses gives way to a request, so none waits in a circle.
    """
    with _opened(runtime, gpus, "") as files:
        for gpu, file in files.items():
            while not _locked(file, fcntl.LOCK_SH if share else fcntl.LOCK_EX):
                _request(runtime, gpu).touch()
                wait(gpu)
        yield tuple(files.values())


@contextmanager
def hold_starts(runtime: Path, gpus: Sequence[str], alone: bool, wait: Callable[[str], None]) -> Iterator[None]:
    """Start a server on `gpus` beside others that start there, or `alone`: when their starts are over.

    `wait(gpu)` is called as in `hold_gpus`. No start goes on while one is alone.
    """
    with _opened(runtime, gpus, ".starting") as files:
        for gpu, file in files.items():
            while not _locked(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH):
                wait(gpu)
        yield


def requested(runtime: Path, gpus: Sequence[str]) -> bool:
    """Return whether another server waits for one of the GPUs."""
    for gpu in gpus:
        try:
            if time.time() - _request(runtime, gpu).stat().st_mtime < _REQUEST_SECONDS:
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


@contextmanager
def _opened(runtime: Path, gpus: Sequence[str], suffix: str) -> Iterator[dict[str, int]]:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    files = {gpu: os.open(runtime / f"gpu-{gpu}{suffix}", flags, 0o600) for gpu in sorted(set(gpus))}
    try:
        yield files
    finally:
        for file in files.values():
            os.close(file)


def _request(runtime: Path, gpu: str) -> Path:
    return runtime / f"gpu-{gpu}.wanted"


def _locked(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
