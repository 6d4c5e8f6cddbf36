"""A page as plain text, for embedding, search and comparison. Pure."""

from collections.abc import Sequence
from html.parser import HTMLParser

from resources.recognition.code_fences import without_fences
from resources.recognition.readings import RegionText, readable
from resources.texts.markdown import TABLE_LABELS


def page_text(regions: Sequence[RegionText]) -> str:
    """The text of a page in reading order, without markup; regions a blank line apart.

    The cells of a table are a tab apart, its rows a line. Failed regions are left out.
    """
    texts = (_text(region).strip() for region in readable(regions))
    return "\n\n".join(text for text in texts if text)


def _text(region: RegionText) -> str:
    content = region.content
    if region.native_label not in TABLE_LABELS or not content.lstrip().startswith("<table"):
        return without_fences(content)
    parser = _Cells()
    parser.feed(content)
    parser.close()
    return parser.text()


class _Cells(HTMLParser):
    """Collects the text of `<td>` and `<th>`, and what stands outside of them."""

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

    def handle_data(self, data: str) -> None:
        if self._rows[-1]:
            self._rows[-1][-1] += data
        elif data.strip():
            self._rows[-1].append(data)

    def text(self) -> str:
        rows = ("\t".join(" ".join(cell.split()) for cell in row) for row in self._rows)
        return "\n".join(row for row in rows if row.strip())
