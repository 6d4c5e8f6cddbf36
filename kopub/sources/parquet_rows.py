"""Rows of a Parquet file by number: the row group that holds one is read, never the file."""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from resources.errors import StoreError
from resources.printable import first_line
from resources.store.corpus_tables import lacking

_OPEN = 64
"""Files that are kept open: a page's tables of some ten shards."""


class ParquetRows:
    """An open file; threads may share it.

    `name` and `again`, what makes it anew, are for messages; `known` are the columns as this release has them.
    """

    def __init__(
        self, file: pq.ParquetFile, name: str, again: str = "make it again", known: pa.Schema | None = None
    ) -> None:
        self._file, self._name, self._again, self._known = file, name, again, known
        groups = range(file.metadata.num_row_groups)
        self._ends = list(accumulate(file.metadata.row_group(group).num_rows for group in groups))
        self._lock = Lock()

    @property
    def columns(self) -> list[str]:
        return self._file.schema_arrow.names

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Whole columns. Raises `StoreError`."""
        self._require(columns)
        with self._told(), self._lock:
            return self._file.read(list(columns))

    def slice(self, start: int, count: int, columns: Sequence[str]) -> pa.Table:
        """At most `count` rows from `start` on. Raises `StoreError`."""
        self._require(columns)
        first, last = bisect_right(self._ends, start), bisect_right(self._ends, start + count - 1)
        groups = list(range(first, min(last + 1, len(self._ends)))) if count else []
        before = self._ends[first - 1] if first else 0
        with self._told(), self._lock:
            read = self._file.read_row_groups(groups, list(columns))
        return read.slice(start - before, count)

    def row(self, at: int, key: str, value: str, columns: Sequence[str]) -> dict[str, Any] | None:
        """The row whose column `key` has `value`: the one at number `at` if it is that, else wherever it is."""
        found = self._with(key, value, self.slice(at, 1, [key, *columns]))
        if found is None:
            row = pc.index(self.read([key])[key], value).as_py()
            found = None if row < 0 else self._with(key, value, self.slice(row, 1, [key, *columns]))
        return found

    def _with(self, key: str, value: str, table: pa.Table) -> dict[str, Any] | None:
        rows = table.to_pylist()
        return rows[0] if rows and rows[0][key] == value else None

    def _require(self, columns: Sequence[str]) -> None:
        if lost := lacking(self._file.schema_arrow, columns, self._known):
            raise StoreError(f"{self._name} has no {lost}, as another release made it: {self._again}")

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            raise StoreError(f"{self._name} is damaged ({first_line(error)}): {self._again}") from None


class OpenFiles:
    """The files that were used last, kept open; threads may share it."""

    def __init__(self) -> None:
        self._open: OrderedDict[Hashable, ParquetRows] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, open_file: Callable[[], ParquetRows]) -> ParquetRows:
        """The file of a key. Raises what `open_file` raises."""
        with self._lock:
            if key in self._open:
                self._open.move_to_end(key)
                return self._open[key]
        opened = open_file()
        with self._lock:
            self._open[key] = opened
            while len(self._open) > _OPEN:
                self._open.popitem(last=False)
        return opened
