"""Tables of a text layer, by rules, filled boxes or alignment. Pure."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import chain, pairwise
from math import inf
from statistics import median

import numpy as np

from kopub.boxes import Box, union
from kopub.layout.grid import RuledCell, RuledLines, ruled_cells, table_html
from kopub.layout.runs import merge_intervals, true_runs
from kopub.pages.documents.text_layer import TextLayer, Word
from kopub.texts.layer_lines import Line, box_of, joined, lines_of, printed_rows, text_of, usual_height, words_in
from kopub.texts.layer_tags import tagged_cells
from kopub.texts.region_words import shared

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
    em = usual_height(words)
    around = box[0] - em, box[1] - em, box[2] + em, box[3] + em
    rules = [rule for rule in layer.rules if shared(rule, around)]
    sides = [side for side in layer.fill_sides if shared(side, around)]
    level = [side for side in sides if side.width > side.height]
    # A table ends where its upright rules meet a level one: what stands below is a paragraph.
    foot = max((rule.y2 for rule in rules if rule.height > max(em / 2, rule.width)), default=inf)
    is_closed = any(abs(rule.y2 - foot) <= em / 2 and rule.width > em for rule in rules)
    within: list[Word] = []
    below: list[Word] = []
    for word in words:
        (below if is_closed and word.box.y1 + word.box.y2 > 2 * foot else within).append(word)
    table = _ruled(rules, within, em)
    if (table is None or table.columns == 1) and (tagged := tagged_cells(layer, words)):
        return LayerTable(*zip(*tagged, strict=True))
    for lines in (rules, [*rules, *sides] if sides else [], [*rules, *level] if level else []):
        table = _ruled(lines, within, em)
        if table is None or len(table.cells) == 1:
            continue
        if table.columns == 1:
            return replace(_with_columns(table), below=below)
        # Of bands, every other row has no cells of its own: one cell holds a whole row that nothing parts.
        is_unparted = False
        for cell, own in zip(table.cells, table.words, strict=True):
            if lines is not rules and cell.column_span == table.columns:
                is_unparted |= any(len(chunks_of(line)) > 1 for line in printed_rows(own))
        if not is_unparted:
            return replace(_with_rows(table), below=below)
    return aligned(words)


def _ruled(rules: Sequence[Box], words: Sequence[Word], em: float) -> LayerTable | None:
    """Return the table within the rules, with each word in the cell of its middle."""
    if not rules or not words:
        return None
    level: list[Box] = []
    upright: list[Box] = []
    for rule in rules:
        if rule.width >= max(em, rule.height):
            level.append(rule)
        elif rule.height > max(em / 2, rule.width):
            upright.append(rule)
    printed = box_of(words)
    xs = _bounds([(rule.x1, rule.x2) for rule in upright], printed.x1, printed.x2, em)
    ys = _bounds([(rule.y1, rule.y2) for rule in level], printed.y1, printed.y2, em)
    if len(xs) * len(ys) > _MOST_CELLS:
        return None
    cells = ruled_cells(xs, ys, RuledLines(tuple(level), tuple(upright)))
    if not cells:
        return None
    words_of_cells: list[list[Word]] = [[] for _ in cells]
    cut = 0
    for word in words:
        x, y = word.box.middle
        distances: list[float] = []
        for cell in cells:
            # A word on a rule is in neither cell, but nearest to one, across and down.
            box = cell.box
            distances.append(max(box.x1 - x, 0, x - box.x2) + max(box.y1 - y, 0, y - box.y2))
        home = distances.index(min(distances))
        words_of_cells[home].append(word)
        bounds = cells[home].box
        cut += word.box.x1 < bounds.x1 - _REACH * em or word.box.x2 > bounds.x2 + _REACH * em
    return LayerTable(cells, words_of_cells) if cut <= _MOST_CUT * len(words) else None


def _bounds(rules: Sequence[tuple[int, int]], start: int, end: int, em: float) -> list[tuple[int, int]]:
    """Return the grid lines of one direction; words beyond them open the table."""
    lines = merge_intervals(rules, em / 2)
    if not lines or start < lines[0][0] - em / 2:
        lines.insert(0, (start - 1, start - 1))
    if end > lines[-1][1] + em / 2:
        lines.append((end + 1, end + 1))
    return lines


def _with_columns(table: LayerTable) -> LayerTable:
    """Return a table of ruled rows with its columns from the alignment of words."""
    lines_of_rows = list(map(printed_rows, table.words))
    lines = list(chain.from_iterable(lines_of_rows))
    parted = _parted(lines)
    columns = _columns(parted)
    bands = sum(map(bool, lines_of_rows))
    if bands <= _FEW_BANDS and sum(len(line) > 1 for line in parted) >= _MOSTLY * len(lines):
        # Rules above, below and under the head alone: each line is a row.
        return aligned(list(chain.from_iterable(table.words))) or table
    if len(columns) < 2:
        return table
    rows: list[tuple[_Placed, Box]] = []
    done = 0
    for row, cell in zip(lines_of_rows, table.cells, strict=True):
        chunks = chain.from_iterable(parted[done : done + len(row)])
        rows.append((_placed(columns, chunks), cell.box))
        done += len(row)
    return _with_rows(_of_columns(rows, len(columns)))


def _with_rows(table: LayerTable) -> LayerTable:
    """Return the table with rows of several figures split into lines."""
    placed: list[tuple[RuledCell, Sequence[Word]]] = []
    shift = 0
    for row in range(table.rows):
        own = [(cell, words) for cell, words in zip(table.cells, table.words, strict=True) if cell.row == row]
        lines = [printed_rows(words) for _, words in own]
        count = max(map(len, lines), default=0)
        figures: list[list[Line]] = []
        for column in lines:
            if len(column) == count and all(_NUMERIC.fullmatch(joined(line.words, " ")) for line in column):
                figures.append(column)
        is_joined = any(cell.row_span > 1 and cell.row <= row < cell.row + cell.row_span for cell in table.cells)
        if count < 2 or is_joined or len(figures) < (2 if count == 2 else 1):
            placed += ((replace(cell, row=row + shift), words) for cell, words in own)
            continue
        middles = [line.box.y1 + line.box.y2 for line in figures[0]]
        for (cell, _), column in zip(own, lines, strict=True):
            parts: list[list[Word]] = [[] for _ in middles]
            for line in column:
                distances = [abs(middle - line.box.y1 - line.box.y2) for middle in middles]
                parts[distances.index(min(distances))].extend(line.words)
            for part, words in enumerate(parts):
                placed.append((replace(cell, row=row + shift + part), words))
        shift += count - 1
    placed.sort(key=lambda item: (item[0].row, item[0].column))
    return LayerTable(*zip(*placed, strict=True))


def aligned(words: Sequence[Word]) -> LayerTable | None:
    """Return the table that words form by their alignment alone, or None."""
    lines = printed_rows(words)
    rows = _parted(lines)
    columns = _columns(rows)
    if len(columns) < 2 or len(rows) < 2:
        return None
    steps = [below.box.y2 - above.box.y2 for above, below in pairwise(lines)]
    usual = median(steps)
    whole: list[tuple[_Placed, Box]] = []
    for at, (line, row) in enumerate(zip(lines, rows, strict=True)):
        placed = _placed(columns, row)
        goes_on = at and steps[at - 1] < _WRAPPED * usual and len(placed) < len(whole[-1][0])
        if goes_on and all(span in whole[-1][0] and span[0] for span in placed):
            for span, more in placed.items():
                whole[-1][0][span].extend(more)
        else:
            whole.append((placed, line.box))
    return _of_columns(whole, len(columns))


def is_plain_table(table: LayerTable) -> bool:
    """Return whether aligned words are a table and no prose in columns.

    Most of its rows have several cells, which are short, and it has three columns, or its second holds figures.
    """
    filled = [0] * table.rows
    by_column: list[list[str]] = [[] for _ in range(table.columns)]
    for cell, words in zip(table.cells, table.words, strict=True):
        if words:
            filled[cell.row] += 1
            by_column[cell.column].append(joined(words, " "))
    several = sum(cells > 1 for cells in filled)
    if several < _MOSTLY * table.rows or sum(filled) < _MOSTLY * len(table.cells):
        return False
    last_figures = 0
    for texts in by_column:
        if texts and median(map(len, texts)) > _LONG:
            return False
        last_figures += bool(texts and _NUMERIC.fullmatch(texts[-1]))
    if table.rows < 3 and last_figures < _FEW_FIGURES:
        return False
    if all(map(_NUMBERING.fullmatch, by_column[0])) and all(map(str.isdigit, by_column[-1])):
        return False  # a table of contents
    figures = sum(map(bool, map(_NUMERIC.fullmatch, by_column[1])))
    return table.columns >= 3 or figures >= _MOSTLY * len(by_column[1])


_Placed = dict[tuple[int, int], list[Word]]
"""The words of a row by the first and last column that they stand in."""


def _placed(columns: Sequence[tuple[int, int]], chunks: Iterable[Line]) -> _Placed:
    placed: _Placed = {}
    for chunk in chunks:
        touched = [at for at, column in enumerate(columns) if _touch([chunk], column)]
        if not touched:
            # Beside all columns, a word belongs to the one on its left.
            touched = [max(0, bisect_right(columns, (chunk.box.x1, chunk.box.x2)) - 1)]
        placed.setdefault((touched[0], touched[-1]), []).extend(chunk.words)
    return placed


def _of_columns(rows: Iterable[tuple[_Placed, Box]], columns: int) -> LayerTable:
    """Return the table of rows, with empty cells between those that hold words."""
    cells: list[RuledCell] = []
    words_of_cells: list[list[Word]] = []
    for row, (placed, box) in enumerate(rows):
        column = 0
        for (first, last), words in sorted([*placed.items(), ((columns, columns), [])]):
            start = max(first, column)
            for empty in range(column, start):
                cells.append(RuledCell(row, empty, 1, 1, box))
                words_of_cells.append([])
            if last < start:
                words_of_cells[-1].extend(words)
            elif words:
                cells.append(RuledCell(row, start, 1, last - start + 1, box))
                words_of_cells.append(words)
            column = max(column, last + 1)
    return LayerTable(cells, words_of_cells)


def chunks_of(line: Line) -> list[Line]:
    """Return the words of a printed row by the cells that they may stand in."""
    return _cut(line, _GAP * usual_height(line.words))


def _cut(line: Line, gap: float, white: Iterable[tuple[int, int]] = (), least: float = inf) -> list[Line]:
    """Return the parts of a line between gaps that are wide or over white."""
    parts = [[line.words[0]]]
    for before, word in pairwise(line.words):
        start, end = before.box.x2, word.box.x1
        widest = max((min(end, right) - max(start, left) for left, right in white), default=0)
        if end - start > gap or widest >= least:
            parts.append([])
        parts[-1].append(word)
    return [Line(tuple(part)) for part in parts]


def _parted(lines: Sequence[Line]) -> list[list[Line]]:
    """Return the words of printed rows by cell.

    Cells are parted by wide gaps, and by white that runs down through the rows and is wider than their blanks.
    """
    words = words_in(lines)
    em = usual_height(words)
    white = [(before[1], after[0]) for before, after in pairwise(_covered(words, len(lines)))]
    blanks: list[int] = []
    for line in lines:
        for before, after in pairwise(line.words):
            start, end = before.box.x2, after.box.x1
            if end - start <= _GAP * em and not any(start < right and left < end for left, right in white):
                blanks.append(end - start)
    # Rows of words that all end at the same places show no blank to compare with.
    least = max(_LEAST_WHITE * em, _WIDER * median(blanks)) if blanks else _GAP * em
    return [_cut(line, _GAP * em, white, least) for line in lines]


def _covered(printed: Sequence[Word] | Sequence[Line], rows: int) -> list[tuple[int, int]]:
    """Return the runs (start, end) that more than a few of the rows cover."""
    left, _, right, _ = union(part.box for part in printed)
    depth = np.zeros(right - left + 2, np.int32)
    for part in printed:
        depth[part.box.x1 - left] += 1
        depth[part.box.x2 - left] -= 1
    return [(start + left, end + left) for start, end in true_runs(np.cumsum(depth) > int(_MOST_CROSSING * rows))]


def _columns(rows: Sequence[Sequence[Line]]) -> list[tuple[int, int]]:
    """Return the columns (start, end) in which most rows have words."""
    chunks = list(chain.from_iterable(rows))
    if not chunks:
        return []
    columns = _covered(chunks, len(rows))
    # A word that is alone in its column still has one.
    alone: list[tuple[int, int]] = []
    for chunk in chunks:
        if not any(_touch([chunk], column) for column in columns):
            alone.append((chunk.box.x1, chunk.box.x2))
    parted: list[tuple[int, int]] = []
    for column in sorted([*columns, *merge_intervals(alone, 1)]):
        # A head to the left of its figures is in no row of theirs.
        if parted and not any(_touch(row, parted[-1]) and _touch(row, column) for row in rows):
            parted[-1] = (parted[-1][0], column[1])
        else:
            parted.append(column)
    return parted


def _touch(chunks: Iterable[Line], column: tuple[int, int]) -> bool:
    return any(chunk.box.x1 < column[1] and column[0] < chunk.box.x2 for chunk in chunks)
