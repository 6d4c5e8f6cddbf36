"""Answers of PaddleOCR-VL: tables and charts as HTML, formulas between dollar signs. Pure."""

import re
from html import escape

from resources.layout.regions import Task
from resources.recognition.vlm.paddle.otsl import is_otsl, otsl_to_html
from resources.recognition.vlm.placeholder_cells import without_placeholders

_INLINE = re.compile(r"\\\(((?:(?!\\[()]).)+?)\\\)", re.DOTALL)
_DISPLAY = re.compile(r"\\\[((?:(?!\\[\[\]]).)+?)\\\]", re.DOTALL)
"""Formulas in a text; the innermost pair of delimiters."""
_HTML = re.compile(r"<table.*<t[dh][\s>]", re.IGNORECASE | re.DOTALL)
_RULE = re.compile(r"[\s|:]*-{3,}[\s|:-]*")
"""The line under the header of a markdown table."""


def clean(text: str, task: Task) -> str:
    """An answer as the content of a region; a clean one comes back as it is.

    A table in OTSL becomes HTML, and so do lines of cells between `|`, as charts come. Formulas in texts and cells
    stand between `$` or `$$`; a printed dollar sign stays.
    """
    if task is Task.FORMULA:
        return text
    text = _with_dollars(text)
    if task is Task.TABLE and not _HTML.search(text):
        table = otsl_to_html(text) if is_otsl(text) else text
        text = table if _HTML.search(table) else _bars_to_html(table)
    return without_placeholders(text) if task is Task.TABLE else text


def _with_dollars(text: str) -> str:
    # Where one pair is taken out, the one around it is the innermost.
    while True:
        changed = _DISPLAY.sub(lambda found: f"$${found[1].strip()}$$", text)
        changed = _INLINE.sub(lambda found: f"${found[1].strip()}$", changed)
        if changed == text:
            return text
        text = changed


def _bars_to_html(text: str) -> str:
    """Lines of cells as a table with a header, what stands before and after them as it is; other text unchanged."""
    lines = [line for line in text.split("\n") if line.strip()]
    barred = [at for at, line in enumerate(lines) if "|" in line]
    if len(barred) < 2:
        return text
    first, last = barred[0], barred[-1] + 1
    rows = [_cells(line) for line in lines[first:last] if not ("|" in line and _RULE.fullmatch(line))]
    html = "".join(_row(row, "td" if number else "th") for number, row in enumerate(rows))
    before, after = (escape("\n".join(part), quote=False) for part in (lines[:first], lines[last:]))
    return "\n".join(part for part in (before, f"<table>{html}</table>", after) if part)


def _cells(line: str) -> list[str]:
    """The cells of a line, which may begin and end with a bar."""
    cells = [cell.strip() for cell in line.split("|")]
    if len(cells) > 2 and not cells[0] and not cells[-1]:
        return cells[1:-1]
    return cells


def _row(cells: list[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell, quote=False)}</{tag}>' for cell in cells)}</tr>"
