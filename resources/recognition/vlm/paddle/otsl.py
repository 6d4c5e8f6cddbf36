"""Tables in OTSL, the language of PaddleOCR-VL's answers, as HTML. Pure.

OTSL (Lysak et al., 2023, arXiv 2305.03393) writes a table as rows of cells: a full or an empty cell, or one that
belongs to the cell on its left, above it, or both; then the end of the row.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate

_TAG = re.compile(r"<(fcel|ecel|lcel|ucel|xcel|nl)>")
_LEFT, _ABOVE = frozenset({"lcel", "xcel"}), frozenset({"ucel", "xcel"})
_MOST_SPANNED = 1000
"""Rows and columns; what HTML allows a `colspan`."""


@dataclass(slots=True)
class _Cell:
    kind: str
    text: str
    columns: int = 1
    rows: int = 1
    covered: bool = False
    """Whether it is a part of another cell."""


def is_otsl(text: str) -> bool:
    """Whether the text has a tag of OTSL."""
    return _TAG.search(text) is not None


def otsl_to_html(text: str) -> str:
    """The text with its table as `<table>` of `<tr>` of `<td>`, with spans; all text escaped.

    What stands before the first tag stays before the table, what follows the last row after it. A cell that spans has
    no text of its own: one that has is a cell. Rows are filled up to the longest one, unless that would more than
    double the table, as a row that ran away would; no row is cut.
    """
    before, rows, after = _parsed(text)
    _fill(rows)
    _span(rows)
    html = "".join(f"<tr>{''.join(map(_html, row))}</tr>" for row in _without_covered(rows))
    if not html:
        return "\n".join(part for part in (before.strip(), after) if part)
    parts = (escape(before.strip(), quote=False), f"<table>{html}</table>", escape(after, quote=False))
    return "\n".join(part for part in parts if part)


def _parsed(text: str) -> tuple[str, list[list[_Cell]], str]:
    """The text before the table, its rows, and the text after it."""
    before, *tagged = _TAG.split(text)
    rows: list[list[_Cell]] = []
    row: list[_Cell] = []
    after = ""
    pairs = list(zip(tagged[::2], tagged[1::2], strict=True))
    for position, (kind, written) in enumerate(pairs):
        content = written.strip()
        if kind != "nl":
            row.append(_Cell("fcel" if content else kind, content))
            continue
        rows.append(row)
        row = []
        if content and position + 1 < len(pairs):
            row.append(_Cell("fcel", content))
        elif content:
            after = content
    if row:
        rows.append(row)
    return before, rows, after


def _fill(rows: Sequence[list[_Cell]]) -> None:
    width = max((len(row) for row in rows), default=0)
    if width * len(rows) > 2 * sum(map(len, rows)):
        return
    for row in rows:
        row += [_Cell("ecel", "") for _ in range(width - len(row))]


def _span(rows: Sequence[Sequence[_Cell]]) -> None:
    """Give each cell its spans and mark the cells that it covers; what nothing covers is an empty cell."""
    for top, row in enumerate(rows):
        for left, cell in enumerate(row):
            if cell.covered or cell.kind not in ("fcel", "ecel"):
                continue
            right = left + 1
            while right < len(row) and _belongs(row[right], _LEFT) and right - left < _MOST_SPANNED:
                right += 1
            below = top + 1
            while below < len(rows) and _continues(rows[below], left, right) and below - top < _MOST_SPANNED:
                below += 1
            cell.columns, cell.rows = right - left, below - top
            for covered in (each for line in rows[top:below] for each in line[left:right]):
                covered.covered = covered is not cell


def _continues(row: Sequence[_Cell], left: int, right: int) -> bool:
    """Whether the columns from `left` to `right` of a row belong to the cell above them."""
    if len(row) < right or not _belongs(row[left], _ABOVE):
        return False
    return all(_belongs(cell, _LEFT | _ABOVE) for cell in row[left:right])


def _belongs(cell: _Cell, kinds: frozenset[str]) -> bool:
    return cell.kind in kinds and not cell.covered


def _without_covered(rows: Sequence[Sequence[_Cell]]) -> list[list[_Cell]]:
    """The cells of each row that are drawn. A row that others span altogether goes, and their spans with it."""
    drawn = [[cell for cell in row if not cell.covered] for row in rows]
    # Before each row and at the end: how many rows went.
    gone = list(accumulate((not row for row in drawn), initial=0))
    for top, row in enumerate(drawn):
        for cell in row:
            cell.rows -= gone[top + cell.rows] - gone[top]
    return [row for row in drawn if row]


def _html(cell: _Cell) -> str:
    spans = "".join(
        f' {name}="{span}"' for name, span in (("rowspan", cell.rows), ("colspan", cell.columns)) if span > 1
    )
    text = "<br>".join(escape(line.strip(), quote=False) for line in cell.text.split("\n") if line.strip())
    return f"<td{spans}>{text}</td>"
