"""The footers of the store's tables, read once for each time a table is written."""

import json
import logging
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from resources.errors import StoreError
from resources.parallel import ordered_map
from resources.store.table_store import TableStore

_log = logging.getLogger(__name__)

_told: set[str] = set()
"""Stores whose footers cannot be kept, of which this process has said so."""
_FOLDER, _NAME = ".footers", "footers.parquet"
SOURCES = "sources"
"""Key of a table's metadata: JSON of (asset, fingerprint) of all that it and its parents read of the corpus."""
_seen: dict[tuple[str, str], "dict[str, tuple[str, Entry]]"] = {}
"""By URL of an object store and asset, what this process saw last: what is kept there need not be fetched again."""
_FEW, _AT_ONCE = 4, 16
"""Footers that are read one after the other, and requests that are under way at once for more."""
_COLUMNS = ("recipe", "content", "made_with", "made_from", "states", SOURCES, "regions")
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
    """The footer of a published table: its rows, how it was made, and what it holds."""

    rows: int
    recipe: str
    content: str
    made_with: str
    made_from_json: str
    states_json: str
    sources_json: str
    regions_json: str | None

    @cached_property
    def made_from(self) -> dict[str, str]:
        """The contents of what it was made from, by name."""
        return json.loads(self.made_from_json)

    @cached_property
    def states(self) -> dict[str, int]:
        """Rows by state; empty for a table of files."""
        return json.loads(self.states_json)

    @cached_property
    def sources(self) -> list[list[str]]:
        """(asset, fingerprint) of all that it and its parents read of the corpus."""
        return json.loads(self.sources_json)

    @cached_property
    def regions(self) -> dict[str, int]:
        """Regions of its pages by task, where it is a table of regions."""
        return json.loads(self.regions_json or "{}")


class FooterCache:
    """The footers of a store, kept in it too.

    That saves time only: a table's own footer is the truth.
    """

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._known: dict[str, dict[str, tuple[str, Entry]]] = {}
        self._can_write = True

    def tables(self, asset: str) -> dict[str, Entry]:
        """Return the published tables of an asset by shard. Raises `StoreError`."""
        stamps = self._store.published(asset)
        known = self._known.get(asset)
        kept = self._kept(asset) if known is None and stamps else known or {}
        new = [shard for shard, stamp in stamps.items() if shard not in kept or kept[shard][0] != stamp]
        read = dict(zip(new, self._footers(asset, new), strict=True))
        now = {shard: (stamp, read[shard]) if shard in read else kept[shard] for shard, stamp in stamps.items()}
        # An empty one is not worth a file, nor pandas, which the first array that is made loads.
        if now != kept and now and self._can_write:
            self._write(asset, now)
        self._known[asset] = now
        if not self._store.local:
            _seen[self._store.url, asset] = now
        return {shard: entry for shard, (_, entry) in now.items()}

    def _kept(self, asset: str) -> dict[str, tuple[str, Entry]]:
        seen = _seen.get((self._store.url, asset))
        return self._read(asset) if seen is None else seen

    def _footers(self, asset: str, shards: Sequence[str]) -> list[Entry]:
        if self._store.local or len(shards) <= _FEW:
            return [self._footer(asset, shard) for shard in shards]
        # Each is a request, which takes its time and next to no work.
        return list(ordered_map(lambda shard: self._footer(asset, shard), shards, _AT_ONCE))

    def _footer(self, asset: str, shard: str) -> Entry:
        rows, metadata = self._store.footer(asset, shard)
        # A table that somebody else wrote has no such metadata, and is stale.
        *known, regions = (metadata.get(name) for name in _COLUMNS)
        recipe, content, made_with, made_from, states, sources = (value or "" for value in known)
        return Entry(rows, recipe, content, made_with, made_from or "{}", states or "{}", sources or "[]", regions)

    def _read(self, asset: str) -> dict[str, tuple[str, Entry]]:
        found = self._store.parts(_FOLDER, asset).read_one(_NAME)
        if found is None or not found.schema.equals(_SCHEMA):
            return {}
        columns: list[list[Any]] = [column.to_pylist() for column in found.columns]
        return {shard: (stamp, Entry(*rest)) for shard, stamp, *rest in zip(*columns, strict=True)}

    def _write(self, asset: str, now: dict[str, tuple[str, Entry]]) -> None:
        rows = [(shard, stamp, *astuple(entry)) for shard, (stamp, entry) in now.items()]
        columns = zip(*rows, strict=True)
        arrays = [pa.array(list(values), field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
        try:
            self._store.parts(_FOLDER, asset).add(_NAME, pa.Table.from_arrays(arrays, schema=_SCHEMA))
        except StoreError as error:
            self._can_write = False
            if self._store.url not in _told:
                _told.add(self._store.url)
                _log.warning("every footer is read each time: %s", error)
