"""Ruled lines of a page, and the tables and frames that they form. Pure OpenCV."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from resources.layout.boxes import Box, spans, union

if TYPE_CHECKING:
    from numpy.typing import NDArray

FAINT = 12
"""Grey levels between a rule and its paper: hairlines of light grey fall to this when a page is halved."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Horizontal and vertical rules of a page, in pixels."""

    horizontal: tuple[Box, ...]
    vertical: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class Ruled:
    """What connected rules enclose: tables, and frames that hold text or other blocks."""

    tables: tuple[Box, ...]
    frames: tuple[Box, ...]


def find_rules(contrast: "NDArray[np.uint8]", em: float) -> Rules:
    """Straight thin lines, at least 2.5 `em` wide or 2 `em` high, of a page given as contrast to its paper."""
    return Rules(
        _lines(contrast, round(2.5 * em), 1, em),
        _lines(contrast, 1, round(2.0 * em), em),
    )


def _lines(contrast: "NDArray[np.uint8]", width: int, height: int, em: float) -> tuple[Box, ...]:
    import cv2

    strong = cv2.morphologyEx(contrast, cv2.MORPH_OPEN, np.ones((height, width), np.uint8))
    _, _, stats, _ = cv2.connectedComponentsWithStats((strong > FAINT).astype(np.uint8), connectivity=8)
    thickest = max(3.0, em / 3)
    boxes = (Box(x, y, x + w, y + h) for x, y, w, h, _ in stats[1:].tolist())
    return tuple(box for box in boxes if min(box.width, box.height) <= thickest)


def erase(mask: "NDArray[np.uint8]", rules: Rules) -> None:
    """Clear the rules, and the grey edge of one pixel around them, from an ink mask."""
    for x1, y1, x2, y2 in (*rules.horizontal, *rules.vertical):
        mask[max(0, y1 - 1) : y2 + 1, max(0, x1 - 1) : x2 + 1] = 0


def find_ruled(rules: Rules, shape: tuple[int, int], em: float) -> Ruled:
    """Tables and frames among the rules of a page of `shape` (height, width).

    Rules that touch make a group. A group with inner lines is a table, one without is a frame.
    """
    tables, frames = [], []
    for group in _touching(rules, shape):
        box = union([*group.horizontal, *group.vertical])
        rows = len(spans([(rule.y1, rule.y2) for rule in group.horizontal], em / 2))
        columns = len(spans([(rule.x1, rule.x2) for rule in group.vertical], em / 2))
        if box.width < 4 * em or box.height < 1.2 * em or not rows or not columns:
            continue
        if (rows >= 2 and columns >= 3) or (rows >= 3 and columns == 1) or rows >= 4:
            tables.append(box)
        elif rows >= 2 and columns == 2:
            frames.append(box)
    return Ruled(tuple(tables), tuple(frames))


def _touching(rules: Rules, shape: tuple[int, int]) -> list[Rules]:
    import cv2

    canvas = np.zeros(shape, np.uint8)
    for x1, y1, x2, y2 in (*rules.horizontal, *rules.vertical):
        canvas[max(0, y1 - 2) : y2 + 2, max(0, x1 - 2) : x2 + 2] = 1
    count, labels = cv2.connectedComponents(canvas)
    groups: list[tuple[list[Box], list[Box]]] = [([], []) for _ in range(count)]
    for direction, boxes in enumerate((rules.horizontal, rules.vertical)):
        for box in boxes:
            groups[labels[box.y1, box.x1]][direction].append(box)
    return [Rules(tuple(horizontal), tuple(vertical)) for horizontal, vertical in groups[1:]]
