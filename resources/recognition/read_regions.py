"""The regions of a page with what was read from them, joined from the rows of two tables. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from resources.errors import StoreError
from resources.layout.regions import Task
from resources.recognition.readings import Origin, RegionText
from resources.states import State
from resources.store.corpus_tables import TABLES

KINDS: Mapping[Task, str] = {
    Task.TEXT: "text",
    Task.TABLE: "table",
    Task.FORMULA: "formula",
    Task.SKIP: "image",
    Task.ABANDON: "text",
}
"""What a region's content is; `label` of a reading in `ocr_results`."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReadRegion:
    """A region of a page and its reading.

    `bbox` is (x1, y1, x2, y2) in pixels of the upright page, `bbox_2d` the same on a grid of 0 to 1000, `polygon`
    points (x, y) in pixels. Of a region without a reading, `content` and all fields after it are None.
    """

    index: int
    label: str
    task: Task
    score: float
    bbox: tuple[float, float, float, float]
    bbox_2d: tuple[int, int, int, int]
    polygon: tuple[tuple[float, float], ...] | None
    content: str | None = None
    state: State | None = None
    reason: str | None = None
    finish_reason: str | None = None
    attempts: int | None = None
    seconds: float | None = None
    scale: float | None = None
    origin: Origin | None = None

    @property
    def kind(self) -> str | None:
        """What the content is, one of `KINDS`; None for a region without a reading."""
        return None if self.content is None else KINDS[self.task]


def read_regions(page_id: str, layout: Iterable[Row] | None, readings: Iterable[Row] | None) -> list[ReadRegion]:
    """The regions of a page by index, each with its reading.

    `layout` and `readings` are the values of `regions` in the page's rows of `layout_regions` and `ocr_results`; None
    is no region. Raises `StoreError` for two regions or readings of one index, and for a reading of a region that
    layout does not have, or has at another place: the reading is of an older layout.
    """
    read = _by_index(page_id, TABLES.readings.name, readings)
    found = _by_index(page_id, TABLES.regions.name, layout)
    for index, reading in read.items():
        if index not in found or list(reading["bbox_2d"]) != list(found[index]["bbox_2d"]):
            raise StoreError(
                f"{TABLES.readings} of {page_id} read another region {index} than {TABLES.regions} has: "
                f"materialize {TABLES.readings} again"
            )
    return [_joined(region, read.get(index)) for index, region in sorted(found.items())]


def region_texts(readings: Iterable[Row] | None) -> list[RegionText]:
    """The readings of a page as an engine made them, from the value of `regions` in its row of `ocr_results`."""
    return [
        RegionText(
            reading["index"],
            reading["native_label"],
            reading["content"] or "",
            State(reading["state"]),
            reading["reason"],
            reading["finish_reason"],
            reading["attempts"],
            reading["seconds"],
            reading["scale"],
            origin=_origin(reading),
        )
        for reading in readings or ()
    ]


def _by_index(page_id: str, table: str, rows: Iterable[Row] | None) -> dict[int, Row]:
    rows = list(rows or ())
    found = {row["index"]: row for row in rows}
    if len(found) != len(rows):
        raise StoreError(f"{table} of {page_id} has two regions of one index: materialize {table} again")
    return found


def _joined(region: Row, reading: Row | None) -> ReadRegion:
    polygon = region["polygon"]
    placed = {
        "index": region["index"],
        "label": region["label"],
        "task": Task(region["task"]),
        "score": region["score"],
        "bbox": tuple(region["bbox"]),
        "bbox_2d": tuple(region["bbox_2d"]),
        "polygon": None if polygon is None else tuple((x, y) for x, y in polygon),
    }
    if reading is None:
        return ReadRegion(**placed)
    return ReadRegion(
        **placed,
        content=reading["content"] or "",
        state=State(reading["state"]),
        reason=reading["reason"],
        finish_reason=reading["finish_reason"],
        attempts=reading["attempts"],
        seconds=reading["seconds"],
        scale=reading["scale"],
        origin=_origin(reading),
    )


def _origin(reading: Row) -> Origin | None:
    return Origin(reading["origin"]) if reading["origin"] else None
