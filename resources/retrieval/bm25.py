"""Pages ranked by the words they share with a query. Pure; bm25s."""

from collections.abc import Iterable, Sequence

import numpy as np

from resources.retrieval.ranking import DEPTH, BestPages

_K1, _B = 1.2, 0.75
"""The values of Lucene and Elasticsearch."""


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

    def rank(self, queries: Sequence[Sequence[str]], depth: int = DEPTH) -> np.ndarray:
        """The ranking of all pages for each query; a page without a word of it is not found."""
        import bm25s

        best = BestPages(len(queries), depth)
        if not self._vocabulary:
            return best.ranking()
        index = bm25s.BM25(k1=_K1, b=_B, method="lucene")
        index.index((self._tokens, self._vocabulary), show_progress=False)
        pages = np.array(self._pages)
        rankings = []
        for query in queries:
            scores = index.get_scores_from_ids(index.get_tokens_ids(list(query)))
            one = BestPages(1, depth)
            one.add(pages, np.where(scores > 0, scores, -np.inf)[None])
            rankings.append(one.ranking())
        return np.concatenate(rankings) if rankings else best.ranking()
