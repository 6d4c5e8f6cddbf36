"""Dot leaders of tables of contents: measured and taken out, because Tesseract reads letters into them. Pure OpenCV."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from resources.layout.ink import PRINT_CONTRAST, ink_mask, paper_level
from resources.recognition.tesseract.bilingual import CERTAIN, Word

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGEST_DOT = 14
"""Pixels; a dot of a 12 point leader has 7 at 300 dpi."""
FEWEST = 6
"""Dots in a row that make a leader: three are an ellipsis."""


@dataclass(frozen=True, slots=True)
class Leader:
    """`dots` equal dots at an equal pitch; `box` is (x1, y1, x2, y2) in pixels."""

    dots: int
    box: tuple[int, int, int, int]


def find_leaders(gray: "NDArray[np.uint8]") -> list[Leader]:
    """The dot leaders of a block, uint8 (height, width)."""
    import cv2

    _, _, stats, _ = cv2.connectedComponentsWithStats(ink_mask(gray, PRINT_CONTRAST).astype(np.uint8), connectivity=8)
    width, height = stats[1:, cv2.CC_STAT_WIDTH], stats[1:, cv2.CC_STAT_HEIGHT]
    small = (width <= LARGEST_DOT) & (height <= LARGEST_DOT) & (np.abs(width - height) <= 2) & (width >= 2)
    if np.count_nonzero(small) < FEWEST:
        return []
    dots = sorted((y + h // 2, x, y, w, h) for x, y, w, h, _ in stats[1:][small].tolist())
    leaders, row = [], [dots[0]]
    for dot in dots[1:]:
        if dot[0] - row[0][0] > 2:
            leaders += _in_row(row)
            row = []
        row.append(dot)
    return leaders + _in_row(row)


def _in_row(row: Sequence[tuple[int, int, int, int, int]]) -> list[Leader]:
    """Leaders among dots of one height: runs of an equal pitch."""
    found: list[Leader] = []
    run: list[tuple[int, int, int, int, int]] = []
    for dot in [*sorted(row, key=lambda dot: dot[1]), None]:
        if dot and _continues(run, dot):
            run.append(dot)
            continue
        if len(run) >= FEWEST:
            box = (run[0][1], min(d[2] for d in run), run[-1][1] + run[-1][3], max(d[2] + d[4] for d in run))
            found.append(Leader(len(run), box))
        run = [dot] if dot else []
    return found


def _continues(run: Sequence[tuple[int, int, int, int, int]], dot: tuple[int, int, int, int, int]) -> bool:
    if not run:
        return True
    pitch = dot[1] - run[-1][1]
    if len(run) == 1:
        return pitch <= 5 * LARGEST_DOT
    return abs(pitch - (run[1][1] - run[0][1])) <= 2


def erased(gray: "NDArray[np.uint8]", leaders: Sequence[Leader]) -> "NDArray[np.uint8]":
    """The block without its leaders: the same array when there are none."""
    if not leaders:
        return gray
    clean = gray.copy()
    paper = paper_level(gray)
    for leader in leaders:
        x1, y1, x2, y2 = leader.box
        clean[max(0, y1 - 2) : y2 + 2, max(0, x1 - 2) : x2 + 2] = paper
    return clean


def with_leaders(lines: Sequence[list[Word]], leaders: Sequence[Leader]) -> list[list[Word]]:
    """The lines with each leader put in at its place, as dots a blank apart."""
    filled = [list(line) for line in lines]
    for leader in leaders:
        middle = (leader.box[1] + leader.box[3]) / 2
        line = next((line for line in filled if _top(line) <= middle <= _bottom(line)), None)
        word = Word(" ".join("." * leader.dots), CERTAIN, leader.box, True)
        if line is None:
            filled.append([word])
        else:
            place = sum(other.box[0] < leader.box[0] for other in line)
            line.insert(place, word)
    return filled


def _top(line: Sequence[Word]) -> int:
    return min(word.box[1] for word in line)


def _bottom(line: Sequence[Word]) -> int:
    return max(word.box[3] for word in line)
