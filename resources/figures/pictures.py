"""The picture of a figure for a model of whole patches of 32 pixels, as the Qwen3-VL family has. Pure OpenCV."""

from typing import TYPE_CHECKING

from resources.pages.pixels.patches import whole_patches
from resources.recognition.vlm.region_images import RegionImage, encoded, relative_size, resized

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PATCH = 32
"""Pixels on a side of one image token."""
_LEAST = 4


class FigureImage(RegionImage):
    """A figure as it is sent."""

    __slots__ = ()

    @property
    def tokens(self) -> int:
        return (self.width // PATCH) * (self.height // PATCH)


def figure_image(crop: "NDArray[np.uint8]", max_tokens: int) -> FigureImage:
    """A crop of at most `max_tokens` tokens; a smaller one keeps its size, to whole patches."""
    height, width = crop.shape[:2]
    columns, rows = whole_patches(width, height, PATCH, _LEAST, max_tokens)
    size = columns * PATCH, rows * PATCH
    return FigureImage(*encoded(resized(crop, size)), *size, relative_size(size, crop))
