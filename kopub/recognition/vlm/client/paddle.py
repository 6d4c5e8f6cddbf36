"""PaddleOCR-VL in client processes: its pictures and answers, with only OpenCV and numpy."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from kopub.fingerprints import CodeVersion
from kopub.layout.regions import Task
from kopub.recognition.tables import strip_placeholders
from kopub.recognition.vlm.client.region_images import (
    PATCH,
    CropImage,
    encode_image,
    line_height,
    model_size,
    pad_crop,
    relative_size,
    resize,
)

VERSION = CodeVersion("recognition.paddleocr_vl_crops", {1: "the first release"})
"""Version of how a region becomes images; the answer cache keeps answers to the same images."""
MIN_TOKENS = 144
"""112,896 pixels, the minimum of the model's own preprocessor, which enlarges smaller pictures."""
MAX_TOKENS = 1280
"""1,003,520 pixels, the preprocessor's maximum."""
_USUAL_LINE = 42.0
"""Height in pixels of a 10-point line at 300 dpi, assumed for a crop whose lines cannot be measured."""
_MOST_ASPECT = 190
"""Largest aspect ratio: the preprocessor refuses more than 200, and a strip one square wide grows only in length."""
_MOST_PARTS = 12
"""Most strips of a crop: a 300 dpi page has nine times the pixels that the model takes, so more would show no more."""


class PaddleImage(CropImage):
    """A crop as it is sent to PaddleOCR-VL."""

    __slots__ = ()

    @property
    def patches(self) -> int:
        """Number of squares of `PATCH` pixels in the crop before it was enlarged."""
        return max(1, round(self.tokens / max(1.0, self.scale) ** 2))


def sized_image(
    crop: NDArray[np.uint8], scale: float = 1.0, enough: float = 1.0, max_tokens: int = MAX_TOKENS
) -> PaddleImage:
    """Make the image of a crop at a size that the model's preprocessor keeps.

    It is resized and encoded once. `scale` is relative to its usual size; if the limits forbid that size, the scale is
    inverted, so that a second picture always differs from the first. `enough` is the scale, relative to the crop on the
    page, at which its print is large enough to be read.
    """
    crop = pad_crop(crop)
    height, width = crop.shape[:2]
    if enough < 1.0:
        width, height = (PATCH * math.ceil(side * enough / PATCH) for side in (width, height))
    size = model_size(width, height, max_tokens, MIN_TOKENS)
    if scale != 1.0:
        usual = size[0] * size[1] / PATCH**2
        for factor in (scale, 1 / scale):
            if MIN_TOKENS <= usual * factor**2 <= max_tokens:
                break
        else:
            # The limits are too narrow for either, so the direction with more room is taken.
            upwards = max(scale, 1 / scale)
            factor = upwards if max_tokens / usual > usual / MIN_TOKENS else 1 / upwards
        width, height = (max(1, round(side * factor)) for side in size)
        width, height = model_size(width, height, max_tokens, MIN_TOKENS)
        size = min(width, _MOST_ASPECT * height), min(height, _MOST_ASPECT * width)
    return PaddleImage(*encode_image(resize(crop, size)), *size, relative_size(size, crop))


def parts_needed(crop: NDArray[np.uint8], max_tokens: int = MAX_TOKENS, least_line: int | None = None) -> int:
    """Return the number of strips in which a crop is read.

    It is chosen so that lines keep `least_line` pixels; 1 if that is None. Lines that are lower than that on the page
    are not enlarged.
    """
    height, width = crop.shape[:2]
    tokens = width * height / PATCH**2
    if least_line is None or tokens <= max_tokens:
        return 1
    scale = min(1.0, least_line / (line_height(crop) or _USUAL_LINE))
    return min(_MOST_PARTS, math.ceil(tokens * scale**2 / max_tokens))


_INLINE = re.compile(r"\\\(((?:(?!\\[()]).)+?)\\\)", re.DOTALL)
_DISPLAY = re.compile(r"\\\[((?:(?!\\[\[\]]).)+?)\\\]", re.DOTALL)
"""Formulas in a text; the innermost pair of delimiters."""
_HTML = re.compile(r"<table.*<t[dh][\s>]", re.IGNORECASE | re.DOTALL)
_RULE = re.compile(r"[\s|:]*-{3}[\s|:-]*")
"""The line under the header of a markdown table."""


def clean(text: str, task: Task) -> str:
    """Return an answer as the content of a region.

    A clean answer is returned unchanged. A table in OTSL becomes HTML, and so do lines of cells between `|`, the form
    of charts. Formulas in texts and cells are put between `$` or `$$`; printed dollar signs stay.
    """
    if task is Task.FORMULA:
        return text
    before = None
    while text != before:
        # Once a pair is replaced, the pair around it becomes the innermost.
        before = text
        text = _DISPLAY.sub(lambda pair: f"$${pair[1].strip()}$$", text)
        text = _INLINE.sub(lambda pair: f"${pair[1].strip()}$", text)
    if task is Task.TABLE and not _HTML.search(text):
        table = otsl_to_html(text) if _TAG.search(text) else text
        text = table if _HTML.search(table) else _bars_to_html(table)
    return strip_placeholders(text) if task is Task.TABLE else text


def _bars_to_html(text: str) -> str:
    """Turn lines of cells between `|` into a table, and keep other text."""
    lines = list(filter(str.strip, escape(text, quote=False).split("\n")))
    barred = [at for at, line in enumerate(lines) if "|" in line]
    if len(barred) < 2:
        return text
    first, last = barred[0], barred[-1] + 1
    html = ""
    for line in lines[first:last]:
        if "|" in line and _RULE.fullmatch(line):
            continue
        cells = list(map(str.strip, line.split("|")))
        # A line may begin and end with a bar.
        if len(cells) > 2 and not cells[0] and not cells[-1]:
            cells = cells[1:-1]
        tag = "td" if html else "th"
        row = f"</{tag}><{tag}>".join(cells)
        html += f"<tr><{tag}>{row}</{tag}></tr>"
    before, after = "\n".join(lines[:first]), "\n".join(lines[last:])
    return "\n".join(filter(None, (before, f"<table>{html}</table>", after)))


_TAG = re.compile(r"<(fcel|ecel|lcel|ucel|xcel|nl)>")
_COVERED = "covered"
"""The kind of a cell that has become part of another one."""
_LEFT, _ABOVE = frozenset({"lcel", "xcel"}), frozenset({"ucel", "xcel"})
_MOST_SPANNED = 1000
"""Most rows and columns of a cell: the limit of `colspan` in HTML."""


@dataclass(slots=True)
class _OtslCell:
    kind: str
    text: str
    columns: int = 1
    rows: int = 1


def otsl_to_html(text: str) -> str:
    """Turn a table in OTSL into a `<table>` with spans, all text escaped.

    OTSL (Lysak et al., 2023, arXiv 2305.03393) writes a table as rows of cells: a full or empty cell, or one that
    belongs to the cell to its left, above it, or both; then the end of the row. Text before the first tag stays before
    the table, and text after the last row stays after it. A continuation cell with text of its own is a normal cell.
    Rows are filled up to the length of the longest, unless a runaway row would more than double the table; no row is
    cut.
    """
    before, rows, after = _parse_otsl(text)
    width = max(map(len, rows), default=0)
    if width * len(rows) <= 2 * sum(map(len, rows)):
        for row in rows:
            row += [_OtslCell("ecel", "") for _ in range(width - len(row))]
    _span(rows)
    # The number of rows that are wholly covered, and so dropped, before each row and in total.
    gone = [0]
    for row in rows:
        gone.append(gone[-1] + all(cell.kind == _COVERED for cell in row))
    html = ""
    for top, row in enumerate(rows):
        cells = ""
        for cell in row:
            if cell.kind == _COVERED:
                continue
            down = cell.rows - (gone[top + cell.rows] - gone[top])
            spans = f' rowspan="{down}"' if down > 1 else ""
            spans += f' colspan="{cell.columns}"' if cell.columns > 1 else ""
            lines = filter(None, map(str.strip, escape(cell.text, quote=False).split("\n")))
            cells += f"<td{spans}>{'<br>'.join(lines)}</td>"
        html += f"<tr>{cells}</tr>" if cells else ""
    if not html:
        return "\n".join(filter(None, (before.strip(), after)))
    parts = escape(before.strip(), quote=False), f"<table>{html}</table>", escape(after, quote=False)
    return "\n".join(filter(None, parts))


def _parse_otsl(text: str) -> tuple[str, list[list[_OtslCell]], str]:
    """Return the text before the table, its rows, and the text after it."""
    before, *tagged = _TAG.split(text)
    rows: list[list[_OtslCell]] = []
    row: list[_OtslCell] = []
    after = ""
    pairs = list(zip(tagged[::2], tagged[1::2], strict=True))
    for position, (kind, written) in enumerate(pairs):
        content = written.strip()
        if kind != "nl":
            row.append(_OtslCell("fcel" if content else kind, content))
            continue
        rows.append(row)
        row = []
        if content and position + 1 < len(pairs):
            row.append(_OtslCell("fcel", content))
        elif content:
            after = content
    if row:
        rows.append(row)
    return before, rows, after


def _span(rows: Sequence[Sequence[_OtslCell]]) -> None:
    """Give cells their spans, and mark cells that they cover; other continuations become empty."""
    for top, row in enumerate(rows):
        for left, cell in enumerate(row):
            if cell.kind not in ("fcel", "ecel"):
                continue
            right = left + 1
            while right < len(row) and row[right].kind in _LEFT and right - left < _MOST_SPANNED:
                right += 1
            below = top + 1
            while below < len(rows) and below - top < _MOST_SPANNED:
                kinds = [part.kind for part in rows[below][left:right]]
                if len(kinds) < right - left or kinds[0] not in _ABOVE or not (_LEFT | _ABOVE).issuperset(kinds):
                    break
                below += 1
            cell.columns, cell.rows = right - left, below - top
            for line in rows[top:below]:
                for part in line[left:right]:
                    if part is not cell:
                        part.kind = _COVERED
