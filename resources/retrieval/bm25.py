"""Pages ranked by the words they share with a query. Pure; bm25s."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from resources.retrieval.ranking import DEPTH, BestPages

_K1, _B = 1.2, 0.75
"""The values of Lucene and Elasticsearch."""
_INDEX = pa.schema(
    [
        ("terms", pa.list_(pa.large_binary())),
        ("starts", pa.large_list(pa.int64())),
        ("pages", pa.large_list(pa.int32())),
        ("scores", pa.large_list(pa.float32())),
        ("count", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Bm25Index:
    """What each word adds to the score of each page that has it; a page is its place among those that were added.

    `table` has one row: the words as UTF-8, ascending; where the pages of each begin, and the end of the last;
    the pages; what the word adds to each; how many pages there are. It may be memory-mapped.
    """

    table: pa.Table

    def scores(self, words: Sequence[str]) -> np.ndarray:
        """float32 (pages,): the score of each page for a query; 0 for a page that has none of its words."""
        if not len(self._starts) or not self.count:
            return np.zeros(self.count, np.float32)
        import bm25s

        index = bm25s.BM25(k1=_K1, b=_B, method="lucene")
        index.scores = {
            "data": self._values("scores"),
            "indices": self._values("pages"),
            "indptr": self._starts,
            "num_docs": self.count,
        }
        index.nonoccurrence_array = None
        return index.get_scores_from_ids([place for word in words if (place := self._place(word)) is not None])

    def most(self, words: Sequence[str]) -> float:
        """What a page could have at most for a query: of each word its idf, and of one that no page has the highest."""
        most = 0.0
        for word in words:
            place = self._place(word)
            having = 0 if place is None else int(self._starts[place + 1] - self._starts[place])
            most += math.log1p((self.count - having + 0.5) / (having + 0.5))
        return most

    @cached_property
    def count(self) -> int:
        """How many pages there are."""
        return self.table["count"][0].as_py()

    @cached_property
    def _starts(self) -> np.ndarray:
        return self._values("starts")

    @cached_property
    def _terms(self) -> pa.Array:
        return self.table["terms"].chunk(0).flatten()

    def _values(self, name: str) -> np.ndarray:
        return self.table[name].chunk(0).flatten().to_numpy()

    def _place(self, word: str) -> int | None:
        """Where a word stands among the terms; None when no page has it."""
        wanted, low, high = word.encode(), 0, len(self._terms)
        while low < high:
            middle = (low + high) // 2
            if self._terms[middle].as_py() < wanted:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self._terms) and self._terms[low].as_py() == wanted else None


class Bm25:
    """BM25 in Lucene's form (Kamphuis et al., ECIR 2020: "Which BM25 Do You Mean?") over pages added in turn."""

    def __init__(self) -> None:
        self._vocabulary: dict[str, int] = {}
        self._pages: list[int] = []
        self._tokens: list[np.ndarray] = []

    def add(self, page: int, tokens: Iterable[str]) -> None:
        known = self._vocabulary
        self._pages.append(page)
        self._tokens.append(np.fromiter((known.setdefault(token, len(known)) for token in tokens), np.int32))

    def index(self) -> Bm25Index:
        """What was added, in its order."""
        import bm25s

        terms = sorted(self._vocabulary, key=str.encode)
        places = np.empty(len(terms), np.int32)
        places[[self._vocabulary[term] for term in terms]] = np.arange(len(terms), dtype=np.int32)
        if terms:
            index = bm25s.BM25(k1=_K1, b=_B, method="lucene")
            ids = {term: place for place, term in enumerate(terms)}
            index.index(([places[tokens] for tokens in self._tokens], ids), False, show_progress=False)
            made = {name: index.scores[name] for name in ("indptr", "indices", "data")}
        else:
            made = {name: np.empty(0, np.int64) for name in ("indptr", "indices", "data")}
        row = {
            "terms": [term.encode() for term in terms],
            "starts": made["indptr"].astype(np.int64),
            "pages": made["indices"].astype(np.int32),
            "scores": made["data"].astype(np.float32),
            "count": len(self._tokens),
        }
        columns = [pa.array([row[field.name]], field.type) for field in _INDEX]
        return Bm25Index(pa.Table.from_arrays(columns, schema=_INDEX))

    def rank(self, queries: Sequence[Sequence[str]], depth: int = DEPTH) -> np.ndarray:
        """The ranking of all pages for each query; a page without a word of it is not found."""
        best = BestPages(len(queries), depth)
        if not self._vocabulary:
            return best.ranking()
        index, pages = self.index(), np.array(self._pages)
        rankings = []
        for query in queries:
            scores = index.scores(query)
            one = BestPages(1, depth)
            one.add(pages, np.where(scores > 0, scores, -np.inf)[None])
            rankings.append(one.ranking())
        return np.concatenate(rankings) if rankings else best.ranking()
