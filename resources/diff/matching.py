"""Which region of one layout is which of another. Pure."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SAME = 0.5
"""Least overlap of two boxes of one region: the usual threshold of detection (PASCAL VOC)."""
UNMOVED = 0.9
"""Overlap from which on a box is where it was: a line of 40 pixels may be off by two."""


def iou(old: Sequence[Sequence[float]], new: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """Intersection over union, (old, new), of boxes (x1, y1, x2, y2); 0 where both have no area."""
    a, b = (np.asarray(boxes, np.float64).reshape(-1, 4) for boxes in (old, new))
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    shared = np.prod(np.clip(high - low, 0, None), axis=2)
    areas = [np.prod(np.clip(boxes[:, 2:] - boxes[:, :2], 0, None), axis=1) for boxes in (a, b)]
    union = areas[0][:, None] + areas[1][None, :] - shared
    return np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)


def match(old: Sequence[Sequence[float]], new: Sequence[Sequence[float]]) -> list[tuple[int, int, float]]:
    """(old, new, IoU) of the boxes that are of one region, in the order of the old ones.

    The assignment of largest total IoU (Kuhn and Munkres, in SciPy); a pair below `SAME` is none.
    """
    from scipy.optimize import linear_sum_assignment

    overlap = iou(old, new)
    # A pair that will not count must not keep two that would from each other.
    rows, columns = linear_sum_assignment(np.where(overlap >= SAME, overlap, 0.0), maximize=True)
    pairs = ((int(row), int(column), float(overlap[row, column])) for row, column in zip(rows, columns, strict=True))
    return [pair for pair in pairs if pair[2] >= SAME]
