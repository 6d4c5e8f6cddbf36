"""Turns on a GPU: one server specification at a time, or all that say they fit beside others. Standard library only."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_WISH_SECONDS = 5.0
"""A wish is renewed every `POLL` seconds, so one this old has been given up."""


class Turn:
    """The right to use GPUs, which can be given up for a while; processes that inherit `descriptors` keep it too.

    `wait(gpu)` is called until the GPU is free, and ends the wait by raising. All take their GPUs
    in the same order, and a holder nobody uses gives way to a wish, so none waits in a circle.
    """

    def __init__(self, runtime: Path, gpus: Sequence[str], share: bool, wait: Callable[[str], None]) -> None:
        self._runtime = runtime
        self._kind = fcntl.LOCK_SH if share else fcntl.LOCK_EX
        self._wait = wait
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._files = {gpu: os.open(runtime / f"gpu-{gpu}", flags, 0o600) for gpu in sorted(set(gpus))}

    @property
    def descriptors(self) -> tuple[int, ...]:
        return tuple(self._files.values())

    def take(self) -> None:
        """Hold the GPUs. A lock belongs to the open file, so it is held again for all who share a descriptor."""
        for gpu, file in self._files.items():
            while not _locked(file, self._kind):
                _wish(self._runtime, gpu).touch()
                self._wait(gpu)

    def give(self) -> None:
        """Let others use the GPUs, though processes that inherited a descriptor live on."""
        for file in self._files.values():
            fcntl.flock(file, fcntl.LOCK_UN)

    def close(self) -> None:
        for file in self._files.values():
            os.close(file)


@contextmanager
def turn(runtime: Path, gpus: Sequence[str], share: bool, wait: Callable[[str], None]) -> Iterator[Turn]:
    """A `Turn` that is taken."""
    mine = Turn(runtime, gpus, share, wait)
    try:
        mine.take()
        yield mine
    finally:
        mine.close()


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


def _locked(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
