"""Boxes on a page, or on the grid of a table."""

from collections.abc import Iterable
from typing import Any, Generic, NamedTuple, TypeVar

Edge = TypeVar("Edge", int, float)


class Box(NamedTuple, Generic[Edge]):
    """A box in pixels or steps of a grid; whole `x2` and `y2` are exclusive."""

    x1: Edge
    y1: Edge
    x2: Edge
    y2: Edge

    @property
    def width(self) -> Edge:
        return self.x2 - self.x1

    @property
    def height(self) -> Edge:
        return self.y2 - self.y1

    @property
    def area(self) -> float:
        return max(0, self.width) * max(0, self.height)

    @property
    def middle(self) -> tuple[float, float]:
        """Its centre (x, y)."""
        return (self.x1 + self.x2) / 2, (self.y1 + self.y2) / 2

    def inside(self, other: "Box[Any]") -> bool:
        """Return whether the centre of this box lies in `other`."""
        x, y = self.middle
        return other.x1 <= x <= other.x2 and other.y1 <= y <= other.y2

    def inside_any(self, others: "Iterable[Box[Any]]") -> bool:
        """Return whether the centre of this box lies in one of the `others`."""
        return any(self.inside(other) for other in others)

    def holds(self, other: "Box[Any]") -> bool:
        """Return whether no part of `other` is outside of this box."""
        return self.intersection(other) == other

    def overlaps(self, other: "Box[Any]") -> bool:
        """Return whether the boxes share a pixel."""
        return self.x1 < other.x2 and other.x1 < self.x2 and self.y1 < other.y2 and other.y1 < self.y2

    def apart(self, other: "Box[Any]") -> tuple[float, float]:
        """Return the space between two boxes, across and down; 0 where they overlap."""
        across = max(0, self.x1 - other.x2, other.x1 - self.x2)
        return across, max(0, self.y1 - other.y2, other.y1 - self.y2)

    def intersection(self, other: "Box[Any]") -> "Box[Any]":
        """Return the part that two boxes share; its area is 0 if they are apart."""
        low = max(self.x1, other.x1), max(self.y1, other.y1)
        return Box(*low, min(self.x2, other.x2), min(self.y2, other.y2))

    def iou(self, other: "Box[Any]") -> float:
        """Return the intersection of two boxes over their union."""
        shared = self.intersection(other).area
        return shared / (self.area + other.area - shared) if shared else 0.0


def union(boxes: Iterable[Box[Any]]) -> Box[Any]:
    """Return the smallest box around `boxes`, of which there is at least one."""
    x1, y1, x2, y2 = zip(*boxes, strict=True)
    return Box(min(x1), min(y1), max(x2), max(y2))


def is_within(box: Box[Any], whole: tuple[float, float, float, float]) -> bool:
    """Return whether the middle of a box lies within another."""
    x, y = box.middle
    return whole[0] <= x < whole[2] and whole[1] <= y < whole[3]
