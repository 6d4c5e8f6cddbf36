"""Several rankings made one. Pure; NumPy."""

from collections.abc import Sequence

import numpy as np

from resources.retrieval.ranking import DEPTH, NO_PAGE, BestPages

RRF_K = 60
"""Of the original paper, which found the result not to depend on it much."""


def reciprocal_ranks(rankings: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The pages of one query's rankings, ascending, and the sum of 1 / (60 + rank) of each.

    A ranking is int64 (pages,), best first, rank 1; `NO_PAGE` is left out.
    """
    pages = np.concatenate(rankings)
    weights = np.concatenate([1 / (RRF_K + 1 + np.arange(len(ranking))) for ranking in rankings])
    kept = pages != NO_PAGE
    unique, position = np.unique(pages[kept], return_inverse=True)
    return unique, np.bincount(position, weights[kept], len(unique))


def fuse(rankings: Sequence[np.ndarray], depth: int = DEPTH) -> np.ndarray:
    """Reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009) of rankings (queries, pages).

    It needs no scores, so rankings whose scores cannot be compared may be fused.
    """
    width = max(ranking.shape[1] for ranking in rankings)
    fused = np.full((len(rankings[0]), depth), NO_PAGE)
    for query, found in enumerate(zip(*rankings, strict=True)):
        pages, scores = reciprocal_ranks(found)
        best = BestPages(1, depth)
        best.add(pages, scores[None])
        row = best.ranking()[0]
        fused[query, : len(row)] = row
    return fused[:, : min(depth, width * len(rankings))]
