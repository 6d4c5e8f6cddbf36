"""Chunks in LanceDB, a vector store of files that needs no server."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pydantic import Field

from kopub.engine import ProfileOnly
from kopub.fingerprints import CodeVersion
from kopub.sinks.base import Address, Sink, SinkTable, records_schema


class LanceDbSink(Sink):
    """A LanceDB table in a folder or on object storage."""

    code_version: ClassVar[CodeVersion] = CodeVersion("sinks.lancedb", {1: "the first release"})
    speed_only: ClassVar[frozenset[str]] = frozenset({"home"})
    package: ClassVar[str] = "lancedb"

    home: ProfileOnly[str] = Field(default="", description="Folder of `lancedb/` if `url` is left out; the home.")
    url: ProfileOnly[Address] = Field(
        default="", description="Folder or URL (s3://bucket/prefix) of the database; by default `$KOPUB_HOME/lancedb`."
    )

    @property
    def place(self) -> str:
        return f"{super().place} at {self.url or 'lancedb/ of the home'}"

    @contextmanager
    def open(self, dim: int) -> Iterator[SinkTable]:
        database = self.library().connect(self.url or Path(self.home, "lancedb"))
        try:
            table = database.open_table(self.table)
        except ValueError:  # there is none
            table = database.create_table(self.table, schema=records_schema(dim), exist_ok=True)
        vectors = dict(zip(table.schema.names, table.schema.types, strict=True)).get("vector")
        self.require_dim(getattr(vectors, "list_size", None), dim)
        before = table.version
        yield LanceTable(table)
        if table.version != before:
            # Many small changes make many small files.
            table.optimize()


class LanceTable(SinkTable):
    """An open LanceDB table."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def fingerprints(self, shard: str) -> dict[str, str]:
        records = self._table.search().where(f"shard = {_quoted(shard)}").select(["id", "fingerprint"]).to_arrow()
        return dict(zip(records["id"].to_pylist(), records["fingerprint"].to_pylist(), strict=True))

    def put(self, records: pa.Table) -> None:
        self._table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(records)

    def remove(self, ids: Sequence[str]) -> None:
        self._table.delete(f"id IN ({', '.join(map(_quoted, ids))})")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
