"""What a search can be asked for, and the mode that it takes by itself. Standard library only, for the command line."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Mode(StrEnum):
    """How pages are ranked; `retrieval_scores` measures all but the first under these names.

    `vectors` is all kinds of vectors that a query can be compared with, of pages and of their figures, `fusion` is BM25
    and all of them.
    """

    AUTO = "auto"
    FUSION = "fusion"
    BM25 = "bm25"
    VECTORS = "vectors"
    TEXT = "text"
    IMAGE = "image"
    FIGURE = "figure"


@dataclass(frozen=True, slots=True)
class Where:
    """The pages that are searched: of any of the `documents`, in any of the `shards`, all where none is named."""

    documents: frozenset[str] = frozenset()
    shards: frozenset[str] = frozenset()
    has_table: bool = False
    has_figure: bool = False

    @property
    def looks_at_pages(self) -> bool:
        """Whether more than the name of its shard decides if a page is searched."""
        return bool(self.documents) or self.has_table or self.has_figure


MOST = 100
"""Pages that can be asked for: more than anybody looks through."""
FLOOR = 0.12
"""The best page's BM25 score, as a share of what a page could have at most for the question, under which nothing
matches well. By `benchmarks/finding/search_floor.py`: docs/benchmarks/search.md has the figures."""


@dataclass(frozen=True, slots=True)
class ModeScores:
    """The mean nDCG@10 by retriever over a number of questions; empty where nothing was measured."""

    ndcg: Mapping[str, float]
    questions: int


NOTHING = ModeScores({}, 0)
Scores = Callable[[], "ModeScores"]
"""How well each retriever finds pages in the tables as they are now."""


def best_mode(measured: ModeScores, choices: Collection[Mode]) -> tuple[Mode, str]:
    """The mode and why: the best measured one of `choices`, which are in the order that decides between equals.

    Where nothing was measured it is the first of them: a fusion was never the worst of those that were compared.
    """
    scored = [mode for mode in choices if mode in measured.ndcg]
    if not scored:
        return next(iter(choices)), "nothing was measured on these tables"
    best = max(scored, key=lambda mode: measured.ndcg[mode])
    return best, f"best of {measured.questions} questions, nDCG@10 {measured.ndcg[best]:.3f}"
