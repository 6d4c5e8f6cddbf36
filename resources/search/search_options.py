"""What a search can be asked for. Loads nothing, for the command line."""

from dataclasses import dataclass
from enum import StrEnum

MOST = 100
"""Pages that can be asked for: more than anybody looks through."""

FLOOR = 0.12
"""The best page's BM25 score, as a share of what a page could have at most for the question, under which nothing
matches well. By `benchmarks/finding/search_floor.py`: docs/benchmarks/search.md has the figures."""


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
