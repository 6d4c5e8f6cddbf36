"""Locks on tables, on a local disk and on object storage.

On a disk, the system releases a lock when its process ends, however it ends. On object storage, the file
`<folder>/holder` names the process that has the lock, and the process that creates it gets the lock. The holder keeps
rewriting `beat-<id>`. A waiter that sees no change in the folder for the time that the holder stated takes the lock
over: it creates `after-<id of the holder>`, which only one waiter can do, and then writes itself into `holder`. So no
node's clock is compared with another's; all clocks must only run equally fast.

A holder that could not write its beat for most of that time has lost the lock, whether or not another process wanted
it. This covers a process that was stopped and continued. A holder asks the storage once more before it publishes, and
S3 itself refuses to replace a file that changed since.
"""

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock, Timeout
from pydantic import BaseModel, ValidationError

from kopub.errors import BusyTable, LockLost, StoreError
from kopub.files import cannot_write
from kopub.store.objects import Objects


class Lock(Protocol):
    """The right of one writer to make a table, for which others wait."""

    def acquire(self, wait: bool) -> None:
        """Take the lock.

        Without `wait`, raises `BusyTable` if another process has it. Raises `StoreError`.
        """

    def release(self) -> None:
        """Release the lock, unless it was lost."""

    def check(self) -> None:
        """Raise `LockLost` if this process may have lost the lock, without asking the storage."""

    def confirm(self) -> None:
        """Check the lock, and ask the storage who holds it, before anything is published.

        Raises `LockLost`, `StoreError`.
        """


_locks: dict[str, Lock | None] = {}
_changed = threading.Condition()


def acquire_lock(path: str, lock: Lock, what: str, wait: bool) -> None:
    """Take the lock of `path` once no other thread has it.

    Without `wait`, raises `BusyTable` instead of waiting. Raises `StoreError`.
    """
    with _changed:
        while path in _locks:
            if not wait:
                raise BusyTable("{table} is being made by another run", what)
            _changed.wait()
        _locks[path] = None
    try:
        lock.acquire(wait)
    except BaseException:
        _forget(path)
        raise
    _locks[path] = lock


def release_lock(path: str) -> None:
    lock = _locks[path]
    try:
        if lock is not None:
            lock.release()
    finally:
        _forget(path)


def find_lock(path: str) -> Lock | None:
    """Return the lock of `path` if this process holds it."""
    return _locks.get(path)


def _forget(path: str) -> None:
    with _changed:
        del _locks[path]
        _changed.notify_all()


class DiskLock(Lock):
    """A locked file at `path`; `what` describes what it protects.

    A thread other than the one that took it may release it. There is nothing to check: a lock on a disk is never lost.
    """

    def __init__(self, path: str, what: str) -> None:
        self._path, self._what = path, what
        self._file = FileLock(path, thread_local=False)

    def acquire(self, wait: bool) -> None:
        try:
            os.makedirs(Path(self._path).parent, exist_ok=True)
            self._file.acquire(blocking=wait)
        except Timeout:
            raise BusyTable("{table} is being made by another run", self._what) from None
        except OSError as error:
            raise StoreError(cannot_write(self._path, error)) from error

    def release(self) -> None:
        self._file.release()


_COUNTS_SLEEP = getattr(time, "CLOCK_BOOTTIME", None)


def now() -> float:
    """Return seconds since a fixed moment, comparable on this machine only."""
    return time.monotonic() if _COUNTS_SLEEP is None else time.clock_gettime(_COUNTS_SLEEP)


LEASE_TTL_S = 120.0
"""Seconds without a beat after which a lock is taken over: longer than a storage outage of a minute."""
_BEATS = 6
"""Number of beats in that time."""
_OWN_SHARE = 0.8
"""Share of that time after which a holder without a beat gives up its lock, before others take it over."""
_POLLS = 60
"""Number of checks by a waiter in that time; and the most seconds between two checks."""
_LONGEST_POLL = 2.0
_BEAT_UNDER_WAY = 5.0
"""Seconds that a release waits for a beat being written, so that none is left behind."""
_log = logging.getLogger(__name__)
_tested: set[str] = set()
"""Roots of stores known to refuse a second create."""


class _Holder(BaseModel):
    """The holder of a lock: its id, its place, and its seconds without a beat."""

    id: str
    host: str
    pid: int
    lives: float

    def content(self) -> bytes:
        return self.model_dump_json().encode()


class ObjectLock:
    """A lock whose objects are in `folder`; `what` describes what it protects.

    A thread other than the one that took it may release it.
    """

    def __init__(self, objects: Objects, folder: str, what: str, lives: float | None = None) -> None:
        self._objects, self._folder, self._what = objects, folder, what
        self._holder_path = f"{folder}/holder"
        lives = LEASE_TTL_S if lives is None else lives
        self._self = _Holder(id=uuid.uuid4().hex, host=socket.gethostname(), pid=os.getpid(), lives=lives)
        self._beaten = 0.0
        self._lost = self._took_over = self._beats = False
        self._released = threading.Event()
        self._heart = threading.Thread(target=self._beat, name=f"lock {what}", daemon=True)

    def acquire(self, wait: bool) -> None:
        self._beaten = now()
        if not self._create():
            if not wait:
                raise BusyTable("{table} is being made by another run", self._what)
            self._wait()
        self._heart.start()

    def release(self) -> None:
        self._released.set()
        self._heart.join(_BEAT_UNDER_WAY)
        if self._lost or self._is_late():
            return
        if self._took_over or self._beats:
            for name in self._signs().keys() - {"holder"}:
                self._remove(f"{self._folder}/{name}")
        self._remove(self._holder_path)

    def check(self) -> None:
        if self._is_late():
            self._lost = True
        if self._lost:
            form = (
                "{table} was not published: this run was stopped, or cut off from the storage, for so long that its "
                "lock ran out and another run may make it: run again"
            )
            raise LockLost(form, self._what)

    def confirm(self) -> None:
        self.check()
        holder = self._read(self._holder_path)
        self._lost = holder is None or holder.id != self._self.id
        self.check()

    def publish(self, path: str, content: bytes, is_first: bool = False) -> None:
        """Write a file that the lock protects, unless another process wrote it meanwhile.

        It `is_first` if there was none when the lock was taken. Raises `LockLost`, `StoreError`.
        """
        # Whoever takes the lock over after it was confirmed changes the mark before this process wakes up.
        mark = None if is_first else self._objects.mark(path)
        self.confirm()
        if not self._objects.conditional:
            self._objects.put(path, content)
        elif not self._objects.replace(path, content, mark):
            self._lost = True
            self.check()

    def _is_late(self) -> bool:
        return now() - self._beaten > _OWN_SHARE * self._self.lives

    def _create(self) -> bool:
        mine = self._self.content()
        if not self._objects.create(self._holder_path, mine):
            return False
        store = self._folder.rpartition("/.locks/")[0]
        if store not in _tested:
            other = self._self.model_copy(update={"id": uuid.uuid4().hex}).content()
            if self._objects.create(self._holder_path, other) or (
                self._objects.conditional and self._objects.replace(self._holder_path, other, "0" * 32)
            ):
                self._remove(self._holder_path)
                form = (
                    "{store} writes over what it was asked to write only if it is new or unchanged (If-None-Match, "
                    "If-Match), so two runs could make the same table: use a storage that refuses that"
                )
                raise StoreError(form, store)
            _tested.add(store)
        return True

    def _wait(self) -> None:
        """Wait until the holder is done or has shown no life for too long."""
        last_signs, since, holder, has_logged = self._signs(), now(), self._read(self._holder_path), False
        while True:
            if holder is not None and not has_logged:
                _log.info("%s is being made by process %s of %s: waiting", self._what, holder.pid, holder.host)
                has_logged = True
            lives = self._self.lives if holder is None else holder.lives
            time.sleep(min(lives / _POLLS, _LONGEST_POLL))
            looked, signs = now(), self._signs()
            if "holder" not in signs:
                self._beaten = now()
                if self._create():
                    return
            if signs != last_signs:
                last_signs, since, holder = signs, looked, self._read(self._holder_path)
            elif holder is not None and looked - since > lives:
                self._beaten = now()
                if self._take_over(holder):
                    return
                since = looked

    def _take_over(self, holder: _Holder) -> bool:
        """Take the lock over, unless another waiter was first; return whether it succeeded."""
        last = holder
        while (after := self._read(self._after(last))) is not None:
            last = after  # this waiter was about to take over the lock, and died
        if not self._objects.create(self._after(last), self._self.content()):
            return False
        still = self._read(self._holder_path)
        if still is None or still.id != holder.id:
            self._remove(self._after(last))
            return False
        self._took_over = True
        self._objects.put(self._holder_path, self._self.content())
        _log.warning(
            "%s: process %s of %s showed no sign of life for %.0f s, its lock is taken over",
            self._what,
            holder.pid,
            holder.host,
            holder.lives,
        )
        return True

    def _beat(self) -> None:
        """Write beats at intervals until the lock is released or lost."""
        pause, count = self._self.lives / _BEATS, 0
        while not self._released.wait(pause):
            if self._lost or self._is_late():
                return
            begun, count = now(), count + 1
            try:
                self._beats = True
                self._objects.put(f"{self._folder}/beat-{self._self.id}", str(count).encode(), patience=pause)
                holder = self._read(self._holder_path)
            except StoreError as error:
                _log.warning("%s: its lock cannot be kept alive just now: %s", self._what, error)
                continue
            if holder is None or holder.id != self._self.id:
                self._lost = not self._released.is_set()
                return
            self._beaten = begun

    def _after(self, holder: _Holder) -> str:
        return f"{self._folder}/after-{holder.id}"

    def _signs(self) -> Mapping[str, Any]:
        """Return the objects in the folder, each with a mark that identifies its version."""
        signs = {}
        for entry in self._objects.listed(self._folder):
            name = str(entry["name"]).rpartition("/")[2]
            signs[name] = tuple(f"{key}={entry[key]}" for key in sorted(entry))
        return signs

    def _read(self, path: str) -> _Holder | None:
        try:
            return _Holder.model_validate_json(self._objects.get(path))
        except FileNotFoundError:
            return None
        except ValidationError:
            raise StoreError("{path} is no lock: remove it when no run is under way", path) from None

    def _remove(self, path: str) -> None:
        try:
            self._objects.remove(path)
        except FileNotFoundError:
            return
