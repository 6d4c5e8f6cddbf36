"""Colour channels of decoded pixels. Pure OpenCV."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def grey_as_one_channel(pixels: "NDArray[np.uint8]") -> "NDArray[np.uint8]":
    """RGB pixels (height, width, 3) as one channel (height, width) where all three are equal, else as they are."""
    import cv2

    red, green, blue = cv2.split(pixels)
    is_grey = not cv2.norm(red, green, cv2.NORM_INF) and not cv2.norm(red, blue, cv2.NORM_INF)
    return green if is_grey else pixels  # pyright: ignore[reportReturnType]
