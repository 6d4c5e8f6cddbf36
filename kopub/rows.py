"""The rows of a page: regions, steps and facts."""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from resources.states import State

if TYPE_CHECKING:
    from PIL import Image

Box = tuple[float, float, float, float]
"""(x1, y1, x2, y2) in pixels of the upright page, from its top left corner."""
Box2d = tuple[int, int, int, int]
"""The same on a grid of 0 to 1000 in both directions."""


@dataclass(frozen=True, slots=True)
class Region:
    """A region of a page, and what was read from it.

    `label` is the layout's (text, paragraph_title, table, ...), `task` what was to be done with it (text, table,
    formula, skip, abandon). `content` is as it was read: plain text, `<table>` HTML, LaTeX; None where the region was
    not read, and `state` and `reason` then are those of the page. `origin` is who found it: recognizer, layout, or
    text_layer for the PDF itself; None where nobody looked for a text.
    """

    index: int
    """Place in the reading order, from 0."""
    label: str
    task: str
    score: float | None
    box: Box
    box_2d: Box2d
    polygon: tuple[tuple[float, float], ...] | None
    content: str | None
    state: State | None
    reason: str | None
    origin: str | None = None

    @property
    def text(self) -> str:
        """The content without markup, in NFC: cells of a table a tab apart, its rows a line. Empty when unread."""
        from resources.recognition.readings import RegionText
        from resources.texts.markdown import page_text

        if not self.content:
            return ""
        read = RegionText(self.index, self.label, self.content, self.state or State.OK)
        return unicodedata.normalize("NFC", page_text([read]))


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture region (image, chart) cut out of its page; markdown links to `path`."""

    path: str
    label: str
    box: Box
    data: bytes = field(repr=False)
    """The encoded JPEG."""

    @property
    def image(self) -> "Image.Image":
        """The decoded picture."""
        import io

        from PIL import Image

        return Image.open(io.BytesIO(self.data))


@dataclass(frozen=True, slots=True)
class Step:
    """How the row of a table was made: engine, model, parameters and run; None for what was not recorded."""

    asset: str
    state: State
    reason: str | None
    engine: str | None
    model: str | None
    revision: str | None
    parameters: Mapping[str, Any]
    """Prompts, sampling, thresholds."""
    versions: Mapping[str, Any]
    """Identity of weights, engine and packages."""
    code_version: Mapping[str, Any]
    recipe: str | None
    fingerprint: str
    run_id: str | None
    made_at: datetime | None
    gpu_seconds: float | None


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of a page without its texts; sizes are in pixels of the upright page."""

    width: int | None
    height: int | None
    sha256: str | None
    license: str | None
    source: str | None
    reason: str | None
    states: Mapping[str, State]
    doubts: tuple[str, ...]
