"""The cells of a ruled table, and the table as HTML. Pure."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from kopub.boxes import Box
from kopub.layout.runs import merge_intervals
from kopub.pages.documents.pieces import PieceCell

_COVERED = 0.6
"""Share of a cell's edge that must be ruled; the rest may be lost where rules cross or are pale."""


@dataclass(frozen=True, slots=True)
class RuledLines:
    """The horizontal and vertical rules of a page, in pixels."""

    horizontal: tuple[Box, ...]
    vertical: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class RuledCell:
    """A cell of a table.

    `box` is in pixels of the table, without its rules. What is not `apart` may belong to the cell before it.
    """

    row: int
    column: int
    row_span: int
    column_span: int
    box: Box
    apart: bool = True


def grid_lines(rules: Sequence[tuple[int, int]], end: int, em: float) -> list[tuple[int, int]]:
    """Return the grid lines of one direction, with an open table's edges."""
    lines = merge_intervals(rules, em / 2)
    if not lines or lines[0][0] > em:
        lines.insert(0, (0, 0))
    if lines[-1][1] < end - em:
        lines.append((end, end))
    return lines


def ruled_cells(xs: list[tuple[int, int]], ys: list[tuple[int, int]], rules: RuledLines) -> list[RuledCell]:
    """Return the cells between grid lines, joined where a rule is missing, row by row."""
    rows, columns = len(ys) - 1, len(xs) - 1
    upright = [[(r.y1, r.y2) for r in rules.vertical if r.x1 < end and r.x2 > start] for start, end in xs]
    level = [[(r.x1, r.x2) for r in rules.horizontal if r.y1 < end and r.y2 > start] for start, end in ys]
    owner = {(row, column): (row, column) for row in range(rows) for column in range(columns)}

    # Cells that no rule parts have one root.
    def root(cell: tuple[int, int]) -> tuple[int, int]:
        while owner[cell] != cell:
            cell = owner[cell]
        return cell

    for row in range(rows):
        for column in range(columns):
            top, bottom, left, right = ys[row][1], ys[row + 1][0], xs[column][1], xs[column + 1][0]
            if column + 1 < columns and not _is_ruled(upright[column + 1], top, bottom):
                owner[root((row, column + 1))] = root((row, column))
            if row + 1 < rows and not _is_ruled(level[row + 1], left, right):
                owner[root((row + 1, column))] = root((row, column))
    groups: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for cell in owner:
        groups.setdefault(root(cell), []).append(cell)
    cells: list[RuledCell] = []
    for members in groups.values():
        member_rows, member_columns = zip(*members, strict=True)
        first_row, last_row = min(member_rows), max(member_rows)
        first_column, last_column = min(member_columns), max(member_columns)
        if (last_row - first_row + 1) * (last_column - first_column + 1) != len(members):
            # If missing rules leave no rectangle, the plain grid is used, which loses nothing.
            cells += [_cell(xs, ys, member, member) for member in members]
        else:
            cells.append(_cell(xs, ys, (first_row, first_column), (last_row, last_column)))

    # Grid lines at which no cell starts, such as stray rules, are none.
    starts = sorted({cell.row for cell in cells}), sorted({cell.column for cell in cells})
    packed: list[RuledCell] = []
    for cell in sorted(cells, key=lambda cell: (cell.row, cell.column)):
        row, column = bisect_left(starts[0], cell.row), bisect_left(starts[1], cell.column)
        end_row = bisect_left(starts[0], cell.row + cell.row_span)
        end_column = bisect_left(starts[1], cell.column + cell.column_span)
        packed.append(RuledCell(row, column, end_row - row, end_column - column, cell.box))
    return packed


def _is_ruled(rules: list[tuple[int, int]], start: int, end: int) -> bool:
    covered = sum(max(0, min(b, end) - max(a, start)) for a, b in merge_intervals(rules, 1))
    return covered >= _COVERED * (end - start)


def _cell(
    xs: list[tuple[int, int]], ys: list[tuple[int, int]], first: tuple[int, int], last: tuple[int, int]
) -> RuledCell:
    (row, column), (last_row, last_column) = first, last
    box = Box(xs[column][1], ys[row][1], xs[last_column + 1][0], ys[last_row + 1][0])
    return RuledCell(row, column, last_row - row + 1, last_column - column + 1, box)


def table_html(cells: Sequence[RuledCell | PieceCell], texts: Sequence[str]) -> str:
    """Write cells, row by row, as a `<table>` with spans."""
    rows: dict[int, list[str]] = {row: [] for row in range(max(cell.row + cell.row_span for cell in cells))}
    for cell, text in zip(cells, texts, strict=True):
        row_span = f' rowspan="{cell.row_span}"' if cell.row_span > 1 else ""
        column_span = f' colspan="{cell.column_span}"' if cell.column_span > 1 else ""
        rows[cell.row].append(f"<td{row_span}{column_span}>{escape(text, quote=False)}</td>")
    return "<table>" + "".join(f"<tr>{''.join(row)}</tr>" for row in rows.values()) + "</table>"
