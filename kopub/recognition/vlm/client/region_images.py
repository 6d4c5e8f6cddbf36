"""Images of regions for a vision-language model: crops, resized by line height and encoded."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from kopub.fingerprints import CodeVersion
from kopub.layout.regions import Task
from kopub.pages.model_pictures import grey_as_one_channel, quick_png, whole_patches

VERSION = CodeVersion("recognition.crops", {1: "the first release"})
"""Version of how a region becomes an image; the answer cache keeps answers to the same image."""
PATCH = 28
"""Pixels per side of one image token: patches of 14, merged two by two."""
MIN_TOKENS = 8
"""112 * 112 pixels over two frames, the minimum of GLM-OCR's preprocessor."""
MAX_TOKENS = 6144
"""9,633,792 pixels over two frames, the maximum of GLM-OCR's preprocessor."""
MAX_ASPECT = 150
"""Largest aspect ratio: the preprocessor refuses 200, which rounding to whole patches must not reach."""
_SHRINK = 0.8
"""Scale below which the cubic kernel would skip pixels, so that an area mean replaces it."""
_JPEG_QUALITY = 95
_NO_INK = 24
"""Difference between the darkest and lightest pixel below which a crop is paper: JPEG noise stays below 16."""


@dataclass(frozen=True, slots=True)
class CropImage:
    """A crop as it is sent: an encoded file of `width` x `height` pixels.

    `scale` is its side relative to that of the crop on the page.
    """

    data: bytes
    media_type: str
    width: int
    height: int
    scale: float = 1.0

    @property
    def patches(self) -> int:
        """Number of whole squares of `PATCH` pixels, used to estimate an answer's length."""
        return (self.width // PATCH) * (self.height // PATCH)

    @property
    def tokens(self) -> int:
        """Number of image tokens in the prompt: for most models, one per patch."""
        return (self.width // PATCH) * (self.height // PATCH)


def pack_pixels(pixels: np.ndarray) -> np.ndarray:
    """Make pixels contiguous, with one channel if they are grey.

    This is lossless, and leaves a third of the work for everything that follows.
    """
    return np.ascontiguousarray(grey_as_one_channel(pixels))


def has_ink(crop: np.ndarray) -> bool:
    """Return whether anything is printed on a crop."""
    darkest, lightest, _, _ = cv2.minMaxLoc(crop.reshape(len(crop), -1))
    return lightest - darkest >= _NO_INK


def model_size(width: int, height: int, max_tokens: int = MAX_TOKENS, min_tokens: int = MIN_TOKENS) -> tuple[int, int]:
    """Return the (width, height) at which the model sees a crop.

    Both are multiples of `PATCH`. This is the rule of the preprocessors of GLM-OCR and PaddleOCR-VL ("smart resize",
    from Qwen2-VL), which then leave the crop alone. `max_tokens` is for a server that accepts less than the model.
    """
    if min(width, height) < PATCH:
        enlarge = PATCH / min(width, height)
        width, height = int(width * enlarge), int(height * enlarge)
    columns, rows = whole_patches(width, height, PATCH, min_tokens, max_tokens)
    return columns * PATCH, rows * PATCH


class ImageMaker(Protocol):
    """A function that makes the image of a crop; see `region_image`."""

    def __call__(self, crop: NDArray[np.uint8], scale: float = 1.0, enough: float = 1.0) -> CropImage: ...


def region_image(crop: np.ndarray, scale: float = 1.0, enough: float = 1.0, max_tokens: int = MAX_TOKENS) -> CropImage:
    """Make the image of a crop, resized at most once.

    `scale` is relative to its usual size. `enough` is the scale, relative to the crop on the page, at which its print
    is large enough to be read: it never makes a side smaller than that, nor larger than without it.
    """
    crop = pad_crop(crop)
    height, width = crop.shape[:2]
    size = model_size(width, height, max_tokens)
    if scale != 1.0:
        size = model_size(max(1, round(size[0] * scale)), max(1, round(size[1] * scale)), max_tokens)
    if enough < 1.0:
        columns, rows = (math.ceil(side * enough / PATCH) for side in (width, height))
        if columns * rows >= MIN_TOKENS:
            size = min(size[0], columns * PATCH), min(size[1], rows * PATCH)
    return CropImage(*encode_image(resize(crop, size)), *size, relative_size(size, crop))


def relative_size(size: tuple[int, int], crop: np.ndarray) -> float:
    """Return the side of an image relative to that of its crop."""
    return math.sqrt(size[0] * size[1] / (crop.shape[0] * crop.shape[1]))


def resize(crop: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resize a crop to (width, height) `size`."""
    height, width = crop.shape[:2]
    if size == (width, height):
        return crop
    shrinks = min(size[0] / width, size[1] / height) < _SHRINK
    return cv2.resize(crop, size, interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_CUBIC)


def encode_image(crop: np.ndarray) -> tuple[bytes, str]:
    """Encode a crop as a file, and return it with its media type.

    Grey print is sent as lossless PNG, because the reference's JPEG at quality 75 puts rings around small letters.
    Colour means photographs, tints and scans, for which PNG would take up to 40 ms and ten times the bytes; they are
    sent as a JPEG that is indistinguishable from the page.
    """
    if crop.ndim == 2:
        return quick_png(crop), "image/png"
    full_colour = cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444
    options = [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, full_colour]
    _, data = cv2.imencode(".jpg", cv2.cvtColor(crop, cv2.COLOR_RGB2BGR), options)
    return data.tobytes(), "image/jpeg"


def pad_crop(crop: np.ndarray) -> np.ndarray:
    """Pad a crop below or at the right if too thin for the model."""
    height, width = crop.shape[:2]
    below, beside = max(0, math.ceil(width / MAX_ASPECT) - height), max(0, math.ceil(height / MAX_ASPECT) - width)
    if not below and not beside:
        return crop
    return cv2.copyMakeBorder(crop, 0, below, 0, beside, cv2.BORDER_REPLICATE)


def cut_strips(crop: np.ndarray, count: int) -> list[np.ndarray]:
    """Cut a crop into `count` parts, top to bottom, where rows have the least ink.

    Each cut is within a quarter of a part of where equal parts would end. A crop with fewer rows has a part for each.
    """
    grey = crop if crop.ndim == 2 else crop.mean(axis=2)
    # Grey changes along a row of print, but not along paper or a rule.
    ink = np.abs(np.diff(grey.astype(np.float32), axis=1)).sum(axis=1)
    height = len(ink)
    count = min(count, height)
    reach = max(1, height // count // 4)
    edges = [0]
    for part in range(1, count):
        middle = height * part // count
        start, end = max(edges[-1] + 1, middle - reach), min(height, middle + reach)
        # A cut is in the middle of the longest run of rows with the least ink.
        rows = start + np.flatnonzero(ink[start:end] <= ink[start:end].min() + 1e-6)
        longest = max(np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1), key=len)
        edges.append(int(longest[len(longest) // 2]))
    return [np.ascontiguousarray(crop[top:bottom]) for top, bottom in pairwise([*edges, height])]


_STEP = 3
"""Distance of the two pixels that are compared; a blurred stroke still has its whole contrast over it."""
_CONTRAST, _LEAST_CONTRAST = 0.2, 20
"""Contrast at a stroke's edge: a share of the crop's range, and the fewest grey levels above JPEG and paper noise."""
_BAND = 200
"""Width in pixels of the bands into which a crop is cut; rows are examined in a few bands together."""
_RULE = 0.7
"""A pixel column with edges over more than this share of the crop's height is a rule or a frame, not letters."""
_LETTERS = 12
"""Letter widths over which some letters reach up and some down; a line skewed by a degree rises by a fifth."""
_QUANTILE = 0.4
"""Quantile of the strokes by line height that gives the estimate, so that in mixed print the smaller print decides."""
_LOWEST, _HIGHEST = 6, 250
"""Pixels of the lowest readable line, and of a 60-point headline at 300 dpi."""
_ALIKE, _LEAST_ALIKE = (0.75, 1.5), 0.5
"""Half of the strokes must be in lines about as high as the estimate; otherwise the crop is not text in lines."""
_DENSEST = 17.0
"""Most edges that a pixel row crosses over the width of a letter: up to 16 in print, twice that if two lines are taken
for one, and more in photographs."""
_WORTHWHILE = 0.9
"""Scale above which a crop is not shrunk, because resizing would cost more than it saves."""


def scale_to_lines(crop: NDArray[np.uint8], task: Task, wanted: int | None) -> float:
    """Return the scale, at most 1, at which a crop's lines are `wanted` pixels high.

    It is 1 if they are no higher, if their height cannot be determined, and for formulas, whose parts differ in size.
    """
    if wanted is None or task is Task.FORMULA:
        return 1.0
    height = line_height(crop)
    if height is None or wanted > _WORTHWHILE * height:
        return 1.0
    return wanted / height


def line_height(crop: NDArray[np.uint8]) -> float | None:
    """Return the height in pixels of a line's letters, about the type size, else None.

    None if no estimate is sound. `crop` is (height, width) or (height, width, 3). If lines differ, the lower ones
    count. Digits and capitals alone give 0.7 of the type size, which errs on the safe side.
    """
    # Green contributes most to grey, and needs no conversion.
    grey = crop if crop.ndim == 2 else cv2.extractChannel(crop, 1)
    if grey.shape[1] <= 2 * _STEP:
        return None
    # The changes of grey along rows are the edges of strokes, except in vertical rules.
    darkest, lightest, _, _ = cv2.minMaxLoc(grey)
    limit = max(_LEAST_CONTRAST, _CONTRAST * (lightest - darkest))
    changes = cv2.absdiff(grey[:, _STEP:], grey[:, :-_STEP])
    edges = np.asarray(cv2.threshold(changes, limit, 1, cv2.THRESH_BINARY)[1], np.uint8)
    in_column = cv2.reduce(edges, 0, cv2.REDUCE_SUM, dtype=cv2.CV_32S)[0]
    edges[:, in_column > _RULE * len(edges)] = 0
    width = edges.shape[1]
    count = max(1, round(width / _BAND))
    bands: list[NDArray[np.int32]] = []
    for start, end in pairwise(width * band // count for band in range(count + 1)):
        # The number of edges that each row of the band crosses.
        crossed = cv2.reduce(edges[:, start:end], 1, cv2.REDUCE_SUM, dtype=cv2.CV_32S)[:, 0]
        bands.append(np.asarray(crossed, np.int32))
    height = _height(bands, width / count, together=2)
    # In a headline, few letters fit in two bands, and possibly none of them reaches up or down.
    height = _height(bands, width / count, together=max(2, math.ceil(_LETTERS * height * count / width)))
    return height if _LOWEST <= height <= min(_HIGHEST, width) else None


def _height(bands: Sequence[NDArray[np.int32]], width: float, together: int) -> float:
    """Return the line height from groups of bands `together`, 0 if unsound.

    Each band is `width` pixels wide, and is given as the number of edges that each of its rows crosses.
    """
    count = max(1, len(bands) // together)
    # The runs of rows of each group that cross strokes: their heights and edges.
    runs: list[NDArray[np.intp]] = []
    for start, end in pairwise(len(bands) * group // count for group in range(count + 1)):
        crossed = np.sum(bands[start:end], axis=0)
        turns = np.flatnonzero(np.diff(np.concatenate(([False], crossed > 0, [False]))))
        starts, ends = turns[::2], turns[1::2]
        sums = np.concatenate(([0], np.cumsum(crossed)))
        runs.append(np.stack((ends - starts, sums[ends] - sums[starts])))
    heights, strokes = np.concatenate(runs, axis=1)
    if not len(heights):
        return 0.0
    order = np.argsort(heights, kind="stable")
    filled = np.cumsum(strokes[order])
    height = float(heights[order][np.searchsorted(filled, _QUANTILE * filled[-1])])
    alike = (heights >= _ALIKE[0] * height) & (heights <= _ALIKE[1] * height)
    density = strokes[alike].sum() / heights[alike].sum() * height / (width * len(bands) / count)
    return height if strokes[alike].sum() >= _LEAST_ALIKE * filled[-1] and density <= _DENSEST else 0.0
