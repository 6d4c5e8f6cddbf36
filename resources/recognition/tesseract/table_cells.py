"""Cells of a ruled table and their HTML. Pure OpenCV and numpy."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from resources.layout.boxes import Box, spans
from resources.layout.ink import INK_CONTRAST, ink_contrast
from resources.layout.lines import estimate_em
from resources.layout.rules import Rules, find_rules
from resources.layout.working_copy import PAPER_REACH, shrunk

if TYPE_CHECKING:
    from numpy.typing import NDArray

_COVERED = 0.6
"""Share of a cell's edge that must be ruled: the rest of it is lost where rules cross or are pale."""


@dataclass(frozen=True, slots=True)
class Cell:
    """`box` is in pixels of the table, without its rules."""

    row: int
    column: int
    row_span: int
    column_span: int
    box: Box


def find_cells(gray: "NDArray[np.uint8]", scale: float) -> list[Cell]:
    """Cells of a table, uint8 (height, width), row by row; empty when it has no grid.

    Rules are found on a copy scaled by `scale`, that of the page's working copy.
    """
    height, width = gray.shape
    small = shrunk(gray, scale)
    contrast = ink_contrast(small, PAPER_REACH)
    em = estimate_em((contrast > INK_CONTRAST).astype(np.uint8))
    rules = find_rules(contrast, em)
    if not rules.horizontal and not rules.vertical:
        return []
    xs = _lines([(rule.x1, rule.x2) for rule in rules.vertical], small.shape[1], em)
    ys = _lines([(rule.y1, rule.y2) for rule in rules.horizontal], small.shape[0], em)
    return [_scaled(cell, scale, (width, height)) for cell in _cells(xs, ys, rules)]


def _lines(rules: list[tuple[int, int]], end: int, em: float) -> list[tuple[int, int]]:
    """Grid lines along one direction, with the outer edges where the table is open."""
    lines = spans(rules, em / 2)
    if not lines or lines[0][0] > em:
        lines.insert(0, (0, 0))
    if lines[-1][1] < end - em:
        lines.append((end, end))
    return lines


def _cells(xs: list[tuple[int, int]], ys: list[tuple[int, int]], rules: Rules) -> list[Cell]:
    rows, columns = len(ys) - 1, len(xs) - 1
    owner = {(row, column): (row, column) for row in range(rows) for column in range(columns)}

    def root(cell: tuple[int, int]) -> tuple[int, int]:
        while owner[cell] != cell:
            cell = owner[cell]
        return cell

    for row in range(rows):
        for column in range(columns):
            top, bottom, left, right = ys[row][1], ys[row + 1][0], xs[column][1], xs[column + 1][0]
            if column + 1 < columns and not _ruled(
                [(r.y1, r.y2) for r in rules.vertical if r.x1 < xs[column + 1][1] and r.x2 > xs[column + 1][0]],
                top, bottom,
            ):  # fmt: skip
                owner[root((row, column + 1))] = root((row, column))
            if row + 1 < rows and not _ruled(
                [(r.x1, r.x2) for r in rules.horizontal if r.y1 < ys[row + 1][1] and r.y2 > ys[row + 1][0]],
                left, right,
            ):  # fmt: skip
                owner[root((row + 1, column))] = root((row, column))
    groups: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for cell in owner:
        groups.setdefault(root(cell), []).append(cell)
    found = []
    for members in groups.values():
        first_row, first_column = min(row for row, _ in members), min(column for _, column in members)
        last_row, last_column = max(row for row, _ in members), max(column for _, column in members)
        if (last_row - first_row + 1) * (last_column - first_column + 1) != len(members):
            # Missing rules that leave no rectangle: the plain grid loses nothing.
            found += [_cell(xs, ys, member, member) for member in members]
        else:
            found.append(_cell(xs, ys, (first_row, first_column), (last_row, last_column)))
    return _packed(found)


def _packed(cells: list[Cell]) -> list[Cell]:
    """The cells row by row, without grid lines at which no cell starts: a stray rule makes no empty row."""
    rows = sorted({cell.row for cell in cells})
    columns = sorted({cell.column for cell in cells})
    packed = [
        Cell(
            bisect_left(rows, cell.row),
            bisect_left(columns, cell.column),
            bisect_left(rows, cell.row + cell.row_span) - bisect_left(rows, cell.row),
            bisect_left(columns, cell.column + cell.column_span) - bisect_left(columns, cell.column),
            cell.box,
        )
        for cell in cells
    ]
    return sorted(packed, key=lambda cell: (cell.row, cell.column))


def _ruled(rules: list[tuple[int, int]], start: int, end: int) -> bool:
    covered = sum(max(0, min(b, end) - max(a, start)) for a, b in spans(rules, 1))
    return covered >= _COVERED * (end - start)


def _cell(xs: list[tuple[int, int]], ys: list[tuple[int, int]], first: tuple[int, int], last: tuple[int, int]) -> Cell:
    (row, column), (last_row, last_column) = first, last
    box = Box(xs[column][1], ys[row][1], xs[last_column + 1][0], ys[last_row + 1][0])
    return Cell(row, column, last_row - row + 1, last_column - column + 1, box)


def _scaled(cell: Cell, scale: float, size: tuple[int, int]) -> Cell:
    """The cell at full size, drawn in by the soft edge of its rules: a left-over rule reads as letters."""
    trim = 1 + 1.5 / scale
    x1, y1 = round(cell.box.x1 / scale + trim), round(cell.box.y1 / scale + trim)
    x2, y2 = round(cell.box.x2 / scale - trim), round(cell.box.y2 / scale - trim)
    box = Box(max(0, x1), max(0, y1), min(size[0], max(x1, x2)), min(size[1], max(y1, y2)))
    return Cell(cell.row, cell.column, cell.row_span, cell.column_span, box)


def table_html(cells: Sequence[Cell], texts: Sequence[str]) -> str:
    """`<table>` of cells in the order of `find_cells`, with row and column spans."""
    rows: dict[int, list[str]] = {row: [] for row in range(max(cell.row + cell.row_span for cell in cells))}
    for cell, text in zip(cells, texts, strict=True):
        row_span = f' rowspan="{cell.row_span}"' if cell.row_span > 1 else ""
        column_span = f' colspan="{cell.column_span}"' if cell.column_span > 1 else ""
        rows[cell.row].append(f"<td{row_span}{column_span}>{escape(text, quote=False)}</td>")
    return "<table>" + "".join(f"<tr>{''.join(row)}</tr>" for row in rows.values()) + "</table>"
