"""The locks that this process holds, by what they are of. In one process a thread waits for another without asking."""

import threading

from resources.errors import TableBusy
from resources.store.locks.protocol import Lock

_held: dict[str, Lock | None] = {}
_changed = threading.Condition()


def acquire(path: str, lock: Lock, what: str, wait: bool) -> None:
    """Take the lock of `path`, once no other thread has it. Raises `TableBusy` without `wait`, and `StoreError`."""
    with _changed:
        while path in _held:
            if not wait:
                raise TableBusy(f"{what} is being made by another run")
            _changed.wait()
        _held[path] = None
    try:
        lock.acquire(wait)
    except BaseException:
        _forget(path)
        raise
    _held[path] = lock


def release(path: str) -> None:
    lock = _held[path]
    try:
        if lock is not None:
            lock.release()
    finally:
        _forget(path)


def find(path: str) -> Lock | None:
    """The lock of `path`, where this process holds it."""
    return _held.get(path)


def _forget(path: str) -> None:
    with _changed:
        del _held[path]
        _changed.notify_all()
