"""How high the lines of a crop are, from the strokes that its rows of pixels cross. Pure OpenCV and numpy."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from resources.layout.regions import Task

if TYPE_CHECKING:
    from numpy.typing import NDArray

_STEP = 3
"""Pixels between the two that are compared: a blurred stroke still has its whole contrast over them."""
_CONTRAST, _LEAST_CONTRAST = 0.2, 20
"""Grey levels across the edge of a stroke: a share of the crop's range, and above the noise of JPEG and paper."""
_BAND = 200
"""Pixels across of the bands that a crop is cut into: rows are looked at in a few of them together."""
_RULE = 0.7
"""A column of pixels with edges over this share of the crop's height is a rule or a frame, not a letter."""
_LETTERS = 12
"""Widths of a letter over which some reach up and some down; a line that lies askew by a degree rises by a fifth."""
_QUANTILE = 0.4
"""Two fifths of the strokes are in lines at most this high: of mixed print the smaller decides."""
_LOWEST, _HIGHEST = 6, 250
"""Pixels of a line that can be read at all, and of a headline of 60 points at 300 dpi."""
_ALIKE, _LEAST_ALIKE = (0.75, 1.5), 0.5
"""Half of the strokes are in lines about as high as the estimate, or the crop is no text in lines."""
_DENSEST = 17.0
"""Edges that a row of pixels crosses over the width of a letter: up to 16 in print, twice that where two lines are
taken for one, and more in photographs."""
_WORTHWHILE = 0.9
"""A crop that would only shrink by less stays as it is: the resize would cost it more than it saves."""


def scale_to_lines(crop: "NDArray[np.uint8]", task: Task, wanted: int | None) -> float:
    """The scale, at most 1, at which the lines of a crop are `wanted` pixels high.

    1 where they are no higher, where their height cannot be told, and for formulas, whose parts differ in size.
    """
    if wanted is None or task is Task.FORMULA:
        return 1.0
    height = line_height(crop)
    if height is None or wanted > _WORTHWHILE * height:
        return 1.0
    return wanted / height


def line_height(crop: "NDArray[np.uint8]") -> float | None:
    """Pixels from the top to the foot of a line's letters, about the size of the type; None where no estimate is sound.

    `crop` is (height, width) or (height, width, 3). Of lines that differ, the lower ones count. Digits and capitals
    alone give 0.7 of the size of the type, which errs to the safe side.
    """
    edges = _edges(crop)
    if edges is None:
        return None
    width = edges.shape[1]
    count = max(1, round(width / _BAND))
    bands = [_crossed(edges[:, width * i // count : width * (i + 1) // count]) for i in range(count)]
    height = _height(bands, width / count, together=2)
    # Of a headline few letters fit into two bands, and none of them may reach up or down.
    height = _height(bands, width / count, together=max(2, math.ceil(_LETTERS * height * count / width)))
    return height if _LOWEST <= height <= min(_HIGHEST, width) else None


def _height(bands: "Sequence[NDArray[np.int32]]", width: float, together: int) -> float:
    """The height of lines by so many bands `together`; 0 where it is not sound.

    Each of the bands is `width` pixels wide, and given as the edges that its rows cross.
    """
    count = max(1, len(bands) // together)
    cuts = [len(bands) * i // count for i in range(count + 1)]
    found = [_runs(np.sum(bands[start:end], axis=0)) for start, end in pairwise(cuts)]
    heights, strokes = (np.concatenate(parts) for parts in zip(*found, strict=True))
    if not len(heights):
        return 0.0
    order = np.argsort(heights, kind="stable")
    filled = np.cumsum(strokes[order])
    height = float(heights[order][np.searchsorted(filled, _QUANTILE * filled[-1])])
    alike = (heights >= _ALIKE[0] * height) & (heights <= _ALIKE[1] * height)
    density = strokes[alike].sum() / heights[alike].sum() * height / (width * len(bands) / count)
    return height if strokes[alike].sum() >= _LEAST_ALIKE * filled[-1] and density <= _DENSEST else 0.0


def _edges(crop: "NDArray[np.uint8]") -> "NDArray[np.uint8] | None":
    """1 where grey changes across a row of pixels, without the edges of vertical rules; None where nothing does."""
    import cv2

    # Green is most of what is seen as grey, and costs no conversion.
    grey = crop if crop.ndim == 2 else cv2.extractChannel(crop, 1)
    if grey.shape[1] <= 2 * _STEP:
        return None
    darkest, lightest, _, _ = cv2.minMaxLoc(grey)
    limit = max(_LEAST_CONTRAST, _CONTRAST * (lightest - darkest))
    changes = cv2.absdiff(grey[:, _STEP:], grey[:, :-_STEP])
    edges = np.asarray(cv2.threshold(changes, limit, 1, cv2.THRESH_BINARY)[1], np.uint8)
    in_column = cv2.reduce(edges, 0, cv2.REDUCE_SUM, dtype=cv2.CV_32S)[0]
    edges[:, in_column > _RULE * len(edges)] = 0
    return edges


def _crossed(edges: "NDArray[np.uint8]") -> "NDArray[np.int32]":
    """(height,) how many edges each row crosses."""
    import cv2

    return np.asarray(cv2.reduce(edges, 1, cv2.REDUCE_SUM, dtype=cv2.CV_32S)[:, 0], np.int32)


def _runs(crossed: "NDArray[np.int32]") -> "tuple[NDArray[np.intp], NDArray[np.intp]]":
    """(n,) heights of the runs of rows that cross strokes, and (n,) the edges in each."""
    turns = np.flatnonzero(np.diff(np.concatenate(([False], crossed > 0, [False]))))
    starts, ends = turns[::2], turns[1::2]
    sums = np.concatenate(([0], np.cumsum(crossed)))
    return ends - starts, sums[ends] - sums[starts]
