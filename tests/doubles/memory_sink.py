"""A vector store in the memory of a test."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import pyarrow as pa

from kopub.fingerprints import CodeVersion
from kopub.sinks.base import Sink, SinkTable

STORES: dict[str, dict[str, dict[str, Any]]] = {}
"""The records of each table by id."""


class MemorySink(Sink):
    """Keeps its records in `STORES`; `package` is always installed."""

    code_version: ClassVar[CodeVersion] = CodeVersion("sinks.memory", {1: "a double"})
    package: ClassVar[str] = "json"

    @contextmanager
    def open(self, dim: int) -> Iterator[SinkTable]:
        yield MemoryTable(STORES.setdefault(self.table, {}))


class MemoryTable(SinkTable):
    """An open table of a `MemorySink`."""

    def __init__(self, records: dict[str, dict[str, Any]]) -> None:
        self._records = records

    def fingerprints(self, shard: str) -> dict[str, str]:
        return {key: record["fingerprint"] for key, record in self._records.items() if record["shard"] == shard}

    def put(self, records: pa.Table) -> None:
        self._records.update((record["id"], record) for record in records.to_pylist())

    def remove(self, ids: Sequence[str]) -> None:
        for key in ids:
            del self._records[key]
