"""The best pages for each query, exact and in bounded memory.

A page is given by its position among the sorted ids of the corpus. A ranking is int64 of shape (queries, at most
depth): pages best first, and `NO_PAGE` if fewer were found.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

DEPTH = 1000
"""Most pages kept for a query, as in TREC runs and mteb: a reciprocal rank beyond it would be under 0.001."""
NO_PAGE = -1
_BLOCK = 2048
"""Pages compared at once: 33 MB of float64 at 2048 dimensions."""
_PAGE_BITS = np.uint64(32)
_SIGN = np.uint32(1 << 31)


class Ranker:
    """Ranks pages: it holds the best `depth` of each query among those added so far.

    Pages are added in any order and in any portions. Of pages with equal scores, the one with the greater id comes
    first, as in trec_eval. A score and its page make one integer, so ties are resolved the same way however the pages
    are portioned.
    """

    def __init__(self, queries: int, depth: int = DEPTH) -> None:
        self._depth = depth
        self._keys = np.zeros((queries, 0), np.uint64)

    def add(self, pages: np.ndarray, scores: np.ndarray) -> None:
        """Add pages with their `scores` of shape (queries, pages).

        Scores are compared as float32; a page at -inf is not found for that query.
        """
        bits = (scores.astype(np.float32) + np.float32(0)).view(np.uint32)  # adding 0 turns -0 into +0
        ordered = np.where(bits & _SIGN, ~bits, bits | _SIGN)
        # Keys sort by score, then by page, and are never 0.
        keys = (ordered.astype(np.uint64) << _PAGE_BITS) | pages.astype(np.uint64)
        keys = np.concatenate([self._keys, np.where(np.isneginf(scores), np.uint64(0), keys)], axis=1)
        if keys.shape[1] > self._depth:
            keys = np.partition(keys, keys.shape[1] - self._depth, axis=1)[:, -self._depth :]
        self._keys = keys

    def add_vectors(self, pages: np.ndarray, vectors: np.ndarray, queries: np.ndarray) -> None:
        """Add pages by the dot products of their vectors with the queries.

        `vectors` is float16 (pages, dim), `queries` float64 (queries, dim). Products are computed in float64 and then
        rounded, so that equal vectors score equally wherever they are in a block. If a page has several vectors, which
        must be adjacent, the best one counts.
        """
        firsts = np.flatnonzero(np.diff(pages, prepend=NO_PAGE))
        while len(firsts):
            # Take as many whole pages as a block holds, but at least one.
            count = max(1, int(np.searchsorted(firsts, firsts[0] + _BLOCK)))
            start, end = firsts[0], firsts[count] if count < len(firsts) else len(pages)
            scores = queries @ vectors[start:end].astype(np.float64).T
            if count < end - start:
                scores = np.maximum.reduceat(scores, firsts[:count] - start, axis=1)
            self.add(pages[firsts[:count]], scores)
            firsts = firsts[count:]

    def ranking(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the pages, best first, and their float32 scores: 0 for `NO_PAGE`."""
        keys = np.sort(self._keys, axis=1)[:, ::-1]
        ordered = (keys >> _PAGE_BITS).astype(np.uint32)
        bits = np.where(ordered & _SIGN, ordered ^ _SIGN, ~ordered)
        scores = np.where(keys == 0, np.float32(0), bits.astype(np.uint32).view(np.float32))
        return np.where(keys == 0, NO_PAGE, (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)), scores


RRF_K = 60
"""The constant of the original paper, which found that results depend little on it."""


def reciprocal_ranks(rankings: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the pages of one query's rankings, with their reciprocal rank sums.

    Pages are in ascending order; the sum is over 1 / (60 + rank). A ranking is int64 (pages,), starting with the best
    at rank 1; `NO_PAGE` is left out.
    """
    pages = np.concatenate(rankings)
    weights = np.concatenate([1 / (RRF_K + 1 + np.arange(len(ranking))) for ranking in rankings])
    is_page = pages != NO_PAGE
    unique, position = np.unique(pages[is_page], return_inverse=True)
    return unique, np.bincount(position, weights[is_page], len(unique))


def weighted_scores(
    rankings: Sequence[np.ndarray], scores: Sequence[np.ndarray], weights: Sequence[float]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the pages of one query's rankings, with the weighted sums of their scores.

    Pages are in ascending order. A ranking is int64 (pages,), its scores float32 of the same shape; a page that is in
    no ranking, or below zero in it, gets nothing from it.
    """
    pages = np.concatenate(rankings)
    parts = [weight * np.maximum(of, 0).astype(np.float64) for of, weight in zip(scores, weights, strict=True)]
    is_page = pages != NO_PAGE
    unique, position = np.unique(pages[is_page], return_inverse=True)
    return unique, np.bincount(position, np.concatenate(parts)[is_page], len(unique))


@dataclass(frozen=True, slots=True)
class Ranking:
    """The ranked pages of every query by one retriever, and their scores.

    `pages` is int64 of shape (queries, at most depth), `scores` float32 of the same shape: dot products of unit
    vectors, or shares of the highest BM25 score that a page could have.
    """

    retriever: str
    pages: np.ndarray
    scores: np.ndarray


def fuse(rankings: Sequence[Ranking], weights: Mapping[str, float]) -> np.ndarray:
    """Return the fusion of rankings, int64 (queries, pages).

    With `weights` by retriever, scores are added up. Without, the ranks are fused (Cormack, Clarke and Büttcher, SIGIR
    2009), which needs no scores that can be compared.
    """
    width = max(ranking.pages.shape[1] for ranking in rankings)
    fused = np.full((len(rankings[0].pages), DEPTH), NO_PAGE)
    for query in range(len(fused)):
        ranked = [ranking.pages[query] for ranking in rankings]
        if weights:
            scored = [ranking.scores[query] for ranking in rankings]
            pages, scores = weighted_scores(ranked, scored, [weights.get(it.retriever, 0) for it in rankings])
        else:
            pages, scores = reciprocal_ranks(ranked)
        best = Ranker(1)
        best.add(pages, scores[None])
        row = best.ranking()[0][0]
        fused[query, : len(row)] = row
    return fused[:, : min(DEPTH, width * len(rankings))]


_K1, _B = 1.2, 0.75
"""The parameters used by Lucene and Elasticsearch."""
_INDEX = pa.schema(
    [
        ("terms", pa.list_(pa.large_binary())),
        ("starts", pa.large_list(pa.int64())),
        ("pages", pa.large_list(pa.int32())),
        ("scores", pa.large_list(pa.float32())),
        ("count", pa.int64()),
    ]
)


def _idf(pages: int, having: np.ndarray) -> np.ndarray:
    """Return the weight of words that are on `having` of so many pages."""
    return np.log1p((pages - having + 0.5) / (having + 0.5))


class Bm25:
    """BM25 in Lucene's form, over pages added one by one or many at once.

    See Kamphuis et al., ECIR 2020: "Which BM25 Do You Mean?"
    """

    def __init__(self) -> None:
        self._vocabulary: dict[str, int] = {}
        self._pages: list[int] = []
        self._lengths: list[np.ndarray] = []
        self._occurrences: list[np.ndarray] = [np.empty((3, 0), np.int32)]

    def add(self, page: int, tokens: Iterable[str]) -> None:
        words = list(tokens)
        self.add_coded([page], words, np.arange(len(words)), np.array([len(words)]))

    def add_coded(self, pages: Sequence[int], words: Sequence[str], codes: np.ndarray, lengths: np.ndarray) -> None:
        """Add pages of `lengths` tokens each, which are `words` by their `codes`."""
        numbers = self._vocabulary
        terms = np.fromiter((numbers.setdefault(word, len(numbers)) for word in words), np.int64, len(words))
        places = np.repeat(np.arange(len(pages)), lengths)
        pairs, counts = np.unique(terms[codes] * len(pages) + places, return_counts=True)
        terms, places = np.divmod(pairs, len(pages) or 1)
        self._occurrences.append(np.array([terms, places + len(self._pages), counts], np.int32))
        self._lengths.append(lengths)
        self._pages += pages

    def index(self) -> "Bm25Index":
        """Return the index of the pages, in the order in which they were added."""
        words, count = sorted(self._vocabulary, key=str.encode), len(self._pages)
        order = np.empty(len(words), np.int32)
        order[[self._vocabulary[word] for word in words]] = np.arange(len(words), dtype=np.int32)
        terms, pages, counts = np.concatenate(self._occurrences, axis=1)
        terms = order[terms]
        by_term = np.argsort(terms, kind="stable")
        terms, pages, counts = terms[by_term], pages[by_term], counts[by_term]
        having = np.bincount(terms, minlength=len(words))
        lengths = np.concatenate([np.empty(0, np.int64), *self._lengths])
        relative = 1 - _B + _B * lengths / max(lengths.mean() if count else 0, 1e-9)
        row = {
            "terms": [word.encode() for word in words],
            "starts": np.concatenate([[0], np.cumsum(having)]),
            "pages": pages,
            "scores": (_idf(count, having)[terms] * counts / (counts + _K1 * relative[pages])).astype(np.float32),
            "count": count,
        }
        columns = [pa.array([row[field.name]], field.type) for field in _INDEX]
        return Bm25Index(pa.Table.from_arrays(columns, schema=_INDEX))

    def rank(self, queries: Sequence[Sequence[str]]) -> Ranking:
        """Return the ranking of all pages for each query.

        A page without a word of the query is not found. Its score is a share of the highest that a page could have.
        """
        if not self._vocabulary or not queries:
            return Ranking("bm25", *Ranker(len(queries)).ranking())
        index, pages = self.index(), np.array(self._pages)
        ranked, scores = [], []
        for query in queries:
            summed = index.scores(query)
            best = Ranker(1)
            best.add(pages, np.where(summed > 0, summed, -np.inf)[None])
            of_query, scored = best.ranking()
            ranked.append(of_query)
            scores.append(scored / max(index.most(query), 1e-9))
        return Ranking("bm25", np.concatenate(ranked), np.concatenate(scores))


@dataclass(frozen=True)
class Bm25Index:
    """An index of what each word adds to the score of each page.

    A page is given by its place in the order of adding. `table` has one row: the words as UTF-8, ascending; where each
    word's pages begin, and the end of the last; the pages; what the word adds to each; and the number of pages. It may
    be memory-mapped.
    """

    table: pa.Table

    def scores(self, words: Sequence[str]) -> np.ndarray:
        """Return the score of each page for a query, as float32 (pages,).

        A page without any of the words has 0.
        """
        scores = np.zeros(self.count, np.float32)
        starts, pages, added = self._values("starts"), self._values("pages"), self._values("scores")
        for word in words:
            if (place := self._place(word)) is not None:
                of_word = slice(starts[place], starts[place + 1])
                scores[pages[of_word]] += added[of_word]
        return scores

    def most(self, words: Sequence[str]) -> float:
        """Return the highest score that a page could have for a query.

        It is the sum of the words' idf; a word on no page counts with the highest idf.
        """
        starts, having = self._values("starts"), list[int]()
        for word in words:
            place = self._place(word)
            having.append(0 if place is None else starts[place + 1] - starts[place])
        return float(_idf(self.count, np.array(having)).sum())

    @cached_property
    def count(self) -> int:
        """The number of pages."""
        return self.table["count"][0].as_py()

    @cached_property
    def _terms(self) -> pa.Array:
        return self.table["terms"].chunk(0).flatten()

    def _values(self, name: str) -> np.ndarray:
        return self.table[name].chunk(0).flatten().to_numpy()

    def _place(self, word: str) -> int | None:
        """Return the place of a word among the terms, if a page has it."""
        term = word.encode()
        place = bisect_left(self._terms, term, key=lambda other: other.as_py())
        return place if place < len(self._terms) and self._terms[place].as_py() == term else None
