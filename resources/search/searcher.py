"""A question answered: embedded with the profile's engine, compared with the vectors, shown with a passage."""

import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from resources.embedding.base import Embedder
from resources.errors import KopubError
from resources.retrieval.fusion import reciprocal_ranks
from resources.search.arrow_cache import ArrowCache
from resources.search.highlight import Match, QueryWords, best_passage
from resources.search.nearest import Neighbour, ShardVectors, Vectors
from resources.search.page_view import PageLookup, PageView, RegionView
from resources.search.search_options import By
from resources.states import MADE
from resources.store.corpus_tables import FIGURE_VECTORS, TABLES
from resources.store.figure_rows import with_vector
from resources.store.lineage_rows import MADE_WITH
from resources.store.shard_store import ShardStore
from resources.store.table_source import CorpusCheck, IsOfCorpus

VECTORS = {By.TEXT: TABLES.text_vectors.name, By.IMAGE: TABLES.image_vectors.name, By.FIGURE: FIGURE_VECTORS.name}
"""The table of each kind of vector."""
_FUSED = 100
"""Pages of each ranking that fusion looks at."""
_ENGINES = b"engines"


class CannotSearch(KopubError):
    """A question that cannot be answered, or vectors that it cannot be compared with."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A page that answers: `score` is the dot product of the vectors, of fusion the sum of reciprocal ranks.

    `figure` is the figure of the page that was found, if one was; it is among the regions of `match` too.
    """

    rank: int
    score: float
    page: PageView
    match: Match
    figure: RegionView | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The pages found, best first; `notes` say what was not searched, or could not be kept for the next search."""

    query: str
    by: By
    hits: tuple[Hit, ...]
    vectors: int
    notes: tuple[str, ...]


class Searcher:
    """Searches the shards of a corpus with the engine of a profile; threads may share it.

    Every answer is from the tables as they are at the time. `folder` caches what a search reads of them.
    Tables that `corpus_check` finds to be of another corpus are left out; without it, all are used.
    """

    def __init__(
        self,
        store: ShardStore,
        shards: Sequence[str],
        embedding: Embedder,
        profile: str,
        folder: Path,
        corpus_check: CorpusCheck | None = None,
    ) -> None:
        self._store, self._shards, self._embedding, self._profile = store, list(shards), embedding, profile
        self._corpus_check = corpus_check
        self._cache = ArrowCache(folder)
        self._pages = PageLookup(store, self._cache)
        self._engine = json.loads(json.dumps([embedding.recipe()]))
        self._loaded: dict[tuple[By, str], ShardVectors] = {}
        self._open: dict[By, tuple[dict[str, str], Vectors]] = {}
        self._told_problem = False
        self._lock = Lock()

    def search(self, query: str, top: int = 10, by: By | None = None) -> Answer:
        """The best `top` pages. Raises `CannotSearch`, and what the engine and the store raise."""
        if not query.strip():
            raise CannotSearch("the query is empty: type a question")
        # Some systems type Hangul as letters (NFD), which a model reads as other words.
        query = unicodedata.normalize("NFC", query)
        with self._lock:
            by = self._chosen(by)
            is_of_corpus = self._look()
            kinds = self._kinds if by is By.FUSION else (by,)
            searched = [self._vectors(kind, is_of_corpus) for kind in kinds]
        # A model server may have to start for it; pages that are looked at meanwhile do not wait.
        vector = self._embedded(query)
        rankings = [vectors.nearest(vector, _FUSED if by is By.FUSION else top) for vectors, _ in searched]
        ranked = _fused(rankings) if by is By.FUSION else rankings[0]
        words = QueryWords.of(query)
        with self._lock:
            page = self._pages.refreshed(is_of_corpus)
            pages = [page(neighbour.shard, neighbour.page_id) for neighbour in ranked[:top]]
            notes = [note for _, notes in searched for note in notes] + self._cache_notes()
        hits = tuple(
            _hit(rank, neighbour, page, words)
            for rank, (neighbour, page) in enumerate(zip(ranked, pages, strict=False), start=1)
        )
        return Answer(query, by, hits, sum(len(vectors) for vectors, _ in searched), tuple(notes))

    @property
    def choices(self) -> tuple[By, ...]:
        """What the engine's queries can be compared with."""
        kinds = self._kinds
        return (By.FUSION, *kinds) if len(kinds) > 1 else kinds

    @property
    def _kinds(self) -> tuple[By, ...]:
        """What queries can be compared with; figures only where somebody had their vectors made."""
        matching = [kind for kind in VECTORS if kind in self._embedding.queries_match]
        return tuple(kind for kind in matching if kind is not By.FIGURE or self._store.published(VECTORS[kind]))

    def page(self, shard: str, page_id: str) -> PageView:
        """A page by its shard and id; one that is not known has neither number nor regions."""
        if shard not in self._shards:
            return PageView(shard, page_id)
        with self._lock:
            return self._pages.refreshed(self._look())(shard, page_id)

    def vectors(self, by: By) -> Vectors:
        """The vectors of one kind as they are now. Raises `CannotSearch`."""
        with self._lock:
            return self._vectors(by, self._look())[0]

    def _look(self) -> IsOfCorpus:
        return self._corpus_check.look() if self._corpus_check else lambda asset, shard: True

    def _chosen(self, by: By | None) -> By:
        if by is None:
            usable = [kind for kind in VECTORS if kind in self.choices]
            made = [kind for kind in usable if self._store.published(VECTORS[kind])] or usable[:1]
            return By.FUSION if len(made) > 1 else made[0]
        if by not in self.choices:
            raise CannotSearch(
                f"queries of profile {self._profile} cannot be compared by {by}; choose {' or '.join(self.choices)}"
            )
        return by

    def _vectors(self, kind: By, is_of_corpus: IsOfCorpus) -> tuple[Vectors, list[str]]:
        """The vectors as they are now, and notes of what is left out. Raises `CannotSearch` when none can be used."""
        asset = VECTORS[kind]
        published = self._store.published(asset)
        made = [shard for shard in self._shards if shard in published]
        if not made:
            raise CannotSearch(f"there are no {kind} vectors yet: materialize {asset}")
        of_corpus = [shard for shard in made if is_of_corpus(asset, shard)]
        if not of_corpus:
            raise CannotSearch(f"the {kind} vectors are of another corpus than the indexed one: materialize {asset}")
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
                f"the {kind} vectors of {shard} {problem}: materialize {asset}, or set KOPUB_PROFILE to the profile "
                "that made them"
            )
        versions = {vectors.shard: vectors.version for vectors in fit}
        if kind not in self._open or self._open[kind][0] != versions:
            self._open[kind] = versions, Vectors(fit)
        notes = [f"{shard} is not searched: its {kind} vectors {problem}" for shard, problem in unfit.items()]
        if other := len(made) - len(of_corpus):
            notes.append(f"{other} of {len(self._shards)} shards have {kind} vectors of another corpus only")
        if missing := len(self._shards) - len(made):
            notes.append(f"{missing} of {len(self._shards)} shards have no {kind} vectors yet")
        return self._open[kind][1], notes

    def _cache_notes(self) -> list[str]:
        """Why nothing is kept for the next search; said once."""
        if self._cache.problem is None or self._told_problem:
            return []
        self._told_problem = True
        return [f"what was read is kept in memory only, so every start takes longer: {self._cache.problem}"]

    def _shard_vectors(self, kind: By, shard: str, version: str) -> ShardVectors:
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

    def _embedded(self, query: str) -> np.ndarray:
        for made in self._embedding.embed_queries([("query", query)]):
            if made.vector is not None:
                return made.vector
            raise CannotSearch(f"the query has no vector: {made.reason or made.state}")
        raise CannotSearch("the engine gave no answer; this is a bug in it")


def _fused(rankings: Sequence[Sequence[Neighbour]]) -> list[Neighbour]:
    """The pages of all rankings by their reciprocal ranks; of equal ones the first that a ranking names comes first."""
    pages = list(dict.fromkeys((near.shard, near.page_id) for ranking in rankings for near in ranking))
    numbers = {page: number for number, page in enumerate(pages)}
    numbered = [np.array([numbers[near.shard, near.page_id] for near in ranking], np.int64) for ranking in rankings]
    _, scores = reciprocal_ranks(numbered)
    figures = {
        (near.shard, near.page_id): near.figure for ranking in rankings for near in ranking if near.figure is not None
    }
    best_first = np.argsort(-scores, kind="stable").tolist()
    return [Neighbour(*pages[at], score=float(scores[at]), figure=figures.get(pages[at])) for at in best_first]


def _hit(rank: int, neighbour: Neighbour, page: PageView, words: QueryWords) -> Hit:
    match = best_passage(words, [region.text for region in page.regions])
    at = next((at for at, region in enumerate(page.regions) if region.index == neighbour.figure), None)
    if at is None:
        return Hit(rank, neighbour.score, page, match)
    return Hit(
        rank, neighbour.score, page, replace(match, regions=tuple(sorted({*match.regions, at}))), page.regions[at]
    )


def as_json(answer: Answer) -> dict[str, Any]:
    """An answer as JSON values: what `kopub search --json` prints."""
    return {"query": answer.query, "by": answer.by, "notes": list(answer.notes), "hits": [*map(_hit_json, answer.hits)]}


def _hit_json(hit: Hit) -> Mapping[str, Any]:
    page, passage = hit.page, hit.match.passage
    matching = [page.regions[at] for at in hit.match.regions]
    return {
        "rank": hit.rank,
        "score": hit.score,
        "page_id": page.page_id,
        "doc_id": page.doc_id,
        "page_no": page.page_no,
        "shard": page.shard,
        "passage": passage.text,
        "marks": [list(mark) for mark in passage.marks],
        "regions": [_region_json(region) for region in matching],
        "figure": hit.figure and _region_json(hit.figure),
    }


def _region_json(region: RegionView) -> Mapping[str, Any]:
    return {"index": region.index, "label": region.label, "bbox_2d": list(region.box), "text": region.text}
