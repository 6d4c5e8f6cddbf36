"""What `retrieval_scores` measured, for the choice of a mode."""

from collections.abc import Sequence

import pyarrow.compute as pc

from resources.retrieval.comparison import ALL as ALL_TYPES
from resources.retrieval.comparison import MAIN
from resources.retrieval.run_history import ALL, HISTORY, SCORES
from resources.search.choice import NOTHING, Measured
from resources.store.corpus_tables import TABLES
from resources.store.schemas import RETRIEVAL_SCORES
from resources.store.shard_store import ShardStore
from resources.store.table_source import CorpusCheck

_MEASURED = (TABLES.texts.name, TABLES.text_vectors.name, TABLES.image_vectors.name, TABLES.query_vectors.name)
"""The tables that decide a score."""


class MeasuredScores:
    """The scores of a corpus, read again when one of its tables was replaced."""

    def __init__(self, store: ShardStore, shards: Sequence[str], corpus_check: CorpusCheck) -> None:
        self._store, self._shards, self._corpus_check = store, shards, corpus_check
        self._known: tuple[object, Measured] | None = None

    def __call__(self) -> Measured:
        """The scores, if they are of the rows that the tables hold now. Raises `StoreError`."""
        versions = [self._store.published(asset) for asset in (SCORES, *_MEASURED)]
        if self._known is None or self._known[0] != versions:
            self._known = versions, self._read()
        return self._known[1]

    def _read(self) -> Measured:
        if not self._store.has(SCORES, ALL):
            return NOTHING
        table = self._store.read(SCORES, ALL)
        if not table.schema.equals(RETRIEVAL_SCORES) or not table.num_rows:
            return NOTHING
        if not HISTORY.is_of_tables_now(self._store, self._shards, self._corpus_check.look()):
            return NOTHING
        headline = (pc.field("query_type") == ALL_TYPES) & (pc.field("metric") == MAIN)
        rows = table.filter(headline & (pc.field("convention") == "first")).to_pylist()
        return Measured({row["retriever"]: row["value"] for row in rows}, rows[0]["queries"] if rows else 0)
