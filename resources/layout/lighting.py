"""Uneven light on the paper of a photographed page, and the page without it. Pure OpenCV."""

from typing import TYPE_CHECKING

import numpy as np

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
