"""A question answered: embedded as the profile does, compared with the vectors, shown with its passage."""

import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from resources.embedding.base import Embedder
from resources.errors import KopubError
from resources.retrieval.fusion import RRF_K
from resources.search.arrow_cache import Parts
from resources.search.highlight import Found, Words, find
from resources.search.nearest import EXACT_UP_TO, Near, Part, Vectors
from resources.search.page_view import Pages, ShownPage
from resources.search.search_options import By
from resources.states import MADE
from resources.store.lineage_rows import MADE_WITH
from resources.store.shard_store import ShardStore

ASSETS = {By.TEXT: "corpus_text_embeddings", By.IMAGE: "corpus_image_embeddings"}

_FUSED = 100
"""Pages of each ranking that fusion looks at."""
_ENGINES = b"engines"


class CannotSearch(KopubError):
    """A question that cannot be answered, or vectors that it cannot be compared with."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A page that answers: `score` is the dot product of the vectors, of fusion the sum of reciprocal ranks."""

    rank: int
    score: float
    page: ShownPage
    found: Found


@dataclass(frozen=True, slots=True)
class Answer:
    """The pages found, best first; `notes` say what was not searched, or could be faster."""

    query: str
    by: By
    hits: tuple[Hit, ...]
    vectors: int
    notes: tuple[str, ...]


class Searcher:
    """Searches the shards of a corpus with the engine of a profile; threads may share it.

    Every answer is of the tables as they are at the time. What is kept of them lies in `folder`.
    """

    def __init__(
        self, store: ShardStore, shards: Sequence[str], embedding: Embedder, profile: str, folder: Path
    ) -> None:
        self._store, self._shards, self._embedding, self._profile = store, list(shards), embedding, profile
        self._folder = folder
        self._parts = Parts(folder)
        self._pages = Pages(store, self._parts)
        self._engine = json.loads(json.dumps([embedding.recipe()]))
        self._held: dict[tuple[By, str], Part] = {}
        self._open: dict[By, tuple[dict[str, str], Vectors]] = {}
        self._lock = Lock()

    def search(self, query: str, top: int = 10, by: By | None = None) -> Answer:
        """The best `top` pages. Raises `CannotSearch`, and what the engine and the store raise."""
        if not query.strip():
            raise CannotSearch("the query is empty: type a question")
        # Some systems type Hangul as letters (NFD), which a model reads as other words.
        query = unicodedata.normalize("NFC", query)
        with self._lock:
            by = self._chosen(by)
            searched = [self._vectors(kind) for kind in ASSETS if by in (kind, By.FUSION)]
        # A model server may have to start for it; pages that are looked at meanwhile do not wait.
        vector = self._embedded(query)
        rankings = [vectors.nearest(vector, _FUSED if by is By.FUSION else top) for vectors, _ in searched]
        ranked = _fused(rankings) if by is By.FUSION else rankings[0]
        words = Words.of(query)
        with self._lock:
            page = self._pages.refreshed()
            pages = [page(near.shard, near.page_id) for near in ranked[:top]]
        hits = tuple(
            Hit(rank, near.score, page, find(words, [region.text for region in page.regions]))
            for rank, (near, page) in enumerate(zip(ranked, pages, strict=False), start=1)
        )
        notes = tuple(note for _, notes in searched for note in notes)
        return Answer(query, by, hits, sum(len(vectors) for vectors, _ in searched), notes)

    @property
    def choices(self) -> tuple[By, ...]:
        """What the engine's queries can be compared with."""
        kinds = tuple(kind for kind in ASSETS if kind in self._embedding.queries_match)
        return (By.FUSION, *kinds) if len(kinds) > 1 else kinds

    def page(self, shard: str, page_id: str) -> ShownPage:
        """A page by its shard and id; one that is not known has neither number nor regions."""
        if shard not in self._shards:
            return ShownPage(shard, page_id)
        with self._lock:
            return self._pages.refreshed()(shard, page_id)

    def vectors(self, by: By) -> Vectors:
        """The vectors of one kind as they are now. Raises `CannotSearch`."""
        with self._lock:
            return self._vectors(by)[0]

    def build(self) -> list[str]:
        """Build the graphs for corpora of more than `EXACT_UP_TO` vectors; says what was done."""
        said = []
        with self._lock:
            for kind in ASSETS:
                if kind not in self.choices:
                    continue
                vectors, _ = self._vectors(kind)
                if len(vectors) <= EXACT_UP_TO:
                    said.append(f"{len(vectors):,} {kind} vectors are compared one by one, which is exact and fast")
                else:
                    vectors.build()
                    said.append(f"built the graph of {len(vectors):,} {kind} vectors")
        return said

    def _chosen(self, by: By | None) -> By:
        if by is None:
            usable = [kind for kind in ASSETS if kind in self.choices]
            made = [kind for kind in usable if self._store.published(ASSETS[kind])] or usable[:1]
            return By.FUSION if len(made) > 1 else made[0]
        if by not in self.choices:
            raise CannotSearch(
                f"queries of profile {self._profile} cannot be compared by {by}; choose {' or '.join(self.choices)}"
            )
        return by

    def _vectors(self, kind: By) -> tuple[Vectors, list[str]]:
        """The vectors as they are now, and notes of what is left out. Raises `CannotSearch` when none can be used."""
        asset = ASSETS[kind]
        published = self._store.published(asset)
        made = [shard for shard in self._shards if shard in published]
        if not made:
            raise CannotSearch(f"there are no {kind} vectors yet: materialize {asset}")
        parts, unfit = [], {}
        for shard in made:
            part = self._part(kind, shard, published[shard])
            problem = self._problem(part)
            if problem:
                unfit[shard] = problem
            else:
                parts.append(part)
        if not parts:
            shard, problem = next(iter(unfit.items()))
            raise CannotSearch(
                f"the {kind} vectors of {shard} {problem}: materialize {asset}, or set KOPUB_PROFILE to the profile "
                "that made them"
            )
        versions = {part.shard: part.version for part in parts}
        if kind not in self._open or self._open[kind][0] != versions:
            self._open[kind] = versions, Vectors(parts, self._folder / asset)
        vectors = self._open[kind][1]
        notes = [f"{shard} is not searched: its {kind} vectors {problem}" for shard, problem in unfit.items()]
        missing = len(self._shards) - len(made)
        if missing:
            notes.append(f"{missing} of {len(self._shards)} shards have no {kind} vectors yet")
        if vectors.one_by_one > EXACT_UP_TO:
            notes.append(
                f"{vectors.one_by_one:,} {kind} vectors are compared one by one; `kopub search --build` is faster"
            )
        return vectors, notes

    def _part(self, kind: By, shard: str, version: str) -> Part:
        held = self._held.get((kind, shard))
        if held is None or held.version != version:
            asset = ASSETS[kind]
            table = self._parts.get(asset, shard, version, lambda: self._with_vector(asset, shard))
            held = self._held[kind, shard] = Part(shard, version, table)
        return held

    def _with_vector(self, asset: str, shard: str) -> pa.Table:
        """The rows of a table that have a vector, and the engines that it was made with."""
        table = self._store.read(asset, shard, ["page_id", "vector", "state"])
        made = json.loads(self._store.metadata(asset, shard).get(MADE_WITH, "{}"))
        kept = table.filter(pc.field("state").isin(list(MADE))).drop_columns("state")
        return kept.replace_schema_metadata({_ENGINES: json.dumps(made.get("engines"))})

    def _problem(self, part: Part) -> str | None:
        """Why a query of this engine cannot be compared with the vectors; None when it can."""
        width = part.table.schema.field("vector").type.list_size
        if width != self._embedding.dim:
            return f"have {width} dimensions, those of profile {self._profile} {self._embedding.dim}"
        engines = json.loads((part.table.schema.metadata or {})[_ENGINES])
        # A table of before engines were recorded can only be told by its width.
        if engines is not None and engines != self._engine:
            return f"were made with another engine, or another version of it, than that of profile {self._profile}"
        return None

    def _embedded(self, query: str) -> np.ndarray:
        for made in self._embedding.embed_queries([("query", query)]):
            if made.vector is not None:
                return made.vector
            raise CannotSearch(f"the query has no vector: {made.reason or made.state}")
        raise CannotSearch("the engine gave no answer; this is a bug in it")


def _fused(rankings: Sequence[Sequence[Near]]) -> list[Near]:
    """Reciprocal rank fusion, as `resources.retrieval.fusion` scores it."""
    scores: dict[tuple[str, str], float] = {}
    for ranking in rankings:
        for rank, near in enumerate(ranking, start=1):
            key = near.shard, near.page_id
            scores[key] = scores.get(key, 0.0) + 1 / (RRF_K + rank)
    return [Near(*key, score) for key, score in sorted(scores.items(), key=lambda item: -item[1])]


def as_json(answer: Answer) -> dict[str, Any]:
    """An answer as JSON values: what `kopub search --json` prints."""
    return {"query": answer.query, "by": answer.by, "notes": list(answer.notes), "hits": [*map(_hit_json, answer.hits)]}


def _hit_json(hit: Hit) -> Mapping[str, Any]:
    page, passage = hit.page, hit.found.passage
    held = [page.regions[at] for at in hit.found.regions]
    return {
        "rank": hit.rank,
        "score": hit.score,
        "page_id": page.page_id,
        "doc_id": page.doc_id,
        "page_no": page.page_no,
        "shard": page.shard,
        "passage": passage.text,
        "marks": [list(mark) for mark in passage.marks],
        "regions": [{"index": r.index, "label": r.label, "bbox_2d": list(r.box), "text": r.text} for r in held],
    }
