"""The character-sized marks of a page, from which its skew and its orientation are found. Pure; no Dagster."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WORKING_SIDE = 1240
"""Longer side in pixels of the copy that is looked at: characters of 8 points are 8 pixels high on A4."""

_NEIGHBOURHOOD = 31
"""Pixels around one that its darkness is compared with: more than a stroke, less than a shadow."""
_DARKER = 14
"""Grey levels by which ink is darker than its surroundings."""
_SMALLEST, _LARGEST = 5, 60
"""Longer side of a mark in pixels of the working copy: what is smaller is noise or a dot, larger a picture or rule."""
_MOST_ELONGATED = 5


@dataclass(frozen=True, slots=True)
class Marks:
    """Boxes of marks as (n, 4) int32 `x, y, width, height` in pixels of `grey`, a copy of the page at `scale`."""

    grey: "NDArray[np.uint8]"
    scale: float
    boxes: "NDArray[np.int32]"

    @property
    def height(self) -> float:
        """The height of a character in pixels: three quarters of the marks are smaller."""
        import numpy as np

        return float(np.percentile(self.boxes[:, 2:].max(axis=1), 75))


def find_marks(grey: "NDArray[np.uint8]") -> Marks:
    """Return the marks of a grey page of any size."""
    import cv2
    import numpy as np

    scale = min(1.0, WORKING_SIDE / max(grey.shape))
    small = cv2.resize(grey, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA) if scale < 1 else grey
    ink = cv2.adaptiveThreshold(small, 255, cv2.ADAPTIVE_THRESH_MEAN_C, cv2.THRESH_BINARY_INV, _NEIGHBOURHOOD, _DARKER)
    _, _, stats, _ = cv2.connectedComponentsWithStats(ink, connectivity=8)
    boxes = stats[1:, :4]
    longer, shorter = boxes[:, 2:].max(axis=1), boxes[:, 2:].min(axis=1)
    sized = (longer >= _SMALLEST) & (longer <= _LARGEST) & (longer <= _MOST_ELONGATED * shorter)
    return Marks(np.asarray(small, np.uint8), scale, np.asarray(boxes[sized], np.int32))
