"""Page segmentation: from pixels to blocks of text, tables and pictures in reading order. Pure OpenCV.

All steps work on the page's working copy (`resources.layout.working_copy`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from resources.layout.boxes import Box, union
from resources.layout.cpu.figures import find_drawings, find_filled
from resources.layout.cpu.xycut import Block, Item, in_reading_order
from resources.layout.ink import INK_CONTRAST, ink_contrast
from resources.layout.lines import Line, estimate_em, find_lines
from resources.layout.rules import Rules, erase, find_ruled, find_rules
from resources.layout.working_copy import PAPER_REACH, shrunk, working_scale

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Segmentation:
    """Blocks in reading order, in pixels of a page scaled by `scale`; `em` is the height of its body text."""

    blocks: tuple[Block, ...]
    rules: Rules
    em: float
    scale: float
    shape: tuple[int, int]


def segment(gray: "NDArray[np.uint8]") -> Segmentation:
    """Blocks of a page, uint8 (height, width) at full size."""
    scale = working_scale(*gray.shape)
    gray = shrunk(gray, scale)
    contrast = ink_contrast(gray, PAPER_REACH)
    ink = (contrast > INK_CONTRAST).astype(np.uint8)
    em = estimate_em(ink)
    rules = find_rules(contrast, em)
    ruled = find_ruled(rules, gray.shape, em)
    pictures, tints = find_filled(gray, em)
    # Straight edges inside a screenshot are no table, and a filled cell of a table is no picture.
    tables = [table for table in ruled.tables if not any(table.inside(p) and table.width <= p.width for p in pictures)]
    pictures = [box for box in pictures if not any(box.inside(table) for table in tables)]
    erase(ink, rules)
    _clear(ink, [*pictures, *tables])
    drawings = find_drawings(ink, em)
    _clear(ink, drawings)
    pictures += drawings
    lines = find_lines(ink, em)
    tables = [_with_cut_off(table, lines, em) for table in tables]
    items = [Item("text", line.box, line) for line in lines if not any(line.box.inside(table) for table in tables)]
    items += [Item("table", box) for box in tables]
    items += [Item("picture", box) for box in pictures]
    frames = [*ruled.frames, *(tint for tint in tints if not any(tint.inside(table) for table in tables))]
    blocks = in_reading_order(items, frames, gray.shape[0], em)
    return Segmentation(tuple(blocks), rules, em, scale, gray.shape)


def _clear(ink: "NDArray[np.uint8]", boxes: Sequence[Box]) -> None:
    """Clear boxes from an ink mask, with the soft edge around them."""
    for x1, y1, x2, y2 in boxes:
        ink[max(0, y1 - 2) : y2 + 2, max(0, x1 - 2) : x2 + 2] = 0


def _with_cut_off(table: Box, lines: Sequence[Line], em: float) -> Box:
    """The table grown by the rest of letters that its last rule, or the end of its columns, cut off."""
    rests = [
        line.box
        for line in lines
        if line.box.height < 0.8 * em and table.x1 <= line.box.x1 and line.box.x2 <= table.x2
        and (abs(line.box.y1 - table.y2) <= 2 or abs(table.y1 - line.box.y2) <= 2)
    ]  # fmt: skip
    return union([table, *rests])
