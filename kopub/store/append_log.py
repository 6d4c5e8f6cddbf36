"""Append-only logs of small tables, and the journal of finished rows."""

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kopub.errors import DamagedTable, LockLost, StoreError, first_line
from kopub.states import Reason
from kopub.store.faults import is_damage
from kopub.store.locks import Lock
from kopub.store.objects import Objects

_DIGITS = 20
"""Digits of the nanosecond time with which a part's name begins, so that names sort by time."""


class AppendLog:
    """An append-only log: the Parquet files below one folder, by their relative names.

    `put` writes a whole file, or with `new` only one that is missing, and returns whether it did. `lock` returns the
    lock that this process holds on the log's table, or None if none is needed: a writer that lost its lock changes
    nothing and raises `LockLost`. A damaged file is set aside if the log only `saves_work`; if it holds rows that
    nobody can make again, reading it raises `DamagedTable`.
    """

    def __init__(
        self,
        objects: Objects,
        folder: str,
        put: Callable[[str, pa.Table, bool], bool],
        lock: Callable[[], Lock | None] = lambda: None,
        saves_work: bool = True,
    ) -> None:
        self._objects = objects
        self._folder = folder
        self._put = put
        self._lock = lock
        self._saves_work = saves_work
        self._listed: list[str] | None = None
        """Names found by the last listing, and those added since."""

    def names(self) -> list[str]:
        """Return the names of all files, sorted."""
        names = self._objects.below(self._folder)
        prefix = f"{self._folder}/"
        self._listed = sorted(path.removeprefix(prefix) for path in names if path.endswith(".parquet"))
        return list(self._listed)

    def expect_none(self) -> None:
        """Skip the listing before the first addition; any files that exist nevertheless stay."""
        self._listed = []

    def add(self, name: str, table: pa.Table, new: bool = False) -> bool:
        """Add a table under a name, and return whether it was added.

        A `new` name that another process has taken on object storage is left alone. Raises `StoreError` if the table
        cannot be written.
        """
        lock, path = self._lock(), f"{self._folder}/{name}"
        if lock is not None:
            lock.check()
        if not self._put(path, table, new):
            return False
        if lock is not None:
            try:
                lock.check()
            except LockLost:
                # The lock was lost during the write, as when a process is stopped, so nobody expects the file.
                with _removing(path):
                    self._objects.remove(path)
                raise
        if self._listed is not None:
            self._listed.append(name)
        return True

    def append(self, table: pa.Table, suffix: str = "") -> str:
        """Add a table after all others that this log has seen, and return its name.

        The order holds even if the clock was set back.
        """
        last = max((int(name[:_DIGITS]) for name in self.seen() if name[:_DIGITS].isdigit()), default=0)
        return self.insert(table, max(time.time_ns(), last + 1), suffix or uuid.uuid4().hex[:8])

    def insert(self, table: pa.Table, moment: int, suffix: str) -> str:
        """Add a table at a `moment` of its own, and return its name.

        The moment is in nanoseconds since 1970.
        """
        name = f"{moment:0{_DIGITS}d}-{suffix}.parquet"
        self.add(name, table)
        return name

    def read(self, choose: Callable[[Sequence[str]], Sequence[str]] = lambda names: names) -> list[pa.Table]:
        """Return the tables that `choose` selects from all names, in its order.

        A damaged table that only saves work is set aside.
        """
        names = self.names()
        while True:
            try:
                return [table for name in choose(names) if (table := self._read(name)) is not None]
            except FileNotFoundError as error:
                # A run has just replaced or removed these files.
                before, names = names, self.names()
                if names == before:
                    form = "{folder} lists a file that cannot be opened ({error}): delete it"
                    raise StoreError(form, self._folder, error) from None

    def remove(self, names: Iterable[str]) -> None:
        """Remove these files; a missing one counts as removed. Raises `StoreError`."""
        self._confirm()
        for name in names:
            path = f"{self._folder}/{name}"
            with _removing(path):
                self._objects.remove(path)

    def clear(self) -> None:
        """Remove the whole folder, including what killed writers left. Raises `StoreError`."""
        if not self._objects.local:
            paths = [f"{self._folder}/{name}" for name in self.seen()]
            if paths:
                self._confirm()
                self._objects.remove_all(paths)
            self._listed = []
            return
        with _removing(self._folder):
            self._objects.fs.rm(self._folder, recursive=True)

    def _confirm(self) -> None:
        if (lock := self._lock()) is not None:
            lock.confirm()

    def read_one(self, name: str) -> pa.Table | None:
        """Return the table with a name, or None if it is missing.

        A damaged table that only saves work is set aside and counts as missing.
        """
        try:
            return self._read(name)
        except FileNotFoundError:
            return None

    def seen(self) -> list[str]:
        """Return the names found by the last listing and those added since."""
        return self.names() if self._listed is None else list(self._listed)

    def _read(self, name: str) -> pa.Table | None:
        path = f"{self._folder}/{name}"
        content = self._objects.get(path)
        try:
            # `read_table` would load Arrow's datasets, and with them pandas, to read one small file. Arrow's threads
            # are not used, because one that releases `content` while Python exits aborts the process.
            return pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True).read(use_threads=False)
        except Exception as error:
            if not is_damage(error):
                raise
            if not self._saves_work:
                form = "{path} is damaged ({error}); restore it from a backup"
                raise DamagedTable(form, path, first_line(error)) from None
            self._objects.set_aside(path, first_line(error))
            return None


@contextmanager
def _removing(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError("{path} cannot be removed ({error}): remove it", path, error.strerror or error) from error


REASONS = ".reasons"
"""Folder of the logs of reasons, by asset: the tables hold the English sentences alone.

A sentence that was stored before its form was kept is said in English.
"""
_REASONS = pa.schema([pa.field("reason", pa.string(), nullable=False)])
_MOST_PARTS = 16
"""Most files of an asset before they are merged."""


def reasons_in(row: dict[str, Any]) -> set[Reason]:
    """Return the reasons in a row and in its doubts, regions, notes or figures."""
    reasons: set[Reason] = set()
    for value in row.values():
        for part in value if isinstance(value, list | tuple) else (value,):
            reason = part.get("reason") if isinstance(part, dict) else part
            if isinstance(reason, Reason):
                reasons.add(reason)
    return reasons


def keep_reasons(log: AppendLog, reasons: Collection[Reason]) -> None:
    """Keep reasons in the log of an asset. Raises `StoreError`."""
    if not reasons:
        return
    log.append(pa.table([[reason.packed() for reason in reasons]], _REASONS))
    # A listing of object storage costs as much as a part, so it waits until this process has seen enough of them.
    if len(log.seen()) > _MOST_PARTS and len(names := log.names()) > _MOST_PARTS:
        # A reason counts once, so neither a kill nor a second writer does harm here.
        packed = pa.concat_tables(log.read())["reason"].unique()
        log.append(pa.table([packed], _REASONS))
        log.remove(names)


def stored_reasons(log: AppendLog) -> dict[str, Reason]:
    """Return the reasons in the logs by what they say. Raises `StoreError`."""
    reasons: dict[str, Reason] = {}
    for part in log.read():
        for reason in map(Reason.unpacked, part["reason"].to_pylist()):
            reasons[reason] = reason
    return reasons


class Journal:
    """The finished rows of a table that is not complete yet, in an append-only log.

    Their `reasons` are written before them to a log that outlives the journal.
    """

    SHARE = 0.01
    """Share of the time that journalling may take; rows wait in memory only as long as this requires."""

    def __init__(self, parts: AppendLog, schema: pa.Schema, reasons: AppendLog) -> None:
        self._parts = parts
        self._reasons, self._kept_reasons = reasons, set[Reason]()
        self._schema = schema
        self._tables: list[pa.Table] | None = None
        self._waiting: list[dict[str, Any]] = []
        self._not_before = 0.0

    def rows(self) -> pa.Table:
        """Return all rows written so far, oldest first, without parts of another schema."""
        return pa.concat_tables([self._schema.empty_table(), *self._written()])

    def add(self, row: dict[str, Any]) -> None:
        """Keep a finished row, to be written at once or in a batch."""
        self._waiting.append(row)
        self.flush_due()

    def flush_due(self) -> None:
        """Write rows that have waited long enough, even if no further row comes soon."""
        if time.monotonic() >= self._not_before:
            self.flush()

    def flush(self) -> None:
        if not self._waiting:
            return
        parts = self._written()
        started = time.monotonic()
        reasons = set[Reason]().union(*map(reasons_in, self._waiting)) - self._kept_reasons
        keep_reasons(self._reasons, reasons)
        self._kept_reasons |= reasons
        rows = pa.Table.from_pylist(self._waiting, self._schema)
        self._parts.append(rows)
        parts.append(rows)
        self._waiting = []
        finished = time.monotonic()
        self._not_before = finished + (finished - started) / self.SHARE

    def clear(self) -> None:
        """Forget the parts, once their rows are in the table."""
        self._parts.clear()
        self._tables = []

    def _written(self) -> list[pa.Table]:
        """Return the stored parts, read once; the journal adds the parts that it writes."""
        if self._tables is None:
            self._tables = [part for part in self._parts.read() if part.schema.equals(self._schema)]
        return self._tables
