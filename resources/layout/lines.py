"""Text lines of a page from its ink. Pure OpenCV."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from resources.layout.boxes import Box, union

if TYPE_CHECKING:
    from numpy.typing import NDArray


MOST = 1500
"""Runs of text kept, the largest ones: a full page of small print has 400, a noisy scan 20,000 specks."""


@dataclass(frozen=True, slots=True)
class Line:
    """A run of text without wide gaps. `stroke` is the mean length of its horizontal ink runs in pixels."""

    box: Box
    stroke: float


def estimate_em(ink: "NDArray[np.uint8]") -> float:
    """Height of the body text in pixels, from an ink mask of 0 and 1; 16 when there is no text.

    The median height of the connected runs after a slight horizontal smear, weighted by width.
    """
    import cv2

    smeared = cv2.morphologyEx(ink, cv2.MORPH_CLOSE, np.ones((3, 15), np.uint8))
    _, _, stats, _ = cv2.connectedComponentsWithStats(smeared, connectivity=8)
    heights, widths = stats[1:, cv2.CC_STAT_HEIGHT], stats[1:, cv2.CC_STAT_WIDTH]
    # Runs of letters are wider than high; below 6 px nothing can be read, above 80 it is no body text.
    lettering = (widths > 1.5 * heights) & (heights >= 6) & (heights <= 80)
    if not lettering.any():
        return 16.0
    heights, widths = heights[lettering], widths[lettering]
    order = np.argsort(heights)
    middle = np.searchsorted(np.cumsum(widths[order]), widths.sum() / 2)
    return float(heights[order][middle])


def find_lines(ink: "NDArray[np.uint8]", em: float) -> list[Line]:
    """Lines of text in an ink mask of 0 and 1; words less than an `em` apart are one line."""
    import cv2

    kernel = np.ones((max(3, round(0.2 * em)), round(em)), np.uint8)
    _, _, stats, _ = cv2.connectedComponentsWithStats(cv2.morphologyEx(ink, cv2.MORPH_CLOSE, kernel), connectivity=8)
    boxes = [
        Box(x, y, x + w, y + h)
        for x, y, w, h, _ in stats[1:].tolist()
        # A speck: smaller in both directions than the dot of an i.
        if w >= 0.12 * em or h >= 0.12 * em
    ]
    ends = np.diff(ink, axis=1, prepend=np.uint8(0)) == 1
    area, runs = (np.asarray(cv2.integral(mask), np.int32) for mask in (ink, ends.astype(np.uint8)))
    return [Line(box, _within(area, box) / max(1, _within(runs, box))) for box in _whole(boxes, em)]


def _within(integral: "NDArray[np.int32]", box: Box) -> int:
    x1, y1, x2, y2 = box
    return int(integral[y2, x2] - integral[y1, x2] - integral[y2, x1] + integral[y1, x1])


def _whole(boxes: list[Box], em: float) -> list[Box]:
    """Parts of the same line joined: accents, the strokes of an equals sign, what a rule cut off."""
    done: list[Box] = []
    for box in sorted(boxes, key=lambda b: -b.width * b.height)[:MOST]:
        for number, line in enumerate(done):
            high = min(box.y2, line.y2) - max(box.y1, line.y1)
            near = box.x1 < line.x2 + em / 2 and line.x1 < box.x2 + em / 2
            slack = 0.25 * em if box.height < em / 2 and box.x1 < line.x2 and line.x1 < box.x2 else 0
            if near and high + slack > 0.5 * min(box.height, line.height):
                done[number] = union([box, line])
                break
        else:
            done.append(box)
    return done
