"""Rows of a block of text, and the white columns of a row. Pure numpy.

Tesseract's own line finding takes a short last line of a Korean paragraph for a reason to read the
block top down; given one row at a time it has nothing to find.
"""

from typing import TYPE_CHECKING

import numpy as np

from resources.layout.boxes import Box
from resources.layout.ink import PRINT_CONTRAST, ink_mask, true_runs

if TYPE_CHECKING:
    from numpy.typing import NDArray


def text_rows(gray: "NDArray[np.uint8]") -> list[Box]:
    """Boxes around the rows of a block, uint8 (height, width), top to bottom; tight, without specks."""
    ink = ink_mask(gray, PRINT_CONTRAST)
    width = int(np.any(ink, axis=0).sum())
    found = _joined(true_runs(np.any(ink, axis=1)), width)
    rows = []
    for top, bottom in found:
        columns = np.flatnonzero(ink[top:bottom].any(axis=0))
        rows.append(Box(int(columns[0]), top, int(columns[-1]) + 1, bottom))
    return rows


def gaps(strip: "NDArray[np.uint8]") -> list[tuple[int, int]]:
    """Columns (start, end) of a row without ink, with those before and after it."""
    return true_runs(~np.any(ink_mask(strip, PRINT_CONTRAST), axis=0))


def _joined(rows: list[tuple[int, int]], width: int) -> list[tuple[int, int]]:
    """Rows with their accents, dots and underlines: slivers go to the nearest row that stays a row.

    In a narrow block of `width` inked columns the parts of a syllable such as 끔 are rows of white
    apart too, but closer to each other than lines of text are.
    """
    if not rows:
        return []
    highest = max(end - start for start, end in rows)
    typical = float(np.median([end - start for start, end in rows if end - start > highest / 2]))
    joined: list[tuple[int, int]] = []
    for start, end in rows:
        last = joined[-1] if joined else (start, start)
        sliver = min(end - start, last[1] - last[0]) < typical / 2
        gap, height = start - last[1], end - last[0]
        part = width < 4 * height and gap < 0.1 * min(width, 2 * height)
        if joined and ((sliver and gap < 0.35 * typical and height < 1.6 * typical) or part):
            joined[-1] = (last[0], end)
        else:
            joined.append((start, end))
    return joined
