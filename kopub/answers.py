"""What `Corpus.search` answers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, overload

from kopub.rows import Region

if TYPE_CHECKING:
    import pandas as pd

    from kopub.page import Page


@dataclass(frozen=True, slots=True)
class Hit:
    """A page that answers, and where on it.

    `score` is of the answer's mode, and cannot be compared with that of another. `passage` is the piece of the page's
    text with most of the question; `marks` are (start, end) in it of what stands for words of the question.
    """

    rank: int
    score: float
    page: "Page"
    passage: str
    marks: tuple[tuple[int, int], ...]
    matching: tuple[int, ...] = field(repr=False)
    """Numbers of the regions that have the words, in the reading order of the page."""

    @property
    def regions(self) -> tuple[Region, ...]:
        """The regions that have the words, with their boxes."""
        return tuple(region for region in self.page.regions if region.index in self.matching)


@dataclass(frozen=True)
class Answer(Sequence[Hit]):
    """The hits, best first.

    `mode` is how they were ranked, and `chosen` why, where nobody asked for one. `matches_well` is False where no page
    reaches the floor under which nothing matches well, and None where that cannot be judged. `searched` counts the
    pages that could have been found; `notes` say what was not searched.
    """

    query: str
    mode: str
    chosen: str
    hits: tuple[Hit, ...]
    matches_well: bool | None
    searched: int
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.hits)

    @overload
    def __getitem__(self, key: int) -> Hit: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, key: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[key]

    def to_pandas(self) -> "pd.DataFrame":
        """rank, score, page_id, doc_id, page_no and passage of every hit."""
        import pandas as pd

        rows = [
            (hit.rank, hit.score, hit.page.id, hit.page.document.id, hit.page.number, hit.passage) for hit in self.hits
        ]
        return pd.DataFrame(rows, columns=["rank", "score", "page_id", "doc_id", "page_no", "passage"])
