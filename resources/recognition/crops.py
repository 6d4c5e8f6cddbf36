"""Crops: the pictures of a page, which its markdown links to."""

from collections.abc import Sequence
from pathlib import PurePosixPath

from resources.layout.regions import Region, Task
from resources.pages.page import Page
from resources.recognition.readings import Crop

PICTURES = frozenset({"image", "chart", "header_image", "footer_image", "seal"})
_JPEG_QUALITY = 95


def cut_pictures(page: Page, regions: Sequence[Region]) -> tuple[Crop, ...]:
    """A JPEG for each region that is kept as a picture, at full resolution, in reading order.

    Raises `UndecodableImage` when the page cannot be decoded.
    """
    return tuple(_cut(page, region) for region in regions if _is_picture(region))


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


def _cut(page: Page, region: Region) -> Crop:
    import cv2

    height, width = page.image.shape[:2]
    x1, y1, x2, y2 = pixel_box(region.bbox, width, height)
    pixels = cv2.cvtColor(page.image[y1:y2, x1:x2], cv2.COLOR_RGB2BGR)
    _, jpeg = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
    return Crop(crop_path(page.page_id, region.index), region.bbox, region.label, jpeg.tobytes())
