"""The angle by which the lines of a page are skewed. Pure; no Dagster.

Marks are projected along the lines: at the right angle the rows of a text fall into narrow peaks with white between
them, so the profile changes most from bin to bin (Postl, 1986). Both directions are tried, since the page may lie on
its side.
"""

from typing import TYPE_CHECKING

from resources.pages.upright.marks import Marks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_DEGREES = 15.0
"""Skews that are looked for, either way: a page that lies further off was put there on purpose."""
FEWEST_MARKS = 25
"""A page with fewer marks is not measured: two words make no line."""

_COARSE_DEGREES = 0.5
_FINE_DEGREES = 0.05
_CLEAREST = 1.25
"""How much sharper the profile must be at the found angle than at most others."""


def find_skew(marks: Marks) -> float:
    """Return the degrees by which the lines fall to the right (clockwise), to 0.05; 0.0 where there is no clear answer.

    The angle is that of the lines to the nearer axis: a page that lies on its side is measured like an upright one.
    """
    import numpy as np

    if len(marks.boxes) < FEWEST_MARKS:
        return 0.0
    # Both edges of a mark stand for it: letters share their base line, Hangul its top and its bottom.
    x, y, width, height = marks.boxes.T.astype(np.float32)
    centre_x, centre_y = x + width / 2, y + height / 2
    rows = _Projection(np.concatenate([centre_x, centre_x]), np.concatenate([y, y + height]), marks.height)
    columns = _Projection(np.concatenate([-centre_y, -centre_y]), np.concatenate([x, x + width]), marks.height)
    angles = np.arange(-MOST_DEGREES, MOST_DEGREES + _COARSE_DEGREES / 2, _COARSE_DEGREES)
    sharpness = [[each.sharpness(float(angle), 4) for angle in angles] for each in (rows, columns)]
    side = int(np.argmax(np.max(sharpness, axis=1)))
    coarse = np.array(sharpness[side])
    at = int(coarse.argmax())
    if at in (0, len(angles) - 1) or coarse[at] < _CLEAREST * np.percentile(coarse, 75):
        return 0.0
    chosen = (rows, columns)[side]
    fine = np.arange(angles[at] - _COARSE_DEGREES, angles[at] + _COARSE_DEGREES + _FINE_DEGREES / 2, _FINE_DEGREES)
    sharp = np.array([chosen.sharpness(float(angle), 8) for angle in fine])
    # The peak is flat at the top where lines are short: its middle is the angle, not its highest bin.
    high = fine[sharp >= sharp.max() * 0.97]
    return round(float(np.median(high)), 2)


class _Projection:
    """Points and how sharp their profile is when it is taken along an angle."""

    def __init__(self, along: "NDArray[np.float32]", across: "NDArray[np.float32]", height: float) -> None:
        self._along, self._across, self._height = along - along.mean(), across - across.min(), height

    def sharpness(self, degrees: float, bins: int) -> float:
        """Return the mean square of the change from bin to bin; `bins` are as high as a character together."""
        import numpy as np

        angle = np.radians(degrees)
        position = (self._across * np.cos(angle) - self._along * np.sin(angle)) * (bins / self._height)
        profile = np.bincount((position - position.min()).astype(np.int32))
        return float(np.square(np.diff(profile)).sum())
