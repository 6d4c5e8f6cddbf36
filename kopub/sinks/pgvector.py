"""Chunks in a table of Postgres with the extension pgvector."""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, ClassVar

import pyarrow as pa
from pydantic import Field

from kopub.engine import ProfileOnly
from kopub.fingerprints import CodeVersion
from kopub.sinks.base import Sink, SinkTable

_TABLE = """\
CREATE TABLE {table} (
    id uuid PRIMARY KEY, shard text NOT NULL, doc_id text NOT NULL, page_id text, page integer, bbox_2d integer[],
    places jsonb NOT NULL, headings text[] NOT NULL, kinds text[] NOT NULL, text text NOT NULL,
    made_with text NOT NULL, fingerprint text NOT NULL, vector vector({dim}) NOT NULL
);
CREATE INDEX ON {table} (shard);
"""
_PUT = """\
INSERT INTO {table} SELECT * FROM json_populate_recordset(NULL::{table}, %s)
ON CONFLICT (id) DO UPDATE SET {columns}
"""


class PgVectorSink(Sink):
    """A table of Postgres, whose owner decides on an index by vector."""

    code_version: ClassVar[CodeVersion] = CodeVersion("sinks.pgvector", {1: "the first release"})
    package: ClassVar[str] = "psycopg2"
    secrets: ClassVar[str] = "PGPASSWORD or ~/.pgpass"

    url: ProfileOnly[str] = Field(
        default="postgresql://localhost/postgres",
        description="The database, postgresql://USER@HOST/DATABASE; PGPASSWORD or ~/.pgpass holds the password.",
    )

    @property
    def place(self) -> str:
        return f"{super().place} at {self.url}"

    @contextmanager
    def open(self, dim: int) -> Iterator[SinkTable]:
        # The name may be a word of SQL, such as order.
        table = f'"{self.table}"'
        with closing(self.library().connect(self.url)) as connection:
            with connection, connection.cursor() as cursor:
                cursor.execute("SELECT to_regclass(%s)", [table])
                if cursor.fetchone() == (None,):
                    cursor.execute("CREATE EXTENSION IF NOT EXISTS vector")
                    cursor.execute(_TABLE.format(table=table, dim=dim))
                cursor.execute(
                    "SELECT atttypmod FROM pg_attribute WHERE attrelid = %s::regclass AND attname = 'vector'",
                    [table],
                )
                self.require_dim((cursor.fetchone() or [None])[0], dim)
            yield PgTable(connection, table)


class PgTable(SinkTable):
    """An open table of Postgres; every change is a transaction."""

    def __init__(self, connection: Any, name: str) -> None:
        self._connection, self._name = connection, name

    def fingerprints(self, shard: str) -> dict[str, str]:
        with self._connection, self._connection.cursor() as cursor:
            cursor.execute(f"SELECT id::text, fingerprint FROM {self._name} WHERE shard = %s", [shard])
            return dict(cursor.fetchall())

    def put(self, records: pa.Table) -> None:
        columns = ", ".join(f"{name} = EXCLUDED.{name}" for name in records.column_names)
        with self._connection, self._connection.cursor() as cursor:
            cursor.execute(
                _PUT.format(table=self._name, columns=columns), [json.dumps(records.to_pylist(), ensure_ascii=False)]
            )

    def remove(self, ids: Sequence[str]) -> None:
        with self._connection, self._connection.cursor() as cursor:
            cursor.execute(f"DELETE FROM {self._name} WHERE id = ANY(%s::uuid[])", [list(ids)])
