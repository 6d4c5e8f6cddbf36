"""The sheet of paper in a photo: its four corners, where it lies on something else. Pure; no Dagster."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WORKING_SIDE = 480
"""Longer side in pixels of the copy in which the sheet is looked for."""

_LEAST_SHARE, _MOST_SHARE = 0.15, 0.97
"""Of the picture that a sheet covers: a smaller one is a picture on a page, a larger one is the page itself."""
_THRESHOLDS = 14
_LEAST_OVERLAP = 0.96
"""Of what is as bright as paper and the four-sided figure around it: a picture on a page has ragged edges."""
_LEAST_STEP = 12.0
"""Grey levels by which the sheet is brighter than what it lies on, at nine of ten places of each side."""
_MARGIN = 3
"""Pixels of the working copy: a side nearer to the edge of the picture is no side of a sheet."""
_LEAST_SIDES = 3
"""Sides that must be seen: a frame, a picture or a table has all of them, but paper at least around it."""
_LEAST_SLANT = 0.5
"""Degrees by which one side at least leaves the axes: a panel of a slide is drawn along them, and a sheet that lies so
needs nothing done to it."""
_BRIGHTEST_SURROUNDINGS = 0.82
"""Of the brightness of paper: a page on which a brighter box is printed has a surrounding nearly as bright."""


def find_paper(pixels: "NDArray[np.uint8]") -> "NDArray[np.float32] | None":
    """Return the corners of the sheet as (4, 2) float32, clockwise from the top left, in pixels of the RGB picture.

    None where the picture shows nothing but the page.
    """
    import cv2
    import numpy as np

    scale = WORKING_SIDE / max(pixels.shape[:2])
    if scale >= 1:
        return None
    # One pixel of several is enough here, and takes a fifth of the time of their mean.
    step = max(1, int(0.5 / scale))
    size = round(pixels.shape[1] * scale), round(pixels.shape[0] * scale)
    small = cv2.resize(np.ascontiguousarray(pixels[::step, ::step]), size, interpolation=cv2.INTER_AREA)
    # The darkest channel tells white from any colour; closing it removes the print.
    white = cv2.morphologyEx(small.min(axis=2), cv2.MORPH_CLOSE, np.ones((9, 9), np.uint8))
    white = np.asarray(cv2.GaussianBlur(white, (3, 3), 0), np.uint8)
    border = np.concatenate([white[0], white[-1], white[:, 0], white[:, -1]])
    if np.median(border) > _BRIGHTEST_SURROUNDINGS * np.percentile(white, 95):
        return None
    low, high = float(np.percentile(white, 5)), float(np.percentile(white, 95))
    found = [
        (quality, corners)
        for threshold in np.linspace(low, high, _THRESHOLDS + 2)[1:-1]
        if (corners := _four_sides(white, float(threshold))) is not None and (quality := _quality(white, corners)) > 0
    ]
    if not found:
        return None
    best = max(found, key=lambda each: each[0])[1]
    across, down = np.abs(np.roll(best, -1, axis=0) - best).T
    if np.degrees(np.arctan2(np.minimum(across, down), np.maximum(across, down))).max() < _LEAST_SLANT:
        return None
    return (best + 0.5) / np.float32(scale) - 0.5


def _four_sides(white: "NDArray[np.uint8]", threshold: float) -> "NDArray[np.float32] | None":
    """Return the corners of the largest figure above the threshold, where it has four straight sides."""
    import cv2
    import numpy as np

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
    return _refined(outline[:, 0].astype(np.float32), _clockwise(figure[:, 0].astype(np.float32)))


def _clockwise(corners: "NDArray[np.float32]") -> "NDArray[np.float32]":
    """Return four corners clockwise, from the one nearest to the top left."""
    import numpy as np

    centre = corners.mean(axis=0)
    around = corners[np.argsort(np.arctan2(*(corners - centre).T[::-1]))]
    return np.roll(around, -int(around.sum(axis=1).argmin()), axis=0)


def _refined(outline: "NDArray[np.float32]", corners: "NDArray[np.float32]") -> "NDArray[np.float32] | None":
    """Return the corners where lines through the middle of the outline's sides meet; None where sides are parallel."""
    import cv2
    import numpy as np

    lines = []
    for start, end in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        along = (end - start) / np.float32(np.linalg.norm(end - start))
        offset = outline - start
        part = offset @ along / np.float32(np.linalg.norm(end - start))
        distance = np.abs(offset @ np.array([-along[1], along[0]], np.float32))
        near = outline[(part > 0.06) & (part < 0.94) & (distance < 6)]
        if len(near) < 10:
            return None
        dx, dy, x, y = cv2.fitLine(near, cv2.DIST_HUBER, 0, 0.01, 0.01).ravel()
        lines.append(np.cross(np.array([x, y, 1], np.float64), np.array([x + dx, y + dy, 1], np.float64)))
    meeting = [np.cross(lines[at - 1], lines[at]) for at in range(4)]
    if min(abs(point[2]) for point in meeting) < 1e-6:
        return None
    return np.array([point[:2] / point[2] for point in meeting], np.float32)


def _quality(white: "NDArray[np.uint8]", corners: "NDArray[np.float32]") -> float:
    """Return by how many grey levels the sheet stands out at its weakest side; 0.0 where it is no sheet."""
    import numpy as np

    height, width = white.shape
    centre = corners.mean(axis=0)
    steps, seen = [], 0
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
        seen += 1
        (x1, y1), (x2, y2) = inside[within].astype(int).T, outside[within].astype(int).T
        step = white[y1, x1].astype(np.float32) - white[y2, x2]
        steps.append(float(np.percentile(step, 10)))
    if seen < _LEAST_SIDES or min(steps) < _LEAST_STEP:
        return 0.0
    outside_share = 1 - abs(float(np.linalg.det(np.stack([corners[2] - corners[0], corners[3] - corners[1]])))) / 2 / (
        width * height
    )
    return min(steps) * (1 + outside_share)
