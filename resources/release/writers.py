"""Which shards of a release are being written just now, by which process ever on this machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


@contextmanager
def written(root: Path, shard: str) -> Iterator[None]:
    """Say that `shard` of the release in `root` is being written; a process that is killed says so no longer."""
    lock = _folder(root) / f"{shard}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(lock):
        yield


def wait(root: Path, seconds: float) -> bool:
    """Wait until no shard is being written, for at most `seconds` each; whether one was."""
    waited = False
    for lock in sorted(_folder(root).glob("*.lock")):
        try:
            with FileLock(lock, timeout=0):
                continue
        except Timeout:
            waited = True
        except OSError:
            # Whoever may not write there cannot ask; a copy that is only read has no writers.
            continue
        try:
            with FileLock(lock, timeout=seconds):
                pass
        except Timeout:
            continue
    return waited


def _folder(root: Path) -> Path:
    """Beside the release, so that it is no part of it. A release may be called `.` by whoever is in its folder."""
    whole = root.resolve()
    return whole.parent / f"{whole.name}.locks"
