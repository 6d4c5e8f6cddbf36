"""Tables as valid HTML, with rows of closed and escaped cells, without losing text."""

import re
from collections.abc import Sequence
from html import escape, unescape
from html.parser import HTMLParser

_DROPPED = frozenset(
    ("b", "body", "col", "colgroup", "div", "em", "html", "i", "p", "span", "strong", "tbody", "tfoot", "thead", "u")
)
"""Tags that are dropped while their text is kept."""
_KEPT = frozenset({"sup", "sub"})
_LONE_SIGN = re.compile(r"<(?=[^<>]*<|!\[)")
"""A sign that another one follows before any tag ends, as in `n<N</td>`, or that begins a `<![`: it is printed."""
_LONG_NUMBER = re.compile(r"&(?=#\d{8})")
"""The sign before a number that is no character's, and that may have more digits than Python converts."""
_SPANS = ("rowspan", "colspan")
_ROWSPAN = re.compile(r'(<t[dh]) rowspan="(\d+)"')
_MOST_SPANNED = 1000
"""The largest `colspan` that HTML allows; a larger number comes from a loop."""


def clean_tables(text: str) -> str:
    """Return the text with its tables as valid HTML.

    A `<table>` has `<tr>` of `<td>` and `<th>`, with spans, `<br>`, `<sup>` and `<sub>`. Text before a table becomes
    its `<caption>`, and text after the last one a paragraph. Text without a table is returned unchanged.
    """
    if "<table" not in text.lower():
        return text
    builder = _TableBuilder()
    builder.feed(_LONE_SIGN.sub("&lt;", _LONG_NUMBER.sub("&amp;", text)))
    builder.close()
    return builder.html()


_TABLE = re.compile(r"(<table>.*?</table>)", re.DOTALL)


def tables_and_text(content: str) -> list[str]:
    """Return the tables of a region and the text between them, in order.

    Tables are valid HTML. No cell spans more rows than its table has.
    """
    pieces = filter(None, map(str.strip, _TABLE.split(clean_tables(content))))
    return [join_tables([piece]) if is_table(piece) else unescape(piece) for piece in pieces]


def is_table(piece: str) -> bool:
    return piece.startswith("<table>") and piece.endswith("</table>")


def join_tables(parts: Sequence[str]) -> str:
    """Join cleaned parts of one table, read from top to bottom.

    A cell spans no more rows than its part has, because it was read without the next part.
    """
    tables: list[str] = []
    for part in parts:
        rows = part.strip().split("<tr>")
        for index, row in enumerate(rows[1:], 1):
            left = len(rows) - index
            rows[index] = _ROWSPAN.sub(
                lambda cell, left=left: f'{cell[1]} rowspan="{min(int(cell[2]), left)}"' if left > 1 else cell[1], row
            )
        if table := "<tr>".join(rows):
            tables.append(table)
    if not tables or not all(map(is_table, tables)):
        return "\n\n".join(tables)
    return "<table>" + "".join(part.removeprefix("<table>").removesuffix("</table>") for part in tables) + "</table>"


class _TableBuilder(HTMLParser):
    """A parser that collects rows, and closes anything open at the end."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._tables: list[str] = []
        self._rows: list[list[str]] = []
        self._caption = ""
        self._loose = ""
        self._depth = 0
        self._open: list[str] = []
        self._in_cell = False
        self._in_caption = False

    def html(self) -> str:
        self._end_table()
        return "\n\n".join(filter(None, (*self._tables, self._loose.strip())))

    def set_cdata_mode(self, elem: str, **options: bool) -> None:
        """Read on as markup, because a `<script>` or `<style>` in a table is print."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self._depth += 1
        elif tag == "tr" and self._depth <= 1:
            self._end_cell()
            self._rows.append([])
        elif tag in ("td", "th") and self._depth <= 1:
            self._start_cell(tag, attrs)
        elif tag in ("td", "th", "tr"):
            self._add(" ")
        elif tag == "caption":
            self._in_caption = True
            self._caption += " "  # a table joined of parts has one for each
        elif tag == "br":
            self._add("<br>" if self._in_cell else " ")
        elif tag in _KEPT and self._in_cell:
            self._open.append(tag)
            self._add(f"<{tag}>")
        elif tag not in _DROPPED | _KEPT or any(value is None for _, value in attrs):
            # A tag that HTML tables do not have is part of the print, such as `<USB>`, and so is `A<B and C>D`.
            self._add(escape(self.get_starttag_text() or "", quote=False))

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self._depth = max(0, self._depth - 1)
            if not self._depth:
                self._end_table()
        elif tag in ("td", "th", "tr") and self._depth <= 1:
            self._end_cell()
        elif tag == "caption":
            self._in_caption = False
        elif tag in self._open:
            while (last := self._open.pop()) != tag:
                self._add(f"</{last}>")
            self._add(f"</{tag}>")
        elif tag not in _DROPPED | _KEPT | {"br", "td", "th", "tr"}:
            self._add(escape(f"</{tag}>", quote=False))

    def handle_data(self, data: str) -> None:
        self._add(escape(data, quote=False))

    def handle_comment(self, data: str) -> None:
        self._add(escape(f"<!--{data}-->", quote=False))

    def handle_decl(self, decl: str) -> None:
        self._add(escape(f"<!{decl}>", quote=False))

    def handle_pi(self, data: str) -> None:
        self._add(escape(f"<?{data}>", quote=False))

    def _start_cell(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._end_cell()
        self._depth = max(1, self._depth)
        if not self._rows:
            self._rows.append([])
        values, spans = dict(attrs), ""
        for name in _SPANS:
            digits = (values.get(name) or "").strip()
            # A loop of the model may write more digits than Python converts.
            span = min(int(digits[:9]), _MOST_SPANNED) if digits.isdecimal() and digits.isascii() else 1
            spans += f' {name}="{span}"' if span > 1 else ""
        self._rows[-1].append(f"<{tag}{spans}>")
        self._in_cell = True

    def _end_cell(self) -> None:
        if self._in_cell:
            cell = self._rows[-1][-1]
            while self._open:
                cell += f"</{self._open.pop()}>"
            name = cell[1:3]
            opening, _, content = cell.partition(">")
            self._rows[-1][-1] = f"{opening}>{' '.join(content.split())}</{name}>"
            self._in_cell = False

    def _add(self, html: str) -> None:
        if self._in_cell:
            self._rows[-1][-1] += html
        elif self._in_caption:
            self._caption += html
        elif self._depth and html.strip():
            # A browser would move text between cells to before the table, and so lose its place.
            self._start_cell("td", [])
            self._rows[-1][-1] += html
            self._end_cell()
        elif not self._depth:
            self._loose += html

    def _end_table(self) -> None:
        self._end_cell()
        rows, reach = "", 0
        for at, row in enumerate(self._rows):
            cells = "".join(row)
            # Without a row that only cells from above fill, these would take the places of the next row's cells.
            rows += f"<tr>{cells}</tr>" if row or at < reach else ""
            for _, span in _ROWSPAN.findall(cells):
                reach = max(reach, at + int(span))
        if rows:
            title = " ".join(f"{self._loose} {self._caption}".split())
            self._tables.append(f"<table>{f'<caption>{title}</caption>' if title else ''}{rows}</table>")
            self._loose = ""
        else:
            self._loose = f"{self._loose} {self._caption}".strip()
        self._rows, self._caption, self._in_caption, self._depth = [], "", False, 0


_CELL = re.compile(r"<t[dh][^>]*>([^<]*)</t[dh]>", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"(<t[dh][^>]*>)\s*(?:none|n/?a|null|nan)\s*(</t[dh]>)", re.IGNORECASE)
"""A cell of nothing but a placeholder. Dashes and dots are none: Korean statistics print them for zero or not known."""
_TAG = re.compile(r"<[^<>]*>")
_LATIN = re.compile(r"[A-Za-z]")
_CHARACTER = re.compile(r"\S")


def strip_placeholders(table: str) -> str:
    """Remove placeholders from a table's HTML that cannot be on the page.

    Models write `None`, `N/A` or `null` into empty cells. In a table with Latin letters in another cell they may be
    printed, so it is returned unchanged.
    """
    others = _CELL.sub(lambda cell: "" if _PLACEHOLDER.fullmatch(cell[0]) else cell[1], table)
    return table if _LATIN.search(_TAG.sub(" ", others)) else _PLACEHOLDER.sub(r"\1\2", table)


def count_placeholders(table: str) -> int:
    """Count the cells that contain a placeholder."""
    return len(_PLACEHOLDER.findall(table))


def is_bare(table: str) -> bool:
    """Return whether a table's HTML has no character in any cell."""
    return "<t" in table.lower() and not _CHARACTER.search(_TAG.sub("", table).replace("&nbsp;", " "))
