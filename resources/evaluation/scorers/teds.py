"""TEDS: how alike two tables are as trees, within limits of time and memory.

Zhong, ShafieiBavani and Jimeno Yepes, Image-based table recognition: data, model, and evaluation, ECCV 2020. What
decides a score is named here, since implementations that leave one of it out differ by up to 0.05 a table:

- The tree is `table`, and below it everything down to `td`; a `td` has spans and content and no children.
- A node that is not a `td`, so a `th` too, has neither spans nor content: it is compared by its tag alone, and what
  is in it is part of the tree.
- The content of a `td` is its characters and its inline tags, one token each.
- The distance is divided by the larger number of elements below `table`, inline tags within cells among them.
- A table that is not directly in the `body` of its HTML, or an empty text, scores 0.

The time of a table grows with the square of its cells: small tables are compared at once, larger ones in a process of
its own that is ended when it takes too long, and the largest not at all. What was not compared says why, so that it
can be counted.
"""

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from rapidfuzz.distance import Levenshtein

from resources.errors import EngineError

if TYPE_CHECKING:
    from lxml.html import HtmlElement

_AT_ONCE = 10_000
"""Node pairs of two tables of a hundred nodes each: less than a tenth of a second."""
_MOST = 2_250_000
"""Node pairs of two tables of 1,500 nodes: about half a minute and 300 MB.

The limit is by size first, so that a table is cut in every run or in none."""


@dataclass(frozen=True, slots=True)
class TedsScores:
    """TEDS with and without the text of cells, both None where `cut` says why."""

    teds: float | None
    structure: float | None
    cut: str | None = None


class BoundedTeds:
    """Compares tables, each in at most `seconds`. A context manager: its process ends with it."""

    def __init__(self, seconds: float = 60.0) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str] = queue.Queue()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def compare(self, gold: str, text: str) -> TedsScores:
        """Both scores of two tables, each a whole HTML document.

        Raises `EngineError` if the process dies by itself.
        """
        pairs = node_pairs(gold, text)
        if pairs > _MOST and gold != text:
            return TedsScores(None, None, f"the tables have {pairs:,} pairs of nodes, more than {_MOST:,}")
        if pairs <= _AT_ONCE or gold == text:
            return _both(gold, text)
        return self._in_process(gold, text)

    def _in_process(self, gold: str, text: str) -> TedsScores:
        process = self._started()
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
            raise EngineError(f"the process that compares tables died: {reason}; run the same command again")
        return TedsScores(*json.loads(answer))

    def _started(self) -> subprocess.Popen[str]:
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
        return self._process


def _forward(process: "subprocess.Popen[str]", answers: "queue.Queue[str]") -> None:
    """Lines of the process as answers, and an empty one at its end. A pipe has no read with a timeout."""
    assert process.stdout is not None
    for line in process.stdout:
        answers.put(line)
    answers.put("")


def _both(gold: str, text: str) -> TedsScores:
    try:
        return TedsScores(teds(gold, text), teds(gold, text, structure=True))
    except ValueError:
        # A span that is no number: the official scripts count such a table as not read.
        return TedsScores(0.0, 0.0)


def _serve() -> None:
    for line in sys.stdin:
        compared = _both(*json.loads(line))
        sys.stdout.write(json.dumps([compared.teds, compared.structure]) + "\n")
        sys.stdout.flush()


_STOPS = "td"


class _Node:
    """A node as apted wants it.

    `content` are tokens of a `td`, None of all other nodes.
    """

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
        return isinstance(other, _Node) and self._values() == other._values()

    # apted keys nodes by identity.
    __hash__ = object.__hash__

    def _values(self) -> tuple[object, ...]:
        return self.tag, self.colspan, self.rowspan, self.content, self.children


class _Costs:
    """What apted asks of its configuration. A node that is only in one tree costs 1."""

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
    """Similarity of two tables, 0 to 1; of their trees alone where `structure`.

    Both are whole HTML documents. Raises `ValueError` for a span that is no number.
    """
    from apted import APTED

    wanted, read = table_of(gold), table_of(text)
    if wanted is None or read is None:
        return 0.0
    size = max(_elements(wanted), _elements(read))
    if not size:
        return 0.0  # neither has a row: the official code divides by zero
    first, second = _Node(read, structure), _Node(wanted, structure)
    if first == second:
        return 1.0
    return 1.0 - float(APTED(first, second, _Costs()).compute_edit_distance()) / size


def node_pairs(gold: str, text: str) -> int:
    """Return the nodes of one tree times those of the other, 0 for no table.

    Time and memory grow with it.
    """
    wanted, read = table_of(gold), table_of(text)
    return 0 if wanted is None or read is None else _nodes(wanted) * _nodes(read)


def table_of(document: str) -> "HtmlElement | None":
    """Return the first `table` directly in the body.

    It is None where there is none, or nothing that can be parsed.
    """
    from lxml import etree, html  # pyright: ignore[reportAttributeAccessIssue]

    if not document.strip():
        return None
    parser = html.HTMLParser(remove_comments=True, encoding="utf-8")
    try:
        found: Any = html.fromstring(document.encode("utf-8", "replace"), parser=parser).xpath("body/table")
    except (etree.ParserError, etree.XMLSyntaxError, ValueError):
        return None
    return found[0] if found else None


def _elements(table: "HtmlElement") -> int:
    """Elements below a table, those within cells among them: what a distance is divided by."""
    return sum(1 for _ in table.iterdescendants("*"))


def _nodes(table: "HtmlElement") -> int:
    """Nodes of the tree that is compared."""
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


if __name__ == "__main__":
    _serve()
