"""A page's skew and which way up it is, from its marks.

Pure; no Dagster. Marks are blobs of ink the size of characters. To find the skew, marks are projected along a tilted
axis. At the right angle, the rows of a text fall into narrow peaks with white between them, so the profile changes most
from bin to bin (Postl, 1986). Both axes are tried, because the page may lie on its side.

To find quarter turns, a small network (`orientation.npz`, made by `tools/train_orientation.py`) scores how upright a
window of two lines looks. Every window is scored in its four turns; the turn with the highest sum is the page's.
"""

from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

WORKING_SIDE = 1240
"""Longer side in pixels of the working copy, in which 8-point characters on A4 are 8 pixels high."""

_NEIGHBOURHOOD = 31
"""Side in pixels of the square with which a pixel's darkness is compared: wider than a stroke, less than a shadow."""
_DARKER = 14
"""Grey levels by which ink is darker than its surroundings."""
_SMALLEST, _LARGEST = 5, 60
"""Longer side of a mark in pixels of the working copy; smaller is noise or a dot, larger is a picture or a rule."""
_MOST_ELONGATED = 5


def halve(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a picture at half the size, each pixel the mean of four."""
    return np.asarray(cv2.resize(picture, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA), np.uint8)


def shrink(picture: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """Return a picture whose longer side has `side` pixels, or a smaller picture unchanged.

    It is halved first, which takes OpenCV a fifth of the time that area means take at any other scale.
    """
    if max(picture.shape[:2]) <= side:
        return picture
    while max(picture.shape[:2]) >= 2 * side:
        picture = halve(picture)
    scale = side / max(picture.shape[:2])
    # Sampling between pixels would make strokes alternately thick and thin, which looks like a skew if there are few.
    return np.asarray(cv2.resize(picture, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA), np.uint8)


@dataclass(frozen=True)
class Marks:
    """The boxes of marks on a page, (n, 4) int32 `x, y, width, height`.

    They are in pixels of `grey`, a copy of the page at `scale`.
    """

    grey: NDArray[np.uint8]
    scale: float
    boxes: NDArray[np.int32]

    @cached_property
    def height(self) -> float:
        """The height of a character in pixels: the upper quartile of the marks' longer sides."""
        return float(np.percentile(self.boxes[:, 2:].max(axis=1), 75))


def find_marks(grey: NDArray[np.uint8]) -> Marks:
    """Return the marks of a grey page of any size."""
    small = shrink(grey, WORKING_SIDE)
    ink = cv2.adaptiveThreshold(small, 255, cv2.ADAPTIVE_THRESH_MEAN_C, cv2.THRESH_BINARY_INV, _NEIGHBOURHOOD, _DARKER)
    return Marks(small, max(small.shape) / max(grey.shape), _characters(ink))


_LIGHTER = 40
"""Grey levels by which print is lighter than a dark background; the grain of a table top reaches 20."""
_ROW = 6
"""Fewest marks of similar height, side by side, that make a row of print."""
_NEAR = 10
"""Distance, in heights of a mark, within which the others of its row are found."""
_COMPARED = 256
"""Marks that are compared with all others at once."""


def find_writing_around(grey: NDArray[np.uint8], corners: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return box corners, (n, 2), of light print in rows around a sheet.

    Such print is the title of a slide. A sheet that lies on a table or on other paper has none.
    """
    small = shrink(grey, WORKING_SIDE)
    scale = max(small.shape) / max(grey.shape)
    ink = cv2.adaptiveThreshold(
        255 - small, 255, cv2.ADAPTIVE_THRESH_MEAN_C, cv2.THRESH_BINARY_INV, 2 * _NEIGHBOURHOOD - 1, _LIGHTER
    )
    cv2.fillConvexPoly(ink, (corners * scale).round().astype(np.int32), (0,))
    # The light edge of the sheet itself is no print either.
    cv2.polylines(ink, [(corners * scale).round().astype(np.int32)], True, (0,), _NEIGHBOURHOOD)
    boxes = _characters(ink)
    left, middle, height = boxes[:, 0], boxes[:, 1] + boxes[:, 3] / 2, boxes[:, 3]
    in_rows: list[NDArray[np.int32]] = []
    # All pairs of marks at once would take gigabytes for a sheet on a dotted cloth.
    for at in range(0, len(boxes), _COMPARED):
        part = boxes[at : at + _COMPARED]
        own = part[:, 3, None]
        near = np.abs(part[:, 1, None] + own / 2 - middle) < 0.6 * own
        near &= np.abs(part[:, 0, None] - left) < _NEAR * own
        near &= (height > 0.4 * own) & (height < 2.5 * own)
        in_rows.append(part[near.sum(axis=1) >= _ROW])
    rows = np.concatenate(in_rows or [boxes])
    corner = [rows[:, :2], rows[:, :2] + rows[:, 2:]]
    return (np.concatenate(corner) / scale).astype(np.float32)


def _characters(ink: np.ndarray) -> NDArray[np.int32]:
    """Return the boxes, (n, 4), of blobs of ink as large as characters."""
    _, _, stats, _ = cv2.connectedComponentsWithStats(ink, connectivity=8)
    boxes = np.asarray(stats[1:, :4], np.int32)
    longer, shorter = boxes[:, 2:].max(axis=1), boxes[:, 2:].min(axis=1)
    return boxes[(longer >= _SMALLEST) & (longer <= _LARGEST) & (longer <= _MOST_ELONGATED * shorter)]


MOST_DEGREES = 15.0
"""Largest skew looked for in either direction; a page that is tilted further was placed so on purpose."""
FEWEST_MARKS_OF_LINES = 25
"""A page with fewer marks is not measured, because two words do not make a line."""

_COARSE_DEGREES = 0.5
_FINE_DEGREES = 0.05
_CLEAREST = 1.25
"""Factor by which the profile must be sharper at the found angle than at most others."""


def find_skew(marks: Marks) -> tuple[float, float]:
    """Return the skew in degrees, to 0.05, and its sureness.

    Lines that fall to the right (clockwise) have a positive skew. Sureness is how many times sharper the profile is
    than at three quarters of the angles. Both are 0.0 if there is no clear answer. The angle is between the lines and
    the nearer axis, so a page that lies on its side is measured like an upright one.
    """
    if len(marks.boxes) < FEWEST_MARKS_OF_LINES:
        return 0.0, 0.0
    # Both edges of a mark are projected, because letters share their base line, and Hangul its top and bottom.
    x, y, width, height = marks.boxes.T.astype(np.float32)
    centre_x, centre_y = x + width / 2, y + height / 2
    rows = np.concatenate([centre_x, centre_x]), np.concatenate([y, y + height])
    columns = np.concatenate([-centre_y, -centre_y]), np.concatenate([x, x + width])
    angles = np.arange(-MOST_DEGREES, MOST_DEGREES + _COARSE_DEGREES / 2, _COARSE_DEGREES, np.float64)
    sharpness = [_sharpness(*points, marks.height, angles, 4) for points in (rows, columns)]
    side = int(np.argmax(np.max(sharpness, axis=1)))
    coarse = sharpness[side]
    at = int(coarse.argmax())
    usual = float(np.percentile(coarse, 75))
    if at in (0, len(angles) - 1) or coarse[at] < _CLEAREST * usual:
        return 0.0, 0.0
    first, end = angles[at] - _COARSE_DEGREES, angles[at] + _COARSE_DEGREES + _FINE_DEGREES / 2
    fine = np.arange(first, end, _FINE_DEGREES, np.float64)
    sharp = _sharpness(*(rows, columns)[side], marks.height, fine, 8)
    # With short lines the peak has a flat top, so its middle is taken as the angle, not its highest bin.
    high = fine[sharp >= sharp.max() * 0.97]
    return round(float(np.median(high)), 2), float(coarse[at]) / max(usual, 1.0)


def _sharpness(
    along: NDArray[np.float32], across: NDArray[np.float32], height: float, degrees: NDArray[np.float64], bins: int
) -> NDArray[np.float64]:
    """Return the sum of squared changes between bins of points, for each angle.

    A character is `height` pixels high, and `bins` bins. All angles are computed in one array, because threads that
    measure pages side by side would otherwise wait for the interpreter lock.
    """
    angles = np.radians(degrees)[:, None]
    turned = (across - across.min()) * np.cos(angles) - (along - along.mean()) * np.sin(angles)
    position = turned * (bins / height)
    place = (position - position.min(axis=1, keepdims=True)).astype(np.int32)
    last = place.max(axis=1)
    # There is one bin beyond the last point; the change to it is subtracted below, because no line ends there.
    length = int(last.max()) + 2
    rows = np.arange(len(degrees))
    counted = np.bincount((place + (rows * length)[:, None]).ravel(), minlength=len(degrees) * length)
    profile = counted.reshape(len(degrees), length)
    changes = np.square(np.diff(profile, axis=1)).sum(axis=1)
    return (changes - np.square(profile[rows, last])).astype(np.float64)


WINDOW = 48
"""Side of a window in pixels."""
CHARACTER = 20
"""Height in pixels of a character in a window."""
WINDOWS = 64
"""Most windows that are scored."""
FEWEST_MARKS = 12
"""A page with fewer marks is left as it is, because a word or a number may be readable both ways up."""
LEAST_MARGIN = 1.0
"""How much surer the network must be of a turn than of the page as it is, in nats per window."""

_FIRST = 16
"""Windows scored first, and alone if they leave no doubt that the page is upright, as most pages are."""
_FIRST_MARGIN = 2.0
"""Nats per window by which the page as it is must lead every turn in the first windows."""
_STRIDE = 2


def find_turns(marks: Marks, grey: NDArray[np.uint8]) -> tuple[int, float]:
    """Return the quarter turns that set the page upright, and the sureness.

    The turns are 0 to 3, to the left. `grey` is the page on which `marks` were found. Sureness is the lead over the
    next best turn, in nats per window; a turn must lead the page as it is by at least `LEAST_MARGIN`.
    """
    if len(marks.boxes) < FEWEST_MARKS:
        return 0, 0.0
    score = turn_scores(cut_windows(marks, grey, _FIRST))
    if score[0] - score[1:].max() < _FIRST_MARGIN:
        score = turn_scores(cut_windows(marks, grey, WINDOWS))
    best = int(np.argmax(score))
    if best and score[best] - score[0] < LEAST_MARGIN:
        return 0, 0.0
    return best, float(score[best] - np.delete(score, best).max())


def cut_windows(marks: Marks, grey: NDArray[np.uint8], most: int) -> NDArray[np.float32]:
    """Return at most `most` windows around marks, as (n, WINDOW, WINDOW) float32.

    Marks are evenly chosen; a window has mean 0 and deviation 1. It is cut at the scale at which characters are
    `CHARACTER` pixels high.
    """
    step, placed = CHARACTER / marks.height * marks.scale, 1 / marks.scale
    # Sampling between pixels skips none as long as the picture is less than twice the wanted scale.
    while step < 0.5:
        grey, step, placed = halve(grey), 2 * step, placed / 2
    # Marks below a third of the character height are dots and commas; parts of syllables are larger.
    large = marks.boxes[marks.boxes[:, 2:].max(axis=1) * 3 >= marks.height]
    order = np.lexsort((large[:, 0], large[:, 1]))
    chosen = large[order[np.linspace(0, len(large) - 1, min(most, len(large))).round().astype(int)]]
    centres = (chosen[:, :2] + chosen[:, 2:] / 2) * placed
    middle, size = WINDOW / 2, (WINDOW, WINDOW)
    windows = np.empty((len(centres), *size), np.float32)
    for window, (x, y) in zip(windows, centres, strict=True):
        around = np.array([[step, 0, middle - x * step], [0, step, middle - y * step]])
        window[:] = cv2.warpAffine(grey, around, size, borderMode=cv2.BORDER_REPLICATE)
    windows -= windows.mean(axis=(1, 2), keepdims=True)
    return windows / (windows.std(axis=(1, 2), keepdims=True) + 8)


def turn_scores(windows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the mean log-probability over the windows for 0 to 3 left turns, (4,)."""
    turned = np.stack([np.rot90(windows, turns, axes=(1, 2)) for turns in range(4)], axis=1)
    layers = _weights()
    values = turned.reshape(-1, WINDOW, WINDOW, 1)
    for at in range((len(layers) - 2) // 2):
        weight, bias = layers[f"conv{at}_weight"], layers[f"conv{at}_bias"]
        side = weight.shape[0]
        patches = np.lib.stride_tricks.sliding_window_view(values, (1, side, side, 1))
        patches = patches[:, ::_STRIDE, ::_STRIDE, :, 0, :, :, 0].transpose(0, 1, 2, 4, 5, 3)
        shape = patches.shape[:3]
        values = patches.reshape(-1, weight[..., 0].size) @ weight.reshape(-1, weight.shape[-1]) + bias
        values = np.maximum(values, 0).reshape(*shape, -1)
    scores = values.reshape(4 * len(windows), -1) @ layers["linear_weight"] + layers["linear_bias"]
    logits = scores.reshape(-1, 4)
    logits -= logits.max(axis=1, keepdims=True)
    return (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))).mean(axis=0)


@cache
def _weights() -> dict[str, NDArray[np.float32]]:
    """Return the network's weights: convolutions as (side, side, channels in, channels out)."""
    with np.load(Path(__file__).with_name("orientation.npz")) as stored:
        return {name: stored[name].astype(np.float32) for name in stored.files}
