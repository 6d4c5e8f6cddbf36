"""Regions of a page: labels, tasks, boxes."""

from dataclasses import dataclass
from enum import StrEnum

from resources.states import State

LABELS = (
    "abstract", "algorithm", "aside_text", "chart", "content", "display_formula", "doc_title",
    "figure_title", "footer", "footer_image", "footnote", "formula_number", "header", "header_image",
    "image", "inline_formula", "number", "paragraph_title", "reference", "reference_content", "seal",
    "table", "text", "vertical_text", "vision_footnote",
)  # fmt: skip
"""PP-DocLayoutV3's labels by class id. The published checkpoint's own list repeats names; this one does not."""


class Task(StrEnum):
    """What is done with a region after layout."""

    TEXT = "text"
    TABLE = "table"
    FORMULA = "formula"
    SKIP = "skip"
    """Kept as a picture (image, chart); not read."""
    ABANDON = "abandon"
    """Kept as a region, neither read nor cut out."""


READ_TASKS = (Task.TEXT, Task.TABLE, Task.FORMULA)
"""The tasks of regions whose text is wanted."""


@dataclass(frozen=True, slots=True)
class Region:
    """`bbox` is (x1, y1, x2, y2) in pixels of the upright page, not rounded; `index` is the reading order from 0.

    `text` is what an engine that reads found in it, in the form of `RegionText.content`; None of one that only looks,
    and where nothing sound was read.
    """

    index: int
    label: str
    task: Task
    score: float
    bbox: tuple[float, float, float, float]
    polygon: tuple[tuple[float, float], ...] | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class PageLayout:
    """A page's regions in reading order, or the reason there are none."""

    page_id: str
    state: State
    reason: str | None = None
    regions: tuple[Region, ...] = ()
