"""The best pages for each query, exactly and in bounded memory. Pure; NumPy.

A page is its position among the ids of the corpus in their order. A ranking is int64 of shape
(queries, at most depth): pages best first, `NO_PAGE` where fewer were found.
"""

import numpy as np

DEPTH = 1000
"""Pages kept for a query, as TREC runs and mteb have them: a reciprocal rank below it would be under 0.001."""
NO_PAGE = -1

_BLOCK = 2048
"""Pages compared at once: 33 MB of float64 at 2048 dimensions."""
_PAGE_BITS = np.uint64(32)
_SIGN = np.uint32(1 << 31)


class BestPages:
    """The best `depth` pages of each query among those added so far, in any order and in any portions.

    Of pages with the same score the one with the greater id comes first, as in trec_eval. A score and
    its page make one integer, so ties fall the same way however the pages were portioned.
    """

    def __init__(self, queries: int, depth: int = DEPTH) -> None:
        self._depth = depth
        self._keys = np.zeros((queries, 0), np.uint64)

    def add(self, pages: np.ndarray, scores: np.ndarray) -> None:
        """`scores` is (queries, pages), compared as float32; a page at -inf is not found by that query."""
        keys = np.where(np.isneginf(scores), np.uint64(0), _keys(pages, scores.astype(np.float32)))
        keys = np.concatenate([self._keys, keys], axis=1)
        if keys.shape[1] > self._depth:
            keys = np.partition(keys, keys.shape[1] - self._depth, axis=1)[:, -self._depth :]
        self._keys = keys

    def add_vectors(self, pages: np.ndarray, vectors: np.ndarray, queries: np.ndarray) -> None:
        """`vectors` is float16 (pages, dim), `queries` float64 (queries, dim); the score is their dot product.

        In float64, and rounded afterwards: equal vectors score equally wherever they lie in a block. Of several
        vectors of one page, which follow each other, the best counts.
        """
        firsts = np.flatnonzero(np.diff(pages, prepend=NO_PAGE))
        while len(firsts):
            # As many whole pages as a block holds, one at least.
            held = max(1, int(np.searchsorted(firsts, firsts[0] + _BLOCK)))
            start, end = firsts[0], firsts[held] if held < len(firsts) else len(pages)
            scores = queries @ vectors[start:end].astype(np.float64).T
            if held < end - start:
                scores = np.maximum.reduceat(scores, firsts[:held] - start, axis=1)
            self.add(pages[firsts[:held]], scores)
            firsts = firsts[held:]

    def ranking(self) -> np.ndarray:
        keys = np.sort(self._keys, axis=1)[:, ::-1]
        return np.where(keys == 0, NO_PAGE, (keys & np.uint64(0xFFFFFFFF)).astype(np.int64))


def _keys(pages: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """uint64 that sort by score, then by page; never 0."""
    bits = (scores + np.float32(0)).view(np.uint32)  # adding 0 makes one zero of the two
    ordered = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    return (ordered.astype(np.uint64) << _PAGE_BITS) | pages.astype(np.uint64)
