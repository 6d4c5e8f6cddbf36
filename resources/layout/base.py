"""The layout protocol: labels, tasks, regions, and what a detector promises."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from resources.engine import Engine
from resources.pages.page import Page
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


@dataclass(frozen=True, slots=True)
class Region:
    """`bbox` is (x1, y1, x2, y2) in pixels of the upright page, not rounded; `index` is the reading order from 0."""

    index: int
    label: str
    task: Task
    score: float
    bbox: tuple[float, float, float, float]
    polygon: tuple[tuple[float, float], ...] | None = None


@dataclass(frozen=True, slots=True)
class PageLayout:
    """A page's regions in reading order, or the reason there are none."""

    page_id: str
    state: State
    reason: str | None = None
    regions: tuple[Region, ...] = ()


class LayoutDetector(Engine):
    """Finds the regions of pages."""

    @abstractmethod
    def detect(self, pages: Iterable[Page]) -> Iterator[PageLayout]:
        """Yield one `PageLayout` per page, in any order, while taking pages lazily.

        A page that cannot be decoded is `quarantined`, one that cannot be worked on is `failed`,
        one without ink is `blank`; none of them stops the others. Raises `EngineError` when no
        page could be done.
        """

    def report(self) -> dict[str, float | str]:
        """Figures of the last `detect` that are worth a plot (seconds of each stage, fallbacks taken)."""
        return {}
