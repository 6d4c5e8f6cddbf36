"""Crops: the pixels that a region is read from, and the pictures of a page, which its markdown links to."""

import math
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from resources.layout.regions import Region, Task
from resources.pages.page import Page
from resources.recognition.readings import Crop

if TYPE_CHECKING:
    from numpy.typing import NDArray

PICTURES = frozenset({"image", "chart", "header_image", "footer_image", "seal"})
_JPEG_QUALITY = 95
_OUTLINE_GRID = 200
"""Cells on a side of the page in which outlines are found: an outline is wrong by up to one of them."""


def cut_pictures(page: Page, regions: Sequence[Region]) -> tuple[Crop, ...]:
    """A JPEG for each region that is kept as a picture, at full resolution, in reading order.

    Raises `UndecodableImage` when the page cannot be decoded.
    """
    return tuple(
        Crop(crop_path(page.page_id, region.index), region.bbox, region.label, cut(page, region.bbox))
        for region in regions
        if _is_picture(region)
    )


def _is_picture(region: Region) -> bool:
    """Whether a region is kept as a picture; a chart is too where its values are read as a table."""
    kept = region.task is Task.SKIP or (region.task is Task.TABLE and region.label == "chart")
    return kept and region.label in PICTURES


def crop_path(page_id: str, index: int) -> str:
    """Where the picture of region `index` of a page lies, relative to the release."""
    return f"crops/{page_id}_{index}.jpg"


def crop_index(path: str) -> int:
    """The region of its page that a picture at `crop_path` is of."""
    return int(PurePosixPath(path).stem.rpartition("_")[2])


def pixel_box(bbox: tuple[float, float, float, float], width: int, height: int) -> tuple[int, int, int, int]:
    """`bbox` rounded outwards to whole pixels inside the page, at least one pixel in each direction."""
    x1, y1 = min(max(0, int(bbox[0])), width - 1), min(max(0, int(bbox[1])), height - 1)
    x2, y2 = min(width, max(x1 + 1, -int(-bbox[2] // 1))), min(height, max(y1 + 1, -int(-bbox[3] // 1)))
    return x1, y1, x2, y2


def region_pixels(image: "NDArray[np.uint8]", region: Region) -> "NDArray[np.uint8]":
    """Return the pixels of a region's box; where it has an outline, those outside of it are of the colour of its paper.

    `image` is the page, (height, width) or (height, width, 3). What is not cut is a view of it.
    """
    height, width = image.shape[:2]
    x1, y1, x2, y2 = pixel_box(region.bbox, width, height)
    pixels = image[y1:y2, x1:x2]
    if region.polygon is None:
        return pixels
    import cv2

    corners = np.round(np.subtract(region.polygon, (x1, y1))).astype(np.int32)
    kept = np.zeros(pixels.shape[:2], np.uint8)
    cv2.fillPoly(kept, [corners], 1)
    cv2.polylines(kept, [corners], True, 1, 2 * math.ceil(max(height, width) / _OUTLINE_GRID))
    outside = kept == 0
    if not outside.any():
        return pixels
    cut = pixels.copy()
    # Most of what is around letters is paper, also where the letters are another region's.
    cut[outside] = np.median(pixels[outside], axis=0)
    return cut


def cut(page: Page, bbox: tuple[float, float, float, float]) -> bytes:
    """A part of a page as a JPEG at full resolution. Raises `UndecodableImage`."""
    import cv2

    height, width = page.image.shape[:2]
    x1, y1, x2, y2 = pixel_box(bbox, width, height)
    pixels = cv2.cvtColor(page.image[y1:y2, x1:x2], cv2.COLOR_RGB2BGR)
    _, jpeg = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
    return jpeg.tobytes()
