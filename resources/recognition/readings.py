"""What was read from the regions of a page, and the state that the page ends in."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from resources.states import State

_SKIPPED = "skipped"
"""`finish_reason` of a region that no engine looked at."""


class Origin(StrEnum):
    """Who found the text of a region."""

    RECOGNIZER = "recognizer"
    LAYOUT = "layout"
    """The layout engine, which read the whole page."""
    TEXT_LAYER = "text_layer"
    """The PDF itself."""


@dataclass(frozen=True, slots=True)
class RegionText:
    """What was read from one region.

    `content` is plain text with code between fences (lines of three backticks), `<table>` HTML for a
    table, LaTeX without delimiters for a formula, and empty for a region that is not read. A region in
    which nothing is printed is `blank`. A region that could not be read is `failed` with a reason; its
    `content` is then at most a part of its text, for people to look at. A region that is `ok` with a
    reason was read in doubt. `seconds` are those of the reading, also where its answer was `reused`. `scale`
    is the size of the image that was read to that of the region on the page, a side, where an engine says it.
    `origin` is None where nobody looked for a text.
    """

    index: int
    native_label: str
    content: str
    state: State = State.OK
    reason: str | None = None
    finish_reason: str = "stop"
    attempts: int = 1
    seconds: float = 0.0
    scale: float | None = None
    reused: bool = field(default=False, compare=False)
    origin: Origin | None = Origin.RECOGNIZER


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


def skipped(index: int, label: str, state: State = State.OK, reason: str | None = None) -> RegionText:
    """A region that is not read, because of its task or because it has no ink."""
    return RegionText(index, label, "", state, reason, _SKIPPED, attempts=0, origin=None)


def readable(texts: Sequence[RegionText]) -> list[RegionText]:
    """The regions that texts of a page are made from, in reading order: all but those that failed."""
    return sorted((text for text in texts if text.state is not State.FAILED), key=lambda text: text.index)


def second_tries(texts: Sequence[RegionText]) -> dict[str, int]:
    """Of a page: regions that were asked again, those that this brought a reading, tables in which nothing was read.

    Nothing is counted that is 0, nor what was reused of an earlier reading.
    """
    again = [text for text in texts if text.attempts > 1 and not text.reused]
    counted = {
        "second_tries": len(again),
        "second_tries_taken": sum(text.state is not State.FAILED for text in again),
        "tables_dropped": sum(
            text.native_label == "table" and text.attempts > 0 and not text.content and text.state is not State.FAILED
            for text in texts
        ),
    }
    return {name: count for name, count in counted.items() if count}


def page_reading(page_id: str, texts: Sequence[RegionText], crops: Sequence[Crop]) -> PageReading:
    """A page that was read, in the state that its regions give it."""
    return PageReading(page_id, *page_state(texts), tuple(texts), tuple(crops))


def page_state(texts: Sequence[RegionText]) -> tuple[State, str | None]:
    """State and reason of a page by the regions that were to be read; every recognizer uses it.

    `ok` when none failed, `failed` when some did and no other gave text, else `partial`. The reason
    counts the failed regions and names the first.
    """
    failed = [text for text in texts if text.state is State.FAILED]
    if not failed:
        return State.OK, None
    to_read = sum(text.finish_reason != _SKIPPED for text in texts)
    first = failed[0]
    reason = f"{len(failed)} of {to_read} regions failed; region {first.index} ({first.native_label}): {first.reason}"
    read = any(text.state is State.OK and text.content.strip() for text in texts)
    return State.PARTIAL if read else State.FAILED, reason
