"""Readers of printed lines: the rows of a block, and the cells of a table."""

import math
import re
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kopub.boxes import Box
from kopub.layout.grid import RuledCell, RuledLines, grid_lines, ruled_cells, table_html
from kopub.layout.ink import PAPER_REACH, PRINT_CONTRAST, ink_contrast, ink_mask, shrink
from kopub.layout.lines import part_rules
from kopub.layout.open_tables import open_cells
from kopub.layout.runs import merge_intervals, true_runs
from kopub.states import TRIES_AGAIN

CERTAIN = 100
"""Confidence of a word that was measured, not read (dot leaders); it is never read again."""
NARROWEST = 3
"""Pixels of the narrowest run that can hold a letter."""
_EMPTY = 48
"""Grey levels between the lightest and darkest pixel of a cell without print."""
_DASH = 0.2, 0.7, 1.6, 0.6
"""Greatest height and width of a dash as shares of its cell's height, its least width by height, and how full it is."""
FIGURE = r"[△▲▽▼+\-±(]*(?:\d{1,3}(?:,\d{3})+|\d+)"
"""The form of a figure with its signs, up to its decimals."""
_SIGNS = "%℃㎡㎥"
_FIGURE = re.compile(rf"{FIGURE}(?:\.\d{{1,2}})?[)]*(?P<unit>[{_SIGNS}가-힣]*|[a-z]{{1,2}})")
"""The signs that are units, and a figure of a column with its unit."""
_CORE = re.compile(r"\d{1,3}(?:[.,]\d{3})+|\d+(?:\.\d+)?")
_HANGUL = re.compile("[가-힣]")
_MANY, _SHORT, _COMMON, _SURE = 0.6, 20, 5, 85
"""Share of a column that has one form, most letters of a figure with its signs, how often units are there, and the
confidence of a unit that is there once: misread ones have at most 82."""
_GUTTER, _LINE = 0.8, 0.25
"""Least white between lines beside each other, and least height of one of several, in heights of what they fill."""


@dataclass(frozen=True, slots=True)
class OcrWord:
    """A word that was read, with its confidence and its position.

    `box` is (x1, y1, x2, y2) in pixels of the block, and `after_blank` whether white space precedes it. Tesseract's
    Korean model splits words into syllables, and those without a blank before them belong together. A figure that the
    second reader knows is `confirmed`, and not read again.
    """

    text: str
    confidence: float
    box: tuple[int, int, int, int]
    after_blank: bool
    confirmed: bool = False


def mean_confidence(words: Sequence[OcrWord]) -> float:
    """Return the mean confidence, weighted by letters; 0 for no words."""
    letters = sum(len(word.text) for word in words)
    return sum(len(word.text) * word.confidence for word in words) / letters if letters else 0.0


@dataclass(frozen=True, slots=True)
class PrintedText:
    """The text of a block or table, and its words with their confidence."""

    text: str
    words: Sequence[OcrWord]
    doubted: Sequence[str] = ()
    """The figures that two readers read differently, `a or b`."""


class PrintReader(ABC):
    """A reader of text blocks and tables, used by one thread at a time.

    Below a mean confidence of `unsure` on a page, its texts are in doubt. What it refuses raises `RuntimeError`.
    """

    name: ClassVar[str]
    unsure: ClassVar[float]

    _deadline = math.inf

    def limit(self, seconds: float) -> None:
        """Limit all further reading to `seconds` of this thread's processor time in total.

        Beyond it raises `RuntimeError`. On a busy machine a page takes many times as long by the clock.
        """
        self._deadline = time.thread_time() + seconds

    def seconds_left(self) -> float:
        """Return how much of the limit is left; raises `RuntimeError` if none is."""
        left = self._deadline - time.thread_time()
        if left < 0:
            raise RuntimeError(f"{self.name} took too long for this page (recognition.page_seconds): {TRIES_AGAIN}")
        return left

    @abstractmethod
    def close(self) -> None:
        """Free the engines."""

    @abstractmethod
    def block(self, gray: NDArray[np.uint8]) -> PrintedText:
        """Read one block, uint8 (height, width), by its printed lines."""

    def table(self, gray: NDArray[np.uint8], scale: float) -> PrintedText:
        """Read a table by its cells as `<table>` HTML, or as a block without any."""
        cells = find_cells(gray, scale)
        if len(cells) < 2:
            return self.block(gray)
        texts: list[str] = []
        words: list[OcrWord] = []
        doubted: list[str] = []
        sure: list[float] = []
        for cell in cells:
            pixels = gray[cell.box.y1 : cell.box.y2, cell.box.x1 : cell.box.x2]
            block = PrintedText("-", ()) if is_dash(pixels) else self.block(pixels)
            texts.append(" ".join(block.text.split()))
            words += block.words
            sure.append(block.words[-1].confidence if block.words else CERTAIN)
            doubted += block.doubted
        return PrintedText(table_html(cells, texts), words, [*doubted, *odd_figures(cells, texts, sure)])


def has_print(gray: NDArray[np.uint8]) -> bool:
    """Return whether a block, uint8 (height, width), can hold letters."""
    return min(gray.shape) >= NARROWEST and int(np.ptp(gray)) >= _EMPTY


def odd_figures(cells: Sequence[RuledCell], texts: Sequence[str], confidences: Sequence[float]) -> list[str]:
    """Return the figures unlike those of their column, as `read or likely`.

    A misread sign or unit shows there alone: `35,335m` below many ㎡, `1309건` among commas, `A144,881`. Of two columns
    that may be one, both ways are named, `12 건 or 12; 건`. `confidences` are those of the last word of each cell.
    """
    doubted: list[str] = []
    for (_, before), (cell, text) in pairwise(zip(cells, texts, strict=True)):
        if not cell.apart and text and before and any(map(str.isdigit, before + text)):
            doubted.append(f"{before} {text} or {before}; {text}")
    columns: dict[int, list[tuple[str, float]]] = {}
    for cell, text, sure in zip(cells, texts, confidences, strict=True):
        if text and cell.column_span == 1:
            columns.setdefault(cell.column, []).append(("".join(text.split()), sure))
    for column in columns.values():
        figures = [_FIGURE.fullmatch(text) for text, _ in column]
        units = Counter(figure["unit"] for figure in figures if figure)
        if units.total() < _MANY * len(column):
            continue
        [(usual, count)] = units.most_common(1)
        signed = usual in tuple(_SIGNS) and count >= _MANY * len(column)
        for row, ((text, sure), figure) in enumerate(zip(column, figures, strict=True)):
            core = _CORE.search(text)
            likely = re.sub(r"\.(?=\d{3})", ",", core[0]) if core else "?"
            if row > 0 and likely.isdigit() and any("," in other for other, _ in column):
                likely = f"{int(likely):,}"
            # A Latin unit is a misreading of the usual one, as is any or none for a sign, and one that is there once.
            unit = figure["unit"] if figure else ""
            is_rare = units[unit] == 1 and (sure < _SURE or units.total() > _COMMON * (len(units) - 1))
            is_foreign = unit not in ("", "%") if unit.isascii() else row > 0 and is_rare
            is_misread = unit != usual and (is_foreign or (row > 0 and signed))
            is_odd = figure is None or is_misread or (core and likely != core[0])
            has_figure = core or (row > 0 and text.endswith(tuple(filter(None, units))))
            if is_odd and has_figure and not _HANGUL.match(text) and len(text) <= _SHORT:
                plain = text.removesuffix(unit).replace(core[0], likely) if figure and core else likely
                doubted.append(f"{text} or {plain}{usual if figure is None or is_misread else unit}")
    return doubted


def is_dash(gray: NDArray[np.uint8]) -> bool:
    """Return whether a cell, uint8 (height, width), holds a dash alone.

    Readers take it for any sign.
    """
    if not has_print(gray):
        return False
    ink = ink_mask(gray, PRINT_CONTRAST)
    rows, columns = (true_runs(np.any(ink, axis=axis)) for axis in (1, 0))
    if len(rows) != 1 or len(columns) != 1:
        return False
    (top, bottom), (left, right) = rows[0], columns[0]
    high, wide, height = bottom - top, right - left, gray.shape[0]
    highest, widest, slimmest, fullest = _DASH
    is_level = high <= highest * height and slimmest * high <= wide <= widest * height
    is_amid = 0.25 * height < (top + bottom) / 2 < 0.75 * height
    return bool(is_level and is_amid and ink[top:bottom, left:right].mean() > fullest)


def find_rows(gray: NDArray[np.uint8]) -> list[Box]:
    """Return boxes around the rows of a block, uint8 (height, width), top to bottom.

    They are tight, and without specks. Tesseract's own line finding may take the short last line of a Korean paragraph
    as a sign of vertical text; given one row at a time, it has no lines to find.
    """
    ink = ink_mask(gray, PRINT_CONTRAST)
    runs = true_runs(np.any(ink, axis=1))
    if not runs:
        return []
    heights = np.array([end - start for start, end in runs])
    typical = float(np.median(heights[heights > heights.max() / 2]))
    width = int(np.any(ink, axis=0).sum())
    rows: list[tuple[int, int]] = []
    for start, end in runs:
        top, bottom = rows[-1] if rows else (start, start)
        gap, height = start - bottom, end - top
        # Accents, dots and underlines belong to the row before them if it stays a row.
        is_sliver = min(end - start, bottom - top) < typical / 2
        joins = is_sliver and gap < 0.35 * typical and height < 1.6 * typical
        # In a narrow block white rows also separate the parts of a syllable such as 끔, but these are closer to each
        # other than lines of text.
        if rows and (joins or (width < 4 * height and gap < 0.1 * min(width, 2 * height))):
            rows[-1] = (top, end)
        else:
            rows.append((start, end))
    boxes: list[Box] = []
    for top, bottom in rows:
        inked, height = np.any(ink[top:bottom], axis=0), bottom - top
        # Lines beside each other that are not level, as two addresses of a letter, have no white row between them.
        columns = merge_intervals(true_runs(inked), _GUTTER * height)
        lines: list[list[Box]] = []
        for left, right in columns if len(columns) > 1 else ():
            of_column = find_rows(gray[top:bottom, left:right])
            lines.append([Box(box.x1 + left, box.y1 + top, box.x2 + left, box.y2 + top) for box in of_column])
        if any(sum(box.height >= _LINE * height for box in column) > 1 for column in lines):
            boxes += chain.from_iterable(lines)
        else:
            boxes.append(Box(columns[0][0], top, columns[-1][1], bottom))
    return boxes


def find_gaps(strip: NDArray[np.uint8]) -> list[tuple[int, int]]:
    """Return the column runs (start, end) of a row without ink, including its margins."""
    return true_runs(~np.any(ink_mask(strip, PRINT_CONTRAST), axis=0))


def find_cells(gray: NDArray[np.uint8], scale: float) -> list[RuledCell]:
    """Find the cells of a table, uint8 (height, width), row by row.

    There are none if it has no grid. Rules are found on a copy scaled by `scale`, that of the page's working copy.
    """
    ink, rules, em = part_rules(ink_contrast(shrink(gray, scale), PAPER_REACH))
    xs = grid_lines([(rule.x1, rule.x2) for rule in rules.vertical], ink.shape[1], em)
    # The noise of a scan makes short rules, but those of a table reach from one line of its grid to another.
    level: list[Box] = []
    for rule in rules.horizontal:
        if sum(rule.x1 - em / 2 < end and start < rule.x2 + em / 2 for start, end in xs) > 1:
            level.append(rule)
    ys = grid_lines([(rule.y1, rule.y2) for rule in level], ink.shape[0], em)
    if len(xs) > 2:
        # The soft edge of a rule would be read as letters.
        cells, trim = ruled_cells(xs, ys, RuledLines(tuple(level), rules.vertical)), 1 + 1.5 / scale
    else:
        cells, trim = open_cells(ink > 0, [(above[1], below[0]) for above, below in pairwise(ys)], em), 0.0
    height, width = gray.shape
    scaled: list[RuledCell] = []
    for cell in cells:
        x1, y1 = round(cell.box.x1 / scale + trim), round(cell.box.y1 / scale + trim)
        x2, y2 = round(cell.box.x2 / scale - trim), round(cell.box.y2 / scale - trim)
        box = Box(max(0, x1), max(0, y1), min(width, max(x1, x2)), min(height, max(y1, y2)))
        scaled.append(replace(cell, box=box))
    return scaled
