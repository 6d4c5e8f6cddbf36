"""Reading of text blocks, and of tables cell by cell, with Tesseract's engines."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import cv2
import numpy as np
import tesserocr

from kopub.boxes import Box
from kopub.layout.grid import RuledCell, grid_lines, ruled_cells, table_html
from kopub.layout.ink import (
    INK_CONTRAST,
    PAPER_REACH,
    PRINT_CONTRAST,
    ink_contrast,
    ink_mask,
    paper_level,
    shrink,
    true_runs,
)
from kopub.layout.lines import RuledLines, erase_rules, estimate_em, find_rules
from kopub.layout.open_tables import open_cells
from kopub.recognition.tesseract import LANGUAGES, figures
from kopub.recognition.tesseract.words import (
    OcrWord,
    english_is_better,
    erase_leaders,
    find_leaders,
    insert_leaders,
    is_latin_word,
    join_words,
    run_span,
    uncertain_runs,
    unsure_words,
)
from kopub.states import TRIES_AGAIN

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BORDER = 12
"""Pixels of paper added around a row: Tesseract drops letters that touch the edge, and with more it sees a page."""
_CUT = 4
"""Pixels above and below the words of a line that still belong to it."""
_LOWEST = 30
"""Pixels of the lowest crop of a figure: the height of a digit of 8 points at 300 dpi."""
_NARROWEST = 3
"""Pixels of the narrowest run that can hold a letter."""
_EMPTY = 48
"""Grey levels between the lightest and darkest pixel of a cell without print."""


@dataclass(frozen=True, slots=True)
class BlockText:
    """The text of a block or table, and its words with their confidence."""

    text: str
    words: Sequence[OcrWord]
    doubted: Sequence[str] = ()
    """The figures that two readers read differently, `a or b`."""


class Reader:
    """Tesseract's engines for the languages, used by one thread at a time.

    `folder` holds the languages' traineddata files. Korean and English have an engine each, because an engine for both
    misreads Latin as Hangul. Any other combination of languages is read by one engine for all.
    """

    name: ClassVar[str] = "Tesseract"
    unsure: ClassVar[float] = 60.0
    """Mean confidence of a page below which it is in doubt: upright pages have at least 70, turned ones below 55."""

    def __init__(self, folder: str, languages: Sequence[str] = LANGUAGES) -> None:
        line = tesserocr.PSM.SINGLE_LINE
        apart = set(languages) == set(LANGUAGES)
        main = LANGUAGES[0] if apart else "+".join(languages)
        self._main = tesserocr.PyTessBaseAPI(path=folder, lang=main, psm=line)
        self._english = tesserocr.PyTessBaseAPI(path=folder, lang=LANGUAGES[1], psm=line) if apart else None

        model = figures.model()
        self._figures = None if model is None else figures.FigureModel(model)
        self._deadline = math.inf

    def limit(self, seconds: float) -> None:
        """Limit all further reading to `seconds` of this thread's processor time in total.

        Beyond it raises `RuntimeError`. On a busy machine a page takes many times as long by the clock.
        """
        self._deadline = time.thread_time() + seconds

    def close(self) -> None:
        """Free the engines."""
        self._main.End()
        if self._english is not None:
            self._english.End()

    def block(self, gray: "NDArray[np.uint8]") -> BlockText:
        """Read one block, uint8 (height, width), by its printed lines."""
        [read] = self._blocks([gray])
        return read

    def table(self, gray: "NDArray[np.uint8]", scale: float) -> BlockText:
        """Read a table as `<table>` HTML, or as a block without a grid."""
        return read_table(gray, scale, self._blocks)

    def _blocks(self, pictures: Sequence["NDArray[np.uint8]"]) -> list[BlockText]:
        """Read blocks, whose figures are read a second time."""
        blocks = [self._lines(gray) for gray in pictures]
        # What looks like a figure in a sentence is mostly Latin; a figure in a cell has signs that English lacks.
        alone = [[figures.is_figure(line) for line in lines] for _, lines in blocks]
        for (gray, lines), late in zip(blocks, alone, strict=True):
            lines[:] = [line if late[at] else self._corrected(gray, line) for at, line in enumerate(lines)]
        doubted: list[list[str]] = [[] for _ in blocks]
        unsure: dict[tuple[int, int], figures.SecondReading] = {}
        if self._figures is not None:
            places = [(block, at, run) for block, (_, lines) in enumerate(blocks)
                      for at, line in enumerate(lines) for run in figures.figure_runs(line)]  # fmt: skip
            crops = [_figure_crop(blocks[block][0], blocks[block][1][at], run) for block, at, run in places]
            second = [self._figures.read(crop) for crop in crops]
            # From the right, because a run of several words becomes one word.
            for (block, at, run), crop, figure in reversed(list(zip(places, crops, second, strict=True))):
                lines = blocks[block][1]
                lines[at], doubt = figures.with_figure(lines[at], run, figure, figures.has_raised_unit(crop))
                doubted[block] += [doubt] if doubt else []
                if run == (0, len(lines[at])) and not lines[at][0].confirmed:
                    unsure[block, at] = figure
        texts: list[BlockText] = []
        for block, (gray, lines) in enumerate(blocks):
            read = [self._corrected(gray, line) if alone[block][at] else line for at, line in enumerate(lines)]
            words = [[word for word in line if word.text] for line in read]
            for at, line in enumerate(words):
                if line and (figure := unsure.get((block, at))):
                    words[at], doubt = figures.settle(line, figure)
                    doubted[block] += [doubt] if doubt else []
            text = "\n".join(join_words(line) for line in words if line)
            texts.append(BlockText(text, [word for line in words for word in line], doubted[block]))
        return texts

    def _lines(self, gray: "NDArray[np.uint8]") -> "tuple[NDArray[np.uint8], list[list[OcrWord]]]":
        """Return a block without its leaders, and its lines with them."""
        if not has_print(gray):
            return gray, []
        leaders = find_leaders(gray)
        plain = erase_leaders(gray, leaders)
        # Ink without words may be a sign that Tesseract does not know.
        rows = [self._words(self._main, plain, row) or [OcrWord("", 0, row, False)] for row in find_rows(plain)]
        return plain, insert_leaders(rows, leaders)

    def _corrected(self, gray: "NDArray[np.uint8]", line: list[OcrWord]) -> list[OcrWord]:
        """Read the uncertain words of a Korean line again in English, if possible."""
        if self._english is None:
            return line
        line = self._replaced(gray, line, unsure_words(line), is_latin_word)
        return self._replaced(gray, line, uncertain_runs(line), english_is_better)

    def _replaced(
        self,
        gray: "NDArray[np.uint8]",
        line: list[OcrWord],
        runs: Sequence[tuple[int, int]],
        is_better: Callable[[Sequence[OcrWord], Sequence[OcrWord]], bool],
    ) -> list[OcrWord]:
        """Return the line with the English readings of `runs` that are better."""
        if not runs:
            return line
        words = list(line)
        top = max(0, min(word.box[1] for word in line) - _CUT)
        bottom = max(word.box[3] for word in line) + _CUT
        white = find_gaps(gray[top:bottom])
        for start, end in reversed(runs):
            left, right = run_span(line, (start, end), white)
            if right - left < _NARROWEST:
                continue
            english = self._words(self._english, gray, Box(left, top, right, min(bottom, gray.shape[0])))
            if is_better(line[start:end], english):
                first = english[0]
                english[0] = OcrWord(first.text, first.confidence, first.box, line[start].after_blank)
                words[start:end] = english
        return words

    def _recognize(self, engine: Any) -> None:
        """Let an engine read the row that it was given, within the limit.

        Tesseract's own limit is by the clock, so a row that it cuts off is read again while processor time is left.
        """
        while True:
            left, started = self._deadline - time.thread_time(), time.monotonic()
            # A limit of 0 milliseconds would mean no limit.
            engine.Recognize(0 if math.isinf(left) else max(1, round(1000 * left)))
            if time.thread_time() > self._deadline:
                raise RuntimeError(f"Tesseract took too long for this page (recognition.page_seconds): {TRIES_AGAIN}")
            if time.monotonic() - started < left:
                return

    def _words(self, engine: Any, gray: "NDArray[np.uint8]", row: Box) -> list[OcrWord]:
        """Return the words of one row of a block, in pixels of the block."""
        pixels = gray[row.y1 : row.y2, row.x1 : row.x2]
        border = (_BORDER, _BORDER, _BORDER, _BORDER)
        image = cv2.copyMakeBorder(pixels, *border, cv2.BORDER_CONSTANT, value=[paper_level(pixels)])
        height, width = image.shape
        engine.SetImageBytes(image.tobytes(), width, height, 1, width)
        self._recognize(engine)
        found = engine.GetIterator()
        if found is None:
            return []
        words: list[OcrWord] = []
        for item in tesserocr.iterate_level(found, tesserocr.RIL.WORD):
            if item.Empty(tesserocr.RIL.WORD):
                continue
            x1, y1, x2, y2 = item.BoundingBox(tesserocr.RIL.WORD)
            across, down = row.x1 - _BORDER, row.y1 - _BORDER
            text, confidence = item.GetUTF8Text(tesserocr.RIL.WORD), item.Confidence(tesserocr.RIL.WORD)
            blank = bool(words) and item.BlanksBeforeWord() > 0
            # A box may reach into the border, which in the block is where its neighbours are, or nothing.
            top, bottom = max(row.y1, y1 + down), min(row.y2, y2 + down)
            words.append(OcrWord(text, confidence, (max(row.x1, x1 + across), top, x2 + across, bottom), blank))
        return words


def _figure_crop(gray: "NDArray[np.uint8]", line: Sequence[OcrWord], run: tuple[int, int]) -> "NDArray[np.uint8]":
    """Return the pixels of a figure with the sign before it."""
    boxes = [word.box for word in line]
    top, bottom = max(0, min(box[1] for box in boxes) - _CUT), max(box[3] for box in boxes) + _CUT
    # A dash alone would be stretched to the height of a letter.
    spare = max(0, _LOWEST - (bottom - top)) // 2
    strip = gray[max(0, top - spare) : bottom + spare]
    white = find_gaps(strip)
    left, right = run_span(line, run, white)
    if run[0] == 0:
        left = white[0][1] if white and white[0][0] == 0 else 0
    if run[1] == len(line):
        right = white[-1][0] if white and white[-1][1] == gray.shape[1] else gray.shape[1]
    # The model wants paper around a figure; what is read of a neighbour would be worse.
    return strip[:, max(0, left - _CUT) : max(left + _NARROWEST, right + _CUT)]


def has_print(gray: "NDArray[np.uint8]") -> bool:
    """Return whether a block, uint8 (height, width), can hold letters."""
    return min(gray.shape) >= _NARROWEST and int(np.ptp(gray)) >= _EMPTY


def read_table(
    gray: "NDArray[np.uint8]",
    scale: float,
    read_blocks: Callable[[Sequence["NDArray[np.uint8]"]], Sequence[BlockText]],
) -> BlockText:
    """Read a table by its cells as HTML, or as a block without any."""
    cells = find_cells(gray, scale)
    if len(cells) < 2:
        return read_blocks([gray])[0]
    read = read_blocks([gray[box.y1 : box.y2, box.x1 : box.x2] for box in (cell.box for cell in cells)])
    html = table_html(cells, [" ".join(cell.text.split()) for cell in read])
    words = [word for cell in read for word in cell.words]
    return BlockText(html, words, [doubt for cell in read for doubt in cell.doubted])


def find_rows(gray: "NDArray[np.uint8]") -> list[Box]:
    """Return boxes around the rows of a block, uint8 (height, width), top to bottom.

    They are tight, and without specks. Tesseract's own line finding may take the short last line of a Korean paragraph
    as a sign of vertical text; given one row at a time, it has no lines to find.
    """
    ink = ink_mask(gray, PRINT_CONTRAST)
    width = int(np.any(ink, axis=0).sum())
    found = _join_slivers(true_runs(np.any(ink, axis=1)), width)
    rows = []
    for top, bottom in found:
        columns = np.flatnonzero(ink[top:bottom].any(axis=0))
        rows.append(Box(int(columns[0]), top, int(columns[-1]) + 1, bottom))
    return rows


def find_gaps(strip: "NDArray[np.uint8]") -> list[tuple[int, int]]:
    """Return the column runs (start, end) of a row without ink, including its margins."""
    return true_runs(~np.any(ink_mask(strip, PRINT_CONTRAST), axis=0))


def _join_slivers(rows: list[tuple[int, int]], width: int) -> list[tuple[int, int]]:
    """Join accents, dots and underlines to the row before them if it stays a row.

    In a narrow block of `width` inked columns, white rows also separate the parts of a syllable such as 끔, but these
    are closer to each other than lines of text.
    """
    if not rows:
        return []
    highest = max(end - start for start, end in rows)
    typical = float(np.median([end - start for start, end in rows if end - start > highest / 2]))
    whole: list[tuple[int, int]] = []
    for start, end in rows:
        last = whole[-1] if whole else (start, start)
        sliver = min(end - start, last[1] - last[0]) < typical / 2
        gap, height = start - last[1], end - last[0]
        part = width < 4 * height and gap < 0.1 * min(width, 2 * height)
        if whole and ((sliver and gap < 0.35 * typical and height < 1.6 * typical) or part):
            whole[-1] = (last[0], end)
        else:
            whole.append((start, end))
    return whole


def find_cells(gray: "NDArray[np.uint8]", scale: float) -> list[RuledCell]:
    """Find the cells of a table, uint8 (height, width), row by row.

    There are none if it has no grid. Rules are found on a copy scaled by `scale`, that of the page's working copy.
    """
    height, width = gray.shape
    small = shrink(gray, scale)
    contrast = ink_contrast(small, PAPER_REACH)
    em = estimate_em((contrast > INK_CONTRAST).astype(np.uint8))
    rules = find_rules(contrast, em)
    xs = grid_lines([(rule.x1, rule.x2) for rule in rules.vertical], small.shape[1], em)
    # The noise of a scan makes short rules, but those of a table reach from one line of its grid to another.
    level = tuple(rule for rule in rules.horizontal
                  if sum(rule.x1 - em / 2 < end and start < rule.x2 + em / 2 for start, end in xs) > 1)  # fmt: skip
    rules = RuledLines(level, rules.vertical)
    ys = grid_lines([(rule.y1, rule.y2) for rule in level], small.shape[0], em)
    if len(xs) > 2:
        return [_scale_cell(cell, scale, (width, height), 1 + 1.5 / scale) for cell in ruled_cells(xs, ys, rules)]
    ink = (contrast > INK_CONTRAST).astype(np.uint8)
    erase_rules(ink, rules)
    bands = [(above[1], below[0]) for above, below in pairwise(ys)]
    return [_scale_cell(cell, scale, (width, height), 0) for cell in open_cells(ink > 0, bands, em)]


def _scale_cell(cell: RuledCell, scale: float, size: tuple[int, int], trim: float) -> RuledCell:
    """Return the cell at full size, less `trim` on each side.

    The soft edge of a rule would be read as letters.
    """
    x1, y1 = round(cell.box.x1 / scale + trim), round(cell.box.y1 / scale + trim)
    x2, y2 = round(cell.box.x2 / scale - trim), round(cell.box.y2 / scale - trim)
    box = Box(max(0, x1), max(0, y1), min(size[0], max(x1, x2)), min(size[1], max(y1, y2)))
    return RuledCell(cell.row, cell.column, cell.row_span, cell.column_span, box)
