"""A writer of a history's tables that is stopped while it holds locks, which another one takes over."""

import itertools
import json
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
from fsspec.implementations.local import LocalFileSystem

from kopub.errors import LockLost
from kopub.files import replace_bytes
from kopub.store import locks, table_store
from kopub.store.append_log import AppendLog
from kopub.store.locks import LEASE_TTL_S, ObjectLock
from kopub.store.objects import Objects
from kopub.store.table_store import JOURNAL
from tests.support.histories import TABLES, CorpusHistory
from tests.support.processes.forked import CONTEXT
from tests.support.waiting import SOON, until


def make_beside_stopped(
    history: CorpusHistory, assets: Sequence[str], checks: int, is_late: bool, others: Sequence[str]
) -> None:
    """Make tables while another writer is stopped in the middle of a shard, and then wake that one up.

    It stops when it checks a lock after `checks` checks. If it `is_late`, its clock went on meanwhile; else it stood
    still too. Asserts that it says that it lost its lock, unless it may still publish because nobody else has, and that
    it leaves the journal of that shard alone.
    """
    told = history.home / "told.json"
    fields = {name: getattr(history, name) for name in ("home", "layout", "recognition", "embedding", "profile")}
    writer = CONTEXT.Process(target=_make, args=(fields, assets, checks, is_late, told))
    writer.start()
    assert writer.pid is not None
    until(lambda: writer.exitcode is not None or _is_stopped(writer.pid or 0))
    tables = _tables(history)
    if writer.exitcode is None:
        # Whoever takes a lock over replaces the file that says who holds it.
        for holder in (history.home / "store").glob(".locks/*.lease/holder"):
            holder.unlink()
        history.materialize(others)
        history.assert_sound()
    journals = history.store.parts(JOURNAL)
    before, now = set(journals.names()), _tables(history)
    if writer.exitcode is None:
        os.kill(writer.pid, signal.SIGCONT)
        writer.join(SOON)
    assert writer.exitcode == 0
    said = json.loads(told.read_text())
    for stopped in said["stopped"]:
        if stopped not in said["lost"]:
            assert tables.get(stopped) == now.get(stopped), f"{stopped} was another's, and it did not say so"
            continue
        gone = {name for name in before - set(journals.names()) if name.startswith(f"{stopped.replace('.', '/')}/")}
        # It takes back what it was writing when it was stopped, and nothing else.
        assert len(gone) <= 1, "it took rows out of the journal of a table that it had lost"


def _tables(history: CorpusHistory) -> dict[str, str]:
    """Return a mark of each table's file."""
    return {f"{asset}.{shard}": mark for asset in TABLES for shard, mark in history.store.published(asset).items()}


def _is_stopped(process: int) -> bool:
    # One that has ended is gone a moment before its exit code is there.
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(process).status() == psutil.STATUS_STOPPED
    return False


class _Lease(ObjectLock):
    """A lock as on object storage, of a table on a disk, which is replaced only while it is the one before."""

    def publish(self, path: str, content: bytes, is_first: bool = False) -> None:
        before = _mark(Path(path))
        self.confirm()
        if _mark(Path(path)) != before:
            self._lost = True
            self.check()
        replace_bytes(Path(path), content)


def _mark(path: Path) -> tuple[int, int] | None:
    return (path.stat().st_mtime_ns, path.stat().st_ino) if path.exists() else None


def _make(fields: Mapping[str, Any], assets: Sequence[str], checks: int, is_late: bool, told: Path) -> None:
    """Make tables in this process, and let it stop.

    `told` gets the table whose lock was checked when it stopped, and the tables that it says it lost.
    """
    history, seen, stopped = CorpusHistory(**fields), itertools.count(), list[str]()
    check, clear = ObjectLock.check, AppendLog.clear

    def checked(lock: ObjectLock) -> None:
        if next(seen) == checks:
            stopped.append(Path(lock._folder).name.removesuffix(".lock.lease"))
            os.kill(os.getpid(), signal.SIGSTOP)
            for held in locks._locks.values():
                if is_late and isinstance(held, ObjectLock):
                    held._beaten -= LEASE_TTL_S
        check(lock)

    def confirmed(log: AppendLog) -> None:
        # As on object storage, where a journal is never cleared without the lock.
        log._confirm()
        clear(log)

    def lease(path: str, what: str) -> _Lease:
        return _Lease(Objects(LocalFileSystem(auto_mkdir=True, skip_instance_cache=True)), f"{path}.lease", what)

    with (
        patch.object(table_store, "DiskLock", lease),
        patch.object(ObjectLock, "check", checked),
        patch.object(AppendLog, "clear", confirmed),
    ):
        history.materialize(assets)
    lost = [f"{asset}.{shard}" for (asset, shard), error in history.failed.items() if isinstance(error, LockLost)]
    told.write_text(json.dumps({"stopped": stopped, "lost": lost}))
