"""How a page is set upright: found once, kept as numbers, applied to pixels and boxes, and undone. Pure; no Dagster."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from resources.pages.pixels.images import MAX_PIXELS, decode
from resources.pages.upright.marks import find_marks
from resources.pages.upright.orientation import find_turns
from resources.pages.upright.paper import find_paper
from resources.pages.upright.skew import find_skew

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LEAST_SKEW = 0.2
"""Degrees: a page that is skewed by less is left as it is."""
_COPY_SIDE = 1700
"""Pixels of the longer side of the copy that is looked at, at least, and up to twice as many."""
_EDGE_PART = 32
"""Part of the longer side over which the edge of a picture is blurred."""
_SHORTEST_SIDE, _LONGEST_SIDE = 100, 32_766
"""Pixels: a narrower page holds no lines, and OpenCV transforms no longer one."""


@dataclass(frozen=True)
class PageTransform:
    """What sets a page upright.

    `matrix` are the 9 numbers, row by row, that take a point of the picture as it came (x, y, 1) to the upright page
    of `width` x `height` pixels. It is made of the perspective of a sheet of paper (`paper`: whether there was one),
    `skew` degrees that its lines fell to the right, and `turns` quarter turns to the left. `margin` says how sure the
    turn is, in nats a window of text; 0.0 where no turn was needed or none was clear.
    """

    matrix: tuple[float, ...]
    width: int
    height: int
    turns: int
    skew: float
    paper: bool
    margin: float

    def __str__(self) -> str:
        """Name what was done, in the order in which it was done."""
        done = ["taken off its background"] if self.paper else []
        if self.skew:
            done.append(f"straightened by {abs(self.skew):.2f} degrees")
        if self.turns:
            done.append(("turned left", "turned upside down", "turned right")[self.turns - 1])
        return ", ".join(done)

    def apply(self, pixels: "NDArray[np.uint8]") -> "NDArray[np.uint8]":
        """Return the upright page of a picture, RGB or grey. What lies outside of the picture is its edge, blurred."""
        import cv2
        import numpy as np

        if not self.skew and not self.paper:
            return np.ascontiguousarray(np.rot90(pixels, self.turns))
        # One colour around an unevenly lit page would be an edge, and noise at its edge would be drawn out to lines.
        side = max(3, max(pixels.shape) // _EDGE_PART)
        around = cv2.blur(pixels, (side, side), borderType=cv2.BORDER_REPLICATE)
        size = self.width, self.height
        page = cv2.warpPerspective(around, self._array, size, borderMode=cv2.BORDER_REPLICATE)
        return np.asarray(
            cv2.warpPerspective(pixels, self._array, size, page, borderMode=cv2.BORDER_TRANSPARENT),
            np.uint8,
        )

    def apply_encoded(self, data: bytes | memoryview) -> bytes:
        """Return the upright page of an encoded picture as a PNG. Raises `UndecodableImage`."""
        import cv2

        upright = cv2.cvtColor(self.apply(decode(data)), cv2.COLOR_RGB2BGR)
        # The picture is read once or twice and thrown away: time counts, not size.
        return cv2.imencode(".png", upright, [cv2.IMWRITE_PNG_COMPRESSION, 1])[1].tobytes()

    def to_original(self, points: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
        """Return points (x, y) of the upright page as points of the picture as it came."""
        import cv2
        import numpy as np

        moved = cv2.perspectiveTransform(np.array([points], np.float64), np.linalg.inv(self._array))
        return [(float(x), float(y)) for x, y in moved[0]]

    def row(self) -> dict[str, Any]:
        """Return the transform as a value of the column `upright`."""
        return {**asdict(self), "matrix": list(self.matrix)}

    @classmethod
    def of_row(cls, row: Mapping[str, Any] | None) -> "PageTransform | None":
        """Return the transform that a row of `raw_pages` keeps; None for a page that is upright as it came."""
        return None if row is None else cls(**{**row, "matrix": tuple(row["matrix"])})

    @cached_property
    def _array(self) -> "NDArray[np.float64]":
        import numpy as np

        return np.array(self.matrix, np.float64).reshape(3, 3)


def find_transform(pixels: "NDArray[np.uint8]") -> PageTransform | None:
    """Return what sets a page (RGB) upright; None where it is, or where nothing says that it is not."""
    import cv2
    import numpy as np

    height, width = pixels.shape[:2]
    if min(width, height) < _SHORTEST_SIDE or max(width, height) > _LONGEST_SIDE:
        return None
    # Angles and turns are those of a copy with characters of 15 to 40 pixels; corners are scaled.
    small = pixels
    while max(small.shape) >= 2 * _COPY_SIDE:
        small = cv2.resize(small, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
    corners = find_paper(np.asarray(small, np.uint8))
    grey = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)
    matrix = np.eye(3)
    if corners is not None:
        flat, wide, high = _flattened(corners)
        grey = cv2.warpPerspective(grey, flat, (wide, high))
        matrix, width, height = _flattened(corners * np.float32(max(pixels.shape) / max(small.shape)))
    marks = find_marks(np.asarray(grey, np.uint8))
    skew = find_skew(marks)
    skew = skew if abs(skew) >= LEAST_SKEW else 0.0
    if skew:
        straight, wide, high = _straightened(skew, grey.shape[1], grey.shape[0])
        grey = cv2.warpPerspective(grey, straight, (wide, high), borderMode=cv2.BORDER_REPLICATE)
        marks = find_marks(np.asarray(grey, np.uint8))
        straight, width, height = _straightened(skew, width, height)
        matrix = straight @ matrix
    turns, margin = find_turns(marks, np.asarray(grey, np.uint8))
    if corners is None and not skew and not turns:
        return None
    matrix = _turned(turns, width, height) @ matrix
    width, height = (height, width) if turns % 2 else (width, height)
    if max(width, height) > _LONGEST_SIDE or width * height > MAX_PIXELS:
        return None
    numbers = tuple(float(value) for value in matrix.ravel())
    return PageTransform(numbers, width, height, turns, skew, corners is not None, margin if turns else 0.0)


def _flattened(corners: "NDArray[np.float32]") -> "tuple[NDArray[np.float64], int, int]":
    """Return what takes a sheet with these corners to a rectangle, and its width and height: its longer sides."""
    import cv2
    import numpy as np

    top, right, bottom, left = np.linalg.norm(np.roll(corners, -1, axis=0) - corners, axis=1)
    width, height = round(max(top, bottom)), round(max(left, right))
    target = np.array([[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]], np.float32)
    return np.asarray(cv2.getPerspectiveTransform(corners, target), np.float64), width, height


def _straightened(skew: float, width: int, height: int) -> "tuple[NDArray[np.float64], int, int]":
    """Return what takes off a skew, and the size of a page that holds all of the turned one."""
    import cv2
    import numpy as np

    turn = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), skew, 1)
    cos, sin = abs(turn[0, 0]), abs(turn[0, 1])
    wide, high = round(width * cos + height * sin), round(height * cos + width * sin)
    turn[:, 2] += (wide - width) / 2, (high - height) / 2
    return np.vstack([turn, [0, 0, 1]]), wide, high


def _turned(turns: int, width: int, height: int) -> "NDArray[np.float64]":
    """Return what takes pixels of a page where `numpy.rot90` takes them."""
    import numpy as np

    matrices = (
        [[1, 0, 0], [0, 1, 0]],
        [[0, 1, 0], [-1, 0, width - 1]],
        [[-1, 0, width - 1], [0, -1, height - 1]],
        [[0, -1, height - 1], [1, 0, 0]],
    )
    return np.array([*matrices[turns], [0, 0, 1]], np.float64)
