"""A visual descriptor of a page: its ink, the directions of its edges, its colours. Pure.

Pages that look alike come out alike, also after recompression, scaling, blur, a slight turn or a
cut margin. It knows nothing of what is written.
"""

import numpy as np

_WIDTH, _HEIGHT = 352, 496
"""An A4 page at about 42 dpi, where lines of text are still apart. Every page is scaled to it."""
_THUMBNAIL = (32, 44)
_CELLS_ACROSS, _CELLS_DOWN = 8, 11
_DIRECTIONS = 8
_COLOUR_BINS = [12, 4, 4]
_PROFILE = 64
_WEIGHTS = {"thumbnail": 1.0, "edges": 1.0, "colours": 0.5, "profiles": 0.5}
"""Colours and profiles alone find a recompressed or shifted page less often than the other two."""
_EMPTY_CONTRAST = 8
"""Grey levels between the lightest and darkest spot; JPEG noise on an empty page stays below this."""


def describe(image: np.ndarray) -> np.ndarray:
    """Descriptor of an RGB page, float64 of shape (2432,), or of shape (0,) for a page of one colour.

    Blocks, each of L2 norm 1 times its weight: the blurred thumbnail of the ink; histograms of
    gradient directions in 8 x 11 cells (Dalal and Triggs, 2005, unsigned, square-rooted); the HSV
    histogram; the ink by row and by column.
    """
    import cv2

    small = cv2.resize(image, (_WIDTH, _HEIGHT), interpolation=cv2.INTER_AREA)
    gray = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)
    if int(gray.max()) - int(gray.min()) < _EMPTY_CONTRAST:
        return np.empty(0)
    ink = 255.0 - gray
    blocks = {
        "thumbnail": cv2.GaussianBlur(cv2.resize(ink, _THUMBNAIL, interpolation=cv2.INTER_AREA), (0, 0), 1.0),
        "edges": _edges(gray),
        "colours": _colours(small),
        "profiles": np.concatenate([_profile(ink.mean(axis=1)), _profile(ink.mean(axis=0))]),
    }
    return np.concatenate([weight * _unit(blocks[name].ravel()) for name, weight in _WEIGHTS.items()])


def _edges(gray: np.ndarray) -> np.ndarray:
    import cv2

    across = cv2.Sobel(gray, cv2.CV_64F, 1, 0)
    down = cv2.Sobel(gray, cv2.CV_64F, 0, 1)
    direction = np.arctan2(down, across) % np.pi / np.pi * _DIRECTIONS
    row = np.arange(_HEIGHT)[:, None] * _CELLS_DOWN // _HEIGHT
    column = np.arange(_WIDTH) * _CELLS_ACROSS // _WIDTH
    bins = (row * _CELLS_ACROSS + column) * _DIRECTIONS + np.minimum(direction.astype(np.intp), _DIRECTIONS - 1)
    size = _CELLS_DOWN * _CELLS_ACROSS * _DIRECTIONS
    return np.sqrt(np.bincount(bins.ravel(), np.hypot(across, down).ravel(), size))


def _colours(rgb: np.ndarray) -> np.ndarray:
    import cv2

    hsv = cv2.cvtColor(rgb, cv2.COLOR_RGB2HSV)
    return np.sqrt(cv2.calcHist([hsv], [0, 1, 2], None, _COLOUR_BINS, [0, 180, 0, 256, 0, 256]).astype(np.float64))


def _profile(ink: np.ndarray) -> np.ndarray:
    import cv2

    return _unit(cv2.resize(ink[:, None], (1, _PROFILE), interpolation=cv2.INTER_AREA).ravel())


def _unit(values: np.ndarray) -> np.ndarray:
    """`values` about their mean, of L2 norm 1; all zero when they are all the same."""

    centred = values - values.mean()
    norm = np.sqrt(np.sum(centred * centred))
    return centred / norm if norm else centred
