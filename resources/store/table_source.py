"""The corpus that a table was made from: the indexed one, or another."""

import json
from collections.abc import Callable, Iterable, Mapping

from resources.store.footer_cache import Entry, FooterCache
from resources.store.table_store import TableStore

SOURCE = "source"
"""Key of `made_from` beside the parents' names: the fingerprint of what an asset reads of the corpus itself."""

Source = Callable[[str, str], str | None]
"""Fingerprint of what an asset reads of the indexed corpus for a shard; None where it reads its parents alone."""

IsOfCorpus = Callable[[str, str], bool]
"""Whether the table of an asset and shard goes back to the indexed corpus."""


def sources(asset: str, source: str | None, parents: Iterable[str]) -> str:
    """JSON of every (asset, fingerprint) of the corpus that a table goes back to: its own, and those of its parents.

    `parents` is the same of the tables that it is made from.
    """
    own = [] if source is None else [(asset, source)]
    inherited = [tuple(entry) for parent in parents for entry in json.loads(parent)]
    return json.dumps(sorted({*own, *inherited}))


class CorpusCheck:
    """Compares what tables go back to with the indexed corpus."""

    def __init__(self, store: TableStore, source: Source) -> None:
        self._source = source
        self._footers = FooterCache(store)

    def look(self, known: Mapping[str, Mapping[str, Entry]] | None = None) -> IsOfCorpus:
        """Return the check for the tables as they are; a missing table has no corpus.

        `known` are the footers of assets that the caller has just looked at.
        Calling it raises `StoreError` when a table is damaged, and `SourceError` for a shard that the corpus lacks.
        """
        tables: dict[str, dict[str, list[list[str]]]] = {}

        def is_of_corpus(asset: str, shard: str) -> bool:
            if asset not in tables:
                entries = (known or {}).get(asset)
                entries = self._footers.tables(asset) if entries is None else entries
                tables[asset] = {key: entry.sources for key, entry in entries.items()}
            found = tables[asset].get(shard)
            return found is not None and all(self._source(root, shard) == content for root, content in found)

        return is_of_corpus
