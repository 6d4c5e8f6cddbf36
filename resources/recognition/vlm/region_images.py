"""Region images for a vision-language model: crops, resized and encoded at most once. Pure OpenCV and numpy."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from resources.code_version import CodeVersion
from resources.pages.pixels.channels import grey_as_one_channel
from resources.pages.pixels.patches import whole_patches
from resources.recognition.crops import pixel_box

if TYPE_CHECKING:
    from numpy.typing import NDArray

VERSION = CodeVersion("recognition.crops", {1: "the first release"})
"""Of how a region becomes an image; the answer cache keeps answers to the same image."""
PATCH = 28
"""Pixels on a side of one image token: patches of 14, merged two by two."""
MIN_TOKENS = 8
"""112 * 112 pixels over two frames, the least of GLM-OCR's preprocessor."""
MAX_TOKENS = 6144
"""9,633,792 pixels over two frames, the most of GLM-OCR's preprocessor."""
MAX_ASPECT = 150
"""The preprocessor refuses 200; rounding to whole patches must not reach that."""
_SHRINK = 0.8
"""Scale below which four pixels no longer cover what one stands for, and an area mean replaces the cubic."""
_JPEG_QUALITY = 95
_NO_INK = 24
"""Difference of the darkest and the lightest pixel under which a crop is paper: JPEG noise stays under 16."""


@dataclass(frozen=True, slots=True)
class RegionImage:
    """A crop as it is sent: an encoded file of `width` x `height` pixels.

    `scale` is its size to that of the crop on the page, a side.
    """

    data: bytes
    media_type: str
    width: int
    height: int
    scale: float = 1.0

    @property
    def patches(self) -> int:
        """Whole squares of `PATCH` pixels a side; the length of an answer is estimated from them."""
        return (self.width // PATCH) * (self.height // PATCH)

    @property
    def tokens(self) -> int:
        """Image tokens in the prompt: for GLM-OCR, one for each patch."""
        return self.patches


def crop_pixels(image: np.ndarray, bbox: tuple[float, float, float, float]) -> np.ndarray:
    """The pixels of a box, (height, width, 3), or (height, width) where they are grey; contiguous.

    Grey is lossless, and a third of the work for everything that follows.
    """
    x1, y1, x2, y2 = pixel_box(bbox, image.shape[1], image.shape[0])
    return packed(image[y1:y2, x1:x2])


def packed(pixels: np.ndarray) -> np.ndarray:
    """Pixels as they are read: contiguous, and in one channel where they are grey."""
    return np.ascontiguousarray(grey_as_one_channel(pixels))


def has_ink(crop: np.ndarray) -> bool:
    """Whether anything at all is printed on a crop."""
    import cv2

    darkest, lightest, _, _ = cv2.minMaxLoc(crop.reshape(len(crop), -1))
    return lightest - darkest >= _NO_INK


def model_size(width: int, height: int, max_tokens: int = MAX_TOKENS, min_tokens: int = MIN_TOKENS) -> tuple[int, int]:
    """(width, height) in pixels that the model sees a crop at, multiples of `PATCH`.

    The rule of the preprocessors of GLM-OCR and PaddleOCR-VL ("smart resize", from Qwen2-VL), which then leave the
    crop as it is. `max_tokens` is for a server that takes less than the model.
    """
    if min(width, height) < PATCH:
        enlarge = PATCH / min(width, height)
        width, height = int(width * enlarge), int(height * enlarge)
    columns, rows = whole_patches(width, height, PATCH, min_tokens, max_tokens)
    return columns * PATCH, rows * PATCH


class ImageMaker(Protocol):
    """Makes the image of a crop; see `region_image`."""

    def __call__(self, crop: "NDArray[np.uint8]", scale: float = 1.0, enough: float = 1.0) -> RegionImage: ...


def region_image(
    crop: np.ndarray, scale: float = 1.0, enough: float = 1.0, max_tokens: int = MAX_TOKENS
) -> RegionImage:
    """A crop resized for the model, at most once, and encoded; `scale` is relative to its usual size.

    `enough` is the scale of the crop on the page at which its print is large enough to be read: no side is sent
    smaller than that for it, and none larger than otherwise.
    """
    crop = padded(crop)
    height, width = crop.shape[:2]
    size = model_size(width, height, max_tokens)
    if scale != 1.0:
        size = model_size(max(1, round(size[0] * scale)), max(1, round(size[1] * scale)), max_tokens)
    if enough < 1.0:
        columns, rows = (math.ceil(side * enough / PATCH) for side in (width, height))
        if columns * rows >= MIN_TOKENS:
            size = min(size[0], columns * PATCH), min(size[1], rows * PATCH)
    return RegionImage(*encoded(resized(crop, size)), *size, relative_size(size, crop))


def relative_size(size: tuple[int, int], crop: np.ndarray) -> float:
    """The (width, height) `size` of an image to that of its crop, a side."""
    return math.sqrt(size[0] * size[1] / (crop.shape[0] * crop.shape[1]))


def resized(crop: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """A crop at (width, height) `size`."""
    import cv2

    height, width = crop.shape[:2]
    if size == (width, height):
        return crop
    shrinks = min(size[0] / width, size[1] / height) < _SHRINK
    return cv2.resize(crop, size, interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_CUBIC)


def encoded(crop: np.ndarray) -> tuple[bytes, str]:
    """A crop as a file, and its media type.

    Grey print is sent as PNG, every pixel kept, where the reference's JPEG at quality 75 puts rings
    around small letters: without row filters, by run lengths, that takes 4 ms a megapixel,
    and no more bytes. Colour is photographs, tints and scans, which PNG takes up to 40 ms and ten
    times the bytes for: a JPEG that nobody can tell from the page.
    """
    import cv2

    if crop.ndim == 2:
        options = [
            cv2.IMWRITE_PNG_COMPRESSION, 1,
            cv2.IMWRITE_PNG_FILTER, cv2.IMWRITE_PNG_FILTER_NONE,
            cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_RLE,
        ]  # fmt: skip
        _, data = cv2.imencode(".png", crop, options)
        return data.tobytes(), "image/png"
    full_colour = cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444
    options = [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, full_colour]
    _, data = cv2.imencode(".jpg", cv2.cvtColor(crop, cv2.COLOR_RGB2BGR), options)
    return data.tobytes(), "image/jpeg"


def padded(crop: np.ndarray) -> np.ndarray:
    """A crop with paper below or beside it where it is too long and thin for the model."""
    import cv2

    height, width = crop.shape[:2]
    below, beside = max(0, math.ceil(width / MAX_ASPECT) - height), max(0, math.ceil(height / MAX_ASPECT) - width)
    if not below and not beside:
        return crop
    return cv2.copyMakeBorder(crop, 0, below, 0, beside, cv2.BORDER_REPLICATE)


def in_one(crop: np.ndarray) -> int:
    """The number of strips that a crop is read in by a model that sees all of it."""
    return 1


def strips(crop: np.ndarray, count: int) -> list[np.ndarray]:
    """A crop in `count` parts from top to bottom, cut where a row of pixels has the least ink.

    Each cut lies within a quarter of a part of where equal parts would end.
    """
    grey = crop if crop.ndim == 2 else crop.mean(axis=2)
    # Ink changes along a row of print and not along paper, nor along a rule.
    ink = np.abs(np.diff(grey.astype(np.float32), axis=1)).sum(axis=1)
    height = len(ink)
    reach = max(1, height // count // 4)
    edges = [0]
    for part in range(1, count):
        middle = height * part // count
        start, end = max(edges[-1] + 1, middle - reach), min(height, middle + reach)
        edges.append(start + _middle_of_least(ink[start:end]))
    return [np.ascontiguousarray(crop[top:bottom]) for top, bottom in zip(edges, [*edges[1:], height], strict=True)]


def _middle_of_least(values: np.ndarray) -> int:
    """Middle of the longest run of the smallest value."""
    least = np.flatnonzero(values <= values.min() + 1e-6)
    runs = np.split(least, np.flatnonzero(np.diff(least) > 1) + 1)
    longest = max(runs, key=len)
    return int(longest[len(longest) // 2])
