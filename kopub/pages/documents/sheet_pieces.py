"""The pieces of a spreadsheet, from the cells that LibreOffice shows."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from pathlib import Path

from kopub.pages.documents.pieces import TABLE, Piece, PieceCell, with_empty_cells


@dataclass
class _Sheet:
    """The cells of a sheet, and the numbers of its hidden rows and columns."""

    name: str
    cells: list[PieceCell] = field(default_factory=list)
    rows: set[int] = field(default_factory=set)
    columns: set[int] = field(default_factory=set)


def read_sheets(path: Path) -> list[Piece]:
    """Return the pieces of the cells that `printing.bas` wrote, by sheet.

    Cells that touch are a table, those that stand alone are text. A sheet that is not the only one begins with its
    name. No pieces if there are more cells than were written. Raises `ValueError` for a table of too many cells.
    """
    # Lines within a cell are divided by signs that `splitlines` divides at, too.
    lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    if not lines or lines.pop() != "E":
        return []
    sheets: list[_Sheet] = []
    for line in lines:
        kind, *fields = line.split("\t")
        if kind == "S":
            sheets.append(_Sheet("\t".join(fields)))
        elif kind == "T":
            row, column, last_row, last_column = map(int, fields[:4])
            text = "\t".join(fields[4:]).replace("\v", "\n")
            cell = PieceCell(row, column, last_row - row + 1, last_column - column + 1, text)
            if text.strip():
                sheets[-1].cells.append(cell)
        else:
            hidden = sheets[-1].rows if kind == "R" else sheets[-1].columns
            hidden.add(int(fields[0]))
    pieces: list[Piece] = []
    for sheet in sheets:
        if sheet.cells and len(sheets) > 1:
            pieces.append(replace(Piece.of("paragraph_title", sheet.name), sheet=sheet.name))
        shown = []
        hidden_rows, hidden_columns = sorted(sheet.rows), sorted(sheet.columns)
        for cell in sheet.cells:
            # Hidden rows and columns leave no gap between those that are shown.
            rows = [row for row in range(cell.row, cell.row + cell.row_span) if row not in sheet.rows]
            columns = [at for at in range(cell.column, cell.column + cell.column_span) if at not in sheet.columns]
            if rows and columns:
                row = rows[0] - bisect_left(hidden_rows, rows[0])
                column = columns[0] - bisect_left(hidden_columns, columns[0])
                shown.append(PieceCell(row, column, len(rows), len(columns), cell.text))
        for block in _blocks(sorted(shown, key=lambda cell: (cell.row, cell.column))):
            pieces += (replace(piece, sheet=sheet.name) for piece in _of_block(block))
    return pieces


def _blocks(cells: Sequence[PieceCell]) -> Iterator[Sequence[PieceCell]]:
    """Yield the cells between empty rows and between empty columns, from the top."""
    for by_row in (True, False):
        parts = list(_parted(cells, by_row))
        if len(parts) > 1:
            for part in parts:
                yield from _blocks(part)
            return
    if cells:
        yield cells


def _parted(cells: Sequence[PieceCell], by_row: bool) -> Iterator[list[PieceCell]]:
    part: list[PieceCell] = []
    end = 0
    for cell in sorted(cells, key=lambda cell: cell.row if by_row else cell.column):
        start, size = (cell.row, cell.row_span) if by_row else (cell.column, cell.column_span)
        if part and start > end:
            yield part
            part = []
        part.append(cell)
        end = max(end, start + size) if len(part) > 1 else start + size
    if part:
        yield part


def _of_block(cells: Sequence[PieceCell]) -> Iterator[Piece]:
    """Yield the titles over a table, and the table."""
    rows = [list(row) for _, row in groupby(sorted(cells, key=lambda cell: (cell.row, cell.column)), lambda c: c.row)]
    columns = {cell.column for cell in cells}
    while rows and (len(columns) == 1 or (len(rows[0]) == 1 and rows[0][0].row_span == 1 and len(rows) > 1)):
        yield Piece.of("text", rows.pop(0)[0].text)
    if not rows:
        return
    rest = list(chain.from_iterable(rows))
    first_row, first_column = rest[0].row, min(cell.column for cell in rest)
    table = [replace(cell, row=cell.row - first_row, column=cell.column - first_column) for cell in rest]
    yield Piece(TABLE, tuple(with_empty_cells(table)))
