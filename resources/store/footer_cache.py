"""What the store holds, without opening every table: their footers, read once for each time one is written."""

import json
import logging
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from resources.errors import StoreError
from resources.store.shard_store import ShardStore

_log = logging.getLogger(__name__)

_FOLDER = ".catalogue"
SOURCES = "sources"
"""Key of a table's metadata: JSON of (asset, fingerprint) of all that it and its parents read of the corpus."""
_COLUMNS = ("recipe", "content", "made_with", "made_from", "regions", SOURCES)
_SCHEMA = pa.schema(
    [
        ("shard", pa.string()),
        ("stamp", pa.string()),
        ("rows", pa.int64()),
        *((name, pa.string()) for name in _COLUMNS),
    ]
)


@dataclass(frozen=True)
class Entry:
    """A table that is published. `content` is None for one of before contents were recorded."""

    rows: int
    recipe: str | None
    content: str | None
    made_with: str | None
    made_from_json: str | None
    regions_json: str | None
    sources_json: str | None

    @cached_property
    def made_from(self) -> dict[str, str]:
        """The contents of what it was made from, by name."""
        return json.loads(self.made_from_json or "{}")

    @cached_property
    def regions(self) -> dict[str, int]:
        """Regions of its pages by task, where it is a table of regions."""
        return json.loads(self.regions_json or "{}")

    @cached_property
    def sources(self) -> list[list[str]]:
        """(asset, fingerprint) of all that it and its parents read of the corpus."""
        return json.loads(self.sources_json or "[]")

    @property
    def held(self) -> str | None:
        """What stands for its rows in the recipes of the tables made from it."""
        return self.content or self.recipe


class Catalogue:
    """The tables of a store. Kept in the store too, where it saves time only: a table's own footer is the truth."""

    def __init__(self, store: ShardStore) -> None:
        self._store = store
        self._known: dict[str, dict[str, tuple[str, Entry]]] = {}
        self._can_write = True

    def tables(self, asset: str) -> dict[str, Entry]:
        """The published tables of an asset by shard. Raises `StoreError`."""
        stamps = self._store.published(asset)
        known = self._known.get(asset)
        kept = self._read(asset) if known is None else known
        now = {
            shard: kept[shard] if shard in kept and kept[shard][0] == stamp else (stamp, self._footer(asset, shard))
            for shard, stamp in stamps.items()
        }
        # An empty one is not worth a file, nor pandas, which the first array that is made loads.
        if now != kept and now and self._can_write:
            self._write(asset, now)
        self._known[asset] = now
        return {shard: entry for shard, (_, entry) in now.items()}

    def _footer(self, asset: str, shard: str) -> Entry:
        rows, metadata = self._store.footer(asset, shard)
        return Entry(rows, *(metadata.get(name) for name in _COLUMNS))

    def _read(self, asset: str) -> dict[str, tuple[str, Entry]]:
        try:
            found = self._store.parts(_FOLDER, asset).read(lambda names: names[-1:])
        except StoreError:
            # It is read from the footers again, and the next one is written in its place.
            return {}
        if not found or not found[0].schema.equals(_SCHEMA):
            return {}
        columns: list[list[Any]] = [column.to_pylist() for column in found[0].columns]
        return {shard: (stamp, Entry(*rest)) for shard, stamp, *rest in zip(*columns, strict=True)}

    def _write(self, asset: str, now: dict[str, tuple[str, Entry]]) -> None:
        parts = self._store.parts(_FOLDER, asset)
        before = parts.names()
        rows = [
            (shard, stamp, e.rows, e.recipe, e.content, e.made_with, e.made_from_json, e.regions_json, e.sources_json)
            for shard, (stamp, e) in now.items()
        ]
        columns = zip(*rows, strict=True)
        arrays = [pa.array(list(values), field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
        try:
            parts.add(f"{time.time_ns():020d}.parquet", pa.Table.from_arrays(arrays, schema=_SCHEMA))
            parts.remove(before)
        except StoreError as error:
            self._can_write = False
            _log.warning("every footer is read each time: %s", error)
