"""A page in grey as its print is read: without uneven light, faint print made strong. Pure OpenCV."""

from typing import TYPE_CHECKING

import numpy as np

from resources.layout.ink import BLANK_SHARE, ink_share, paper_level
from resources.layout.working_copy import PAPER_REACH, shrunk, working_scale

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TILE = 16
"""Pixels of the working copy in a tile, whose paper counts as one level."""
_SMOOTH = 6
"""Grey levels by which the paper of two tiles side by side may differ: light changes slowly, and a tint at once."""
_LEAST_SHARE = 0.5
"""Of the tiles, for paper to be what most of the page is."""
_SEEN, _HERE = 1, 2
"""Marks of tiles in the mask of a flood: of an earlier part, and of the last one."""
_EVEN = 40
"""Grey levels between the darkest and the lightest paper of a page that is evenly lit; of both, without the last 5 %.

Within that the page is read as it is: a photo whose light fell by 15 % lost a line when it was evened. A pale tint,
whose edge is a tile that is half tint, may be 13 darker and go on from the paper.
"""

_FAINT_CONTRAST = 16
"""Grey levels between faint print and its paper: above the print of the other side that shines through (about 12)."""
_OVER_NOISE = 6
"""How far faint print stands out, in standard deviations of the noise of its paper."""
_FAINT_SHARE = 1e-3
"""Share of a page that is faint print at least: one line of text has three times that, stains and creases less."""


def readable_grey(pixels: "NDArray[np.uint8]") -> "tuple[NDArray[np.uint8], bool]":
    """Return RGB pixels (height, width, 3) as grey (height, width), and whether there is ink.

    The grey page is evenly lit, and print that is faint on all of it is made strong.
    """
    import cv2

    gray = evened(np.asarray(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), np.uint8))
    if ink_share(gray) >= BLANK_SHARE:
        return gray, True
    strong = _strengthened(gray)
    return (gray, False) if strong is None else (strong, True)


def _strengthened(gray: "NDArray[np.uint8]") -> "NDArray[np.uint8] | None":
    """Return the page with its faint print black on white; None where there is none."""
    import cv2

    paper = paper_level(gray)
    far = np.abs(shrunk(gray, working_scale(*gray.shape)).astype(np.int16) - paper)
    # 1.4826 times the median absolute deviation is the standard deviation of noise, whatever print there is.
    noise = 1.4826 * float(np.median(far))
    faint = far[far > max(_FAINT_CONTRAST, _OVER_NOISE * noise)]
    if faint.size < _FAINT_SHARE * far.size:
        return None
    strength = 255 / float(np.percentile(faint, 90))
    levels = 255 - strength * np.abs(np.arange(256) - paper)
    return np.asarray(cv2.LUT(gray, levels.clip(0, 255).astype(np.uint8)), np.uint8)


def evened(gray: "NDArray[np.uint8]") -> "NDArray[np.uint8]":
    """A page, uint8 (height, width), as if its paper were lit evenly; the same array where it is, or is not found.

    Paper is what goes on from tile to tile without an edge, over most of the page. What lies on it, such as a photo,
    is lit as the paper around it.
    """
    import cv2

    small = shrunk(gray, working_scale(*gray.shape))
    columns, rows = max(1, small.shape[1] // _TILE), max(1, small.shape[0] // _TILE)
    light = cv2.morphologyEx(small, cv2.MORPH_CLOSE, np.ones((PAPER_REACH, PAPER_REACH), np.uint8))
    tiles = np.asarray(cv2.resize(light, (columns, rows), interpolation=cv2.INTER_AREA), np.uint8)
    if int(tiles.max()) - int(tiles.min()) <= _EVEN:
        return gray
    paper = _paper(tiles)
    if paper is None:
        return gray
    darkest, lightest = np.percentile(tiles[paper], (5, 95))
    if lightest - darkest <= _EVEN:
        return gray
    ground = cv2.inpaint(tiles, (~paper).astype(np.uint8), 3, cv2.INPAINT_TELEA)
    ground = cv2.resize(cv2.blur(ground, (3, 3)), gray.shape[::-1], interpolation=cv2.INTER_LINEAR)
    return np.asarray(cv2.divide(gray, ground, scale=float(lightest)), np.uint8)


def _paper(tiles: "NDArray[np.uint8]") -> "NDArray[np.bool_] | None":
    """The part of the tiles in which each is like the next; None where none is most of the page."""
    import cv2

    rows, columns = tiles.shape
    mask = np.zeros((rows + 2, columns + 2), np.uint8)
    for row, column in np.ndindex(rows, columns):
        if mask[row + 1, column + 1]:
            continue
        mask[mask == _HERE] = _SEEN
        filled = 4 | cv2.FLOODFILL_MASK_ONLY | _HERE << 8
        area, *_ = cv2.floodFill(tiles, mask, (column, row), 0, _SMOOTH, _SMOOTH, filled)
        if area >= _LEAST_SHARE * tiles.size:
            return mask[1:-1, 1:-1] == _HERE
    return None
