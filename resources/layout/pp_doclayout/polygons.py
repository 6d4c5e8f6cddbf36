"""A region's outline from its mask: contour and approximation by OpenCV. Pure."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

DETAIL = 0.004
"""Douglas-Peucker tolerance as a share of the outline's length, as PaddleX has it."""


def outline(
    logits: "NDArray[np.float32]", bbox: tuple[float, float, float, float], width: int, height: int, threshold: float
) -> tuple[tuple[float, float], ...] | None:
    """Corners in page pixels of the largest part of a mask (h, w) inside its box, None where it is no area.

    `logits` cover the whole page of `width` x `height` pixels; a pixel is set from the probability `threshold` on.
    """
    import cv2

    rows, columns = logits.shape
    scale = np.array([width / columns, height / rows])
    left, top = np.floor(np.array(bbox[:2]) / scale).astype(int)
    right, bottom = np.ceil(np.array(bbox[2:]) / scale).astype(int)
    part = logits[top:bottom, left:right] > np.log(threshold / (1 - threshold))
    contours, _ = cv2.findContours(part.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    if not contours:
        return None
    largest = max(contours, key=cv2.contourArea)
    corners = cv2.approxPolyDP(largest, DETAIL * cv2.arcLength(largest, True), True)[:, 0]
    if len(corners) < 3:
        return None
    # A contour runs through pixel centres.
    placed = np.clip((corners + (left, top) + 0.5) * scale, bbox[:2], bbox[2:])
    return tuple((float(x), float(y)) for x, y in placed)
