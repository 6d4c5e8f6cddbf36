"""Tables without upright rules, found by the white between their columns. Pure."""

from collections.abc import Sequence
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from kopub.boxes import Box, union
from kopub.layout.grid import RuledCell
from kopub.layout.runs import merge_intervals, true_runs

_FEWEST = 3
"""Fewest rows and columns of a table that nothing but white shows."""
_TIGHTEST, _PITCH = 1.0, 2.0
"""Least distance of two rows, below which are parts of a formula, and widest white between them, in text heights."""
_SLIVER = 0.3
"""Height of a remnant of letters, in heights of the body text."""
_CROSSING = 0.1
"""Rows, as a share, that may have print where two columns are parted: titles and joined cells."""
_LETTERS, _WHITE, _BLANK = 0.2, 0.4, 1.0
"""Widest white between letters, least between columns (twice a blank), and widest blank, in heights of the text."""
_ALIKE = 0.3
"""Most by which two blanks of one font differ, as a share."""
_ABOVE = 3
"""Pixels above and below a row that are its own, too, but no rule."""
_WIDE, _FULL = 10, 0.8
"""Width in heights of the body text, and share of it that is filled, of a column of prose."""


def find_open_tables(lines: Sequence[Box], rules: Sequence[Box], em: float) -> list[Box]:
    """Return the boxes of tables among lines of text that are parted by wide gaps.

    `lines` are those of the page outside of other tables, and `rules` its level rules.
    """
    rows: list[list[Box]] = []
    for line in sorted(lines, key=lambda line: line.y1 + line.y2):
        if rows and rows[-1][0].y1 < (line.y1 + line.y2) / 2 < rows[-1][0].y2:
            rows[-1].append(line)
        # The feet of blurred digits, which may have been taken for a rule, leave slivers.
        elif line.height > _SLIVER * em:
            rows.append([line])
    runs: list[list[list[Box]]] = []
    for above, row in pairwise([[], *rows]):
        if len(row) > 1 and (len(above) < 2 or union(row).y1 - union(above).y2 > _PITCH * em):
            runs.append([row])
        elif len(row) > 1:
            runs[-1].append(row)
    tables: list[Box] = []
    for run in runs:
        first, last, box = union(run[0]), union(run[-1]), union(chain.from_iterable(run))
        fewest = _FEWEST
        if len(run) == 2:
            # What goes on from the page before may be one row, below its heading.
            between = [rule for rule in rules if first.y2 <= rule.y1 <= last.y1]
            is_ruled = any(rule.x1 <= box.x1 and box.x2 <= rule.x2 for rule in between)
            words = [line for line in run[0] if line.width > line.height]
            level = sum(any(word.x1 < line.x2 and line.x1 < word.x2 for line in run[1]) for word in words)
            fewest = 2 if is_ruled or (run[0] is rows[0] and level >= _FEWEST) else _FEWEST
        if len(run) < fewest or (last.y1 + last.y2 - first.y1 - first.y2) / 2 < (len(run) - 1) * _TIGHTEST * em:
            continue
        filled = np.zeros((len(run), box.width), bool)
        for at, row in enumerate(run):
            for line in row:
                filled[at, line.x1 - box.x1 : line.x2 - box.x1] = True
        columns = true_runs(filled.sum(axis=0) > _CROSSING * len(run))
        prose = any(end - start > _WIDE * em and filled[:, start:end].mean() > _FULL for start, end in columns)
        if len(columns) >= _FEWEST and not prose:
            tables.append(box)
    return tables


def open_cells(ink: "NDArray[np.bool_]", bands: Sequence[tuple[int, int]], em: float) -> list[RuledCell]:
    """Return the cells of a table without rules, row by row, by its white.

    Rows are the `bands` between level rules if there are several, else lines of text. A cell that reaches over the
    white between columns spans them, unless its row has a cell for each of them.
    """
    height, width = ink.shape
    lines = merge_intervals(true_runs(np.any(ink, axis=1)), 0.15 * em)
    rows = list(bands) if len(bands) > _FEWEST else [line for line in lines if line[1] - line[0] > 0.4 * em]
    if len(rows) < 2:
        return []
    marks = [true_runs(np.any(ink[top:bottom], axis=0)) for top, bottom in rows]
    parts = [merge_intervals(row, _WHITE * em) for row in marks]
    filled = np.zeros((len(rows), width), bool)
    for at, row in enumerate(parts):
        for start, end in row:
            filled[at, start:end] = True
    # A heading that stands beside the figures of its column is no column.
    crossing = max(_CROSSING * len(rows), min(1, len(rows) - 2))
    columns, unsure = _join_words(true_runs(filled.sum(axis=0) > crossing), marks, em)
    if len(columns) < 2:
        return []
    edges = [0, *((left[1] + right[0]) // 2 for left, right in pairwise(columns)), width]
    cells: list[RuledCell] = []
    for row, (top, bottom) in enumerate(rows):
        ends = list(edges)
        gaps = [(after[0] - before[1], before[1], after[0]) for before, after in pairwise(parts[row])]
        widest = sorted(gaps)[len(gaps) - len(columns) + 1 :]
        if len(gaps) >= len(columns) - 1 and widest[0][0] > _BLANK * em:
            # A cell for each column, of which some may stand beside the others of theirs: their order counts.
            ends[1:-1] = sorted((left + right) // 2 for _, left, right in widest)
        start = 0
        for end in range(1, len(ends)):
            if end == len(columns) or not filled[row, ends[end]]:
                box = Box(ends[start], max(0, top - _ABOVE), ends[end], min(height, bottom + _ABOVE))
                cells.append(RuledCell(row, start, 1, end - start, box, start not in unsure))
                start = end
    return cells


def _join_words(
    columns: list[tuple[int, int]], marks: Sequence[Sequence[tuple[int, int]]], em: float
) -> tuple[list[tuple[int, int]], set[int]]:
    """Return the columns, with those joined that are words of one, and the unsure ones.

    Labels of two words part alike in all rows if their first words are of one length. `marks` are the runs of ink of
    each row, the heading first. Unsure is a column close behind another if there are fewer headings than columns.
    """
    headed = 1 + sum(after[0] - before[1] > _BLANK * em for before, after in pairwise(marks[0]))
    edges = [(left[1] + right[0]) // 2 for left, right in pairwise(columns)]
    across: list[list[int]] = [[] for _ in edges]
    within: list[int] = []
    for row in marks:
        for before, after in pairwise(row):
            crossed = [at for at, edge in enumerate(edges) if before[1] <= edge <= after[0]]
            # White over several columns is around an empty cell.
            if len(crossed) == 1:
                across[crossed[0]].append(after[0] - before[1])
            if not crossed and after[0] - before[1] > _LETTERS * em:
                within.append(after[0] - before[1])
    joined, unsure = columns[:1], set[int]()
    for column, gaps in zip(columns[1:], across, strict=True):
        usual = float(np.median(gaps)) if gaps else 0.0
        is_blank = len(joined) == 1 or bool((np.abs(np.subtract(within, usual)) <= _ALIKE * usual).any())
        is_near = headed < len(columns) and usual < _BLANK * em
        if is_near and is_blank:
            joined[-1] = (joined[-1][0], column[1])
        else:
            unsure |= {len(joined)} if is_near else set()
            joined.append(column)
    return joined, unsure
