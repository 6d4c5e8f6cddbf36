"""A page as markdown and as plain text. Pure.

Numbers, dates and words stay as they were read.
"""

import re
from collections.abc import Sequence
from html.parser import HTMLParser

from kopub.layout.regions import FORMULAS
from kopub.recognition.content import content_parts, fence_code, strip_delimiters, strip_fences
from kopub.recognition.regions import Crop, RegionText, TextOrigin, crop_index, readable
from kopub.recognition.tables import is_table, tables_and_text
from kopub.texts.markup import block_markdown, formula_markdown, inline_markdown, line_start, printable, title_markdown

HASHES = re.compile(r"^#{1,6}\s+(?=\S)")
"""The mark of a title in a reader's markdown."""
NOT_PRINTED = "*(not printed)*"
"""Stands before what a document holds but does not print."""
_TITLES = {"doc_title": 1, "paragraph_title": 2}
TABLE_LABELS = frozenset({"table", "chart"})
"""Labels of regions whose content may be a `<table>`."""
DOTS = frozenset("•·‧∙ㆍ–-")
"""Bullets for which a renderer shows its own."""
_BULLET = re.compile(r"([•·‧∙●○◦▪■□–-])\s+(?=\S)")


def page_markdown(regions: Sequence[RegionText], crops: Sequence[Crop]) -> str:
    """Return the page in reading order, its blocks separated by blank lines.

    Titles are `#` and `##`, list entries `- `, code is fenced, tables are HTML, formulas `$$` with their number as
    `\\tag`, pictures are links to their crops; all other text is shown as it was read. Running heads, feet and page
    numbers are paragraphs. Failed regions are left out.
    """
    ordered = readable(regions)
    pictures = {crop_index(crop.path): crop for crop in crops}
    numbers = formula_numbers([(region.native_label, region.content) for region in ordered])
    blocks = []
    for position, region in enumerate(ordered):
        if position in numbers.values():
            continue
        crop = pictures.get(region.index)
        if crop is not None:
            blocks.append(f"![{crop.label}]({link_target(crop.path)})")
        number = ordered[numbers[position]].content if position in numbers else None
        if region.origin is TextOrigin.UNPRINTED:
            blocks.append(NOT_PRINTED)
        blocks.append(_block(region, number))
    return "\n\n".join(filter(None, blocks))


def link_target(path: str) -> str:
    """Return a link target, in angle brackets if blanks or brackets would end it early."""
    if re.search(r"[\s()<>]", path):
        return "<" + re.sub(r"[<>\\]", lambda match: "\\" + match[0], path) + ">"
    return path


def formula_numbers(regions: Sequence[tuple[str, str]]) -> dict[int, int]:
    """Return the positions of numbered formulas and of their numbers.

    A number is the region after its formula or before it. `regions` are the label and content of each region of a page,
    in reading order.
    """
    numbers: dict[int, int] = {}
    for position, (label, content) in enumerate(regions):
        if label != "formula_number" or not content.strip():
            continue
        for neighbour in (position - 1, position + 1):
            free = neighbour not in numbers and 0 <= neighbour < len(regions)
            if free and regions[neighbour][0] in FORMULAS and regions[neighbour][1].strip():
                numbers[neighbour] = position
                break
    return numbers


def _block(region: RegionText, number: str | None) -> str:
    content = printable(region.content).strip()
    if not content:
        return ""
    if region.native_label in _TITLES:
        title = HASHES.sub("", " ".join(strip_fences(content).split()))
        return title_markdown(title, _TITLES[region.native_label])
    if region.native_label in TABLE_LABELS and content.startswith("<table"):
        pieces = tables_and_text(content)
        return "\n\n".join(piece if is_table(piece) else block_markdown(piece) for piece in pieces)
    if region.native_label in FORMULAS:
        return formula_markdown(strip_delimiters(content), number)
    lines: list[str] = []
    for passage in content_parts(content):
        if passage.is_code:
            lines.append(fence_code(passage.text, passage.language))
            continue
        printed = "\n".join(filter(None, map(str.strip, passage.text.split("\n"))))
        for line in inline_markdown(printed).split("\n"):
            # A bullet is kept unless a renderer shows its own for it.
            bullet = _BULLET.match(line)
            if bullet is None:
                lines.append(line_start(line))
            else:
                lines.append(f"- {line_start(line[bullet.end() :]) if bullet[1] in DOTS else line}")
    return "\n".join(lines)


def page_text(regions: Sequence[RegionText]) -> str:
    """Return the text of a page in reading order, without markup.

    Regions are separated by blank lines, the cells of a table by tabs, its rows by line breaks. Failed regions are left
    out.
    """
    texts: list[str] = []
    for region in readable(regions):
        content = region.content
        if region.native_label in _TITLES:
            text = HASHES.sub("", strip_fences(content))
        elif region.native_label in TABLE_LABELS and content.lstrip().startswith("<table"):
            parser = _Cells()
            parser.feed(content)
            parser.close()
            rows: list[str] = []
            for row in parser.rows:
                rows.append("\t".join(" ".join(cell.split()) for cell in row))
            text = "\n".join(filter(str.strip, rows))
        else:
            text = strip_fences(content)
        texts.append(text.strip())
    return "\n\n".join(filter(None, texts))


class _Cells(HTMLParser):
    """A collector of the text inside and outside of `<td>` and `<th>`."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.rows: list[list[str]] = [[]]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        elif tag == "br":
            self.handle_data(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self.rows.append([])

    def handle_data(self, data: str) -> None:
        if self.rows[-1]:
            self.rows[-1][-1] += data
        elif data.strip():
            self.rows[-1].append(data)
