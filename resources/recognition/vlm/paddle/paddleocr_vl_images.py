"""Region images for PaddleOCR-VL: at least 144 tokens, at most 1,280, and how many parts a dense region needs.

Pure OpenCV and numpy.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from resources.code_version import CodeVersion
from resources.recognition.vlm.line_height import line_height
from resources.recognition.vlm.region_images import (
    PATCH,
    RegionImage,
    encoded,
    model_size,
    padded,
    relative_size,
    resized,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

VERSION = CodeVersion("recognition.paddleocr_vl_crops", {1: "the first release"})
"""Of how a region becomes images; the answer cache keeps answers to the same images."""
MIN_TOKENS = 144
"""112,896 pixels, the least of the model's own preprocessor: it enlarges what is smaller."""
MAX_TOKENS = 1280
"""1,003,520 pixels, the most of it."""
_USUAL_LINE = 42.0
"""Pixels of a line of 10 points at 300 dpi, for a crop whose lines cannot be measured."""
_MOST_ASPECT = 190
"""The preprocessor refuses more than 200; a strip of one square across grows in length alone."""
_MOST_PARTS = 12
"""A page of 300 dpi has nine times the pixels that the model takes, so more parts than that show nothing more."""


class PaddleImage(RegionImage):
    """A crop as it is sent to PaddleOCR-VL."""

    __slots__ = ()

    @property
    def patches(self) -> int:
        """Squares of `PATCH` pixels of the crop, where it was enlarged: that adds no text to read."""
        return max(1, round(self.tokens / max(1.0, self.scale) ** 2))

    @property
    def tokens(self) -> int:
        """Image tokens in the prompt, one for each square of `PATCH` pixels as sent."""
        return (self.width // PATCH) * (self.height // PATCH)


def sized_image(
    crop: "NDArray[np.uint8]", scale: float = 1.0, enough: float = 1.0, max_tokens: int = MAX_TOKENS
) -> PaddleImage:
    """A crop at a size that the model's preprocessor leaves as it is; resized and encoded once.

    `scale` is relative to its usual size; where the limits allow no such size it goes the other way, so that a second
    picture always differs from the first. `enough` is the scale of the crop on the page at which its print is large
    enough to be read.
    """
    crop = padded(crop)
    height, width = crop.shape[:2]
    if enough < 1.0:
        width, height = (PATCH * math.ceil(side * enough / PATCH) for side in (width, height))
    size = model_size(width, height, max_tokens, MIN_TOKENS)
    if scale != 1.0:
        size = _another_size(size, scale, max_tokens)
    return PaddleImage(*encoded(resized(crop, size)), *size, relative_size(size, crop))


def _another_size(size: tuple[int, int], scale: float, max_tokens: int) -> tuple[int, int]:
    """A size `scale` times as large a side, or as small where the limits allow no such."""
    usual = size[0] * size[1] / PATCH**2
    fitting = (each for each in (scale, 1 / scale) if MIN_TOKENS <= usual * each**2 <= max_tokens)
    # Of limits too narrow for either, the one further away.
    upwards = max(scale, 1 / scale)
    last = upwards if max_tokens / usual > usual / MIN_TOKENS else 1 / upwards
    by = next(fitting, last)
    width, height = model_size(max(1, round(size[0] * by)), max(1, round(size[1] * by)), max_tokens, MIN_TOKENS)
    return min(width, _MOST_ASPECT * height), min(height, _MOST_ASPECT * width)


def parts_needed(crop: "NDArray[np.uint8]", max_tokens: int = MAX_TOKENS, least_line: int | None = None) -> int:
    """In how many strips a crop is read so that its lines keep `least_line` pixels; 1 where None is asked for.

    Lines that are lower on the page are left as they are, and are not enlarged.
    """
    height, width = crop.shape[:2]
    tokens = width * height / PATCH**2
    if least_line is None or tokens <= max_tokens:
        return 1
    kept = min(1.0, least_line / (line_height(crop) or _USUAL_LINE))
    return min(_MOST_PARTS, math.ceil(tokens * kept**2 / max_tokens))
