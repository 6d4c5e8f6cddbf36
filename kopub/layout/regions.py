"""Regions of a page: labels, tasks, boxes."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from kopub.errors import ConfigError
from kopub.states import State

LABELS = (
    "abstract", "algorithm", "aside_text", "chart", "content", "display_formula", "doc_title",
    "figure_title", "footer", "footer_image", "footnote", "formula_number", "header", "header_image",
    "image", "inline_formula", "number", "paragraph_title", "reference", "reference_content", "seal",
    "table", "text", "vertical_text", "vision_footnote",
)  # fmt: skip
"""PP-DocLayoutV3's labels by class id, without the repeated names of the published checkpoint's own list."""


class Task(StrEnum):
    """The task for a region after layout."""

    TEXT = "text"
    TABLE = "table"
    FORMULA = "formula"
    SKIP = "skip"
    """Kept as a picture (image, chart), and not read."""
    ABANDON = "abandon"
    """Kept as a region, neither read nor cut out."""


READ_TASKS = (Task.TEXT, Task.TABLE, Task.FORMULA)
"""The tasks of regions that are read."""


@dataclass(frozen=True, slots=True)
class Region:
    """A region of a page, with its place in the reading order.

    `bbox` is (x1, y1, x2, y2) in pixels of the upright page, not rounded; `index` is the reading order from 0. `text`
    is what a layout engine that also reads found in it, in the form of `RegionText.content`; None from other engines,
    or if nothing sound was read.
    """

    index: int
    label: str
    task: Task
    score: float
    bbox: tuple[float, float, float, float]
    polygon: tuple[tuple[float, float], ...] | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """A page's regions in reading order, or the reason there are none."""

    page_id: str
    state: State
    reason: str | None = None
    regions: tuple[Region, ...] = ()


FORMULAS = frozenset({"display_formula", "inline_formula"})
PICTURES = frozenset({"chart", "image"})
_REPEATED = frozenset({"header", "header_image", "footer", "footer_image", "number", "reference"})
"""Labels not read unless a profile says so: running heads repeat on every page, and the entries of a `reference` list
are regions of their own (a list without entries is read)."""
DEFAULT_TASKS: Mapping[str, Task] = MappingProxyType(
    {
        **dict.fromkeys(LABELS, Task.TEXT),
        **dict.fromkeys(_REPEATED, Task.ABANDON),
        **dict.fromkeys(PICTURES, Task.SKIP),
        **dict.fromkeys(FORMULAS, Task.FORMULA),
        "table": Task.TABLE,
    }
)


def tasks_by_label(changes: Mapping[str, str]) -> dict[str, Task]:
    """Return the task of every label, with a profile's changes. Raises `ConfigError`."""
    check_labels("layout.tasks", changes)
    unknown = sorted(set(changes.values()) - set(Task))
    if unknown:
        raise ConfigError("layout.tasks: {names} is no task; use one of {tasks}", ", ".join(unknown), ", ".join(Task))
    return {**DEFAULT_TASKS, **{label: Task(task) for label, task in changes.items()}}


def check_labels(field: str, by_label: Mapping[str, object]) -> None:
    """Raise `ConfigError` if a field names a label that PP-DocLayoutV3 lacks."""
    unknown = sorted(set(by_label) - set(LABELS))
    if unknown:
        form = "{key}: {names} is no label; use one of {labels}"
        raise ConfigError(form, field, ", ".join(unknown), ", ".join(LABELS))
