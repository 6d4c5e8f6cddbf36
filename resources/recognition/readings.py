"""What was read from the regions of a page."""

from dataclasses import dataclass, field

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
