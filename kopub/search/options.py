"""The options of a search, and the default mode.

This uses only the standard library, for the command line.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Mode(StrEnum):
    """A way of ranking pages.

    `retrieval_scores` measures all except the first under these names. `vectors` means all kinds of vectors that a
    query can be compared with, of pages, their passages and their figures; `fusion` is BM25 and all of these, and
    `reranked` a fusion whose first pages a reranker has reordered.
    """

    AUTO = "auto"
    FUSION = "fusion"
    RERANKED = "reranked"
    BM25 = "bm25"
    VECTORS = "vectors"
    MEANING = "meaning"
    TEXT = "text"
    IMAGE = "image"
    FIGURE = "figure"


@dataclass(frozen=True, slots=True)
class Where:
    """The filter of pages by documents, shards and scripts.

    A page must belong to any of the `documents`, be in any of the `shards`, and be mainly in any of the `scripts`,
    whose names may be in any case. An empty set means no restriction.
    """

    documents: frozenset[str] = frozenset()
    shards: frozenset[str] = frozenset()
    has_table: bool = False
    has_figure: bool = False
    scripts: frozenset[str] = frozenset()

    @property
    def looks_at_pages(self) -> bool:
        """True if the filter depends on more than the shard of a page."""
        return bool(self.documents or self.scripts) or self.has_table or self.has_figure


MOST = 100
"""Most pages that can be requested, more than anybody looks through."""
FLOOR = 0.12
"""The best page's BM25 score, as a share of the highest possible score for the question, below which nothing matches
well. It comes from `benchmarks/finding/search_floor.py`; docs/benchmarks/search.md has the figures."""


@dataclass(frozen=True, slots=True)
class ModeScores:
    """The mean nDCG@10 by retriever over a number of questions; empty if not measured."""

    ndcg: Mapping[str, float]
    questions: int


NOTHING = ModeScores({}, 0)
Scores = Callable[[], "ModeScores"]
"""A function that returns the scores of each retriever on the current tables."""


def best_mode(measured: ModeScores, choices: Collection[Mode]) -> tuple[Mode, str]:
    """Return the best measured mode of `choices`, and the reason.

    Among equals, the order of `choices` decides. If nothing was measured, the first choice is taken: a fusion was never
    the worst in any comparison.
    """
    scored = [mode for mode in choices if mode in measured.ndcg]
    if not scored:
        return next(iter(choices)), "nothing was measured on these tables"
    best = max(scored, key=lambda mode: measured.ndcg[mode])
    return best, f"best of {measured.questions} questions, nDCG@10 {measured.ndcg[best]:.3f}"
