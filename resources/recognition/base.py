"""The recognition protocol: what is read from a region, and what a recognizer promises."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from resources.engine import Engine
from resources.layout.base import Region
from resources.pages.page import Page
from resources.states import State


@dataclass(frozen=True, slots=True)
class RegionText:
    """What was read from one region.

    `content` is plain text, `<table>` HTML for a table, LaTeX without delimiters for a formula, and
    empty for a region that is not read. A region that could not be read is `failed` with a reason.
    `seconds` are those of the reading, also where its answer was `reused` and took none now.
    """

    index: int
    native_label: str
    content: str
    state: State = State.OK
    reason: str | None = None
    finish_reason: str = "stop"
    attempts: int = 1
    seconds: float = 0.0
    reused: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Crop:
    """A picture region (image, chart) cut out of its page: a JPEG, and the relative path that markdown links to."""

    path: str
    bbox: tuple[float, float, float, float]
    label: str
    data: bytes


@dataclass(frozen=True, slots=True)
class PageReading:
    """The texts of a page's regions, one for each region and in their order, and its pictures."""

    page_id: str
    state: State
    reason: str | None = None
    regions: tuple[RegionText, ...] = ()
    crops: tuple[Crop, ...] = ()


class Recognizer(Engine):
    """Reads the regions of pages."""

    @abstractmethod
    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        """Yield one `PageReading` per page, in any order, while taking pages lazily.

        Regions whose task is `skip` or `abandon` come back with empty content and finish_reason
        "skipped". A region that fails leaves the others; the page is then `failed` and keeps what
        was read. Raises `EngineError` when the engine cannot run at all.
        """

    def report(self) -> dict[str, float | str]:
        """Figures of the last `read` that are worth a plot."""
        return {}
