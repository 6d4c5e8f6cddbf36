"""The tables of a markdown text as cells with neighbours, spans counted. Pure; Beautiful Soup.

A cell is named by the row and column of its upper left corner, from 0.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bs4 import Tag

Place = tuple[int, int]
_RULE = frozenset("- :")
_MOST_SPANNED = 1000
"""What HTML allows a `colspan`; a larger number is a loop's."""


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    rows: int = 1
    columns: int = 1
    heading: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Texts by place, and the places next to each: several where a neighbour spans fewer rows or columns."""

    texts: Mapping[Place, str]
    heads: frozenset[Place]
    up: Mapping[Place, set[Place]]
    down: Mapping[Place, set[Place]]
    left: Mapping[Place, set[Place]]
    right: Mapping[Place, set[Place]]

    def headings(self, cell: Place, towards: Mapping[Place, set[Place]]) -> set[Place]:
        """Return the heading cells on the way in one direction; without any, the cells at its end."""
        heads, ends, seen, left = set(), set(), set(), {cell}
        while left:
            place = left.pop()
            seen.add(place)
            if place in self.heads:
                heads.add(place)
            if not towards[place]:
                ends.add(place)
            left |= towards[place] - seen
        return (heads - {cell}) or (ends - {cell})


def tables_of(markdown: str, pipes: bool = True) -> list[Table]:
    """Return the tables of a text, those of `

    ` where `pipes`, then HTML.
    """
    rows = [*(_pipe_tables(markdown) if pipes else ()), *_html_tables(markdown)]
    return [table for table in map(_table, rows) if table is not None]


def _pipe_tables(markdown: str) -> Iterator[list[list[Cell]]]:
    """Runs of at least two lines with a pipe.

    Their first row and column are headings.
    """
    run: list[str] = []
    for line in (*markdown.strip().split("\n"), ""):
        if "|" in line:
            run.append(line)
            continue
        if len(run) > 1 and (texts := list(_pipe_rows(run))):
            yield [
                [Cell(text, heading=not row or not column) for column, text in enumerate(texts[row])]
                for row in range(len(texts))
            ]
        run = []


def _pipe_rows(lines: Sequence[str]) -> Iterator[list[str]]:
    rule = next((at for at, line in enumerate(lines) if _is_rule(line.replace("|", ""))), None)
    for at, line in enumerate(lines):
        if at == rule or _is_rule(line.replace("|", " ")):
            continue
        cells = [cell.strip() for cell in line.split("|")]
        if cells and not cells[0]:
            cells = cells[1:]
        if cells and not cells[-1]:
            cells = cells[:-1]
        if cells:
            yield cells


def _is_rule(line: str) -> bool:
    return bool(line.strip()) and set(line.strip()) <= _RULE


def _html_tables(markdown: str) -> Iterator[list[list[Cell]]]:
    if "<table" not in markdown.lower():
        return
    from bs4 import BeautifulSoup

    for table in BeautifulSoup(markdown, "html.parser").find_all("table"):
        if rows := table.find_all("tr"):
            yield [
                [_html_cell(cell, row, len(rows) - at) for cell in row.find_all(["th", "td"], recursive=False)]
                for at, row in enumerate(rows)
            ]


def _html_cell(cell: "Tag", row: "Tag", rows_left: int) -> Cell:
    for line_break in cell.find_all("br"):
        line_break.replace_with("\n")
    to_the_end = str(cell.get("rowspan") or "").strip() == "0"
    return Cell(
        cell.get_text().strip(),
        max(1, rows_left) if to_the_end else _span(cell.get("rowspan")),
        _span(cell.get("colspan")),
        cell.name == "th" or row.find_parent("thead") is not None,
    )


def _span(value: object) -> int:
    try:
        return min(max(1, int(str(value))), _MOST_SPANNED)
    except ValueError:
        return 1


def _table(rows: Sequence[Sequence[Cell]]) -> Table | None:
    """Return the table of rows of cells; None without a cell.

    Cells that a row lacks are gaps, which neighbours look over.
    """
    cells: dict[Place, Cell] = {}
    at: dict[Place, Place] = {}
    for row, line in enumerate(rows):
        column = 0
        for cell in line:
            while (row, column) in at:
                column += 1
            place = (row, column)
            cells[place] = cell
            down = range(row, min(row + cell.rows, len(rows)))  # what is below the last row has no neighbour
            at |= {(y, x): place for y in down for x in range(column, column + cell.columns)}
            column += cell.columns
    if not cells:
        return None
    height, width = (1 + max(corner[axis] for corner in at) for axis in (0, 1))
    return Table(
        {place: cell.text for place, cell in cells.items()},
        frozenset(place for place, cell in cells.items() if cell.heading),
        **{
            side: {place: set(_next(at, place, cell, step, height, width)) for place, cell in cells.items()}
            for side, step in (("up", (-1, 0)), ("down", (1, 0)), ("left", (0, -1)), ("right", (0, 1)))
        },
    )


def _next(at: Mapping[Place, Place], place: Place, cell: Cell, step: Place, height: int, width: int) -> Iterator[Place]:
    """Yield the first cell from each edge of a cell in the direction of `step`."""
    down, right = step
    rows = range(place[0], place[0] + cell.rows) if right else (place[0] if down < 0 else place[0] + cell.rows - 1,)
    columns = (
        range(place[1], place[1] + cell.columns) if down else (place[1] if right < 0 else place[1] + cell.columns - 1,)
    )
    for row in rows:
        for column in columns:
            y, x = row + down, column + right
            while 0 <= y < height and 0 <= x < width:
                found = at.get((y, x))
                if found is not None and found != place:
                    yield found
                    break
                y, x = y + down, x + right
