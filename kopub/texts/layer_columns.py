"""Splits regions at the gutter between two columns of a text layer. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from kopub.layout.regions import Region, Task
from kopub.pages.documents.text_layer import Mark, TextLayer, Word
from kopub.texts.layer_lines import words_of_regions
from kopub.texts.layer_tables import chunks_of, printed_rows

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
    """The white strip between two columns, from `top` to `bottom`, in pixels."""

    left: float
    right: float
    top: float
    bottom: float

    @property
    def middle(self) -> float:
        """The line at which words are parted."""
        return (self.left + self.right) / 2


def split_columns(regions: Sequence[Region], layer: TextLayer) -> list[list[Region]]:
    """Return the regions above, left of, right of and below a gutter.

    A region of text that lies across it becomes one on each side. If there is none, all regions stay in one group.
    """
    gutter = _gutter(layer, [region.bbox for region in regions if region.task is Task.TABLE])
    if gutter is None:
        return [list(regions)]
    held = words_of_regions(layer, [region.bbox for region in regions])
    groups: list[list[Region]] = [[], [], [], []]
    is_split = False
    for region, within in zip(regions, held, strict=True):
        sides = [[word for word in within.words if _is_left(word, gutter) is left] for left in (True, False)]
        level = gutter.top <= (region.bbox[1] + region.bbox[3]) / 2 <= gutter.bottom
        if region.task is Task.TEXT and all(sides) and level:
            is_split = True
            for group, words in zip(groups[1:3], sides, strict=True):
                group.append(_around(region, words))
        elif level:
            groups[1 + ((region.bbox[0] + region.bbox[2]) / 2 > gutter.middle)].append(region)
        else:
            groups[0 if region.bbox[1] < gutter.top else 3].append(region)
    return groups if is_split else [list(regions)]


def _gutter(layer: TextLayer, tables: Sequence[Sequence[float]] = ()) -> _Gutter | None:
    """Return the gutter that parts most rows, if one side of it is prose.

    The other side is prose too, or holds a drawing, such as a chart.
    """
    words = [word for word in layer.words if not word.marks & (Mark.UP | Mark.DOWN) and not _is_in(word, tables)]
    rows = printed_rows(words)
    if len(rows) < _FEWEST_ROWS:
        return None
    em = median(word.box[3] - word.box[1] for word in words)
    white = np.ones((len(rows), layer.width), bool)
    for at, row in enumerate(rows):
        for word in row.words:
            white[at, max(0, word.box[0]) : word.box[2] + 1] = False
    candidates: list[tuple[int, int, int]] = []
    for left in range(int(0.2 * layer.width), int(0.8 * layer.width), max(1, int(em / 4))):
        free = white[:, left : left + int(_WIDE * em)].all(axis=1)
        edges = np.flatnonzero(np.diff(np.concatenate(([False], free, [False])).astype(np.int8))).reshape(-1, 2)
        candidates += [(first, end, left) for first, end in edges.tolist() if end - first >= _FEWEST_ROWS]
    tried: set[tuple[int, int, int]] = set()
    middles = [np.array([(word.box[0] + word.box[2]) / 2 for word in row.words]) for row in rows]
    for first, end, left in sorted(candidates, key=lambda candidate: candidate[0] - candidate[1]):
        band = rows[first:end]
        gutter = _Gutter(left, left + _WIDE * em, band[0].box[1], max(row.box[3] for row in band))
        # Strips of one white area part the same words.
        before = int((np.concatenate(middles[first:end]) < gutter.middle).sum())
        if (first, end, before) in tried:
            continue
        tried.add((first, end, before))
        printed = [word for row in band for word in row.words]
        sides = [[word for word in printed if _is_left(word, gutter) is side] for side in (True, False)]
        if all(sides) and _parts_columns(layer, gutter, sides, em):
            # A running head stands above both columns.
            return replace(gutter, top=max(min(word.box[1] for word in words) for words in sides))
    return None


def _parts_columns(layer: TextLayer, gutter: _Gutter, sides: Sequence[Sequence[Word]], em: float) -> bool:
    """Return whether one side is prose, and the other, too, or has a drawing."""
    prose = [_is_prose(words, em) for words in sides]
    if all(prose):
        return True
    if not any(prose):
        return False
    rows = layer.bare[int(gutter.top // layer.cell) : int(gutter.bottom // layer.cell) + 1]
    middle = int(gutter.middle // layer.cell)
    drawn = rows[:, middle:] if prose[0] else rows[:, :middle]
    return bool(drawn.size and drawn.mean() >= _CHART)


def _is_prose(words: Sequence[Word], em: float) -> bool:
    """Return whether several lines without gaps fill the width of their column."""
    lines = printed_rows(words)
    width = max(line.box[2] for line in lines) - min(line.box[0] for line in lines)
    full = sum(line.box[2] - line.box[0] >= _FULL * width and len(chunks_of(line.words)) == 1 for line in lines)
    return width >= _NARROWEST * em and full >= max(_FEWEST_FULL, 0.4 * len(lines))


def _is_left(word: Word, gutter: _Gutter) -> bool:
    return (word.box[0] + word.box[2]) / 2 < gutter.middle


def _is_in(word: Word, boxes: Sequence[Sequence[float]]) -> bool:
    x, y = (word.box[0] + word.box[2]) / 2, (word.box[1] + word.box[3]) / 2
    return any(x1 <= x <= x2 and y1 <= y <= y2 for x1, y1, x2, y2 in boxes)


def _around(region: Region, words: Sequence[Word]) -> Region:
    x1, y1, x2, y2 = zip(*(word.box for word in words), strict=True)
    return replace(region, bbox=(min(x1) - 1.0, min(y1) - 1.0, max(x2) + 1.0, max(y2) + 1.0), polygon=None)
