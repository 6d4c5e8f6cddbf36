"""A page as markdown and as plain text. Pure.

Numbers, dates and words stay as they were read.
"""

import html
import re
from collections.abc import Sequence
from html.parser import HTMLParser

from kopub.recognition.content import content_parts, fence_code, strip_delimiters, strip_fences
from kopub.recognition.regions import Crop, RegionText, TextOrigin, crop_index, readable

HASHES = re.compile(r"^#{1,6}\s+(?=\S)")
"""The mark of a title in a reader's markdown."""
NOT_PRINTED = "*(not printed)*"
"""Stands before what a document holds but does not print."""
_TITLES = {"doc_title": "# ", "paragraph_title": "## "}
_FORMULAS = frozenset({"display_formula", "inline_formula"})
TABLE_LABELS = frozenset({"table", "chart"})
"""Labels of regions whose content may be a `<table>`."""
_BULLET = re.compile(r"^[•·‧∙●○◦▪■□–*\-]\s+(?=\S)")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_LINE_START = re.compile(r"^(#{1,6}(?=\s)|>|(?:-{3,}|={3,})(?=\s*$)|(?:`{3,}(?=[^`]*$)|~{3,}))")
_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)")


def page_markdown(regions: Sequence[RegionText], crops: Sequence[Crop]) -> str:
    """Return the page in reading order, its blocks separated by blank lines.

    Titles are `#` and `##`, bullets `- `, code is fenced, tables are HTML, formulas `$$` with their number as `\\tag`,
    pictures are links to their crops. Running heads, feet and page numbers are paragraphs. Failed regions are left out.
    """
    ordered = readable(regions)
    pictures = {crop_index(crop.path): crop for crop in crops}
    numbers = formula_numbers([(region.native_label, region.content) for region in ordered])
    taken = set(numbers.values())
    blocks = []
    for position, region in enumerate(ordered):
        if position in taken:
            continue
        crop = pictures.get(region.index)
        if crop is not None:
            blocks.append(f"![{crop.label}]({link_target(crop.path)})")
        number = ordered[numbers[position]].content if position in numbers else None
        if region.origin is TextOrigin.UNPRINTED:
            blocks.append(NOT_PRINTED)
        blocks.append(_block(region, number))
    return "\n\n".join(block for block in blocks if block)


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
    found: dict[int, int] = {}
    for position, (label, content) in enumerate(regions):
        if label != "formula_number" or not content.strip():
            continue
        for neighbour in (position - 1, position + 1):
            free = neighbour not in found and 0 <= neighbour < len(regions)
            if free and regions[neighbour][0] in _FORMULAS and regions[neighbour][1].strip():
                found[neighbour] = position
                break
    return found


def _block(region: RegionText, number: str | None) -> str:
    content = region.content.strip()
    if not content:
        return ""
    if region.native_label in _TITLES:
        title = HASHES.sub("", " ".join(strip_fences(content).split()))
        return _TITLES[region.native_label] + inline_markdown(title)
    if region.native_label in TABLE_LABELS and content.startswith("<table"):
        return content
    if region.native_label in _FORMULAS:
        return formula_markdown(content, number)
    return "\n".join(
        fence_code(passage.text, passage.language)
        if passage.is_code
        else "\n".join(line_markdown(line) for line in passage.text.splitlines())
        for passage in content_parts(content)
    )


def formula_markdown(content: str, number: str | None) -> str:
    """Return a display formula, with its number as `\\tag`."""
    content = strip_delimiters(content)
    if number is not None and "\\tag" not in content:
        content += f" \\tag{{{number.strip().strip('()（）').strip()}}}"
    return f"$$\n{content}\n$$"


def line_markdown(line: str) -> str:
    """Return a printed line as markdown: bullets are `- `, other markup is escaped."""
    bullet = _BULLET.match(line)
    if bullet:
        return "- " + inline_markdown(line[bullet.end() :])
    return _LINE_START.sub(r"\\\1", inline_markdown(line))


def inline_markdown(text: str) -> str:
    """Return text with entities for angle brackets that markdown would take for HTML.

    Between backticks they are kept, since markdown sees no HTML there and would show the entity.
    """
    done, parts = 0, []
    for span in _CODE_SPAN.finditer(text):
        parts += [_TAG.sub("&lt;", text[done : span.start()]), span[0]]
        done = span.end()
    return "".join([*parts, _TAG.sub("&lt;", text[done:])])


def defuse(markdown: str) -> str:
    """Return markdown whose links and pictures lead only to the web or mail.

    Text printed on a page may be a markdown link, even to a script or to a file on the reader's machine. The bracket
    before such a target is escaped, so that it is shown as printed. Targets without a scheme are kept.
    """
    unlinked = _LINK.sub(lambda link: f"{link[0][:-1]}\\]" if _is_unsafe(link) else link[0], markdown)
    return _AUTOLINK.sub(lambda link: link[0] if link[1].lower() in _SAFE_SCHEMES else f"&lt;{link[0][1:]}", unlinked)


_LINK = re.compile(r"(?<!\\)(?P<before>\\*)\](?=[(:]\s*(?P<target><[^>\n]{0,500}|\S{1,500}))")
"""The end of a link's text, or of the label in a link definition."""
_AUTOLINK = re.compile(r"<([A-Za-z][A-Za-z0-9+.-]{1,31}):")
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):")
_SAFE_SCHEMES = frozenset({"http", "https", "mailto", "ftp", "tel"})


def _is_unsafe(link: re.Match[str]) -> bool:
    """Return whether a link, as browsers read it, leads anywhere but the web."""
    target = html.unescape(re.sub(r"\\([^\w\s])", r"\1", link["target"]))
    # Browsers ignore blanks and control characters.
    scheme = _SCHEME.match("".join(char for char in target if char > " " and char.isprintable()).lower().lstrip("<"))
    return scheme is not None and scheme[1] not in _SAFE_SCHEMES and len(link["before"]) % 2 == 0


def page_text(regions: Sequence[RegionText]) -> str:
    """Return the text of a page in reading order, without markup.

    Regions are separated by blank lines, the cells of a table by tabs, its rows by line breaks. Failed regions are left
    out.
    """
    texts = (_text(region).strip() for region in readable(regions))
    return "\n\n".join(text for text in texts if text)


def _text(region: RegionText) -> str:
    content = region.content
    if region.native_label not in TABLE_LABELS or not content.lstrip().startswith("<table"):
        return strip_fences(content)
    parser = _Cells()
    parser.feed(content)
    parser.close()
    return parser.text()


class _Cells(HTMLParser):
    """A collector of the text inside and outside of `<td>` and `<th>`."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._rows: list[list[str]] = [[]]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")
        elif tag == "br":
            self.handle_data(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self._rows.append([])

    def handle_data(self, data: str) -> None:
        if self._rows[-1]:
            self._rows[-1][-1] += data
        elif data.strip():
            self._rows[-1].append(data)

    def text(self) -> str:
        rows = ("\t".join(" ".join(cell.split()) for cell in row) for row in self._rows)
        return "\n".join(row for row in rows if row.strip())
