"""TEDS, the similarity of tables as trees, and tables as grids of texts.

Zhong, ShafieiBavani and Jimeno Yepes, Image-based table recognition: data, model, and evaluation, ECCV 2020. These
rules determine a score; implementations that leave one of them out differ by up to 0.05 per table:

- The tree is `table` and everything below it down to `td`; a `td` has spans and content but no children.
- A node other than a `td`, even a `th`, has neither spans nor content: it is compared by its tag alone, and its
  children are part of the tree.
- The content of a `td` is its characters and its inline tags, one token each.
- The distance is divided by the larger number of elements below `table`, including inline tags within cells.
- An empty text, or a table that is not directly in the `body` of its HTML, scores 0.

The time for a table grows with the square of its cells. So small tables are compared in this process, larger ones in a
separate process that is stopped if it takes too long, and the largest not at all. A skipped comparison gives its
reason, so that it can be counted.
"""

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from rapidfuzz.distance import Levenshtein

from kopub.errors import EngineError

if TYPE_CHECKING:
    from lxml.html import HtmlElement

_AT_ONCE = 10_000
"""Most node pairs to compare in this process: two tables of a hundred nodes each take less than 0.1 s."""
_MOST = 2_250_000
"""Most node pairs to compare at all: two tables of 1,500 nodes take about half a minute and 300 MB.

This limit on size comes before the one on time, so that a table is skipped in every run or in none."""


@dataclass(frozen=True, slots=True)
class TedsScores:
    """TEDS with and without the text of cells; if both are None, `cut` says why."""

    teds: float | None
    structure: float | None
    cut: str | None = None


class BoundedTeds:
    """A comparer of tables, each in at most `seconds`; its process runs until `close`."""

    def __init__(self, seconds: float = 60.0) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str] = queue.Queue()

    def close(self) -> None:
        """Stop the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def compare(self, gold: str, text: str) -> TedsScores:
        """Return both scores of two tables, each a whole HTML document.

        Raises `EngineError` if the process dies by itself.
        """
        # Time and memory grow with the product of both trees' node counts.
        wanted, read = table_of(gold), table_of(text)
        pairs = 0 if wanted is None or read is None else _nodes(wanted) * _nodes(read)
        if pairs > _MOST and gold != text:
            return TedsScores(None, None, f"the tables have {pairs:,} pairs of nodes, more than {_MOST:,}")
        if pairs <= _AT_ONCE or gold == text:
            return _both(gold, text)
        if self._process is None:
            self._answers = queue.Queue()
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                errors="surrogatepass",
            )
            threading.Thread(target=_forward, args=(self._process, self._answers), daemon=True).start()
        process = self._process
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps([gold, text]) + "\n")
            process.stdin.flush()
            answer = self._answers.get(timeout=self._seconds)
        except queue.Empty:
            self.close()
            return TedsScores(None, None, f"comparing the tables took more than {self._seconds:g} s")
        except OSError as error:
            answer = ""
            reason = str(error)
        else:
            reason = "it ended"
        if not answer:
            self.close()
            raise EngineError("the process that compares tables died: {reason}; run the same command again", reason)
        return TedsScores(*json.loads(answer))


def _forward(process: "subprocess.Popen[str]", answers: "queue.Queue[str]") -> None:
    """Put the lines of the process into `answers`, and an empty one at its end.

    A thread does this because a pipe cannot be read with a timeout.
    """
    assert process.stdout is not None
    for line in process.stdout:
        answers.put(line)
    answers.put("")


def _both(gold: str, text: str) -> TedsScores:
    try:
        return TedsScores(teds(gold, text), teds(gold, text, structure=True))
    except ValueError:
        # A span is not a number, and the official scripts count such a table as not read.
        return TedsScores(0.0, 0.0)


_STOPS = "td"


class _Node:
    """A node as apted needs it; `content` has the tokens of a `td`, else None."""

    __slots__ = ("children", "colspan", "content", "rowspan", "tag")

    def __init__(self, element: "HtmlElement", structure: bool) -> None:
        self.tag = element.tag
        cell = self.tag == _STOPS
        self.colspan = int(element.get("colspan", "1")) if cell else None
        self.rowspan = int(element.get("rowspan", "1")) if cell else None
        self.content: Sequence[str] | None = None
        if cell:
            self.content = () if structure else tuple(_tokens(element))[1:-1]
        self.children = [] if cell else [_Node(child, structure) for child in element]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Node) and _values(self) == _values(other)

    # apted uses nodes as keys by identity.
    __hash__ = object.__hash__


_values = attrgetter("tag", "colspan", "rowspan", "content", "children")


class _Costs:
    """The configuration of apted, in which a node in only one tree costs 1."""

    valuecls = float

    @staticmethod
    def delete(node: _Node) -> int:
        return 1

    @staticmethod
    def insert(node: _Node) -> int:
        return 1

    @staticmethod
    def children(node: _Node) -> Sequence[_Node]:
        return node.children

    @staticmethod
    def rename(node1: _Node, node2: _Node) -> float:
        if (node1.tag, node1.colspan, node1.rowspan) != (node2.tag, node2.colspan, node2.rowspan):
            return 1.0
        first, second = node1.content, node2.content
        if not first and not second:
            return 0.0
        assert first is not None
        assert second is not None
        return Levenshtein.distance(first, second) / max(len(first), len(second))


def teds(gold: str, text: str, structure: bool = False) -> float:
    """Return the similarity of two tables, 0 to 1.

    With `structure`, only their trees are compared. Both are whole HTML documents. Raises `ValueError` for a span that
    is not a number.
    """
    from apted import APTED

    wanted, read = table_of(gold), table_of(text)
    if wanted is None or read is None:
        return 0.0
    # The elements below a table, even in cells, are what a distance is divided by.
    size = max(len(list(table.iterdescendants("*"))) for table in (wanted, read))
    if not size:
        return 0.0  # neither has a row, for which the official code would divide by zero
    first, second = _Node(read, structure), _Node(wanted, structure)
    if first == second:
        return 1.0
    return 1.0 - float(APTED(first, second, _Costs()).compute_edit_distance()) / size


def table_of(document: str) -> "HtmlElement | None":
    """Return the first `table` directly in the body, or None if none can be parsed."""
    from lxml import etree, html  # pyright: ignore[reportAttributeAccessIssue]

    if not document.strip():
        return None
    parser = html.HTMLParser(remove_comments=True, encoding="utf-8")
    try:
        tables: Any = html.fromstring(document.encode("utf-8", "replace"), parser=parser).xpath("body/table")
    except (etree.ParserError, etree.XMLSyntaxError, ValueError):
        return None
    return tables[0] if tables else None


def _nodes(table: "HtmlElement") -> int:
    """Return the number of nodes in the compared tree."""
    return 1 if table.tag == _STOPS else 1 + sum(map(_nodes, table))


def _tokens(element: "HtmlElement") -> Iterator[str]:
    yield f"<{element.tag}>"
    yield from element.text or ""
    for child in element:
        yield from _tokens(child)
    if element.tag != "unk":
        yield f"</{element.tag}>"
    if element.tag != _STOPS:
        yield from element.tail or ""


Place = tuple[int, int]
_RULE = frozenset("- :")
_MOST_SPANNED = 1000
"""The largest `colspan` in HTML; a larger number comes from a model that repeats itself."""


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    rows: int = 1
    columns: int = 1
    heading: bool = False


@dataclass(frozen=True, slots=True)
class CellGrid:
    """The texts of a table by place, and the neighbours of each place.

    A cell has several neighbours on a side if they span fewer rows or columns than it does.
    """

    texts: Mapping[Place, str]
    heads: frozenset[Place]
    up: Mapping[Place, set[Place]]
    down: Mapping[Place, set[Place]]
    left: Mapping[Place, set[Place]]
    right: Mapping[Place, set[Place]]

    def headings(self, cell: Place, towards: Mapping[Place, set[Place]]) -> set[Place]:
        """Return the heading cells in one direction from a cell, else the last cells there."""
        heads, ends, visited, left = set(), set(), set(), {cell}
        while left:
            place = left.pop()
            visited.add(place)
            if place in self.heads:
                heads.add(place)
            if not towards[place]:
                ends.add(place)
            left |= towards[place] - visited
        return (heads - {cell}) or (ends - {cell})


def tables_of(markdown: str, pipes: bool = True) -> list[CellGrid]:
    """Return the tables of a text: pipe tables, if `pipes`, then HTML tables."""
    rows = [*(_pipe_tables(markdown) if pipes else ()), *_html_tables(markdown)]
    return [table for table in map(_table, rows) if table is not None]


def _pipe_tables(markdown: str) -> Iterator[list[list[Cell]]]:
    """Yield the pipe tables: runs of at least two lines that contain a pipe.

    The first row and column are headings.
    """
    run: list[str] = []
    for line in (*markdown.strip().split("\n"), ""):
        if "|" in line:
            run.append(line)
            continue
        if len(run) > 1:
            rows: list[list[Cell]] = []
            for text in run:
                # A line of dashes, colons and blanks separates rows.
                rule = text.replace("|", " ").strip()
                if rule and set(rule) <= _RULE:
                    continue
                texts = [cell.strip() for cell in text.split("|")]
                # A row may begin and end with a pipe.
                texts = texts if texts[0] else texts[1:]
                texts = texts if texts and texts[-1] else texts[:-1]
                if texts:
                    rows.append([Cell(cell, heading=not rows or not at) for at, cell in enumerate(texts)])
            if rows:
                yield rows
        run = []


def _html_tables(markdown: str) -> Iterator[list[list[Cell]]]:
    if "<table" not in markdown.lower():
        return
    from bs4 import BeautifulSoup

    for table in BeautifulSoup(markdown, "html.parser").find_all("table"):
        lines = table.find_all("tr")
        rows: list[list[Cell]] = []
        for at, line in enumerate(lines):
            row: list[Cell] = []
            for cell in line.find_all(["th", "td"], recursive=False):
                for line_break in cell.find_all("br"):
                    line_break.replace_with("\n")
                # In HTML, a rowspan of 0 reaches to the last row.
                to_the_end = str(cell.get("rowspan") or "").strip() == "0"
                height = len(lines) - at if to_the_end else _span(cell.get("rowspan"))
                heading = cell.name == "th" or line.find_parent("thead") is not None
                row.append(Cell(cell.get_text().strip(), height, _span(cell.get("colspan")), heading))
            rows.append(row)
        if rows:
            yield rows


def _span(value: object) -> int:
    try:
        return min(max(1, int(str(value))), _MOST_SPANNED)
    except ValueError:
        return 1


def _table(rows: Sequence[Sequence[Cell]]) -> CellGrid | None:
    """Return the table made from rows of cells, or None without any cell.

    Cells missing from a row are gaps, and a cell's neighbour may be beyond them.
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
            down = range(row, min(row + cell.rows, len(rows)))  # below the last row there are no neighbours
            for y in down:
                at.update(((y, x), place) for x in range(column, column + cell.columns))
            column += cell.columns
    if not cells:
        return None
    height, width = 1 + max(at)[0], 1 + max(column for _, column in at)
    neighbours: dict[str, dict[Place, set[Place]]] = {}
    for side, step in (("up", (-1, 0)), ("down", (1, 0)), ("left", (0, -1)), ("right", (0, 1))):
        neighbours[side] = {place: set(_next(at, place, cell, step, height, width)) for place, cell in cells.items()}
    texts = {place: cell.text for place, cell in cells.items()}
    return CellGrid(texts, frozenset(place for place, cell in cells.items() if cell.heading), **neighbours)


def _next(at: Mapping[Place, Place], place: Place, cell: Cell, step: Place, height: int, width: int) -> Iterator[Place]:
    """Yield the first cell found from each edge place of a cell in direction `step`."""
    down, right = step
    rows = range(place[0], place[0] + cell.rows) if right else (place[0] if down < 0 else place[0] + cell.rows - 1,)
    columns = (
        range(place[1], place[1] + cell.columns) if down else (place[1] if right < 0 else place[1] + cell.columns - 1,)
    )
    for row in rows:
        for column in columns:
            y, x = row + down, column + right
            while 0 <= y < height and 0 <= x < width:
                neighbour = at.get((y, x))
                if neighbour is not None and neighbour != place:
                    yield neighbour
                    break
                y, x = y + down, x + right


# The process of `BoundedTeds`: a line with two tables is answered by a line with their scores.
if __name__ == "__main__":
    for line in sys.stdin:
        compared = _both(*json.loads(line))
        sys.stdout.write(json.dumps([compared.teds, compared.structure]) + "\n")
        sys.stdout.flush()
