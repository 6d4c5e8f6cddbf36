"""What is printed on a page, held against the boxes of an answer: ink outside of them, ruled tables without one.

Pure OpenCV and numpy, on the page's working copy.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from resources.layout.boxes import Box
from resources.layout.ink import INK_CONTRAST, ink_contrast
from resources.layout.lines import estimate_em
from resources.layout.rules import find_ruled, find_rules
from resources.layout.working_copy import PAPER_REACH, shrunk, working_scale

if TYPE_CHECKING:
    from numpy.typing import NDArray


PixelBox = tuple[float, float, float, float]
"""(x1, y1, x2, y2) in pixels of the upright page."""
_COVERS = 0.5
"""Share of a ruled table, or of its ink, from which boxes count as having it."""


@dataclass(frozen=True)
class PageInk:
    """The ink of a page, bool (height, width) of its working copy, the ruled tables there, and the copy's scale.

    `slack` is how far a box reaches beyond its edges, in pixels of the copy: half a letter.
    """

    ink: "NDArray[np.bool_]"
    tables: tuple[Box, ...]
    scale: float
    slack: int

    @classmethod
    def of(cls, gray: "NDArray[np.uint8]") -> "PageInk":
        """Of a page, uint8 (height, width) at full size."""
        scale = working_scale(*gray.shape)
        contrast = ink_contrast(shrunk(gray, scale), PAPER_REACH)
        ink = contrast > INK_CONTRAST
        em = estimate_em(ink.astype(np.uint8))
        ruled = find_ruled(find_rules(contrast, em), (contrast.shape[0], contrast.shape[1]), em)
        return cls(ink, ruled.tables, scale, round(em / 2))

    def share_outside(self, boxes: Iterable[PixelBox]) -> float:
        """Share of the page's ink that lies in none of the boxes, 0 to 1."""
        every = int(self.ink.sum())
        return int((self.ink & ~self._within(boxes)).sum()) / every if every else 0.0

    def has_ink(self, box: PixelBox) -> bool:
        """Whether anything is printed in a box."""
        x1, y1, x2, y2 = self._on_copy(box)
        return bool(self.ink[y1:y2, x1:x2].any())

    def missed_tables(self, tables: Sequence[PixelBox], pictures: Sequence[PixelBox]) -> list[PixelBox]:
        """The ruled tables of the page that no box of a table covers and that are not part of a picture."""
        named, drawn = ([Box(*self._on_copy(box)) for box in boxes] for boxes in (tables, pictures))
        found = []
        for table in self.tables:
            covered = sum(_overlap(table, box) for box in named) / (table.width * table.height)
            if covered < _COVERS and not any(table.inside(picture) for picture in drawn):
                x1, y1, x2, y2 = (edge / self.scale for edge in table)
                found.append((x1, y1, x2, y2))
        return found

    def is_read(self, table: PixelBox, boxes: Iterable[PixelBox]) -> bool:
        """Whether boxes of any kind hold most of the ink of a table."""
        x1, y1, x2, y2 = self._on_copy(table)
        ink = self.ink[y1:y2, x1:x2]
        return int((ink & self._within(boxes)[y1:y2, x1:x2]).sum()) >= _COVERS * int(ink.sum())

    def _within(self, boxes: Iterable[PixelBox]) -> "NDArray[np.bool_]":
        inside = np.zeros_like(self.ink)
        for box in boxes:
            x1, y1, x2, y2 = self._on_copy(box)
            inside[y1:y2, x1:x2] = True
        return inside

    def _on_copy(self, box: PixelBox) -> tuple[int, int, int, int]:
        x1, y1, x2, y2 = (round(edge * self.scale) for edge in box)
        return max(0, x1 - self.slack), max(0, y1 - self.slack), x2 + self.slack, y2 + self.slack


def _overlap(box: Box, other: Box) -> int:
    """Pixels that two boxes share."""
    width = min(box.x2, other.x2) - max(box.x1, other.x1)
    height = min(box.y2, other.y2) - max(box.y1, other.y1)
    return max(0, width) * max(0, height)
