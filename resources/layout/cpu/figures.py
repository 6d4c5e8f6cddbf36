"""Pictures of a page (photographs, screenshots, drawings) and its tinted boxes. Pure OpenCV."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from resources.layout.boxes import Box, union
from resources.layout.ink import grey_histogram, ink_mask

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FLAT = 6
"""Grey levels around the commonest one that count as the same tint."""
_HOLLOW = 0.5
"""Share of its box that a filled area covers at least; one that covers less is a frame, or the edge of a scan."""
_FRAME_AREA = 0.25
"""Share of the page that a frame encloses at least: a smaller ring of strokes is a drawing."""
_FRAME_WIDTH = 0.12
"""Share of the sides of its box within which all strokes of a frame lie."""


def find_filled(gray: "NDArray[np.uint8]", em: float) -> tuple[list[Box], list[Box]]:
    """Pictures and tinted boxes of a page in pixels.

    Filled areas are what survives an opening wider than any stroke. One whose most frequent level
    covers most of it is a tint that may hold text; any other is a picture. A hollow one, such as the dark
    edges of a scan, does not stand for what it encloses: only its solid parts count.
    """
    import cv2

    coloured = ink_mask(gray, _FLAT).astype(np.uint8)
    wide = max(7, round(0.4 * em) * 2 + 1)
    filled = cv2.morphologyEx(coloured, cv2.MORPH_OPEN, np.ones((wide, wide), np.uint8))
    bridged = cv2.morphologyEx(filled, cv2.MORPH_CLOSE, np.ones((wide, wide), np.uint8))
    pictures, tints = [], []
    for box, area in _solid_parts(np.asarray(bridged, np.uint8), wide):
        if min(box.width, box.height) < 1.2 * em:
            continue
        if _is_tint(gray[box.y1 : box.y2, box.x1 : box.x2], area):
            tints.append(box)
        elif max(box.width, box.height) >= 2 * em:
            pictures.append(box)
    return _merged(pictures), tints


def _solid_parts(filled: "NDArray[np.uint8]", wide: int) -> Iterator[tuple[Box, int]]:
    """Boxes and areas of the filled parts of a mask of 0 and 1; hollow ones fall apart under a wider opening."""
    import cv2

    _, parts, stats, _ = cv2.connectedComponentsWithStats(filled, connectivity=8)
    for part, (x, y, w, h, area) in enumerate(stats[1:].tolist(), start=1):
        if area >= _HOLLOW * w * h:
            yield Box(x, y, x + w, y + h), area
        elif (wider := 2 * wide + 1) < min(w, h):
            alone = (parts[y : y + h, x : x + w] == part).astype(np.uint8)
            opened = cv2.morphologyEx(alone, cv2.MORPH_OPEN, np.ones((wider, wider), np.uint8), borderValue=0)
            for box, inside in _solid_parts(np.asarray(opened, np.uint8), wider):
                yield Box(box.x1 + x, box.y1 + y, box.x2 + x, box.y2 + y), inside


def find_drawings(ink: "NDArray[np.uint8]", em: float) -> list[Box]:
    """Icons and line drawings in an ink mask of 0 and 1: strokes that hang together, larger than letters.

    Letters of a large title are as large, but have others of their height beside them. A frame around
    much of the page, or a dark edge of it, is no drawing: it is erased from the mask, and what it encloses stays.
    """
    import cv2

    _, strokes, stats, _ = cv2.connectedComponentsWithStats(ink, connectivity=8)
    least = 2.2 * em
    large: list[Box] = []
    for stroke, (x, y, w, h, area) in enumerate(stats[1:].tolist(), start=1):
        box = Box(x, y, x + w, y + h)
        encloses = w * h >= _FRAME_AREA * ink.size
        if _is_edge(box, ink.shape, least) or (encloses and _is_frame(strokes[y : y + h, x : x + w] == stroke, area)):
            ink[strokes == stroke] = 0
        elif w > least and h > least:
            large.append(box)
    return _merged([box for box in large if not any(_like(box, other) for other in large if other is not box)])


def _is_edge(box: Box, shape: tuple[int, ...], thickest: float) -> bool:
    """Whether a stroke runs along a side of the page, over half of it at least."""
    height, width = shape
    along = box.width >= width / 2 and (box.y1 == 0 or box.y2 == height)
    down = box.height >= height / 2 and (box.x1 == 0 or box.x2 == width)
    return min(box.width, box.height) <= thickest and (along or down)


def _is_frame(strokes: "NDArray[np.bool_]", area: int) -> bool:
    """Whether nearly all strokes in a box of their own run along its sides."""
    height, width = strokes.shape
    down, across = round(_FRAME_WIDTH * height), round(_FRAME_WIDTH * width)
    return int(strokes[down : height - down, across : width - across].sum()) < 0.02 * area


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
