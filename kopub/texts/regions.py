"""Regions of pages with what was read in them: the join of layout and readings."""

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kopub.boxes import Box
from kopub.errors import StoreError
from kopub.layout.regions import Task
from kopub.recognition.regions import KINDS, RegionText, TextOrigin, values_of
from kopub.states import State
from kopub.store.corpus_tables import TABLES
from kopub.texts.markdown import page_text

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Region:
    """A region of a page and its reading.

    `label` is the layout's (text, paragraph_title, table, ...), `task` the work to do on it. `box` is in pixels of the
    upright page, `box_2d` the same on a grid of 0 to 1000, and `polygon` points (x, y) in pixels. `content` is the
    reading: plain text, `<table>` HTML or LaTeX. If a region has no reading, `content` and all fields after it are
    None; `Page.regions` gives it the state and reason of its page.
    """

    index: int
    """Place in the reading order, from 0."""
    label: str
    task: Task
    score: float
    box: Box[float]
    box_2d: Box[int]
    polygon: tuple[tuple[float, float], ...] | None
    content: str | None = None
    state: State | None = None
    reason: str | None = None
    # How it was read is not compared, since a release does not hold it.
    finish_reason: str | None = field(default=None, compare=False)
    attempts: int | None = field(default=None, compare=False)
    seconds: float | None = field(default=None, compare=False)
    scale: float | None = field(default=None, compare=False)
    origin: TextOrigin | None = None

    @property
    def kind(self) -> str | None:
        """The kind of the content, one of `KINDS`; None for a region without a reading."""
        return None if self.content is None else KINDS[self.task]

    @property
    def text(self) -> str:
        """The content without markup, in NFC; empty if unread.

        The cells of a table are separated by tabs, its rows by line breaks.
        """
        if not self.content:
            return ""
        read = RegionText(self.index, self.label, self.content, self.state or State.OK)
        return unicodedata.normalize("NFC", page_text([read]))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values of the region."""
        return {
            "index": self.index,
            "label": self.label,
            "task": self.task,
            "score": self.score,
            "bbox": list(self.box),
            "bbox_2d": list(self.box_2d),
            "content": self.content,
            "state": self.state,
            "reason": self.reason,
            "origin": self.origin,
        }


def join_regions(page_id: str, layout: Iterable[Row] | None, readings: Iterable[Row] | None) -> list[Region]:
    """Join the regions of a page with their readings, by index.

    `layout` and `readings` are the values of `regions` in the page's rows of `layout_regions` and `ocr_results`; None
    means no regions. Raises `StoreError` for two regions or readings with one index, and for a reading whose region is
    missing from the layout or elsewhere on the page, because the reading then belongs to an older layout.
    """
    reading_at = _by_index(page_id, TABLES.readings.name, readings)
    region_at = _by_index(page_id, TABLES.regions.name, layout)
    for index, reading in reading_at.items():
        if index not in region_at or list(reading["bbox_2d"]) != list(region_at[index]["bbox_2d"]):
            form = "{asset} of {page} read another region {index} than {other} has: materialize {asset} again"
            raise StoreError(form, TABLES.readings, page_id, index, TABLES.regions)
    regions = []
    for index, region in sorted(region_at.items()):
        placed = {name: region[name] for name in ("index", "label", "score")}
        corners = region["polygon"]
        polygon = None if corners is None else tuple((x, y) for x, y in corners)
        boxes = {"box": Box(*region["bbox"]), "box_2d": Box(*region["bbox_2d"]), "polygon": polygon}
        reading = values_of(reading_at[index]) if index in reading_at else {}
        regions.append(Region(task=Task(region["task"]), **placed, **boxes, **reading))
    return regions


def _by_index(page_id: str, table: str, rows: Iterable[Row] | None) -> dict[int, Row]:
    rows = list(rows or ())
    by_index = {row["index"]: row for row in rows}
    if len(by_index) != len(rows):
        raise StoreError("{asset} of {page} has two regions of one index: materialize {asset} again", table, page_id)
    return by_index
