"""Several rankings made one. Pure; NumPy."""

from collections.abc import Sequence

import numpy as np

from resources.retrieval.ranking import DEPTH, NO_PAGE, BestPages

RRF_K = 60
"""Of the original paper, which found the result not to depend on it much."""


def fuse(rankings: Sequence[np.ndarray], depth: int = DEPTH) -> np.ndarray:
    """Reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009): the sum of 1 / (60 + rank).

    It needs no scores, so rankings whose scores cannot be compared may be fused.
    """
    width = max(ranking.shape[1] for ranking in rankings)
    fused = np.full((len(rankings[0]), depth), NO_PAGE)
    for query, found in enumerate(zip(*rankings, strict=True)):
        pages = np.concatenate(found)
        weights = np.concatenate([1 / (RRF_K + 1 + np.arange(len(ranks))) for ranks in found])
        kept = pages != NO_PAGE
        unique, position = np.unique(pages[kept], return_inverse=True)
        best = BestPages(1, depth)
        best.add(unique, np.bincount(position, weights[kept], len(unique))[None])
        row = best.ranking()[0]
        fused[query, : len(row)] = row
    return fused[:, : min(depth, width * len(rankings))]
