"""Which words of a text layer stand in which region of its page, and whether they are all that is printed there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from resources.pages.documents.text_layer import TextLayer, Word

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class RegionWords:
    """The words of a region in the order of the PDF.

    `bare_share` is the part of its ink, 0 to 1, that no word covers: 1 where there is ink and no word.
    """

    words: tuple[Word, ...]
    bare_share: float

    @property
    def characters(self) -> int:
        """Characters of its words."""
        return sum(len(word.text) for word in self.words)


def words_of_regions(layer: TextLayer, boxes: Sequence[Sequence[float]]) -> list[RegionWords]:
    """For each box (x1, y1, x2, y2) in pixels, the words whose middle lies in it; of two boxes, in the smaller one."""
    homes = _homes(layer, boxes)
    covered = np.zeros_like(layer.bare)
    for word in layer.words:
        x1, y1, x2, y2 = (max(0, edge) // layer.cell for edge in word.box)
        covered[y1 : y2 + 1, x1 : x2 + 1] = True
    found = []
    for index, box in enumerate(boxes):
        words = tuple(layer.words[at] for at in np.flatnonzero(homes == index))
        found.append(RegionWords(words, _bare_share(layer, covered, box)))
    return found


def outside_of(layer: TextLayer, boxes: Sequence[Sequence[float]]) -> list[Word]:
    """The words that stand in none of the boxes."""
    return [layer.words[at] for at in np.flatnonzero(_homes(layer, boxes) < 0)]


def _homes(layer: TextLayer, boxes: Sequence[Sequence[float]]) -> "NDArray[np.intp]":
    """(words,) the box that each word stands in, -1 where there is none."""
    if not layer.words or not boxes:
        return np.full(len(layer.words), -1)
    words, places = np.array([word.box for word in layer.words], np.float64), np.asarray(boxes, np.float64)
    x, y = (words[:, 0] + words[:, 2]) / 2, (words[:, 1] + words[:, 3]) / 2
    within = (places[:, 0] <= x[:, None]) & (x[:, None] <= places[:, 2])
    within &= (places[:, 1] <= y[:, None]) & (y[:, None] <= places[:, 3])
    areas = np.prod(places[:, 2:] - places[:, :2], axis=1)
    smallest = np.where(within, areas, np.inf).argmin(axis=1)
    return np.where(within.any(axis=1), smallest, -1)


def _bare_share(layer: TextLayer, covered: "NDArray[np.bool_]", box: Sequence[float]) -> float:
    """Of the squares within the box; those on its edges may hold what stands beside it."""
    left, top = (int(-(-edge // layer.cell)) for edge in (max(0.0, box[0]), max(0.0, box[1])))
    right, bottom = (int(edge // layer.cell) for edge in box[2:])
    bare = int(layer.bare[top:bottom, left:right].sum())
    printed = bare + int((covered & ~layer.bare)[top:bottom, left:right].sum())
    return bare / printed if printed else 0.0
