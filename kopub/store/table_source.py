"""Footers of published tables, and the check that tables belong to the indexed corpus."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from kopub.errors import DamagedTable, StoreError
from kopub.parallel import ordered_map
from kopub.states import State
from kopub.store.table_store import TableStore

_log = logging.getLogger(__name__)

_warned: set[str] = set()
"""URLs of stores about which this process has already warned that footers cannot be kept."""
_FOLDER, _NAME = ".footers", "footers.parquet"
SOURCES = "sources"
"""Key of a table's metadata: JSON of (asset, fingerprint) for all that it and its parents read from the corpus."""
_last_footers: dict[tuple[str, str], "dict[str, tuple[str, Entry]]"] = {}
"""The footers that this process last saw, by URL of an object store and asset, to avoid fetching them again."""
_FEW, _AT_ONCE = 4, 16
"""Most footers that are read one after another, and the concurrent requests if there are more."""
_COLUMNS = ("recipe", "content", "made_with", "made_from", "states", SOURCES, "regions", "partial_again")
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
    """The footer of a published table: its rows, metadata and counts."""

    rows: int
    recipe: str
    content: str
    made_with: str
    made_from_json: str
    states_json: str
    sources_json: str
    regions_json: str | None
    partial_again: str | None

    @cached_property
    def made_from(self) -> dict[str, str]:
        """The fingerprints of the table's inputs, by name."""
        return json.loads(self.made_from_json)

    @cached_property
    def states(self) -> dict[str, int]:
        """The number of rows by state; empty for a table of released files."""
        return json.loads(self.states_json)

    @property
    def tried_again(self) -> int:
        """The number of rows that the next run makes again although the table is current."""
        return self.states.get(State.FAILED, 0) + int(self.partial_again or 0)

    @cached_property
    def sources(self) -> list[list[str]]:
        """The (asset, fingerprint) pairs of all corpus content that it and its parents read."""
        return json.loads(self.sources_json)

    @cached_property
    def regions(self) -> dict[str, int]:
        """The number of regions by task; empty if the table has none."""
        return json.loads(self.regions_json or "{}")


class FooterCache:
    """The cached footers of a store, saved in the store too.

    The cache only saves time; a table's own footer is authoritative.
    """

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._footers: dict[str, dict[str, tuple[str, Entry]]] = {}
        self.damaged: dict[tuple[str, str], DamagedTable] = {}
        """The tables, by asset and shard, whose footers were found to be damaged."""
        self._can_write = True

    def tables(self, asset: str) -> dict[str, Entry]:
        """Return the published, undamaged tables of an asset by shard. Raises `StoreError`."""
        stamps = self._store.published(asset)
        if asset in self._footers or not stamps:
            before = self._footers.get(asset, {})
        elif (before := _last_footers.get((self._store.url, asset))) is None:
            before = {}
            table = self._store.parts(_FOLDER, asset).read_one(_NAME)
            if table is not None and table.schema.equals(_SCHEMA):
                stored: list[list[Any]] = [column.to_pylist() for column in table.columns]
                for shard, stamp, *rest in zip(*stored, strict=True):
                    before[shard] = stamp, Entry(*rest)
        new = [shard for shard, stamp in stamps.items() if shard not in before or before[shard][0] != stamp]
        if self._store.local or len(new) <= _FEW:
            footers = [self._footer(asset, shard) for shard in new]
        else:
            # Each footer is a request, which takes time but hardly any work.
            footers = ordered_map(lambda shard: self._footer(asset, shard), new, _AT_ONCE)
        entries = dict(zip(new, footers, strict=True))
        now = {}
        for shard, stamp in stamps.items():
            entry = entries[shard] if shard in entries else before[shard][1]
            if entry is not None:
                now[shard] = stamp, entry
        # An empty cache is not worth a file, nor loading pandas, which the first new array does.
        if now != before and now and self._can_write:
            rows = [(shard, stamp, *astuple(entry)) for shard, (stamp, entry) in now.items()]
            columns = [*map(list, zip(*rows, strict=True))]
            try:
                self._store.parts(_FOLDER, asset).add(_NAME, pa.table(columns, schema=_SCHEMA))
            except StoreError as error:
                self._can_write = False
                if self._store.url not in _warned:
                    _warned.add(self._store.url)
                    _log.warning("every footer is read each time: %s", error)
        self._footers[asset] = now
        if not self._store.local:
            _last_footers[self._store.url, asset] = now
        return {shard: entry for shard, (_, entry) in now.items()}

    def _footer(self, asset: str, shard: str) -> Entry | None:
        try:
            rows, metadata = self._store.footer(asset, shard)
        except DamagedTable as error:
            _log.warning("%s", error)
            self.damaged[asset, shard] = error
            return None
        # A table written by another program has no such metadata, and counts as stale.
        *values, regions, again = (metadata.get(name) for name in _COLUMNS)
        recipe, content, made_with, made_from, states, sources = (value or "" for value in values)
        stamp = (recipe, content, made_with, made_from or "{}", states or "{}", sources or "[]")
        return Entry(rows, *stamp, regions, again)


SOURCE = "source"
"""Key of `made_from` besides the parents' names: the fingerprint of what an asset reads from the corpus itself."""

Source = Callable[[str, str], str | None]
"""A function of asset and shard: the fingerprint of what is read from the indexed corpus, None if only parents are."""

IsOfCorpus = Callable[[str, str], bool]
"""A function of asset and shard that tells whether their table derives from the indexed corpus."""


def sources(asset: str, source: str | None, parents: Iterable[str]) -> str:
    """Return JSON of every (asset, fingerprint) of the corpus behind a table.

    It joins the table's own `source` with those of its `parents`, the tables that it is made from.
    """
    entries: set[tuple[str, ...]] = set() if source is None else {(asset, source)}
    for parent in parents:
        entries.update(map(tuple, json.loads(parent)))
    return json.dumps(sorted(entries))


class CorpusCheck:
    """The comparison of tables' sources with the indexed corpus."""

    def __init__(self, store: TableStore, source: Source) -> None:
        self._source = source
        self.footers: FooterCache = FooterCache(store)

    def look(self, footers: Mapping[str, Mapping[str, Entry]] | None = None) -> IsOfCorpus:
        """Return the check for the present tables; a missing table fails it.

        `footers` are those of assets that the caller has just read. Calling the check raises `SourceError` for a
        shard that the corpus lacks.
        """
        tables: dict[str, dict[str, list[list[str]]]] = {}

        def is_of_corpus(asset: str, shard: str) -> bool:
            if asset not in tables:
                entries = (footers or {}).get(asset)
                entries = self.footers.tables(asset) if entries is None else entries
                tables[asset] = {key: entry.sources for key, entry in entries.items()}
            roots = tables[asset].get(shard)
            return roots is not None and all(self._source(root, shard) == content for root, content in roots)

        return is_of_corpus
