"""The search for the paper, skew and turns that set a page upright. Pure."""

import cv2
import numpy as np
from numpy.typing import NDArray

from kopub.pages.orientation import find_marks, find_skew, find_turns, find_writing_around, halve, shrink
from kopub.pages.page import MAX_PIXELS
from kopub.pages.upright import UprightTransform

LEAST_SKEW = 0.2
"""Degrees of skew below which a page is left as it is."""
_COPY_SIDE = 1700
"""Fewest pixels of the longer side of the working copy, which has up to twice as many."""
_MARGIN_AROUND = 0.02
"""Margin left around writing beside a sheet, as a share of the sheet's longer side."""
_MOST_GROWTH = 2.0
"""Factor by which a page may at most be wider and higher than its sheet, to include writing beside it."""
_SHORTEST_SIDE, _LONGEST_SIDE = 100, 32_766
"""Limits in pixels: a narrower page holds no lines, and OpenCV cannot transform a longer one."""


def find_transform(pixels: NDArray[np.uint8]) -> UprightTransform | None:
    """Return the transform of an RGB page, None if upright or not clear."""
    height, width = pixels.shape[:2]
    if min(width, height) < _SHORTEST_SIDE or max(width, height) > _LONGEST_SIDE:
        return None
    # Angles and turns are found in a copy with characters of 15 to 40 pixels, and corners are scaled up from it.
    small = pixels
    while max(small.shape) >= 2 * _COPY_SIDE:
        small = halve(small)
    corners, levels = find_paper(small) or (None, 0.0)
    grey = np.asarray(cv2.cvtColor(small, cv2.COLOR_RGB2GRAY), np.uint8)
    matrix = np.eye(3)
    if corners is not None:
        around, scale = find_writing_around(grey, corners), np.float32(max(pixels.shape) / max(small.shape))
        flat, wide, high = _flattened(corners, around)
        grey = cv2.warpPerspective(grey, flat, (wide, high))
        matrix, width, height = _flattened(corners * scale, around * scale)
    marks = find_marks(np.asarray(grey, np.uint8))
    skew, sharpness = find_skew(marks)
    skew, sharpness = (skew, sharpness) if abs(skew) >= LEAST_SKEW else (0.0, 0.0)
    if skew:
        straight, wide, high = _straightened(skew, grey.shape[1], grey.shape[0])
        grey = cv2.warpPerspective(grey, straight, (wide, high), borderMode=cv2.BORDER_REPLICATE)
        marks = find_marks(np.asarray(grey, np.uint8))
        straight, width, height = _straightened(skew, width, height)
        matrix = straight @ matrix
    turns, margin = find_turns(marks, np.asarray(grey, np.uint8))
    if corners is None and not skew and not turns:
        return None
    # These move a page's pixels as `numpy.rot90` does.
    quarter_turns = (
        [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
        [[0, 1, 0], [-1, 0, width - 1], [0, 0, 1]],
        [[-1, 0, width - 1], [0, -1, height - 1], [0, 0, 1]],
        [[0, -1, height - 1], [1, 0, 0], [0, 0, 1]],
    )
    matrix = np.array(quarter_turns[turns], np.float64) @ matrix
    width, height = (height, width) if turns % 2 else (width, height)
    if max(width, height) > _LONGEST_SIDE or width * height > MAX_PIXELS:
        return None
    numbers = tuple(matrix.ravel().tolist())
    margin = margin if turns else 0.0
    return UprightTransform(numbers, width, height, turns, skew, corners is not None, margin, sharpness, levels)


def _flattened(corners: NDArray[np.float32], around: NDArray[np.float32]) -> tuple[NDArray[np.float64], int, int]:
    """Return the transform of a sheet to a rectangle, and the page's size.

    The size is that of the sheet's longer sides, plus any writing around it, whose points, (n, 2), are `around`.
    """
    top, right, bottom, left = np.linalg.norm(np.roll(corners, -1, axis=0) - corners, axis=1)
    width, height = round(max(top, bottom)), round(max(left, right))
    target = np.array([[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]], np.float32)
    flat = np.asarray(cv2.getPerspectiveTransform(corners, target), np.float64)
    if not len(around):
        return flat, width, height
    margin = round(_MARGIN_AROUND * max(width, height))
    flat_around = cv2.perspectiveTransform(around[None].astype(np.float64), flat)[0]
    left, top = np.minimum(0, np.floor(flat_around.min(axis=0)) - margin)
    right, bottom = np.maximum((width, height), np.ceil(flat_around.max(axis=0)) + margin)
    # Writing towards the horizon of a slanted sheet would be mapped far away from it.
    if not (right - left <= _MOST_GROWTH * width and bottom - top <= _MOST_GROWTH * height):
        return flat, width, height
    moved = np.array([[1, 0, -left], [0, 1, -top], [0, 0, 1]])
    return moved @ flat, round(right - left), round(bottom - top)


def _straightened(skew: float, width: int, height: int) -> tuple[NDArray[np.float64], int, int]:
    """Return the transform that removes a skew, and the size that holds the turned page."""
    turn = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), skew, 1)
    cos, sin = abs(turn[0, 0]), abs(turn[0, 1])
    wide, high = round(width * cos + height * sin), round(height * cos + width * sin)
    turn[:, 2] += (wide - width) / 2, (high - height) / 2
    return np.vstack([turn, [0, 0, 1]]), wide, high


WORKING_SIDE = 480
"""Longer side in pixels of the copy in which a sheet is searched for."""

_LEAST_SHARE, _MOST_SHARE = 0.15, 0.97
"""Shares of the picture that a sheet may cover; smaller is a picture on a page, larger is the page itself."""
_THRESHOLDS = 14
_LEAST_OVERLAP = 0.96
"""Share of the four-sided figure that must be as bright as paper; a picture on a page has ragged edges."""
_LEAST_STEP = 12.0
"""Grey levels by which a sheet must be brighter than its background, at nine of ten points of each side."""
_LEAST_SIDES = 3
"""Fewest sides of a sheet that must be visible; a frame, picture or table shows all four, but has paper around it."""
_LEAST_SLANT = 0.5
"""Degrees by which at least one side must deviate from the axes: a panel of a slide does not, and a sheet that does not
needs no correction."""
_BRIGHTEST_SURROUNDINGS = 0.82
"""Most brightness of the surroundings, as a share of paper's; those of a bright box printed on a page exceed it."""


def find_paper(pixels: NDArray[np.uint8]) -> tuple[NDArray[np.float32], float] | None:
    """Return a sheet's corners, (4, 2) float32, and how far it stands out.

    Corners are clockwise from the top left, in pixels of the RGB picture; `_quality` defines the measure. None if the
    picture shows nothing but the page.
    """
    small = shrink(pixels, WORKING_SIDE)
    if small is pixels:
        return None
    scale = max(small.shape) / max(pixels.shape)
    # The darkest channel distinguishes white from any colour, and closing it removes the print. A minimum over an axis
    # of length three would take 25 times as long.
    darkest = np.minimum(np.minimum(small[..., 0], small[..., 1]), small[..., 2])
    white = cv2.morphologyEx(darkest, cv2.MORPH_CLOSE, np.ones((9, 9), np.uint8))
    white = np.asarray(cv2.GaussianBlur(white, (3, 3), 0), np.uint8)
    border = np.concatenate([white[0], white[-1], white[:, 0], white[:, -1]])
    # One pixel in sixteen gives the brightness as well as all pixels would, which would have to be sorted.
    low, high = np.percentile(white[::4, ::4], (5, 95)).tolist()
    if np.median(border) > _BRIGHTEST_SURROUNDINGS * high:
        return None
    levels, best = 0.0, None
    for threshold in np.linspace(low, high, _THRESHOLDS + 2)[1:-1]:
        corners = _four_sides(white, float(threshold))
        if corners is not None and (quality := _quality(white, corners)) > levels:
            levels, best = quality, corners
    if best is None:
        return None
    across, down = np.abs(np.roll(best, -1, axis=0) - best).T
    if np.degrees(np.arctan2(np.minimum(across, down), np.maximum(across, down))).max() < _LEAST_SLANT:
        return None
    return (best + 0.5) / np.float32(scale) - 0.5, levels


def _four_sides(white: NDArray[np.uint8], threshold: float) -> NDArray[np.float32] | None:
    """Return the corners of the largest figure above a threshold, if it has four sides."""
    contours, _ = cv2.findContours((white > threshold).astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    outline = max(contours, key=cv2.contourArea, default=None)
    if outline is None:
        return None
    area = cv2.contourArea(outline)
    if not _LEAST_SHARE * white.size <= area <= _MOST_SHARE * white.size:
        return None
    hull = cv2.convexHull(outline)
    figure = cv2.approxPolyDP(hull, 0.02 * cv2.arcLength(hull, True), True)
    if len(figure) != 4 or area < _LEAST_OVERLAP * cv2.contourArea(figure):
        return None
    # The corners go clockwise, from the one nearest to the top left.
    corners = figure[:, 0].astype(np.float32)
    around = corners[np.argsort(np.arctan2(*(corners - corners.mean(axis=0)).T[::-1]))]
    clockwise = np.roll(around, -int(around.sum(axis=1).argmin()), axis=0)
    # More exact are the points where lines through the outline's sides meet, unless these are parallel.
    points, lines = outline[:, 0].astype(np.float32), []
    for start, end in zip(clockwise, np.roll(clockwise, -1, axis=0), strict=True):
        along = (end - start) / np.float32(np.linalg.norm(end - start))
        offset = points - start
        part = offset @ along / np.float32(np.linalg.norm(end - start))
        distance = np.abs(offset @ np.array([-along[1], along[0]], np.float32))
        near = points[(part > 0.06) & (part < 0.94) & (distance < 6)]
        if len(near) < 10:
            return None
        dx, dy, x, y = cv2.fitLine(near, cv2.DIST_HUBER, 0, 0.01, 0.01).ravel()
        lines.append(np.cross(np.array([x, y, 1], np.float64), np.array([x + dx, y + dy, 1], np.float64)))
    # In homogeneous coordinates, lines meet at their cross product, whose last number is 0 for parallel ones.
    meeting = np.cross(np.roll(lines, 1, axis=0), lines)
    if np.abs(meeting[:, 2]).min() < 1e-6:
        return None
    return (meeting[:, :2] / meeting[:, 2:]).astype(np.float32)


def _quality(white: NDArray[np.uint8], corners: NDArray[np.float32]) -> float:
    """Return by how many grey levels a sheet stands out, 0.0 if it is none.

    They are measured on its weakest side, and count up to double if the sheet covers little of the picture.
    """
    height, width = white.shape
    centre = corners.mean(axis=0)
    steps, sides = [], 0
    for start, end in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        normal = np.array([-(end - start)[1], (end - start)[0]], np.float32)
        normal /= np.linalg.norm(normal)
        inward = normal if (centre - start) @ normal > 0 else -normal
        places = start + np.linspace(0.08, 0.92, 60, dtype=np.float32)[:, None] * (end - start)
        inside, outside = places + 4 * inward, places - 4 * inward
        within = ((outside >= 0) & (outside < (width, height))).all(axis=1)
        within &= ((inside >= 0) & (inside < (width, height))).all(axis=1)
        if within.mean() < 0.5:
            continue
        sides += 1
        (x1, y1), (x2, y2) = inside[within].astype(int).T, outside[within].astype(int).T
        step = white[y1, x1].astype(np.float32) - white[y2, x2]
        steps.append(float(np.percentile(step, 10)))
    if sides < _LEAST_SIDES or min(steps) < _LEAST_STEP:
        return 0.0
    outside_share = 1 - abs(float(np.linalg.det(np.stack([corners[2] - corners[0], corners[3] - corners[1]])))) / 2 / (
        width * height
    )
    return min(steps) * (1 + outside_share)
