"""Splits regions at the gutter between two columns of a text layer. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kopub.layout.regions import Region, Task
from kopub.pages.documents.text_layer import Mark, TextLayer, Word
from kopub.texts.layer_lines import printed_rows, usual_height, words_in
from kopub.texts.layer_tables import chunks_of
from kopub.texts.region_words import bbox_around, regions_with_words

_FEWEST_ROWS = 8
"""Rows that a gutter must part: fewer may leave a gap by chance."""
_WIDE = 0.8
"""Width of a gutter in heights of a word: more than the blanks of justified lines."""
_FULL, _FEWEST_FULL = 0.85, 4
"""Share of its column's width from which a line is full, and the lines of prose that show a column."""
_NARROWEST = 8
"""Width of a column of prose in heights of a word; a narrower one is of a list or a table."""
_CHART = 0.01
"""Share of a column's squares with bare ink from which something is drawn in it."""


@dataclass(frozen=True, slots=True)
class _Gutter:
    """The white strip between two columns, from `top` to `bottom`, with its `middle`, in pixels."""

    middle: float
    top: float
    bottom: float

    def part(self, words: Sequence[Word]) -> tuple[list[Word], list[Word]]:
        """Return the words on its left and those on its right."""
        left: list[Word] = []
        right: list[Word] = []
        for word in words:
            (left if word.box.middle[0] < self.middle else right).append(word)
        return left, right


def split_columns(regions: Sequence[Region], layer: TextLayer) -> list[list[Region]]:
    """Return the regions above, left of, right of and below a gutter.

    A region of text that lies across it becomes one on each side. If there is none, all regions stay in one group.
    """
    gutter = _gutter(layer, [region.bbox for region in regions if region.task is Task.TABLE])
    if gutter is None:
        return [list(regions)]
    above: list[Region] = []
    left: list[Region] = []
    right: list[Region] = []
    below: list[Region] = []
    is_split = False
    for region, within in regions_with_words(regions, layer):
        x1, y1, x2, y2 = region.bbox
        on_left, on_right = gutter.part(within.words)
        if not gutter.top <= (y1 + y2) / 2 <= gutter.bottom:
            (above if y1 < gutter.top else below).append(region)
        elif region.task is Task.TEXT and on_left and on_right:
            is_split = True
            left.append(replace(region, bbox=bbox_around(on_left, 1.0), polygon=None))
            right.append(replace(region, bbox=bbox_around(on_right, 1.0), polygon=None))
        else:
            (right if (x1 + x2) / 2 > gutter.middle else left).append(region)
    return [above, left, right, below] if is_split else [list(regions)]


def _gutter(layer: TextLayer, tables: Sequence[Sequence[float]]) -> _Gutter | None:
    """Return the gutter that parts most rows, if one side of it is prose.

    The other side is prose too, or holds a drawing, such as a chart.
    """
    words: list[Word] = []
    for word in layer.words:
        x, y = word.box.middle
        in_table = any(x1 <= x <= x2 and y1 <= y <= y2 for x1, y1, x2, y2 in tables)
        if not (in_table or word.marks & (Mark.UP | Mark.DOWN)):
            words.append(word)
    rows = printed_rows(words)
    if len(rows) < _FEWEST_ROWS:
        return None
    # The dots of a contents list would make the white between them as wide as a gutter.
    em = usual_height([word for word in words if any(map(str.isalnum, word.text))] or words)
    white = np.ones((len(rows), layer.width), bool)
    for at, row in enumerate(rows):
        for word in row.words:
            white[at, max(0, word.box.x1) : word.box.x2 + 1] = False
    # Runs of rows with a white strip at one place, the longest first.
    strips: list[tuple[int, int, int]] = []
    for left in range(int(0.2 * layer.width), int(0.8 * layer.width), max(1, int(em / 4))):
        free = white[:, left : left + int(_WIDE * em)].all(axis=1)
        edges = np.flatnonzero(np.diff(np.concatenate(([False], free, [False])).astype(np.int8))).reshape(-1, 2)
        strips += [(first, end, left) for first, end in edges.tolist() if end - first >= _FEWEST_ROWS]
    tried: set[tuple[int, int, int]] = set()
    for first, end, left in sorted(strips, key=lambda strip: strip[0] - strip[1]):
        band = rows[first:end]
        gutter = _Gutter(left + _WIDE * em / 2, band[0].box.y1, max(row.box.y2 for row in band))
        sides = gutter.part(words_in(band))
        # Strips of one white area part the same words.
        if (first, end, len(sides[0])) in tried:
            continue
        tried.add((first, end, len(sides[0])))
        if all(sides) and _parts_columns(layer, gutter, sides, em):
            # A running head stands above both columns.
            return replace(gutter, top=max(min(word.box.y1 for word in side) for side in sides))
    return None


def _parts_columns(layer: TextLayer, gutter: _Gutter, sides: Sequence[Sequence[Word]], em: float) -> bool:
    """Return whether one side is prose, and the other, too, or has a drawing."""
    are_prose: list[bool] = []
    for words in sides:
        # Several lines without gaps fill the width of a column of prose.
        lines = printed_rows(words)
        width = max(line.box.x2 for line in lines) - min(line.box.x1 for line in lines)
        full = sum(line.box.width >= _FULL * width and len(chunks_of(line)) == 1 for line in lines)
        are_prose.append(width >= _NARROWEST * em and full >= max(_FEWEST_FULL, 0.4 * len(lines)))
    left, right = are_prose
    if left == right:
        return left
    rows = layer.bare[int(gutter.top // layer.cell) : int(gutter.bottom // layer.cell) + 1]
    middle = int(gutter.middle // layer.cell)
    drawn = rows[:, middle:] if left else rows[:, :middle]
    return bool(drawn.size and drawn.mean() >= _CHART)
