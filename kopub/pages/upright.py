"""The transform that sets a page upright: stored, applied and undone."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kopub.pages.page import decode

_EDGE_PART = 32
"""Fraction (one over this) of the longer side over which the edge of a picture is blurred."""


@dataclass(frozen=True)
class UprightTransform:
    """The transform that sets a page upright.

    `matrix` holds the 9 numbers, row by row, that map a point (x, y, 1) of the original picture to the upright page of
    `width` x `height` pixels. It combines the perspective of a sheet of paper (`paper`: whether there was one), the
    `skew` in degrees by which its lines fell to the right, and `turns` quarter turns to the left. `margin` is the
    sureness of the turn in nats per window of text; 0.0 if no turn was needed or clear. `skew_sharpness` is that of the
    skew, from `find_skew`, and `paper_levels` that of the paper, from `find_paper`; 0.0 without one, or in an older
    table.
    """

    matrix: tuple[float, ...]
    width: int
    height: int
    turns: int
    skew: float
    paper: bool
    margin: float
    skew_sharpness: float = 0.0
    paper_levels: float = 0.0

    def __str__(self) -> str:
        """Name the steps taken, in order."""
        done = ["taken off its background"] if self.paper else []
        if self.skew:
            done.append(f"straightened by {abs(self.skew):.2f} degrees")
        if self.turns:
            done.append(("turned left", "turned upside down", "turned right")[self.turns - 1])
        return ", ".join(done)

    def apply(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the upright page of a picture (RGB or grey), with edges blurred outwards."""
        import cv2

        if not self.skew and not self.paper:
            return np.ascontiguousarray(np.rot90(pixels, self.turns))
        # A single colour around an unevenly lit page would make an edge, and repeated edge pixels would make lines.
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
        # The picture is read once or twice and then discarded, so time matters, not size.
        return cv2.imencode(".png", upright, [cv2.IMWRITE_PNG_COMPRESSION, 1])[1].tobytes()

    def to_original(self, points: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
        """Map points (x, y) of the upright page to the original picture."""
        import cv2

        moved = cv2.perspectiveTransform(np.array([points], np.float64), np.linalg.inv(self._array))
        return [(float(x), float(y)) for x, y in moved[0]]

    def row(self) -> dict[str, Any]:
        """Return the transform as a value of the column `upright`."""
        return {**asdict(self), "matrix": list(self.matrix)}

    @classmethod
    def of_row(cls, row: Mapping[str, Any] | None) -> "UprightTransform | None":
        """Return the transform of a row of `raw_pages`, None for an upright page."""
        return None if row is None else cls(**{**row, "matrix": tuple(row["matrix"])})

    @staticmethod
    def picture_of(row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parts of a row that decide how the page looks, without its sureness."""
        return {name: value for name, value in row.items() if name not in ("skew_sharpness", "paper_levels")}

    @cached_property
    def _array(self) -> NDArray[np.float64]:
        return np.array(self.matrix, np.float64).reshape(3, 3)
