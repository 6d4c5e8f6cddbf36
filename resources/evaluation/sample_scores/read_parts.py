"""The tables and formulas of a reading, and the form in which tables are compared. Pure."""

import re

from resources.evaluation.benchmark import Reading
from resources.layout.regions import Task
from resources.recognition.vlm.tables_html import clean_tables
from resources.states import LOST

_TABLE = re.compile(r"<(/?)table\b[^>]*>", re.IGNORECASE)
_FORM = re.compile(r"</?(?:a|font|math|overline|strike|underline)\b[^>]*>|<!--.*?-->", re.IGNORECASE | re.DOTALL)
"""Tags that say how a text looks and that `clean_tables` would take for printed ones; comments."""
_FIRST = re.compile(r"<table>(?:<caption>.*?</caption>)?(.*?)</table>", re.DOTALL)
_BREAK, _EDGE = re.compile(r"\s*<br>\s*"), re.compile(r"(<td[^>]*>) | (?=</td>)")


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
    tables = _tables(html)
    found = _FIRST.search(clean_tables(_FORM.sub("", tables[0]))) if tables else None
    if found is None:
        return ""
    rows = found[1].replace("<th", "<td").replace("</th>", "</td>")
    rows = _EDGE.sub(r"\1", _BREAK.sub(" ", rows))
    return f"<html><body><table>{rows}</table></body></html>"


def _tables(html: str) -> list[str]:
    """The outermost tables of a text; one that is not closed goes on to its end."""
    found, depth, start = [], 0, 0
    for tag in _TABLE.finditer(html):
        if not tag[1]:
            start = start if depth else tag.start()
            depth += 1
        elif depth:
            depth -= 1
            if not depth:
                found.append(html[start : tag.end()])
    return [*found, html[start:]] if depth else found
