"""Chunks in Qdrant, on a server or, to try it, in a folder."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import pyarrow as pa
from pydantic import Field

from kopub.engine import ProfileOnly
from kopub.errors import ConfigError
from kopub.files import is_url
from kopub.fingerprints import CodeVersion
from kopub.sinks.base import Address, Sink, SinkTable

_TIMEOUT = 60
"""Seconds for a request; the library's own limit of 5 ends large ones."""
_PAGE = 10_000
"""Records whose fingerprints are fetched at once."""


class QdrantSink(Sink):
    """A Qdrant collection, whose points are compared by dot product."""

    code_version: ClassVar[CodeVersion] = CodeVersion("sinks.qdrant", {1: "the first release"})
    speed_only: ClassVar[frozenset[str]] = frozenset({"api_key_env"})
    secrets: ClassVar[str] = "the variable that api_key_env names"
    package: ClassVar[str] = "qdrant_client"

    url: ProfileOnly[Address] = Field(
        default="http://localhost:6333", description="The server, or a folder, which suits a few thousand chunks."
    )
    api_key_env: ProfileOnly[str] = Field(default="", description="Environment variable that holds the server's key.")

    @property
    def place(self) -> str:
        return f"{super().place} at {self.url}"

    @contextmanager
    def open(self, dim: int) -> Iterator[SinkTable]:
        library = self.library()
        address: dict[str, Any] = {"path": self.url}
        if is_url(self.url):
            key = os.environ.get(self.api_key_env) if self.api_key_env else None
            if self.api_key_env and not key:
                form = "{variable}, which is to hold the key of {url}, is not set"
                raise ConfigError(form, self.api_key_env, self.url)
            # Its check of versions is a request whose failure is only a warning.
            address = {"url": self.url, "api_key": key, "check_compatibility": False}
        client = library.QdrantClient(**address, timeout=_TIMEOUT)
        try:
            if not client.collection_exists(self.table):
                size = library.models.VectorParams(size=dim, distance=library.models.Distance.DOT)
                client.create_collection(self.table, vectors_config=size)
                if is_url(self.url):
                    client.create_payload_index(self.table, "shard", library.models.PayloadSchemaType.KEYWORD)
            self.require_dim(getattr(client.get_collection(self.table).config.params.vectors, "size", None), dim)
            yield QdrantTable(client, self.table, library.models)
        finally:
            client.close()


class QdrantTable(SinkTable):
    """An open Qdrant collection; a record without its id and vector is the payload."""

    def __init__(self, client: Any, name: str, models: Any) -> None:
        self._client, self._name, self._models = client, name, models

    def fingerprints(self, shard: str) -> dict[str, str]:
        of_shard = self._models.FieldCondition(key="shard", match=self._models.MatchValue(value=shard))
        wanted = {"scroll_filter": self._models.Filter(must=[of_shard]), "with_payload": ["fingerprint"]}
        fingerprints: dict[str, str] = {}
        offset = None
        while True:
            points, offset = self._client.scroll(self._name, **wanted, limit=_PAGE, offset=offset)
            fingerprints.update((str(point.id), point.payload["fingerprint"]) for point in points)
            if offset is None:
                return fingerprints

    def put(self, records: pa.Table) -> None:
        points = [
            self._models.PointStruct(id=row.pop("id"), vector=row.pop("vector"), payload=row)
            for row in records.to_pylist()
        ]
        self._client.upload_points(self._name, points, wait=True)

    def remove(self, ids: Sequence[str]) -> None:
        self._client.delete(self._name, self._models.PointIdsList(points=list(ids)), wait=True)
