"""Dot leaders: Tesseract misreads them as letters, so they are measured and erased."""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from kopub.boxes import Box, union
from kopub.layout.ink import PRINT_CONTRAST, ink_mask, paper_level
from kopub.recognition.print_reader import CERTAIN, OcrWord

_LARGEST_DOT = 14
"""Most pixels of a dot; one of a 12-point leader has 7 at 300 dpi."""
_FEWEST = 6
"""Fewest dots in a row that make a leader; three are an ellipsis."""


@dataclass(frozen=True, slots=True)
class Leader:
    """A dot leader: `dots` equal dots at an equal pitch.

    `box` is (x1, y1, x2, y2) in pixels.
    """

    dots: int
    box: tuple[int, int, int, int]


def find_leaders(gray: NDArray[np.uint8]) -> list[Leader]:
    """Find the dot leaders of a block, uint8 (height, width)."""
    _, _, stats, _ = cv2.connectedComponentsWithStats(ink_mask(gray, PRINT_CONTRAST).astype(np.uint8), connectivity=8)
    width, height = stats[1:, cv2.CC_STAT_WIDTH], stats[1:, cv2.CC_STAT_HEIGHT]
    small = (width <= _LARGEST_DOT) & (height <= _LARGEST_DOT) & (np.abs(width - height) <= 2) & (width >= 2)
    if np.count_nonzero(small) < _FEWEST:
        return []
    rows: list[list[tuple[int, int, int, int, int]]] = []
    for middle, x, y, across, down in sorted((y + h // 2, x, y, w, h) for x, y, w, h, _ in stats[1:][small].tolist()):
        if not rows or middle - rows[-1][0][0] > 2:
            rows.append([])
        rows[-1].append((middle, x, y, across, down))
    leaders: list[Leader] = []
    for row in rows:
        run: list[tuple[int, int, int, int, int]] = []
        for dot in [*sorted(row, key=lambda dot: dot[1]), None]:
            pitch = dot[1] - run[-1][1] if dot and run else 0
            # The second dot gives the pitch that the others keep.
            goes_on = pitch <= 5 * _LARGEST_DOT if len(run) < 2 else abs(pitch - (run[1][1] - run[0][1])) <= 2
            if dot and goes_on:
                run.append(dot)
                continue
            if len(run) >= _FEWEST:
                top, bottom = min(y for _, _, y, _, _ in run), max(y + h for _, _, y, _, h in run)
                leaders.append(Leader(len(run), (run[0][1], top, run[-1][1] + run[-1][3], bottom)))
            run = [dot] if dot else []
    return leaders


def erase_leaders(gray: NDArray[np.uint8], leaders: Sequence[Leader]) -> NDArray[np.uint8]:
    """Return the block without its leaders, or the same array if it has none."""
    if not leaders:
        return gray
    clean = gray.copy()
    paper = paper_level(gray)
    for leader in leaders:
        x1, y1, x2, y2 = leader.box
        clean[max(0, y1 - 2) : y2 + 2, max(0, x1 - 2) : x2 + 2] = paper
    return clean


def insert_leaders(lines: Sequence[list[OcrWord]], leaders: Sequence[Leader]) -> list[list[OcrWord]]:
    """Put each leader into its line or, alone, between lines, as dots separated by blanks."""
    filled = [list(line) for line in lines]
    for leader in leaders:
        middle = (leader.box[1] + leader.box[3]) / 2
        word = OcrWord(" ".join("." * leader.dots), CERTAIN, leader.box, True)
        above = 0
        for line in filled:
            around = union(Box(*word.box) for word in line)
            if around.y1 <= middle <= around.y2:
                line.insert(sum(other.box[0] < leader.box[0] for other in line), word)
                break
            above += around.y1 < middle
        else:
            filled.insert(above, [word])
    return filled
