"""The vectors of pages and figures that an engine's query can be compared with, as the tables are at the time."""

import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from resources.embedding.base import Embedder
from resources.search.answers import CannotSearch
from resources.search.arrow_cache import ArrowCache
from resources.search.nearest import ShardVectors, Vectors
from resources.search.search_options import Mode
from resources.search.tables import SearchedTables
from resources.states import MADE
from resources.store.corpus_tables import FIGURE_VECTORS, VECTOR_TABLES
from resources.store.page_rows.figure_rows import with_vector
from resources.store.page_rows.lineage_rows import MADE_WITH
from resources.store.table_source import IsOfCorpus

VECTORS = {Mode(kind): table.name for kind, table in VECTOR_TABLES.items()}
"""The name of the table of each kind of vector."""
_ENGINES = b"engines"


class VectorLookup:
    """The vectors of the shards of a corpus, for the engine of a profile."""

    def __init__(
        self, store: SearchedTables, shards: Sequence[str], embedding: Embedder, profile: str, cache: ArrowCache
    ) -> None:
        self._store, self._shards, self._embedding, self._profile = store, shards, embedding, profile
        self._cache = cache
        self._engine = json.loads(json.dumps([embedding.recipe()]))
        self._loaded: dict[tuple[Mode, str], ShardVectors] = {}
        self._open: dict[Mode, tuple[dict[str, str], Vectors]] = {}

    def is_of_engine(self, asset: str, shard: str) -> bool:
        """Whether a table was made with this engine, as it is now."""
        return json.loads(self._store.metadata(asset, shard)[MADE_WITH])["engines"] == self._engine

    def refreshed(self, kind: Mode, is_of_corpus: IsOfCorpus) -> tuple[Vectors, list[str]]:
        """The vectors as they are now, and notes of what is left out. Raises `CannotSearch` when none can be used."""
        asset = VECTORS[kind]
        published = self._store.published(asset)
        made = [shard for shard in self._shards if shard in published]
        if not made:
            raise CannotSearch(f"there are no {kind} vectors yet: run `kopub run`")
        of_corpus = [shard for shard in made if is_of_corpus(asset, shard)]
        if not of_corpus:
            raise CannotSearch(f"the {kind} vectors are of another corpus than the indexed one: run `kopub run`")
        fit: list[ShardVectors] = []
        unfit: dict[str, str] = {}
        for shard in of_corpus:
            vectors = self._shard_vectors(kind, shard, published[shard])
            problem = self._problem(vectors)
            if problem:
                unfit[shard] = problem
            else:
                fit.append(vectors)
        if not fit:
            shard, problem = next(iter(unfit.items()))
            raise CannotSearch(
                f"the {kind} vectors of {shard} {problem}: run `kopub run`, or set KOPUB_PROFILE to the profile "
                "that made them"
            )
        versions = {vectors.shard: vectors.version for vectors in fit}
        if kind not in self._open or self._open[kind][0] != versions:
            self._open[kind] = versions, Vectors(fit)
        notes = [f"{shard} is not searched: its {kind} vectors {problem}" for shard, problem in unfit.items()]
        return self._open[kind][1], notes + left_out(f"{kind} vectors", self._shards, made, of_corpus)

    def _shard_vectors(self, kind: Mode, shard: str, version: str) -> ShardVectors:
        loaded = self._loaded.get((kind, shard))
        if loaded is None or loaded.version != version:
            asset = VECTORS[kind]
            table = self._cache.get(asset, shard, version, lambda: self._with_vector(asset, shard))
            loaded = self._loaded[kind, shard] = ShardVectors(shard, version, table)
        return loaded

    def _with_vector(self, asset: str, shard: str) -> pa.Table:
        """The rows of a table that have a vector, and the engines that it was made with."""
        columns = ["page_id", "figures" if asset == FIGURE_VECTORS.name else "vector", "state"]
        table = self._store.read(asset, shard, columns)
        made_with = json.loads(self._store.metadata(asset, shard)[MADE_WITH])
        made = table.filter(pc.field("state").isin(MADE)).drop_columns("state")
        if asset == FIGURE_VECTORS.name:
            made = with_vector(made)
        return made.replace_schema_metadata({_ENGINES: json.dumps(made_with["engines"])})

    def _problem(self, vectors: ShardVectors) -> str | None:
        """Why a query of this engine cannot be compared with the vectors; None when it can."""
        width = vectors.table.schema.field("vector").type.list_size
        if width != self._embedding.dim:
            return f"have {width} dimensions, those of profile {self._profile} {self._embedding.dim}"
        if json.loads((vectors.table.schema.metadata or {})[_ENGINES]) != self._engine:
            return f"were made with another engine, or another version of it, than that of profile {self._profile}"
        return None


def left_out(what: str, shards: Sequence[str], made: Sequence[str], of_corpus: Sequence[str]) -> list[str]:
    """Notes of the shards whose tables are missing, or of another corpus."""
    notes = []
    if other := len(made) - len(of_corpus):
        notes.append(f"{other} of {len(shards)} shards have {what} of another corpus only")
    if missing := len(shards) - len(made):
        notes.append(f"{missing} of {len(shards)} shards have no {what} yet")
    return notes
