"""A table's HTML as cells with their places and spans. Pure."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from resources.recognition.vlm.tables_html import clean_tables, join_tables

if TYPE_CHECKING:
    from bs4 import Tag


_TABLE = re.compile(r"(<table>.*?</table>)", re.DOTALL)
_FIRST_ROW = re.compile(r"<tr>.*?</tr>", re.DOTALL)
_CAPTION = re.compile(r"<caption>.*?</caption>", re.DOTALL)
_MOST_SPANNED = 100
"""Rows or columns that a cell may take; a larger number is a loop's."""


@dataclass(frozen=True, slots=True)
class TableCell:
    """A cell by the row and column of its upper left corner, from 0; what it takes beyond the table is left off."""

    row: int
    column: int
    rows: int
    columns: int
    text: str
    heading: bool


@dataclass(frozen=True, slots=True)
class TableGrid:
    """A table of `rows` times `columns`. A place that no cell takes is a gap: nothing is said of it."""

    rows: int
    columns: int
    cells: tuple[TableCell, ...]
    caption: str

    def row(self, at: int) -> tuple[TableCell, ...]:
        """The cells that begin in a row."""
        return tuple(cell for cell in self.cells if cell.row == at)


def tables_and_text(content: str) -> list[str]:
    """What a table's region holds, in its order: tables as `<table>` of rows, and text that stands outside of them.

    No cell spans more rows than its table has.
    """
    pieces = (piece.strip() for piece in _TABLE.split(clean_tables(content)))
    return [join_tables([piece]) if is_table(piece) else piece for piece in pieces if piece]


def is_table(piece: str) -> bool:
    return piece.startswith("<table>") and piece.endswith("</table>")


def rows_of(table: str) -> str:
    """The rows of a table, as they stand between its tags; its caption is left out."""
    return _CAPTION.sub("", table.removeprefix("<table>").removesuffix("</table>"))


def caption_of(table: str) -> str:
    """The caption of a table as HTML, empty without one."""
    found = _CAPTION.search(table)
    return found[0] if found else ""


def without_first_row(table: str) -> str:
    """A table without its first row, whose cells take no other row."""
    return _FIRST_ROW.sub("", table, count=1)


def grid_of(table: str) -> TableGrid:
    """The cells of one of `tables_and_text`."""
    from bs4 import BeautifulSoup

    # Entities and spans as HTML has them; the form is that of `clean_tables`, so the plain parser reads it right.
    parsed = BeautifulSoup(table, "html.parser")
    rows = parsed.find_all("tr")
    caption = parsed.find("caption")
    taken: set[tuple[int, int]] = set()
    cells: list[TableCell] = []
    for at, row in enumerate(rows):
        column = 0
        for cell in row.find_all(["td", "th"], recursive=False):
            while (at, column) in taken:
                column += 1
            high, wide = min(_span(cell, "rowspan"), len(rows) - at), _span(cell, "colspan")
            # A cell from a row above may stand in the way of a wide one.
            wide = next((off for off in range(1, wide) if (at, column + off) in taken), wide)
            taken |= {(at + down, column + right) for down in range(high) for right in range(wide)}
            cells.append(TableCell(at, column, high, wide, _text(cell), cell.name == "th"))
            column += wide
    columns = max((cell.column + cell.columns for cell in cells), default=0)
    return TableGrid(len(rows), columns, tuple(cells), "" if caption is None else _text(caption))


def _text(tag: "Tag") -> str:
    for line_break in tag.find_all("br"):
        line_break.replace_with("\n")
    return "\n".join(" ".join(line.split()) for line in tag.get_text().split("\n")).strip()


def _span(cell: "Tag", name: str) -> int:
    """A span as `clean_tables` writes it."""
    return min(int(str(cell.get(name) or 1)), _MOST_SPANNED)
