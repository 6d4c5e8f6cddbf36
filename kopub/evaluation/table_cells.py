"""Exact cells, rows and figures of tables, and whether the wrong ones are doubted. Pure."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kopub.evaluation.characters import composed
from kopub.evaluation.tables import CellGrid, tables_of

_FIGURE = re.compile(r"[△▲(+-]*\d[\d,.]*\)?(?:%|㎡|원|건|명)?|-")
"""The whole text of a cell with one figure: its signs, its digits and its unit."""
_BLANKS = re.compile(r"\s+")
_BETWEEN_NAMES = re.compile(r"; |, | or ")


@dataclass(frozen=True, slots=True)
class CellPair:
    """A cell that is printed, and what was read in its place."""

    printed: str
    read: str

    @property
    def is_right(self) -> bool:
        return self.printed == self.read

    @property
    def is_figure(self) -> bool:
        return bool(_FIGURE.fullmatch(self.printed))

    def is_named(self, names: Collection[str]) -> bool:
        """Return whether the text that was read, or the right one, is doubted."""
        return self.read in names or self.printed in names


def cell_rows(printed: Sequence[str], read: Sequence[str]) -> Iterator[list[CellPair]]:
    """Yield the rows of printed tables with what was read for each cell.

    All tables are HTML, or markdown among those that were read. Each printed table is compared with the table that has
    most of its cells, and each of its rows with one row, in order. Blanks within cells do not count.
    """
    left: list[list[_Row]] = []
    for text in read:
        left += map(_rows, tables_of(text))
    for table in printed:
        [gold] = map(_rows, tables_of(table, pipes=False))
        rows: Mapping[int, _Row] = {}
        best, most = None, -1
        for candidate in left:
            aligned = _aligned(gold, candidate)
            right = sum(_equal(gold[at], row) for at, row in aligned.items())
            if right > most:
                rows, best, most = aligned, candidate, right
        if best is not None and rows:
            left.remove(best)
        for at, cells in enumerate(gold):
            other = rows.get(at, {})
            pairs = [CellPair(text, other.get(column, "")) for column, text in cells.items() if text]
            extra = [CellPair("", text) for column, text in other.items() if text and not cells.get(column)]
            yield [*pairs, *extra]


_Row = Mapping[int, str]


def _rows(grid: CellGrid) -> list[_Row]:
    """Return the texts of a table by row and column, without blanks."""
    rows: list[dict[int, str]] = [{} for _ in range(1 + max(grid.texts)[0])]
    for (row, column), text in grid.texts.items():
        rows[row][column] = _BLANKS.sub("", composed(text))
    return list(rows)


def _aligned(gold: Sequence[_Row], read: Sequence[_Row]) -> dict[int, _Row]:
    """Return the row read for each printed one, so that most cells are right."""
    best = [[0] * (len(read) + 1) for _ in range(len(gold) + 1)]
    for a in range(len(gold) - 1, -1, -1):
        for b in range(len(read) - 1, -1, -1):
            # A pair of rows counts without an equal cell too, but less than one: wrong rows are compared, not lost.
            best[a][b] = max(best[a + 1][b], best[a][b + 1], best[a + 1][b + 1] + 1 + 2 * _equal(gold[a], read[b]))
    rows: dict[int, _Row] = {}
    a = b = 0
    while a < len(gold) and b < len(read):
        if best[a][b] == best[a + 1][b]:
            a += 1
        elif best[a][b] == best[a][b + 1]:
            b += 1
        else:
            rows[a] = read[b]
            a, b = a + 1, b + 1
    return rows


def _equal(gold: _Row, read: _Row) -> int:
    return sum(bool(text) and read.get(column) == text for column, text in gold.items())


def named_in(doubts: Iterable[str]) -> frozenset[str]:
    """Return the numbers that doubts name, without blanks."""
    names: set[str] = set()
    for says in doubts:
        for part in says.split(": ")[1:]:
            names.update(_BLANKS.sub("", name) for name in _BETWEEN_NAMES.split(part))
    return frozenset(names)
