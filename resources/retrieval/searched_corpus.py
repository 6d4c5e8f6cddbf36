"""The corpus that retrieval is measured on: the shards of the store that are complete and fit together."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from resources.fingerprints import fingerprint
from resources.retrieval.token_tables import TOKENS, made_from, tokenised
from resources.scores.history import Contents
from resources.states import MADE
from resources.store.corpus_tables import TABLES, VECTOR_TABLES
from resources.store.footer_cache import FooterCache
from resources.store.page_rows.figure_rows import vector_width, with_vector
from resources.store.table_source import CorpusCheck, IsOfCorpus
from resources.store.table_store import TableStore

IMAGES, TEXTS, FIGURES = (VECTOR_TABLES[kind].name for kind in ("image", "text", "figure"))
QUERIES, PARSED = TABLES.query_vectors.name, TABLES.texts.name
VECTORS = {"image": IMAGES, "text": TEXTS, "figure": FIGURES}
"""The asset of each kind of vector, in the order of the scores; a page has one "figure" vector for each figure."""

_READ = {
    IMAGES: ("page_id", "vector", "state"),
    TEXTS: ("page_id", "vector", "state"),
    FIGURES: ("page_id", "figures", "state"),
    PARSED: ("page_id", "text", "state"),
    QUERIES: ("query_id", "query", "type", "ground_truth", "vector", "state"),
}
"""The columns of each asset that decide a score."""

_NOTHING: Contents = {}


@dataclass(frozen=True, slots=True)
class Question:
    """A query with a vector, and the pages of the corpus that answer it, the first one first."""

    query_id: str
    type: str | None
    text: str
    vector: np.ndarray
    pages: Sequence[int]
    has_first: bool
    """Whether the first of `pages` is the source's first ground truth."""


class SearchedCorpus:
    """The tables of the shards `keys` for vectors of width `dim` of some `kinds`, read a shard at a time.

    `measured` is what the scores in the store are of: those tables fitted together, and are not opened again to see it.

    `left_out` maps the other shards of the corpus to the reason. Tables that `corpus_check` finds to be
    of another corpus are such a reason; without it, all are used.
    """

    def __init__(
        self,
        store: TableStore,
        keys: Iterable[str],
        kinds: Collection[str],
        dim: int,
        corpus_check: CorpusCheck | None = None,
        measured: Contents = _NOTHING,
    ) -> None:
        self.kinds = tuple(kind for kind in VECTORS if kind in kinds)
        self._store = store
        self._dim = dim
        self._assets = (PARSED, QUERIES, *(VECTORS[kind] for kind in self.kinds))
        footers = FooterCache(store)
        self._tables = {asset: footers.tables(asset) for asset in self._assets}
        self._measured, self._widths = measured, dict[str, int]()
        self._is_of_corpus: IsOfCorpus = corpus_check.look(self._tables) if corpus_check else lambda asset, shard: True
        problems = {key: self._problem_with(key) for key in keys}
        self.left_out = {key: problem for key, problem in problems.items() if problem}
        self.shards = [key for key, problem in problems.items() if not problem]

    @cached_property
    def inputs(self) -> str:
        """Fingerprint of every value that decides a score."""
        return fingerprint([[shard, *found.values()] for shard, found in self.contents.items()])

    @cached_property
    def contents(self) -> dict[str, dict[str, str]]:
        """By shard and asset, the fingerprint of the rows that decide a score."""
        return {shard: self._contents(shard) for shard in self.shards}

    @cached_property
    def page_ids(self) -> list[str]:
        """Every page in any state, ordered by id; the position here is the page's number."""
        return sorted(page for shard in self.shards for page in self._ids(PARSED, shard))

    @property
    def pages(self) -> int:
        """How many `page_ids` there are; no table is read."""
        return sum(self._tables[PARSED][shard].rows for shard in self.shards)

    @property
    def rows(self) -> int:
        """Queries of the shards, measured or not."""
        return sum(self._tables[QUERIES][shard].rows for shard in self.shards)

    @cached_property
    def questions(self) -> list[Question]:
        """The queries that can be measured: with a vector, and with a page of this corpus that answers them."""
        return [question for shard in self.shards for question in self._questions(shard)]

    def mixed(self) -> list[str]:
        """The assets whose shards were made with different engines, as in an upgrade that is half done."""
        assets = (*(VECTORS[kind] for kind in self.kinds), QUERIES)
        return [asset for asset in assets if len({self._tables[asset][s].made_with for s in self.shards}) > 1]

    def vectors(self, kind: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(pages, float16 vectors) of the pages that have one, by shard; those of one page follow each other."""
        for shard in self.shards:
            table = self._made(VECTORS[kind], shard)
            if VECTORS[kind] == FIGURES:
                table = with_vector(table)
            yield self._pages(table), _matrix(table, self._dim)

    def tokens(self) -> Iterator[tuple[int, list[str]]]:
        """(page, tokens) of every page with text. They are stored by shard and made again when its texts change."""
        for shard in self.shards:
            table = self._shard_tokens(shard)
            yield from zip(self._pages(table).tolist(), table["tokens"].to_pylist(), strict=True)

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {page_id: position for position, page_id in enumerate(self.page_ids)}

    def _pages(self, table: pa.Table) -> np.ndarray:
        return np.array([self._positions[page_id] for page_id in table["page_id"].to_pylist()], np.int64)

    def _contents(self, shard: str) -> dict[str, str]:
        """By asset, the fingerprint of a table's rows, as the table is stamped with it."""
        return {asset: self._tables[asset][shard].content for asset in self._assets}

    def _made(self, asset: str, shard: str) -> pa.Table:
        return self._store.read(asset, shard, _READ[asset]).filter(pc.field("state").isin(MADE))

    def _ids(self, asset: str, shard: str) -> list[str]:
        return self._store.read(asset, shard, ["page_id"])["page_id"].to_pylist()

    def _problem_with(self, shard: str) -> str | None:
        assets = (PARSED, *(VECTORS[kind] for kind in self.kinds), QUERIES)
        if missing := [asset for asset in assets if shard not in self._tables[asset]]:
            return f"no {', '.join(missing)} yet"
        if other := [asset for asset in assets if not self._is_of_corpus(asset, shard)]:
            return f"{', '.join(other)} of another corpus than the indexed one"
        is_measured = self._contents(shard) == self._measured.get(shard)
        for asset in assets[1:]:
            width = self._width(asset, shard, is_measured)
            if width != self._dim:
                return f"{asset} has vectors of {width} dimensions, the engine makes {self._dim}"
        if is_measured:
            return None
        pages = self._ids(PARSED, shard)
        unlike = [VECTORS[kind] for kind in self.kinds if self._ids(VECTORS[kind], shard) != pages]
        return f"{unlike[0]} does not hold the pages of {PARSED}" if unlike else None

    def _width(self, asset: str, shard: str, is_measured: bool) -> int:
        """Of the vectors of a table. All that were measured together have one width."""
        if is_measured and asset in self._widths:
            return self._widths[asset]
        width = vector_width(self._store.arrow_schema(asset, shard))
        if is_measured:
            self._widths[asset] = width
        return width

    def _questions(self, shard: str) -> Iterator[Question]:
        table = self._made(QUERIES, shard)
        vectors = _matrix(table, self._dim).astype(np.float64)
        for row, vector in zip(table.drop_columns("vector").to_pylist(), vectors, strict=True):
            known = list(dict.fromkeys(page for page in row["ground_truth"] if page in self._positions))
            if known:
                pages = [self._positions[page] for page in known]
                has_first = known[0] == row["ground_truth"][0]
                yield Question(row["query_id"], row["type"], row["query"], vector, pages, has_first)

    def _shard_tokens(self, shard: str) -> pa.Table:
        texts = self._made(PARSED, shard)
        stamp = made_from(texts)
        if (stored := self._store.find(TOKENS, shard)) is not None and stored[1] == stamp:
            return stored[0]
        table = tokenised(texts)
        self._store.write(TOKENS, shard, table, stamp, replaces=stored is not None)
        return table


def _matrix(table: pa.Table, dim: int) -> np.ndarray:
    """The column `vector` as (rows, dim)."""
    return table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(-1, dim)
