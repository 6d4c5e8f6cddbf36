"""The measurement of retrieval on stored vectors, texts and queries, once per input."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kopub.embedding.base import Embedder
from kopub.fingerprints import CodeVersion, fingerprint
from kopub.search import metrics, morphemes, words
from kopub.search.metrics import CONVENTIONS, HISTORY, RUN, SCORES
from kopub.search.ranking import NO_PAGE, Bm25, Ranker, Ranking, fuse
from kopub.search.reranking import RankedQuestion, Reranking, kept_scores, order
from kopub.search.scores import ALL, Contents, ScoredRun
from kopub.search.words import TOKENS, made_from, tokenise
from kopub.states import MADE
from kopub.store.corpus_tables import PARTS, TABLES, VECTOR_TABLES
from kopub.store.rows import vector_matrix, vector_width, with_vector
from kopub.store.schemas import RETRIEVAL_SCORES
from kopub.store.table_source import CorpusCheck, FooterCache, IsOfCorpus
from kopub.store.table_store import TableStore

VERSION = CodeVersion(
    "retrieval_scores", {1: "the first release", 2: "a type of queries that is named `all` is no second total"}
)


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of a measurement: the table RETRIEVAL_SCORES and the comparison.

    `computed` says whether it was computed just now, not read.
    """

    scores: pa.Table
    inputs: str
    compared: str
    computed: bool

    @property
    def questions(self) -> int:
        """The number of measured queries."""
        return max(self.scores["queries"].to_pylist(), default=0)


def measure(
    store: TableStore,
    corpus: "SearchedCorpus",
    accept: bool = False,
    log: Callable[[str], None] = lambda line: None,
    reranking: Reranking | None = None,
) -> Measurement:
    """Score the corpus and write the result, unless these inputs are already scored.

    With `accept`, later runs are compared with this one even if its scores dropped. Without any measurable query, the
    table is empty, and the previous runs are kept for later ones. With `reranking`, the fusion is measured both with
    and without it. Raises `StoreError`, and `EngineError` if the reranker cannot run.
    """
    inputs = inputs_of(corpus, reranking)
    todo = not HISTORY.is_scored(store, inputs)
    if todo and corpus.questions:
        rerank = None if reranking is None else partial(_reranked, store, corpus, reranking)
        run = ScoredRun(inputs, evaluate(corpus, log, rerank), corpus.page_ids)
        HISTORY.publish(store, run, corpus.contents, accept)
    elif todo:
        nothing = "nothing to measure: no query has a vector and a page that answers it"
        HISTORY.write_scores(store, RETRIEVAL_SCORES.empty_table(), inputs, nothing, corpus.contents)
    elif accept:
        HISTORY.accept(store, inputs)
    compared = store.metadata(SCORES, ALL)["compared"]
    return Measurement(store.read(SCORES, ALL), inputs, compared, todo)


def inputs_of(corpus: "SearchedCorpus", reranking: Reranking | None = None) -> str:
    """Return the fingerprint of everything that determines the scores of a corpus."""
    reranker = [reranking.recipe, reranking.engine.depth] if reranking else []
    # Named only where scores are added up, so that scores from before this was possible stay valid.
    fusion = [dict(corpus.embedding.fusion)] if corpus.embedding.fusion else []
    made_by = [corpus.inputs, corpus.kinds, VERSION.number, words.tokenizer()]
    return fingerprint([*made_by, *fusion, *reranker])


_Rerank = Callable[[np.ndarray], np.ndarray]
"""A function that reorders the first pages of rankings (queries, pages)."""


def _reranked(store: TableStore, corpus: "SearchedCorpus", reranking: Reranking, ranking: np.ndarray) -> np.ndarray:
    """Return a ranking of the corpus's questions, with the first pages of each reordered."""
    questions: list[RankedQuestion] = []
    for question, row in zip(corpus.questions, ranking[:, : reranking.engine.depth].tolist(), strict=True):
        questions.append(RankedQuestion(question.text, [corpus.page(at) for at in row if at != NO_PAGE]))
    scored = kept_scores(store, reranking, questions)
    reordered = ranking.copy()
    for row, question, scores in zip(reordered, questions, scored, strict=True):
        places = dict(zip(question.pages, row.tolist(), strict=False))
        row[: len(question.pages)] = [places[page] for page in order(question.pages, scores)]
    return reordered


def evaluate(
    corpus: "SearchedCorpus", log: Callable[[str], None] = lambda line: None, rerank: _Rerank | None = None
) -> pa.Table:
    """Return the scores of each question by retriever and convention.

    The table has the schema `RUN`. A question whose first ground-truth page is not in the corpus is measured only by
    the convention `any`. Raises `StoreError`.
    """
    parts = [RUN.empty_table()]
    for retriever, ranking in _rankings(corpus, log, rerank):
        for convention in CONVENTIONS:
            rows: list[int] = []
            names: list[tuple[str, str, str, str | None]] = []
            answers: list[Sequence[int]] = []
            for row, question in enumerate(corpus.questions):
                if convention == "any" or question.has_first:
                    rows.append(row)
                    names.append((retriever, convention, question.query_id, question.type))
                    answers.append(question.pages if convention == "any" else question.pages[:1])
            scores = metrics.score(ranking[rows], answers)
            columns = map(list, zip(*names, strict=True)) if names else [[]] * 4
            parts.append(pa.Table.from_arrays([*map(pa.array, columns), *map(pa.array, scores.T)], schema=RUN))
    return pa.concat_tables(parts)


def _rankings(
    corpus: "SearchedCorpus", log: Callable[[str], None], rerank: _Rerank | None
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield (retriever, ranking), with the questions in order.

    The fusion of all others comes after them, followed by its reranked form, if any.
    """
    if not corpus.questions:
        return
    rankings: list[Ranking] = []
    texts = [question.text for question in corpus.questions]
    lexical = np.stack([question.vector for question in corpus.questions])
    for kind in corpus.kinds:
        started = time.monotonic()
        queries = corpus.embedding.embed_questions(texts).astype(np.float64) if kind == "meaning" else lexical
        best = Ranker(len(queries))
        for pages, vectors in corpus.vectors(kind):
            best.add_vectors(pages, vectors, queries)
        rankings.append(Ranking(kind, *best.ranking()))
        log(f"{kind}: {len(texts)} queries over {len(corpus.page_ids)} pages in {time.monotonic() - started:.1f} s")
    started = time.monotonic()
    bm25 = Bm25()
    for page, tokens in corpus.tokens():
        bm25.add(page, tokens)
    rankings.append(bm25.rank(list(morphemes.query_tokens(texts))))
    log(f"bm25: tokenised, indexed and searched in {time.monotonic() - started:.1f} s")
    for ranking in rankings:
        yield ranking.retriever, ranking.pages
    fused = fuse(rankings, corpus.embedding.fusion)
    yield "fusion", fused
    if rerank is not None:
        started = time.monotonic()
        yield "reranked", rerank(fused)
        log(f"reranked: the first pages of {len(texts)} queries in {time.monotonic() - started:.1f} s")


@dataclass(frozen=True, slots=True)
class JudgedQuestion:
    """A query with a vector, and the pages of the corpus that answer it.

    The first ground-truth page comes first.
    """

    query_id: str
    type: str | None
    text: str
    vector: np.ndarray
    pages: Sequence[int]
    has_first: bool
    """Whether the first of `pages` is the source's first ground-truth page."""


KINDS: tuple[str, ...] = ("image", "text", "meaning", "figure")
"""The kinds of vectors in the order of the scores; a page has several of its passages and figures."""
VECTORS: dict[str, str] = {kind: VECTOR_TABLES[kind].name for kind in KINDS}
"""The asset of each kind of vector."""
QUERIES, PARSED = TABLES.query_vectors.name, TABLES.texts.name
_READ = {
    **{asset: ("page_id", PARTS.get(asset, "vector"), "state") for asset in VECTORS.values()},
    PARSED: ("page_id", "text", "state"),
    QUERIES: ("query_id", "query", "type", "ground_truth", "vector", "state"),
}
"""The columns of each asset that determine a score."""
_NOTHING: Contents = {}


class SearchedCorpus:
    """The tables that are searched: shards `keys`, with vectors of some `kinds`.

    `embedding` made the vectors; the tables are read one shard at a time. `measured` are the contents behind the stored
    scores: those tables are known to be consistent, and are not opened again to check. `left_out` maps unused shards to
    the reason, for instance that `corpus_check` finds tables of another corpus; without it, all tables are used.
    """

    def __init__(
        self,
        store: TableStore,
        keys: Iterable[str],
        kinds: Collection[str],
        embedding: Embedder,
        corpus_check: CorpusCheck | None = None,
        measured: Contents = _NOTHING,
    ) -> None:
        self.kinds = tuple(kind for kind in VECTORS if kind in kinds)
        self._store = store
        self.embedding = embedding
        self._vectors = [VECTORS[kind] for kind in self.kinds]
        self._assets = (PARSED, QUERIES, *self._vectors)
        footers = FooterCache(store)
        self._tables = {asset: footers.tables(asset) for asset in self._assets}
        self._measured, self._widths = measured, dict[str, int]()
        self._is_of_corpus: IsOfCorpus = corpus_check.look(self._tables) if corpus_check else lambda asset, shard: True
        self.left_out: dict[str, str] = {}
        self.shards: list[str] = []
        for key in keys:
            if problem := self._problem_with(key):
                self.left_out[key] = problem
            else:
                self.shards.append(key)

    @cached_property
    def inputs(self) -> str:
        """The fingerprint of every value that determines a score."""
        return fingerprint([[shard, *of_assets.values()] for shard, of_assets in self.contents.items()])

    @cached_property
    def contents(self) -> dict[str, dict[str, str]]:
        """The fingerprint of the rows that determine a score, by shard and asset."""
        return {shard: self._contents(shard) for shard in self.shards}

    @cached_property
    def page_ids(self) -> list[str]:
        """All page ids in any state, sorted; a page's number is its position here."""
        return sorted(self._shard_of)

    @property
    def pages(self) -> int:
        """The number of `page_ids`, found without reading a table."""
        return sum(self._tables[PARSED][shard].rows for shard in self.shards)

    @property
    def rows(self) -> int:
        """The number of queries in the shards, measured or not."""
        return sum(self._tables[QUERIES][shard].rows for shard in self.shards)

    @cached_property
    def questions(self) -> list[JudgedQuestion]:
        """The measurable queries, with a vector and an answering page in this corpus."""
        questions: list[JudgedQuestion] = []
        for shard in self.shards:
            table = self._made(QUERIES, shard)
            vectors = vector_matrix(table["vector"]).astype(np.float64)
            for row, vector in zip(table.drop_columns("vector").to_pylist(), vectors, strict=True):
                answers = list(dict.fromkeys(page for page in row["ground_truth"] if page in self._positions))
                if answers:
                    pages = [self._positions[page] for page in answers]
                    has_first = answers[0] == row["ground_truth"][0]
                    question = JudgedQuestion(row["query_id"], row["type"], row["query"], vector, pages, has_first)
                    questions.append(question)
        return questions

    def page(self, position: int) -> tuple[str, str]:
        """Return the shard and id of a page, given its number."""
        page_id = self.page_ids[position]
        return self._shard_of[page_id], page_id

    def mixed(self) -> list[str]:
        """Return the assets whose shards were made with different engines.

        This happens while an upgrade is half done.
        """
        mixed: list[str] = []
        for asset in (*self._vectors, QUERIES):
            if len({self._tables[asset][shard].made_with for shard in self.shards}) > 1:
                mixed.append(asset)
        return mixed

    def vectors(self, kind: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (pages, float16 vectors) of the pages with vectors, by shard.

        The vectors of a page are adjacent.
        """
        for shard in self.shards:
            table = self._made(VECTORS[kind], shard)
            if VECTORS[kind] in PARTS:
                table = with_vector(table)
            yield self._pages(table), vector_matrix(table["vector"])

    def tokens(self) -> Iterator[tuple[int, list[str]]]:
        """Yield (page, tokens) of every page with text.

        Tokens are stored by shard, and made again if the shard's texts change.
        """
        for shard in self.shards:
            texts = self._made(PARSED, shard)
            stamp = made_from(texts)
            stored = self._store.find_sound(TOKENS, shard)
            if stored is not None and stored[1] == stamp:
                table = stored[0]
            else:
                table = tokenise(texts)
                self._store.write(TOKENS, shard, table, stamp, replaces=stored is not None)
            yield from zip(self._pages(table).tolist(), table["tokens"].to_pylist(), strict=True)

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {page_id: position for position, page_id in enumerate(self.page_ids)}

    @cached_property
    def _shard_of(self) -> dict[str, str]:
        shard_of: dict[str, str] = {}
        for shard in self.shards:
            shard_of.update(dict.fromkeys(self._ids(PARSED, shard), shard))
        return shard_of

    def _pages(self, table: pa.Table) -> np.ndarray:
        return np.array([self._positions[page_id] for page_id in table["page_id"].to_pylist()], np.int64)

    def _contents(self, shard: str) -> dict[str, str]:
        """Return the fingerprint of each table's rows, with which it is stamped, by asset."""
        return {asset: self._tables[asset][shard].content for asset in self._assets}

    def _made(self, asset: str, shard: str) -> pa.Table:
        return self._store.read(asset, shard, _READ[asset]).filter(pc.field("state").isin(MADE))

    def _ids(self, asset: str, shard: str) -> list[str]:
        return self._store.read(asset, shard, ["page_id"])["page_id"].to_pylist()

    def _problem_with(self, shard: str) -> str | None:
        assets = (PARSED, *self._vectors, QUERIES)
        if missing := [asset for asset in assets if shard not in self._tables[asset]]:
            return f"no {', '.join(missing)} yet"
        if other := [asset for asset in assets if not self._is_of_corpus(asset, shard)]:
            return f"{', '.join(other)} of another corpus than the indexed one"
        is_measured = self._contents(shard) == self._measured.get(shard)
        for asset in assets[1:]:
            # All tables that were measured together have vectors of one width.
            width = self._widths.get(asset) if is_measured else None
            if width is None:
                width = vector_width(self._store.arrow_schema(asset, shard))
            if is_measured:
                self._widths[asset] = width
            dim = self.embedding.passage_dim if asset == VECTORS["meaning"] else self.embedding.dim
            if width != dim:
                return f"{asset} has vectors of {width} dimensions, the engine makes {dim}"
        if is_measured:
            return None
        pages = self._ids(PARSED, shard)
        unlike = [asset for asset in self._vectors if self._ids(asset, shard) != pages]
        return f"{unlike[0]} does not hold the pages of {PARSED}" if unlike else None
