"""Which corpus a table was made from: the one that is indexed now, or another that left its tables in the store."""

import json
from collections.abc import Callable, Iterator, Mapping

from resources.store.footer_cache import Catalogue
from resources.store.shard_store import ShardStore

SOURCE = "source"
"""Key of `made_from` beside the parents' names: the fingerprint of what an asset reads of the corpus itself."""

Source = Callable[[str, str], str | None]
"""Fingerprint of what an asset reads of the indexed corpus for a shard; None where it reads its parents alone."""

IsOfCorpus = Callable[[str, str], bool]
"""Whether the table of an asset and shard goes back to the indexed corpus."""

MadeFrom = Mapping[str, str]


class CorpusCheck:
    """Follows what tables record of their parents back to the source, and compares that with the indexed one."""

    def __init__(self, store: ShardStore, source: Source) -> None:
        self._store, self._source = store, source
        self._footers = Catalogue(store)

    def look(self) -> IsOfCorpus:
        """The check for the tables as they are now; a table that was never made is of no corpus.

        Calling it raises `StoreError` when a table is damaged, and `SourceError` for a shard that the corpus lacks.
        """
        return _Look(self._store, self._source, self._footers)


class _Look:
    def __init__(self, store: ShardStore, source: Source, footers: Catalogue) -> None:
        self._store, self._source, self._footers = store, source, footers
        self._made_from: dict[str, dict[str, tuple[str | None, MadeFrom]]] = {}
        self._known: dict[tuple[str, str], bool] = {}

    def __call__(self, asset: str, shard: str) -> bool:
        if (asset, shard) not in self._known:
            table = self._now(asset).get(shard)
            self._known[asset, shard] = table is not None and self._goes_back(asset, shard, table[1])
        return self._known[asset, shard]

    def _goes_back(self, asset: str, shard: str, made_from: MadeFrom) -> bool:
        for name, content in made_from.items():
            if name == SOURCE:
                if content != self._source(asset, shard):
                    return False
            elif not self._parent_goes_back(name, shard, content):
                return False
        return True

    def _parent_goes_back(self, parent: str, shard: str, content: str) -> bool:
        others: list[MadeFrom] = []
        kept = 0
        for held, made_from in self._tables(parent, shard):
            if held == content:
                return self._goes_back(parent, shard, made_from)
            others.append(made_from)
            kept += 1
        # A table that is replaced by one of the same recipe is not kept; it was made from the same pages. When
        # versions may have been removed, the one that is looked for may have been of any corpus.
        removed = kept > self._store.keep_versions
        return not removed and all(self._goes_back(parent, shard, made_from) for made_from in others)

    def _tables(self, asset: str, shard: str) -> Iterator[tuple[str | None, MadeFrom]]:
        """(content, made_from) of the table now and of the kept versions."""
        if shard in self._now(asset):
            yield self._now(asset)[shard]
        for version in self._store.versions(asset, shard):
            metadata = self._store.metadata(asset, shard, version.recipe)
            yield metadata.get("content"), json.loads(metadata.get("made_from", "{}"))

    def _now(self, asset: str) -> dict[str, tuple[str | None, MadeFrom]]:
        if asset not in self._made_from:
            tables = self._footers.tables(asset)
            self._made_from[asset] = {shard: (entry.held, entry.made_from) for shard, entry in tables.items()}
        return self._made_from[asset]
