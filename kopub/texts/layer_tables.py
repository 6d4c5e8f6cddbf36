"""Tables of a text layer, by rules, filled boxes or alignment. Pure."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import pairwise
from math import inf
from statistics import median

import numpy as np

from kopub.layout.grid import RuledCell, ruled_cells, table_html
from kopub.layout.ink import true_runs
from kopub.layout.lines import InkBox, RuledLines, merge_intervals
from kopub.pages.documents.text_layer import Box, TextLayer, Word
from kopub.texts.layer_lines import Line, lines_of, on_one_line, text_of
from kopub.texts.layer_tags import tagged_cells

_MOST_CUT = 0.05
"""Most words of a table, as a share, that may reach over a line between two of its cells."""
_REACH = 0.5
"""Height of a word by which it may reach over such a line."""
_GAP = 1.0
"""Gap between words, in heights of a word, from which they stand in two columns."""
_LEAST_WHITE, _WIDER = 0.5, 1.25
"""White between two columns, in heights of a word and in blanks of its rows, if it runs through them all."""
_MOST_CROSSING = 0.1
"""Rows, as a share, that may have a word where two columns are parted: titles and joined cells."""
_WRAPPED = 0.8
"""Distance from the row above, as a share of the usual one, up to which a line goes on with that row's cells."""
_NUMERIC = re.compile(r"[^\w]*\d[\d.,:/%\s()△▲+\-–—~]*[^\w]*\w?")
_NUMBERING = re.compile(r"\d+(?:\.\d+)*\.?")
_FEW_BANDS = 3
"""Ruled rows up to which a table without upright rules has rules around its head and foot alone."""
_FEW_FIGURES = 3
"""Figures of a row from which it and its heading are a table."""
_MOST_CELLS = 20_000
_MOSTLY, _LONG = 0.7, 20
"""Share of the rows of a table without rules that have several cells, and the usual length of prose."""


@dataclass(frozen=True, slots=True)
class LayerTable:
    """The cells of a table, row by row, and the words of each.

    `below` are the words of the text below it.
    """

    cells: Sequence[RuledCell]
    words: Sequence[Sequence[Word]]
    below: Sequence[Word] = ()

    @property
    def columns(self) -> int:
        """The number of columns."""
        return max(cell.column + cell.column_span for cell in self.cells)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return max(cell.row + cell.row_span for cell in self.cells)

    def lines(self) -> Iterator[Line]:
        """Yield the printed lines of all cells, and of the text below."""
        for words in (*self.words, self.below):
            yield from lines_of(words)

    def html(self) -> str:
        """Return the table as its region's content."""
        table = table_html(self.cells, [" ".join(text_of(lines_of(words)).split()) for words in self.words])
        below = escape(text_of(lines_of(self.below)), quote=False) if self.below else ""
        return f"{table}\n\n{below}" if below else table


def table_of(layer: TextLayer, words: Sequence[Word], box: Sequence[float]) -> LayerTable | None:
    """Return the table of `words` in a box, in pixels; None if they form none.

    The grid is that of the page's rules, else that of its tags, of its filled boxes, or of the words' alignment.
    """
    if not words:
        return None
    em = median(word.box[3] - word.box[1] for word in words)
    around = box[0] - em, box[1] - em, box[2] + em, box[3] + em
    rules = [rule for rule in layer.rules if _is_inside(rule, around)]
    sides = [side for fill in layer.fills for side in _sides(fill) if _is_inside(side, around)]
    level = [side for side in sides if side[2] - side[0] > side[3] - side[1]]
    # A table ends where its upright rules meet a level one: what stands below is a paragraph.
    foot = max((y2 for x1, y1, x2, y2 in rules if y2 - y1 > max(em / 2, x2 - x1)), default=inf)
    closed = any(abs(y2 - foot) <= em / 2 and x2 - x1 > em for x1, _, x2, y2 in rules)
    below = [word for word in words if closed and word.box[1] + word.box[3] > 2 * foot]
    within = [word for word in words if word not in below]
    table = _ruled(rules, within, em) if rules and within else None
    if (table is None or table.columns == 1) and (tagged := tagged_cells(layer, words)):
        return LayerTable(*zip(*tagged, strict=True))
    for lines in filter(None, (rules, sides and [*rules, *sides], level and [*rules, *level])):
        table = _ruled(lines, within, em) if within else None
        if table is None or len(table.cells) == 1:
            continue
        if table.columns == 1:
            return replace(_with_columns(table), below=below)
        # Of bands, every other row has no cells of its own.
        if lines is rules or not any(_is_unparted(table, at) for at in range(len(table.cells))):
            return replace(_with_rows(table), below=below)
    return aligned(words)


def _is_unparted(table: LayerTable, at: int) -> bool:
    """Return whether a cell holds a whole row of cells that nothing parts."""
    is_row = table.cells[at].column_span == table.columns
    return is_row and any(len(chunks_of(line.words)) > 1 for line in printed_rows(table.words[at]))


def without_rules(layer: TextLayer) -> TextLayer:
    """Return a layer without the bare ink of rules and filled boxes."""
    bare = layer.bare.copy()
    for x1, y1, x2, y2 in (*layer.rules, *(side for fill in layer.fills for side in _sides(fill))):
        top, left = (max(0, (edge - 1) // layer.cell) for edge in (y1, x1))
        bare[top : y2 // layer.cell + 1, left : x2 // layer.cell + 1] = False
    return replace(layer, bare=bare)


def _is_inside(rule: Box, box: Sequence[float]) -> bool:
    across = min(rule[2], box[2]) - max(rule[0], box[0])
    down = min(rule[3], box[3]) - max(rule[1], box[1])
    return across > 0 and down > 0


def _sides(box: Box) -> tuple[Box, Box, Box, Box]:
    x1, y1, x2, y2 = box
    return (x1, y1, x2, y1 + 1), (x1, y2 - 1, x2, y2), (x1, y1, x1 + 1, y2), (x2 - 1, y1, x2, y2)


def _ruled(rules: Sequence[Box], words: Sequence[Word], em: float) -> LayerTable | None:
    """Return the table within the rules, with each word in the cell of its middle."""
    level = tuple(InkBox(*rule) for rule in rules if rule[2] - rule[0] >= max(em, rule[3] - rule[1]))
    upright = tuple(InkBox(*rule) for rule in rules if rule[3] - rule[1] > max(em / 2, rule[2] - rule[0]))
    lefts, tops, rights, bottoms = zip(*(word.box for word in words), strict=True)
    xs = _bounds([(rule.x1, rule.x2) for rule in upright], min(lefts), max(rights), em)
    ys = _bounds([(rule.y1, rule.y2) for rule in level], min(tops), max(bottoms), em)
    if len(xs) * len(ys) > _MOST_CELLS:
        return None
    cells = ruled_cells(xs, ys, RuledLines(level, upright))
    if not cells:
        return None
    held: list[list[Word]] = [[] for _ in cells]
    cut = 0
    for word in words:
        x1, y1, x2, y2 = word.box
        middle = (x1 + x2) / 2, (y1 + y2) / 2
        home = min(range(len(cells)), key=lambda at: _distance(cells[at].box, middle))
        held[home].append(word)
        bounds = cells[home].box
        cut += x1 < bounds.x1 - _REACH * em or x2 > bounds.x2 + _REACH * em
    if cut > _MOST_CUT * len(words):
        return None
    return LayerTable(cells, held)


def _bounds(rules: Sequence[tuple[int, int]], start: int, end: int, em: float) -> list[tuple[int, int]]:
    """Return the grid lines of one direction; words beyond them open the table."""
    lines = merge_intervals(rules, em / 2)
    if not lines or start < lines[0][0] - em / 2:
        lines.insert(0, (start - 1, start - 1))
    if end > lines[-1][1] + em / 2:
        lines.append((end + 1, end + 1))
    return lines


def _distance(box: InkBox, point: tuple[float, float]) -> float:
    x, y = point
    return max(box.x1 - x, 0, x - box.x2) + max(box.y1 - y, 0, y - box.y2)


def _with_columns(table: LayerTable) -> LayerTable:
    """Return a table of ruled rows with its columns from the alignment of words."""
    by_row = [printed_rows(words) for words in table.words]
    parted = iter(_parted([line for lines in by_row for line in lines]))
    rows = [[next(parted) for _ in lines] for lines in by_row]
    columns = _columns([line for lines in rows for line in lines])
    several = sum(len(line) > 1 for lines in rows for line in lines)
    if sum(map(bool, rows)) <= _FEW_BANDS and several >= _MOSTLY * sum(map(len, rows)):
        # Rules above, below and under the head alone: each line is a row.
        return aligned([word for words in table.words for word in words]) or table
    if len(columns) < 2:
        return table
    placed = [(_placed(columns, (chunk for line in lines for chunk in line)), table.cells[row].box)
              for row, lines in enumerate(rows)]  # fmt: skip
    return _with_rows(_of_columns(placed, len(columns)))


def _with_rows(table: LayerTable) -> LayerTable:
    """Return the table with rows of several figures split into lines."""
    cells: list[RuledCell] = []
    held: list[Sequence[Word]] = []
    shift = 0
    for row in range(table.rows):
        own = [at for at, cell in enumerate(table.cells) if cell.row == row]
        lines = {at: printed_rows(table.words[at]) for at in own}
        count = max((len(found) for found in lines.values()), default=0)
        figures = [found for found in lines.values() if len(found) == count and all(map(_is_figure, found))]
        alone = all(table.cells[at].row_span == 1 for at in own) and not any(
            cell.row < row < cell.row + cell.row_span for cell in table.cells
        )
        if count < 2 or not alone or len(figures) < (2 if count == 2 else 1):
            for at in own:
                cells.append(replace(table.cells[at], row=row + shift))
                held.append(table.words[at])
            continue
        middles = [line.box[1] + line.box[3] for line in figures[0]]
        for at in own:
            parts: list[list[Word]] = [[] for _ in middles]
            for line in lines[at]:
                middle = line.box[1] + line.box[3]
                parts[min(range(count), key=lambda to: abs(middles[to] - middle))].extend(line.words)
            for part, words in enumerate(parts):
                cells.append(replace(table.cells[at], row=row + shift + part))
                held.append(words)
        shift += count - 1
    order = sorted(range(len(cells)), key=lambda at: (cells[at].row, cells[at].column))
    return LayerTable([cells[at] for at in order], [held[at] for at in order])


def _is_figure(line: Line) -> bool:
    return bool(_NUMERIC.fullmatch(" ".join(word.text for word in line.words)))


def aligned(words: Sequence[Word]) -> LayerTable | None:
    """Return the table that words form by their alignment alone, or None."""
    lines = printed_rows(words)
    rows = _parted(lines)
    columns = _columns(rows)
    if len(columns) < 2 or len(rows) < 2:
        return None
    steps = [below.box[3] - above.box[3] for above, below in pairwise(lines)]
    usual = median(steps)
    whole: list[tuple[_Placed, InkBox]] = []
    for at, (line, row) in enumerate(zip(lines, rows, strict=True)):
        placed = _placed(columns, row)
        goes_on = at and steps[at - 1] < _WRAPPED * usual and len(placed) < len(whole[-1][0])
        if goes_on and all(span in whole[-1][0] and span[0] for span in placed):
            for span, more in placed.items():
                whole[-1][0][span].extend(more)
        else:
            whole.append((placed, InkBox(*line.box)))
    return _of_columns(whole, len(columns))


def is_plain_table(table: LayerTable) -> bool:
    """Return whether aligned words are a table and no prose in columns.

    Most of its rows have several cells, which are short, and it has three columns, or its second holds figures.
    """
    filled = [
        [at for at, cell in enumerate(table.cells) if cell.row == row and table.words[at]] for row in range(table.rows)
    ]
    several = sum(len(row) > 1 for row in filled)
    by_column: list[list[str]] = [[] for _ in range(table.columns)]
    for cell, words in zip(table.cells, table.words, strict=True):
        if words:
            by_column[cell.column].append(" ".join(word.text for word in words))
    if several < _MOSTLY * table.rows or sum(map(len, filled)) < _MOSTLY * len(table.cells):
        return False
    if any(texts and median(map(len, texts)) > _LONG for texts in by_column):
        return False
    if table.rows < 3 and sum(bool(texts and _NUMERIC.fullmatch(texts[-1])) for texts in by_column) < _FEW_FIGURES:
        return False
    if all(map(_NUMBERING.fullmatch, by_column[0])) and all(map(str.isdigit, by_column[-1])):
        return False  # a table of contents
    figures = sum(map(bool, map(_NUMERIC.fullmatch, by_column[1])))
    return table.columns >= 3 or figures >= _MOSTLY * len(by_column[1])


_Placed = dict[tuple[int, int], list[Word]]
"""The words of a row by the first and last column that they stand in."""


def _placed(columns: Sequence[tuple[int, int]], chunks: Iterable[Sequence[Word]]) -> _Placed:
    placed: _Placed = {}
    for chunk in chunks:
        placed.setdefault(_span(columns, _extent(chunk)), []).extend(chunk)
    return placed


def _of_columns(rows: Iterable[tuple[_Placed, InkBox]], columns: int) -> LayerTable:
    """Return the table of rows, with empty cells between those that hold words."""
    cells: list[RuledCell] = []
    held: list[list[Word]] = []
    for row, (placed, box) in enumerate(rows):
        column = 0
        for (first, last), words in sorted([*placed.items(), ((columns, columns), [])]):
            start = max(first, column)
            for empty in range(column, start):
                cells.append(RuledCell(row, empty, 1, 1, box))
                held.append([])
            if last < start:
                held[-1].extend(words)
            elif words:
                cells.append(RuledCell(row, start, 1, last - start + 1, box))
                held.append(words)
            column = max(column, last + 1)
    return LayerTable(cells, held)


def printed_rows(words: Iterable[Word]) -> list[Line]:
    """Return the words by printed row, from the top and the left."""
    rows: list[list[Word]] = []
    for word in sorted(words, key=lambda word: word.box[1] + word.box[3]):
        if rows and on_one_line(rows[-1][0].box, word.box):
            rows[-1].append(word)
        else:
            rows.append([word])
    return [Line(tuple(sorted(row, key=lambda word: word.box[0]))) for row in rows]


def chunks_of(words: Sequence[Word]) -> list[list[Word]]:
    """Return the words of a printed row by the cells that they may stand in."""
    em = median(word.box[3] - word.box[1] for word in words)
    chunks = [[words[0]]]
    for before, word in pairwise(words):
        if word.box[0] - before.box[2] > _GAP * em:
            chunks.append([])
        chunks[-1].append(word)
    return chunks


def _parted(lines: Sequence[Line]) -> list[list[list[Word]]]:
    """Return the words of printed rows by cell.

    Cells are parted by wide gaps, and by white that runs down through the rows and is wider than their blanks.
    """
    words = [word for line in lines for word in line.words]
    em = median(word.box[3] - word.box[1] for word in words)
    covered = _covered([(word.box[0], word.box[2]) for word in words], len(lines))
    white = [(a[1], b[0]) for a, b in pairwise(covered)]
    gaps = [(a.box[2], b.box[0]) for line in lines for a, b in pairwise(line.words)]
    blanks = [
        end - start
        for start, end in gaps
        if end - start <= _GAP * em and not any(_overlap((start, end), run) for run in white)
    ]
    # Rows of words that all end at the same places show no blank to compare with.
    least = max(_LEAST_WHITE * em, _WIDER * median(blanks)) if blanks else _GAP * em
    parted: list[list[list[Word]]] = []
    for line in lines:
        parts = [[line.words[0]]]
        for before, word in pairwise(line.words):
            gap = before.box[2], word.box[0]
            own = [min(gap[1], end) - max(gap[0], start) for start, end in white]
            if gap[1] - gap[0] > _GAP * em or max(own, default=0) >= least:
                parts.append([])
            parts[-1].append(word)
        parted.append(parts)
    return parted


def _extent(words: Sequence[Word]) -> tuple[int, int]:
    return min(word.box[0] for word in words), max(word.box[2] for word in words)


def _covered(extents: Sequence[tuple[int, int]], rows: int) -> list[tuple[int, int]]:
    """Return the runs (start, end) that more than a few of the rows cover."""
    left = min(start for start, _ in extents)
    depth = np.zeros(max(end for _, end in extents) - left + 2, np.int32)
    for start, end in extents:
        depth[start - left] += 1
        depth[end - left] -= 1
    return [(start + left, end + left) for start, end in true_runs(np.cumsum(depth) > int(_MOST_CROSSING * rows))]


def _columns(rows: Sequence[Sequence[Sequence[Word]]]) -> list[tuple[int, int]]:
    """Return the columns (start, end) in which most rows have words."""
    extents = [_extent(chunk) for row in rows for chunk in row]
    if not extents:
        return []
    columns = _covered(extents, len(rows))
    # A word that is alone in its column still has one.
    alone = [extent for extent in extents if not any(_overlap(extent, column) for column in columns)]
    joined: list[tuple[int, int]] = []
    for column in sorted([*columns, *merge_intervals(alone, 1)]):
        # A head to the left of its figures is in no row of theirs.
        if joined and not any(_touches(row, joined[-1]) and _touches(row, column) for row in rows):
            joined[-1] = (joined[-1][0], column[1])
        else:
            joined.append(column)
    return joined


def _touches(row: Sequence[Sequence[Word]], column: tuple[int, int]) -> bool:
    return any(_overlap(_extent(chunk), column) for chunk in row)


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def _span(columns: Sequence[tuple[int, int]], extent: tuple[int, int]) -> tuple[int, int]:
    """Return the first and last column that a word's extent touches."""
    touched = [at for at, column in enumerate(columns) if _overlap(extent, column)]
    if touched:
        return touched[0], touched[-1]
    at = max(0, bisect_right(columns, extent) - 1)
    return at, at
