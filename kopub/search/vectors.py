"""The current vectors of pages and figures, and the pages nearest to a query."""

import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kopub.embedding.base import Embedder
from kopub.search.answer import CannotSearch
from kopub.search.options import Mode
from kopub.search.pages import ArrowCache, SearchedTables
from kopub.states import MADE, Reason, phrase
from kopub.store.corpus_tables import PARTS, TABLES, VECTOR_TABLES
from kopub.store.rows import MADE_WITH, with_vector
from kopub.store.table_source import IsOfCorpus

VECTORS = {Mode(kind): table.name for kind, table in VECTOR_TABLES.items()}
"""The table name of each kind of vector."""
_ENGINES = b"engines"
_PLACES = ("index", "start", "end")
_THREADS = 2
"""Shards compared at a time."""


class VectorLookup:
    """The lookup of a corpus's vectors for the engine of a profile."""

    def __init__(
        self, store: SearchedTables, shards: Sequence[str], embedding: Embedder, profile: str, cache: ArrowCache
    ) -> None:
        self._store, self._shards, self._embedding, self._profile = store, shards, embedding, profile
        self._cache = cache
        self._recipe = _as_json([embedding.recipe()])
        self._read: dict[tuple[Mode, str], ShardVectors] = {}
        self._open: dict[Mode, tuple[dict[str, str], Vectors]] = {}

    @cached_property
    def _passage_recipe(self) -> Any:
        # Only a search of passages waits for the hashes of their engine's files.
        return _as_json([self._embedding.passage_recipe()])

    def is_of_engine(self, asset: str, shard: str) -> bool:
        """Return whether a table was made with the present engine."""
        return json.loads(self._store.metadata(asset, shard)[MADE_WITH])["engines"] == self._recipe

    def refreshed(self, kind: Mode, is_of_corpus: IsOfCorpus) -> "tuple[Vectors, list[str]]":
        """Return the current vectors, and notes on what is left out.

        Raises `CannotSearch` if none can be used.
        """
        asset = VECTORS[kind]
        published = self._store.published(asset)
        with_vectors = [shard for shard in self._shards if shard in published]
        if not with_vectors:
            raise CannotSearch("there are no {by} vectors yet: run `kopub run`", by=kind)
        of_corpus = [shard for shard in with_vectors if is_of_corpus(asset, shard)]
        if not of_corpus:
            form = "the {kind} vectors are of another corpus than the indexed one: run `kopub run`"
            raise CannotSearch(phrase(form, kind))
        of_passages = kind is Mode.MEANING
        wanted = self._embedding.passage_dim if of_passages else self._embedding.dim
        fit: list[ShardVectors] = []
        unfit: dict[str, str] = {}
        for shard in of_corpus:
            vectors = self._read.get((kind, shard))
            if vectors is None or vectors.version != published[shard]:
                table = self._cache.get(asset, shard, published[shard], partial(self._with_vector, asset, shard))
                vectors = self._read[kind, shard] = ShardVectors(shard, published[shard], table)
            schema = vectors.table.schema
            width = schema.field("vector").type.list_size
            if width != wanted:
                form = "have {width} dimensions, those of profile {profile} {wanted}"
                unfit[shard] = phrase(form, width, self._profile, wanted)
            elif json.loads((schema.metadata or {})[_ENGINES]) != (
                self._passage_recipe if of_passages else self._recipe
            ):
                form = "were made with another engine, or another version of it, than that of profile {profile}"
                unfit[shard] = phrase(form, self._profile)
            else:
                fit.append(vectors)
        if not fit:
            shard, problem = next(iter(unfit.items()))
            form = (
                "the {kind} vectors of {shard} {reason}: run `kopub run`, or set KOPUB_PROFILE to the profile that "
                "made them"
            )
            raise CannotSearch(phrase(form, kind, shard, problem))
        versions = {vectors.shard: vectors.version for vectors in fit}
        if kind not in self._open or self._open[kind][0] != versions:
            self._open[kind] = versions, Vectors(fit)
        notes = [f"{shard} is not searched: its {kind} vectors {problem}" for shard, problem in unfit.items()]
        return self._open[kind][1], notes + left_out("{by} vectors", self._shards, with_vectors, of_corpus, by=kind)

    def _with_vector(self, asset: str, shard: str) -> pa.Table:
        """Return a table's rows with a vector; its metadata names the engines that made it."""
        columns = ["page_id", PARTS.get(asset, "vector"), "state"]
        table = self._store.read(asset, shard, columns)
        made_with = json.loads(self._store.metadata(asset, shard)[MADE_WITH])
        table = table.filter(pc.field("state").isin(MADE)).drop_columns("state")
        if asset in PARTS:
            table = with_vector(table)
        return table.replace_schema_metadata({_ENGINES: json.dumps(made_with["engines"])})


def _as_json(values: Any) -> Any:
    """Return values as they are once they were written to JSON and read back."""
    return json.loads(json.dumps(values))


def left_out(
    what: str, shards: Sequence[str], with_tables: Sequence[str], of_corpus: Sequence[str], **values: str
) -> list[str]:
    """Return notes on shards whose tables are missing or of another corpus."""
    notes, count = list[str](), len(shards)
    if other := len(with_tables) - len(of_corpus):
        form = f"{{other}} of {{count}} shards have {what} of another corpus only"
        notes.append(Reason(form, other=other, count=count, **values))
    if missing := len(shards) - len(with_tables):
        form = f"{{missing}} of {{count}} shards have no {what} yet"
        notes.append(Reason(form, missing=missing, count=count, **values))
    return notes


PageFilter = Callable[[str], "pa.Array | None"]
"""A function that returns the ids of a shard's searched pages, or None for all of them."""


class Vectors:
    """The vectors of one table over its shards, in corpus order."""

    def __init__(self, shards: "Sequence[ShardVectors]") -> None:
        self.shards: list[ShardVectors] = [shard for shard in shards if shard.table.num_rows]

    def count(self, pages: PageFilter | None = None) -> int:
        """Return the number of searched pages that have a vector, or a figure with one."""
        count = 0
        for shard in self.shards:
            rows = rows_of(shard.table, shard.shard, pages)
            # The pages of a shard are numbered from 0.
            count += int(shard.pages.max()) + 1 if rows is None else len(np.unique(shard.pages[rows]))
        return count

    def nearest(self, query: np.ndarray, count: int, pages: PageFilter | None = None) -> "list[Neighbour]":
        """Return at most `count` pages, nearest first, and equal ones in corpus order.

        `query` has shape (dim,). `pages` returns a shard's searched pages. If there are more equal pages than fit in
        `count`, an arbitrary selection is returned.
        """
        if not self.shards:
            return []
        half = query.astype(np.float16)
        compared = [partial(shard.best, half, rows_of(shard.table, shard.shard, pages)) for shard in self.shards]
        try:
            with ThreadPoolExecutor(_THREADS) as threads:
                of_shards = list(threads.map(lambda compare: compare(), compared))
        except RuntimeError:  # the machine has no room for one more thread
            of_shards = [compare() for compare in compared]
        rows, scores = map(np.concatenate, zip(*of_shards, strict=True))
        shards = np.repeat(np.arange(len(of_shards)), [len(part) for part, _ in of_shards])
        best = np.arange(len(scores)) if len(scores) <= count else np.argpartition(-scores, count - 1)[:count]
        best = best[np.lexsort((best, -scores[best]))]
        neighbours: list[Neighbour] = []
        for number, row, score in zip(shards[best].tolist(), rows[best].tolist(), scores[best].tolist(), strict=True):
            shard = self.shards[number]
            figure, start, end = (int(shard.places[name][row]) if name in shard.places else None for name in _PLACES)
            passage = None if start is None or end is None else (start, end)
            neighbours.append(Neighbour(shard.shard, shard.page_ids[shard.pages[row]], score, figure, passage))
        return neighbours


@dataclass(frozen=True)
class ShardVectors:
    """The vectors of one shard: a table of `page_id` and `vector`.

    `version` identifies the table from which it was made. A table of figures also has the column `index`, one of
    passages `start` and `end`; both may have several rows per page.
    """

    shard: str
    version: str
    table: pa.Table

    @cached_property
    def _coded(self) -> pa.DictionaryArray:
        return self.table["page_id"].combine_chunks().dictionary_encode()

    @cached_property
    def pages(self) -> np.ndarray:
        """The number of each row's page among those of the shard, as int64."""
        return self._coded.indices.to_numpy().astype(np.int64)

    @cached_property
    def page_ids(self) -> list[str]:
        """The ids of the pages, by number."""
        return self._coded.dictionary.to_pylist()

    @cached_property
    def places(self) -> dict[str, np.ndarray]:
        """The figure or passage to which each row belongs."""
        return {name: self.table[name].to_numpy() for name in _PLACES if name in self.table.column_names}

    @cached_property
    def matrix(self) -> np.ndarray:
        """The vectors as float16 of shape (rows, dim), without copying."""
        column = self.table["vector"]
        width = column.type.list_size
        if not self.table.num_rows:
            return np.empty((0, width), np.float16)
        return column.chunk(0).flatten().to_numpy().reshape(-1, width)

    def best(self, query: np.ndarray, rows: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the (rows, scores) of the nearest vector of each page, in order.

        If `rows` is given, only these are searched. `query` is float16 of shape (dim,).
        """
        import numkong

        matrix, pages = (self.matrix, self.pages) if rows is None else (self.matrix[rows], self.pages[rows])
        if not len(matrix):
            return np.empty(0, np.int64), np.empty(0, np.float32)
        # Asked for float32 itself, it takes six times as long.
        scores = np.asarray(numkong.cdist(query[None], matrix, "dot"))[0].astype(np.float32)
        scores = np.nan_to_num(scores, nan=-1.0)  # a vector that is no vector is near to nothing
        # The vectors of a page are adjacent.
        firsts = np.flatnonzero(np.diff(pages, prepend=-1))
        best = np.maximum.reduceat(scores, firsts)
        at_best = np.flatnonzero(scores == best.repeat(np.diff(firsts, append=len(pages))))
        nearest = at_best[np.searchsorted(at_best, firsts)]
        return nearest if rows is None else rows[nearest], best


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A page by shard and id, and its dot product with the query's vector.

    `figure` is the index of the region to which the vector belongs, `passage` the (start, end) of the piece of the
    page's text; both are None for a vector of the whole page. `by` names the ways of searching that found the page.
    """

    shard: str
    page_id: str
    score: float
    figure: int | None = None
    passage: tuple[int, int] | None = None
    by: tuple[str, ...] = ()


def rows_of(table: pa.Table, shard: str, pages: PageFilter | None) -> np.ndarray | None:
    """Return the searched rows of a table with `page_id`, or None for all of them."""
    ids = None if pages is None else pages(shard)
    return None if ids is None else rows_with(table, ids)


def rows_with(table: pa.Table, ids: pa.Array) -> np.ndarray:
    """Return the rows of a table with `page_id` that belong to these pages."""
    is_among = pc.call_function("is_in", [table["page_id"]], pc.SetLookupOptions(value_set=ids))
    return np.flatnonzero(is_among.to_numpy())


_FEWEST = 20
"""Fewest questions of which a twentieth is at least one."""
_TWENTIETH = 0.05
_QUERIES = TABLES.query_vectors.name


class KnownQuestions:
    """The questions of a corpus with their answers, from the current tables."""

    def __init__(self, store: SearchedTables) -> None:
        self._store = store
        self._floors: dict[Mode, tuple[object, float | None]] = {}

    def floor(
        self,
        kind: Mode,
        shards: Sequence[str],
        vectors: Vectors,
        is_of_engine: Callable[[str, str], bool],
        is_of_corpus: IsOfCorpus,
    ) -> float | None:
        """Return the score that all but a twentieth of the questions reach.

        It is that of the page that answers, or None if there are too few questions. A question's best page is at
        least as near, so at most a twentieth of such questions are mistaken for questions without an answer.
        """
        published = self._store.published(_QUERIES)
        versions = [published, [(part.shard, part.version) for part in vectors.shards]]
        if kind not in self._floors or self._floors[kind][0] != versions:
            questions: list[tuple[np.ndarray, str]] = []
            for shard in shards:
                if shard in published and is_of_corpus(_QUERIES, shard) and is_of_engine(_QUERIES, shard):
                    table = self._store.read(_QUERIES, shard, ["vector", "ground_truth", "state"])
                    for row in table.filter(pc.field("state").isin(MADE)).to_pylist():
                        if row["ground_truth"]:
                            questions.append((np.asarray(row["vector"], np.float32), row["ground_truth"][0]))
            self._floors[kind] = versions, known_floor(questions, vectors)
        return self._floors[kind][1]


def known_floor(questions: Iterable[tuple[np.ndarray, str]], vectors: Vectors) -> float | None:
    """Return the dot product that all but a twentieth of `questions` reach.

    A question is (vector of shape (dim,), id of the page that answers it).
    """
    wanted: dict[str, list[np.ndarray]] = {}
    for vector, page_id in questions:
        wanted.setdefault(page_id, []).append(vector)
    answers = pa.array(list(wanted), pa.string())
    products: list[float] = []
    for shard in vectors.shards:
        ids = shard.table["page_id"]
        for row in rows_with(shard.table, answers).tolist():
            page = shard.matrix[row].astype(np.float32)
            products += [float(page @ vector) for vector in wanted[ids[row].as_py()]]
    return float(np.quantile(products, _TWENTIETH)) if len(products) >= _FEWEST else None
