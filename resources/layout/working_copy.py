"""The smaller copy of a page in which rules, lines and cells are found. Pure OpenCV."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SHORT_SIDE = 1240
"""Pixels, A4 at 150 dpi: rules, letters and gaps are all still there, and every step costs a quarter."""
PAPER_REACH = 41
"""Pixels around a pixel that hold its paper: wider than the strokes of a title, narrower than a margin."""


def working_scale(height: int, width: int) -> float:
    """Scale of the working copy of a page; 1 for a page that is no larger."""
    return min(1.0, _SHORT_SIDE / min(height, width))


def shrunk(gray: "NDArray[np.uint8]", scale: float) -> "NDArray[np.uint8]":
    """Pixels, uint8 (height, width), at a `scale` of at most 1; the same array at 1."""
    import cv2

    if scale >= 1:
        return gray
    height, width = gray.shape
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return np.asarray(cv2.resize(gray, size, interpolation=cv2.INTER_AREA), np.uint8)
