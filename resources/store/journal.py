"""Rows that are finished while their table is not."""

import time
from typing import Any

import pyarrow as pa

from resources.store.append_log import AppendLog


class Journal:
    """The rows of one table that is under way, in an append-only log."""

    SHARE = 0.01
    """Part of the time that journalling may take; rows wait in memory only as long as this asks for."""

    def __init__(self, parts: AppendLog, schema: pa.Schema) -> None:
        self._parts = parts
        self._schema = schema
        self._known: list[pa.Table] | None = None
        self._waiting: list[dict[str, Any]] = []
        self._not_before = 0.0

    def rows(self) -> pa.Table:
        """Everything written so far, oldest first; parts of another schema are of no use and left out."""
        return pa.concat_tables([self._schema.empty_table(), *self._written()])

    def add(self, row: dict[str, Any]) -> None:
        """Keep a finished row: at once where rows are slow to make, in batches where they are fast."""
        self._waiting.append(row)
        self.flush_due()

    def flush_due(self) -> None:
        """Write the rows that have waited long enough; for a table whose next row may be long in coming."""
        if time.monotonic() >= self._not_before:
            self.flush()

    def flush(self) -> None:
        if not self._waiting:
            return
        written = self._written()
        started = time.monotonic()
        rows = pa.Table.from_pylist(self._waiting, self._schema)
        self._parts.append(rows)
        written.append(rows)
        self._waiting = []
        finished = time.monotonic()
        self._not_before = finished + (finished - started) / self.SHARE

    def clear(self) -> None:
        """Forget the parts, once their rows are in the table."""
        self._parts.clear()
        self._known = []

    def _written(self) -> list[pa.Table]:
        """The parts on the disk, read once; this journal's own ones are added as it writes them."""
        if self._known is None:
            self._known = [part for part in self._parts.read() if part.schema.equals(self._schema)]
        return self._known
