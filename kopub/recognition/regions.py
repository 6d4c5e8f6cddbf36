"""The reading of a page: texts, pictures, state."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kopub.boxes import Box
from kopub.layout.regions import Region, Task
from kopub.states import Reason, State

if TYPE_CHECKING:
    from kopub.pages.page import Page

_SKIPPED = "skipped"
"""`finish_reason` of a region that no engine read."""


class TextOrigin(StrEnum):
    """The origin of a region's text."""

    RECOGNIZER = "recognizer"
    LAYOUT = "layout"
    """The layout engine, which read the whole page."""
    TEXT_LAYER = "text_layer"
    """The PDF itself."""
    DOCUMENT = "document"
    """The office file of which the PDF was made."""
    UNPRINTED = "unprinted"
    """The office file, which does not print it: a note, the figures of a chart."""
    PERSON = "person"
    """A person who corrected the page; no engine uses this."""


@dataclass(frozen=True, slots=True)
class RegionText:
    """The text that was read from one region.

    `content` is plain text with code between fences (lines of three backticks), `<table>` HTML for a table, LaTeX
    without delimiters for a formula, and empty for a region that is not read. A region in which nothing is printed is
    `blank`. A region that could not be read is `failed` with a reason; its `content` is then at most a part of its
    text, for people to look at. A region that is `ok` with a reason was read in doubt. `seconds` are those of the
    reading, even if its answer was `reused`. `scale` is the side of the image that was read relative to the region's
    side on the page, if the engine reports it. `origin` is None if nobody looked for a text.
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
    origin: TextOrigin | None = TextOrigin.RECOGNIZER


@dataclass(frozen=True, slots=True)
class Crop:
    """A picture region (image, chart) cut out of its page.

    `data` is a JPEG, and `path` the relative path that markdown links to.
    """

    path: str
    bbox: tuple[float, float, float, float]
    label: str
    data: bytes


@dataclass(frozen=True, slots=True)
class PageReading:
    """The texts of a page's regions, in order, and its pictures."""

    page_id: str
    state: State
    reason: str | None = None
    regions: tuple[RegionText, ...] = ()
    crops: tuple[Crop, ...] = ()


def skipped(index: int, label: str, state: State = State.OK, reason: str | None = None) -> RegionText:
    """Make the text of a region that is not read, such as a picture."""
    return RegionText(index, label, "", state, reason, _SKIPPED, attempts=0, origin=None)


def readable(texts: Sequence[RegionText]) -> list[RegionText]:
    """Return the texts that did not fail, in reading order."""
    return sorted((text for text in texts if text.state is not State.FAILED), key=lambda text: text.index)


def retry_counts(texts: Sequence[RegionText]) -> dict[str, int]:
    """Count the regions requested again, those it helped, and tables without text.

    Counts of 0 are left out, and so are retries of reused answers.
    """
    again = taken = dropped = 0
    for text in texts:
        has_text = text.state is not State.FAILED
        if text.attempts > 1 and not text.reused:
            again += 1
            taken += has_text
        if text.native_label == "table" and text.attempts > 0 and not text.content and has_text:
            dropped += 1
    counts = {"second_tries": again, "second_tries_taken": taken, "tables_dropped": dropped}
    return {name: count for name, count in counts.items() if count}


def page_reading(page_id: str, texts: Sequence[RegionText], crops: Sequence[Crop]) -> PageReading:
    """Make the reading of a page, whose state follows from its regions."""
    return PageReading(page_id, *page_state(texts), tuple(texts), tuple(crops))


def page_state(texts: Sequence[RegionText]) -> tuple[State, str | None]:
    """Return the state and reason of a page, given its regions; every recognizer uses it.

    A page is `ok` if no region failed, `failed` if some did and no other gave text, else `partial`. The reason counts
    the failed regions and names the first.
    """
    failed = [text for text in texts if text.state is State.FAILED]
    if not failed:
        return State.OK, None
    to_read = sum(text.finish_reason != _SKIPPED for text in texts)
    first = failed[0]
    form = "{failed} of {count} regions failed; region {region} ({label}): {reason}"
    values = {"region": first.index, "label": first.native_label, "reason": first.reason}
    reason = Reason(form, failed=len(failed), count=to_read, **values)
    read = any(text.state is State.OK and text.content.strip() for text in texts)
    return State.PARTIAL if read else State.FAILED, reason


TWO_WAYS = "figures are read in two ways: {figures}"
"""The reason of a region whose figures two readers read differently."""
KINDS: Mapping[Task, str] = {
    Task.TEXT: "text",
    Task.TABLE: "table",
    Task.FORMULA: "formula",
    Task.SKIP: "image",
    Task.ABANDON: "text",
}
"""The kind of a region's content; `label` of a reading in `ocr_results`."""

Row = Mapping[str, Any]


def region_texts(readings: Iterable[Row] | None) -> list[RegionText]:
    """Return the readings of a page in the form in which an engine makes them.

    `readings` is the value of `regions` in its row of `ocr_results`.
    """
    return [RegionText(reading["index"], reading["native_label"], **values_of(reading)) for reading in readings or ()]


def values_of(reading: Row) -> dict[str, Any]:
    """Return what was read of a region, as fields that `RegionText` has."""
    kept = ("reason", "finish_reason", "attempts", "seconds", "scale")
    return {
        "content": reading["content"] or "",
        "state": State(reading["state"]),
        "origin": TextOrigin(reading["origin"]) if reading["origin"] else None,
        **{name: reading[name] for name in kept},
    }


PICTURES = frozenset({"image", "chart", "header_image", "footer_image", "seal"})
_JPEG_QUALITY = 95
_LONGEST_SIDE = 65_500
"""Most pixels of a side of a JPEG; a strip of a web comic that is one page may be longer."""
_OUTLINE_GRID = 200
"""Cells per side of the page in which outlines are found; an outline may be off by one cell."""


def cut_pictures(page: "Page", regions: Sequence[Region]) -> tuple[Crop, ...]:
    """Cut out the regions that are kept as pictures, as JPEGs in reading order.

    They have full resolution. Raises `UndecodableImage` if the page cannot be decoded.
    """
    crops: list[Crop] = []
    for region in regions:
        # A chart is kept as a picture even if it is also read as a table.
        is_chart = region.task is Task.TABLE and region.label == "chart"
        if is_chart or (region.task is Task.SKIP and region.label in PICTURES):
            path = crop_path(page.page_id, region.index)
            crops.append(Crop(path, region.bbox, region.label, cut(page, region.bbox)))
    return tuple(crops)


def crop_path(page_id: str, index: int) -> str:
    """Return the path of a region's picture, relative to the release."""
    return f"crops/{page_id}_{index}.jpg"


def crop_index(path: str) -> int:
    """Return the index of the region that a picture at `crop_path` shows."""
    return int(PurePosixPath(path).stem.rpartition("_")[2])


def pixel_box(bbox: tuple[float, float, float, float], width: int, height: int) -> Box[int]:
    """Round `bbox` outwards to whole pixels inside the page, at least one per side."""
    x1, y1 = min(max(0, int(bbox[0])), width - 1), min(max(0, int(bbox[1])), height - 1)
    x2, y2 = min(width, max(x1 + 1, -int(-bbox[2] // 1))), min(height, max(y1 + 1, -int(-bbox[3] // 1)))
    return Box(x1, y1, x2, y2)


def region_pixels(image: NDArray[np.uint8], region: Region) -> NDArray[np.uint8]:
    """Return the pixels of a region's box.

    If it has an outline, pixels outside of it get the colour of the paper. `image` is the page, (height, width) or
    (height, width, 3). The result is a view of it unless an outline cut something off.
    """
    height, width = image.shape[:2]
    x1, y1, x2, y2 = pixel_box(region.bbox, width, height)
    pixels = image[y1:y2, x1:x2]
    if region.polygon is None:
        return pixels
    import cv2

    corners = np.round(np.subtract(region.polygon, (x1, y1))).astype(np.int32)
    inside = np.zeros(pixels.shape[:2], np.uint8)
    cv2.fillPoly(inside, [corners], 1)
    cv2.polylines(inside, [corners], True, 1, 2 * math.ceil(max(height, width) / _OUTLINE_GRID))
    outside = inside == 0
    if not outside.any():
        return pixels
    cut = pixels.copy()
    # Most pixels around letters are paper, even if the letters belong to another region.
    cut[outside] = np.median(pixels[outside], axis=0)
    return cut


def cut(page: "Page", bbox: tuple[float, float, float, float]) -> bytes:
    """Cut out a part of a page as a JPEG. Raises `UndecodableImage`.

    It has full resolution, unless a side would be too long for a JPEG.
    """
    import cv2

    height, width = page.image.shape[:2]
    x1, y1, x2, y2 = pixel_box(bbox, width, height)
    pixels = cv2.cvtColor(page.image[y1:y2, x1:x2], cv2.COLOR_RGB2BGR)
    if max(x2 - x1, y2 - y1) > _LONGEST_SIDE:
        shrink = _LONGEST_SIDE / max(x2 - x1, y2 - y1)
        size = max(1, int((x2 - x1) * shrink)), max(1, int((y2 - y1) * shrink))
        pixels = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    _, jpeg = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
    return jpeg.tobytes()
