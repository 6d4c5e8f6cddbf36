"""Pictures of a page (photographs, screenshots, drawings) and its tinted boxes. Pure OpenCV."""

from typing import TYPE_CHECKING

import numpy as np

from resources.layout.boxes import Box, union
from resources.layout.ink import grey_histogram, ink_mask

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FLAT = 6
"""Grey levels around the commonest one that count as the same tint."""


def find_filled(gray: "NDArray[np.uint8]", em: float) -> tuple[list[Box], list[Box]]:
    """Pictures and tinted boxes of a page in pixels.

    Filled areas are what survives an opening wider than any stroke. One whose most frequent level
    covers most of it is a tint that may hold text; any other is a picture.
    """
    import cv2

    coloured = ink_mask(gray, _FLAT).astype(np.uint8)
    wide = max(7, round(0.4 * em) * 2 + 1)
    filled = cv2.morphologyEx(coloured, cv2.MORPH_OPEN, np.ones((wide, wide), np.uint8))
    bridged = cv2.morphologyEx(filled, cv2.MORPH_CLOSE, np.ones((wide, wide), np.uint8))
    _, _, stats, _ = cv2.connectedComponentsWithStats(bridged, connectivity=8)
    pictures, tints = [], []
    for x, y, w, h, area in stats[1:].tolist():
        box = Box(x, y, x + w, y + h)
        if min(w, h) < 1.2 * em:
            continue
        if _is_tint(gray[y : y + h, x : x + w], area):
            tints.append(box)
        elif max(w, h) >= 2 * em:
            pictures.append(box)
    return _merged(pictures), tints


def find_drawings(ink: "NDArray[np.uint8]", em: float) -> list[Box]:
    """Icons and line drawings in an ink mask of 0 and 1: strokes that hang together, larger than letters.

    Letters of a large title are as large, but have others of their height beside them.
    """
    import cv2

    _, _, stats, _ = cv2.connectedComponentsWithStats(ink, connectivity=8)
    least = 2.2 * em
    large = [Box(x, y, x + w, y + h) for x, y, w, h, _ in stats[1:].tolist() if w > least and h > least]
    return _merged([box for box in large if not any(_like(box, other) for other in large if other is not box)])


def _like(one: Box, other: Box) -> bool:
    """Whether two boxes look like letters of one line."""
    shared = min(one.y2, other.y2) - max(one.y1, other.y1)
    return shared > 0.6 * max(one.height, other.height)


def _is_tint(gray: "NDArray[np.uint8]", area: int) -> bool:
    levels = grey_histogram(gray)
    level = int(levels.argmax())
    same = levels[max(0, level - _FLAT) : level + _FLAT + 1].sum() / gray.size
    # Print covers at most about a third of a tinted box; a screenshot has flat parts but no single ground.
    return bool(same > 0.62 and area > 0.5 * gray.size)


def _merged(boxes: list[Box]) -> list[Box]:
    """Overlapping boxes joined until none overlap."""
    todo, done = list(boxes), []
    while todo:
        box = todo.pop()
        partners = [other for other in todo if box.overlaps(other)]
        if not partners:
            done.append(box)
            continue
        todo = [other for other in todo if other not in partners]
        todo.append(union([box, *partners]))
    return done
