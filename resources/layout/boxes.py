"""Boxes in whole pixels. Pure."""

from collections.abc import Sequence
from typing import NamedTuple


class Box(NamedTuple):
    """Pixels, `x2` and `y2` exclusive."""

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

    def inside(self, other: "Box", slack: int = 0) -> bool:
        """Whether the centre of this box lies in `other`, grown by `slack`."""
        x, y = (self.x1 + self.x2) / 2, (self.y1 + self.y2) / 2
        return other.x1 - slack <= x <= other.x2 + slack and other.y1 - slack <= y <= other.y2 + slack

    def overlaps(self, other: "Box") -> bool:
        """Whether the boxes share a pixel."""
        return self.x1 < other.x2 and other.x1 < self.x2 and self.y1 < other.y2 and other.y1 < self.y2


def union(boxes: Sequence[Box]) -> Box:
    """The smallest box around `boxes`, of which there is at least one."""
    return Box(
        min(box.x1 for box in boxes),
        min(box.y1 for box in boxes),
        max(box.x2 for box in boxes),
        max(box.y2 for box in boxes),
    )


def spans(intervals: Sequence[tuple[int, int]], gap: float) -> list[tuple[int, int]]:
    """The intervals merged wherever less than `gap` lies between them, ascending."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if merged and start - merged[-1][1] < gap:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged
