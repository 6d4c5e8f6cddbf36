"""The tables and formulas of a reading, and the form in which tables are compared. Pure; Beautiful Soup."""

from typing import TYPE_CHECKING

from resources.evaluation.benchmark import Reading
from resources.layout.regions import Task
from resources.states import LOST

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag

_UNWRAPPED = ("thead", "tbody", "tfoot", "b", "strong", "i", "em", "u", "span", "p", "div", "font", "a")
_DROPPED = ("colgroup", "col", "caption")
_SPANS = ("rowspan", "colspan")


def read_tables(reading: Reading) -> list[str]:
    """Every `<table>` of the regions in reading order; without regions that have one, of the page's markdown."""
    of_regions = [table for region in reading.regions for table in _tables(region.content or "")]
    return of_regions or _tables(reading.markdown)


def read_formulas(reading: Reading) -> list[str]:
    """The LaTeX of every region that was read as a formula, in reading order."""
    return [
        region.content
        for region in reading.regions
        if region.task is Task.FORMULA and region.content and region.state not in LOST
    ]


def plain_table(html: str) -> str:
    """The first table of an HTML text in a document of its own, as rows of `td` with spans; empty without one.

    Engines and benchmarks mark heads, sections and bold type or do not, and break lines where they like: both sides
    lose these, so that a score is of rows, cells and text. `sup` and `sub` stay.
    """
    soup = _parsed(html)
    table = soup.find("table")
    if table is None:
        return ""
    for inner in table.find_all(_DROPPED):
        inner.decompose()
    for inner in table.find_all(_UNWRAPPED):
        inner.unwrap()
    for line_break in table.find_all("br"):
        line_break.replace_with(" ")
    rows = []
    for row in table.find_all("tr"):
        cells = [cell for cell in row.find_all(["td", "th"]) if cell.find_parent("tr") is row]
        rows.append("<tr>" + "".join(_cell(cell) for cell in cells) + "</tr>")
    return f"<html><body><table>{''.join(rows)}</table></body></html>"


def _cell(cell: "Tag") -> str:
    spans = "".join(
        f' {name}="{span}"' for name in _SPANS if (span := str(cell.get(name, "1")).strip()) not in ("1", "")
    )
    return f"<td{spans}>{' '.join(cell.decode_contents().split())}</td>"


def _tables(html: str) -> list[str]:
    """The outermost tables of a text."""
    if "<table" not in html.lower():
        return []
    return [str(table) for table in _parsed(html).find_all("table") if table.find_parent("table") is None]


def _parsed(html: str) -> "BeautifulSoup":
    from bs4 import BeautifulSoup

    return BeautifulSoup(html, "html.parser")
