"""Boxes on a page. Pure."""

from collections.abc import Iterable
from typing import NamedTuple


class Box(NamedTuple):
    """A box in whole pixels or steps of a grid, `x2` and `y2` exclusive."""

    x1: int
    y1: int
    x2: int
    y2: int

    @property
    def width(self) -> int:
        return self.x2 - self.x1

    @property
    def height(self) -> int:
        return self.y2 - self.y1

    @property
    def area(self) -> int:
        return max(0, self.width) * max(0, self.height)

    @property
    def middle(self) -> tuple[float, float]:
        """Its centre (x, y)."""
        return (self.x1 + self.x2) / 2, (self.y1 + self.y2) / 2

    def inside(self, other: "Box") -> bool:
        """Return whether the centre of this box lies in `other`."""
        x, y = self.middle
        return other.x1 <= x <= other.x2 and other.y1 <= y <= other.y2

    def inside_any(self, others: Iterable["Box"]) -> bool:
        """Return whether the centre of this box lies in one of the `others`."""
        return any(self.inside(other) for other in others)

    def overlaps(self, other: "Box") -> bool:
        """Return whether the boxes share a pixel."""
        return self.x1 < other.x2 and other.x1 < self.x2 and self.y1 < other.y2 and other.y1 < self.y2


def union(boxes: Iterable[Box]) -> Box:
    """Return the smallest box around `boxes`, of which there is at least one."""
    x1, y1, x2, y2 = zip(*boxes, strict=True)
    return Box(min(x1), min(y1), max(x2), max(y2))
