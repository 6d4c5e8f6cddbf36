"""Region images for DeepSeek-OCR: whole crops, which the model cuts into tiles. Pure OpenCV and numpy."""

import math

import numpy as np

from resources.code_version import CodeVersion
from resources.recognition.vlm.region_images import RegionImage, encoded, relative_size, resized

VERSION = CodeVersion("recognition.deepseek_crops", {1: "the first release"})
"""Of how a region becomes an image; the answer cache keeps answers to the same image."""
VIEW = 1024
"""Pixels on a side of the view of the whole crop, which is brought into it with its shape kept."""
TILE = 640
"""Pixels on a side of a tile. A crop that fits into one gets none."""
TOKEN = 64
"""Pixels on a side of one image token: patches of 16, compressed four by four."""
MOST_TILES = 6
_GRIDS = sorted(
    (
        (columns, rows)
        for columns in range(1, MOST_TILES + 1)
        for rows in range(1, MOST_TILES + 1)
        if 1 < columns * rows <= MOST_TILES
    ),
    key=math.prod,
)
MAX_TOKENS = 933
"""Of a crop in six tiles one below the other, the most of any."""


class TiledImage(RegionImage):
    """A crop as it is sent to DeepSeek-OCR."""

    __slots__ = ()

    @property
    def tokens(self) -> int:
        """Image tokens in the prompt: every row of a view or of all tiles has one more, each view another."""
        side = VIEW // TOKEN
        whole = side * (side + 1) + 1
        columns, rows = tiles(self.width, self.height)
        if columns * rows == 1:
            return whole
        return whole + (columns * TILE // TOKEN + 1) * (rows * TILE // TOKEN)


def tiles(width: int, height: int) -> tuple[int, int]:
    """(columns, rows) of tiles that the model's own preprocessor lays over a crop, whatever its shape; (1, 1) for none.

    The grid nearest in shape; of two that are equally near the larger one when the crop fills half of it.
    """
    if max(width, height) <= TILE:
        return 1, 1
    shape = width / height
    nearest = min(abs(shape - columns / rows) for columns, rows in _GRIDS)
    first, *others = (grid for grid in _GRIDS if abs(shape - grid[0] / grid[1]) == nearest)
    return next((grid for grid in reversed(others) if width * height > math.prod(grid) * TILE**2 / 2), first)


def model_size(width: int, height: int) -> tuple[int, int]:
    """(width, height) in pixels from which on the model sees no more of a crop: where it covers its tiles."""
    columns, rows = tiles(width, height)
    if columns * rows == 1:
        return width, height
    shrink = min(1.0, max(columns * TILE / width, rows * TILE / height))
    return round(width * shrink), round(height * shrink)


def tiled_image(crop: np.ndarray, scale: float = 1.0, enough: float = 1.0) -> TiledImage:
    """A crop as it is, or shrunk once to what the model sees of it; `scale` is relative to that.

    `enough` is the scale of the crop on the page at which its print is large enough to be read. A crop that fits into
    one tile then is sent so, without tiles; any other has as many tiles at every size, and stays as it is.
    """
    crop = _padded(crop)
    height, width = crop.shape[:2]
    if max(width, height) * enough <= TILE < max(width, height):
        size = max(1, math.floor(width * enough)), max(1, math.floor(height * enough))
    else:
        columns, rows = model_size(width, height)
        size = max(1, round(columns * scale)), max(1, round(rows * scale))
    return TiledImage(*encoded(resized(crop, size)), *size, relative_size(size, crop))


def _padded(crop: np.ndarray) -> np.ndarray:
    """A crop with paper below or beside it where no row of tiles is as long and thin: it would be seen stretched."""
    import cv2

    height, width = crop.shape[:2]
    below = max(0, math.ceil(width / MOST_TILES) - height)
    beside = max(0, math.ceil(height / MOST_TILES) - width)
    if not below and not beside:
        return crop
    # Most of a line is paper, also where its edge cuts through letters.
    paper = np.atleast_1d(np.median(crop, axis=(0, 1))).tolist()
    return cv2.copyMakeBorder(crop, 0, below, 0, beside, cv2.BORDER_CONSTANT, value=paper)
