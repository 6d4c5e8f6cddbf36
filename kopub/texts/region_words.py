"""The words of a text layer by the regions of their page. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from kopub.layout.regions import Region
from kopub.pages.documents.text_layer import TextLayer, Word
from kopub.texts.layer_lines import box_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_BARE = 0.25
"""Most of a region's ink that may be outside words: rules, frames, a fill. Text drawn as shapes has more."""


@dataclass(frozen=True, slots=True)
class RegionWords:
    """The words of a region in the order of the PDF.

    `bare_share` is the share of its ink, 0 to 1, that no word covers: 1 for ink without any word.
    """

    words: tuple[Word, ...]
    bare_share: float


def regions_with_words(regions: Sequence[Region], layer: TextLayer) -> Iterator[tuple[Region, RegionWords]]:
    """Yield each region with its words."""
    return zip(regions, words_of_boxes(layer, [region.bbox for region in regions]), strict=True)


def words_of_boxes(layer: TextLayer, boxes: Sequence[Sequence[float]]) -> list[RegionWords]:
    """Return the words whose middle lies in each box.

    Boxes are (x1, y1, x2, y2) in pixels; where two overlap, the smaller one gets the word.
    """
    homes = _homes(layer, boxes)
    regions = []
    for index, (x1, y1, x2, y2) in enumerate(boxes):
        words = tuple(layer.words[at] for at in np.flatnonzero(homes == index))
        # Squares on the edges of a box do not count, since they may hold ink from beside it.
        columns = slice(int(-(-max(0.0, x1) // layer.cell)), int(x2 // layer.cell))
        rows = slice(int(-(-max(0.0, y1) // layer.cell)), int(y2 // layer.cell))
        bare = layer.bare[rows, columns]
        printed = int((bare | layer.covered[rows, columns]).sum())
        regions.append(RegionWords(words, int(bare.sum()) / printed if printed else 0.0))
    return regions


def outside_of(layer: TextLayer, boxes: Sequence[Sequence[float]]) -> list[Word]:
    """Return the words that are in none of the boxes."""
    return [layer.words[at] for at in np.flatnonzero(_homes(layer, boxes) < 0)]


def _homes(layer: TextLayer, boxes: Sequence[Sequence[float]]) -> "NDArray[np.intp]":
    """Return the index of each word's box, of shape (words,), -1 for none."""
    if not layer.words or not boxes:
        return np.full(len(layer.words), -1)
    places = np.asarray(boxes, np.float64)
    x, y = layer.middles.T
    within = (places[:, 0] <= x[:, None]) & (x[:, None] <= places[:, 2])
    within &= (places[:, 1] <= y[:, None]) & (y[:, None] <= places[:, 3])
    areas = np.prod(places[:, 2:] - places[:, :2], axis=1)
    smallest = np.where(within, areas, np.inf).argmin(axis=1)
    return np.where(within.any(axis=1), smallest, -1)


def without_rules(layer: TextLayer) -> TextLayer:
    """Return a layer without the bare ink of rules and filled boxes."""
    bare = layer.bare.copy()
    for x1, y1, x2, y2 in (*layer.rules, *layer.fill_sides):
        top, left = max(0, (y1 - 1) // layer.cell), max(0, (x1 - 1) // layer.cell)
        bare[top : y2 // layer.cell + 1, left : x2 // layer.cell + 1] = False
    return replace(layer, bare=bare)


def bbox_around(words: Iterable[Word], margin: float = 0.0) -> tuple[float, float, float, float]:
    """Return the box of a region around words."""
    x1, y1, x2, y2 = box_of(words)
    return x1 - margin, y1 - margin, x2 + margin, y2 + margin


def area(box: Sequence[float]) -> float:
    """Return the area of a box in pixels, at least 1."""
    return max(1.0, (box[2] - box[0]) * (box[3] - box[1]))


def shared(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the area that two boxes have in common, in pixels."""
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
