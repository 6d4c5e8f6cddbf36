"""Ink and paper of a page: grey levels, masks, and the share of ink behind the state `blank`. Pure."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLANK_SHARE = 4e-6
"""A page with a smaller share of ink is blank: on A4 at 300 dpi 35 pixels, less than a full stop of 10 points."""

SPECK = 0.005
"""Share of a side of the page that a speck may have: 12 x 17 pixels of A4 at 300 dpi, a dot of a millimetre.

A line of text has a larger mark, down to print of 7 points (`benchmarks/reading/blank_pages.py`).
"""
SPECK_FIELD = (
    "Share of the width and of the height of the page that a speck may have: a page with nothing but specks is blank. "
    "0 takes every mark for writing."
)
_SPARSE = 0.02
"""Share of ink from which a page is not searched for specks alone: a line of text has 0.003, dust less."""

INK_CONTRAST = 32
"""Grey levels between ink and its paper: above JPEG noise (about 20), below the palest grey print (about 50)."""

PRINT_CONTRAST = 64
"""Grey levels between the strokes of letters and their paper at full resolution."""


def grey_histogram(gray: "NDArray[np.uint8]") -> "NDArray[np.intp]":
    """(256,) how many pixels have each grey level; of a level with more than 16 million, to one in 16 million."""
    import cv2

    # np.bincount copies every pixel to eight bytes first, which takes three times as long and more.
    counted = cv2.calcHist([np.ascontiguousarray(gray)], [0], None, [256], [0, 256])
    return counted.ravel().astype(np.intp)


def paper_level(gray: "NDArray[np.uint8]") -> int:
    """The most frequent grey level."""
    return int(grey_histogram(gray).argmax())


def ink_mask(gray: "NDArray[np.uint8]", contrast: int) -> "NDArray[np.bool_]":
    """Pixels that are darker or lighter than the paper by more than `contrast` grey levels."""
    import cv2

    return np.asarray(cv2.absdiff(gray, np.full_like(gray, paper_level(gray)))) > contrast


def true_runs(marks: "NDArray[np.bool_]") -> list[tuple[int, int]]:
    """Runs (start, end) of true values in a row of marks, `end` exclusive."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], marks, [False])).astype(np.int8))).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def ink_share(gray: "NDArray[np.uint8]") -> float:
    """Share of the pixels of a page, uint8 (height, width), that differ from its paper, 0 to 1.

    Paper is the most frequent grey level, so a dark page with light print counts its print, and a
    page of one pixel or of one colour counts nothing.
    """
    levels = grey_histogram(gray)
    paper = int(levels.argmax())
    far = np.abs(np.arange(256) - paper) > INK_CONTRAST
    return float(levels[far].sum() / gray.size)


def has_writing(gray: "NDArray[np.uint8]", speck: float = SPECK) -> bool:
    """Return whether the ink of a page, uint8 (height, width), is more than specks.

    A speck is a connected mark that is at most `speck` of the page wide, and of the page high.
    """
    import cv2

    share = ink_share(gray)
    if share < BLANK_SHARE or share > _SPARSE:
        return share > _SPARSE
    marks = ink_mask(gray, INK_CONTRAST).astype(np.uint8)
    _, _, stats, _ = cv2.connectedComponentsWithStats(marks, connectivity=8)
    height, width = gray.shape
    # Pixels are whole: on a small copy of a page a mark of one pixel is a speck all the same.
    wide = stats[1:, cv2.CC_STAT_WIDTH] > max(1.0, speck * width)
    high = stats[1:, cv2.CC_STAT_HEIGHT] > max(1.0, speck * height)
    return bool((wide | high).any())


def ink_contrast(gray: "NDArray[np.uint8]", reach: int) -> "NDArray[np.uint8]":
    """How far each pixel stands out from the paper around it, uint8 of the same shape.

    Paper is the lightest level within `reach` pixels that is not a speck (a morphological closing),
    or the darkest where the surroundings are dark, so tinted boxes and light print on a dark band
    both come out as ink on nothing.
    """
    import cv2

    kernel = np.ones((reach, reach), np.uint8)
    light = cv2.morphologyEx(gray, cv2.MORPH_CLOSE, kernel)
    contrast = cv2.subtract(light, gray)
    dark_paper = cv2.morphologyEx(gray, cv2.MORPH_OPEN, kernel)
    typical = cv2.blur(gray, (reach, reach))
    on_dark = (typical < 128) & (cv2.subtract(typical, dark_paper) < cv2.subtract(light, typical))
    return np.where(on_dark, cv2.subtract(gray, dark_paper), contrast)
