"""Region images for DeepSeek-OCR: whole crops, which the model cuts into tiles. Pure OpenCV and numpy."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from resources.code_version import CodeVersion
from resources.recognition.vlm.region_images import RegionImage, encoded, relative_size, resized

VERSION = CodeVersion("recognition.deepseek_crops", {1: "the first release"})
"""Of how a region becomes an image; the answer cache keeps answers to the same image."""
VIEW = 1024
"""Pixels on a side of the view of the whole crop, which is brought into it with its shape kept."""
TILE = 640
"""Pixels on a side of a tile of DeepSeek-OCR. A crop that fits into one gets none."""
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


@dataclass(frozen=True, slots=True)
class Views:
    """How a model of the family sees a crop: tiles of `tile` pixels a side, and whether rows of tokens have an end.

    `most_tokens` is that of a crop in six tiles one below the other, the most of any.
    """

    tile: int
    row_ends: bool
    most_tokens: int


OCR = Views(TILE, True, 933)
OCR2 = Views(768, False, 1121)
"""DeepSeek-OCR-2."""
MAX_TOKENS = OCR.most_tokens


class TiledImage(RegionImage):
    """A crop as it is sent to DeepSeek-OCR."""

    __slots__ = ()

    views: ClassVar[Views] = OCR

    @property
    def tokens(self) -> int:
        """Image tokens in the prompt: every row of a view or of all tiles may have one more, each view has another."""
        end = int(self.views.row_ends)
        side, of_tile = VIEW // TOKEN, self.views.tile // TOKEN
        whole = side * (side + end) + 1
        columns, rows = tiles(self.width, self.height, self.views.tile)
        if columns * rows == 1:
            return whole
        return whole + (columns * of_tile + end) * rows * of_tile


class TiledImage2(TiledImage):
    """A crop as it is sent to DeepSeek-OCR-2."""

    __slots__ = ()

    views: ClassVar[Views] = OCR2


def tiles(width: int, height: int, tile: int = TILE) -> tuple[int, int]:
    """(columns, rows) of tiles that the model's own preprocessor lays over a crop, whatever its shape; (1, 1) for none.

    The grid nearest in shape; of two that are equally near the larger one when the crop fills half of it.
    """
    if max(width, height) <= tile:
        return 1, 1
    shape = width / height
    nearest = min(abs(shape - columns / rows) for columns, rows in _GRIDS)
    first, *others = (grid for grid in _GRIDS if abs(shape - grid[0] / grid[1]) == nearest)
    return next((grid for grid in reversed(others) if width * height > math.prod(grid) * tile**2 / 2), first)


def model_size(width: int, height: int, tile: int = TILE) -> tuple[int, int]:
    """(width, height) in pixels from which on the model sees no more of a crop: where it covers its tiles."""
    columns, rows = tiles(width, height, tile)
    if columns * rows == 1:
        return width, height
    shrink = min(1.0, max(columns * tile / width, rows * tile / height))
    return round(width * shrink), round(height * shrink)


def tiled_image(
    crop: np.ndarray, scale: float = 1.0, enough: float = 1.0, made: type[TiledImage] = TiledImage
) -> TiledImage:
    """A crop as it is, or shrunk once to what the model sees of it; `scale` is relative to that.

    `enough` is the scale of the crop on the page at which its print is large enough to be read. A crop that fits into
    one tile then is sent so, without tiles; any other has as many tiles at every size, and stays as it is.
    """
    crop, tile = _padded(crop), made.views.tile
    height, width = crop.shape[:2]
    if max(width, height) * enough <= tile < max(width, height):
        size = max(1, math.floor(width * enough)), max(1, math.floor(height * enough))
    else:
        columns, rows = model_size(width, height, tile)
        size = max(1, round(columns * scale)), max(1, round(rows * scale))
    return made(*encoded(resized(crop, size)), *size, relative_size(size, crop))


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
