"""Pictures as models take them: grey, in whole patches, quick to encode."""

import math

import cv2
import numpy as np
from numpy.typing import NDArray

_SAMPLED_ROW = 8
"""One row in so many is looked at first: of nearly every colour page, these already show that it is not grey."""


def grey_as_one_channel(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return RGB pixels as (height, width) if all three channels are equal, else unchanged."""
    for rows in (pixels[::_SAMPLED_ROW], pixels):
        red, green, blue = cv2.split(rows)
        if cv2.norm(red, green, cv2.NORM_INF) or cv2.norm(red, blue, cv2.NORM_INF):
            return pixels
    return cv2.extractChannel(pixels, 1)  # pyright: ignore[reportReturnType]


def quick_png(pixels: np.ndarray) -> bytes:
    """Return RGB or grey pixels as a PNG that is cheap to write and read.

    Without row filters and with run lengths alone, a megapixel of a printed page takes about 4 ms a channel to write
    and as long to read.
    """
    if pixels.ndim == 3:
        pixels = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
    options = [
        cv2.IMWRITE_PNG_COMPRESSION, 1,
        cv2.IMWRITE_PNG_FILTER, cv2.IMWRITE_PNG_FILTER_NONE,
        cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_RLE,
    ]  # fmt: skip
    return cv2.imencode(".png", pixels, options)[1].tobytes()


def whole_patches(width: int, height: int, patch: int, least: int, most: int) -> tuple[int, int]:
    """Return (columns, rows) of patches close to the picture's shape.

    Each patch has `patch` pixels a side, and there are `least` to `most` of them. This is the rule of the Qwen-VL
    family's preprocessors ("smart resize", from Qwen2-VL).
    """
    columns, rows = max(1, round(width / patch)), max(1, round(height / patch))
    area = width * height / patch**2
    if columns * rows > most:
        shrink = math.sqrt(area / most)
        columns = max(1, math.floor(width / shrink / patch))
        rows = max(1, math.floor(height / shrink / patch))
    elif columns * rows < least:
        enlarge = math.sqrt(least / area)
        columns, rows = math.ceil(width * enlarge / patch), math.ceil(height * enlarge / patch)
    return columns, rows
