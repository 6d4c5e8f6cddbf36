"""Reading of printed lines with Tesseract's engines, and of figures with a second reader."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import cv2
import numpy as np
import tesserocr
from numpy.typing import NDArray

from kopub.boxes import Box
from kopub.layout.ink import paper_level
from kopub.recognition.print_reader import NARROWEST, OcrWord, PrintedText, PrintReader, find_gaps, find_rows, has_print
from kopub.recognition.tesseract import LANGUAGES, figure_model, figures
from kopub.recognition.tesseract.leaders import erase_leaders, find_leaders, insert_leaders
from kopub.recognition.tesseract.words import (
    english_is_better,
    is_latin_word,
    join_words,
    run_span,
    uncertain_runs,
    unsure_words,
)

_BORDER = 12
"""Pixels of paper added around a row: Tesseract drops letters that touch the edge, and with more it sees a page."""
_CUT = 4
"""Pixels above and below the words of a line that still belong to it."""
_LOWEST = 30
"""Pixels of the lowest crop of a figure: the height of a digit of 8 points at 300 dpi."""


class Reader(PrintReader):
    """Tesseract's engines for the languages.

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

        model = figure_model.model()
        self._figures = None if model is None else figure_model.FigureModel(model)

    def close(self) -> None:
        self._main.End()
        if self._english is not None:
            self._english.End()

    def block(self, gray: NDArray[np.uint8]) -> PrintedText:
        """Read one block by its printed lines, and its figures a second time."""
        if not has_print(gray):
            return PrintedText("", ())
        leaders = find_leaders(gray)
        gray = erase_leaders(gray, leaders)
        # Ink without words may be a sign that Tesseract does not know.
        rows = [self._words(self._main, gray, row) or [OcrWord("", 0, row, False)] for row in find_rows(gray)]
        texts: list[str] = []
        words: list[OcrWord] = []
        doubted: list[str] = []
        for printed in insert_leaders(rows, leaders):
            # What looks like a figure in a sentence is mostly Latin; a figure in a cell has signs that English lacks.
            is_figure = figures.is_figure(printed)
            line = printed if is_figure else self._corrected(gray, printed)
            line, other, doubts = self._with_figures(gray, line)
            doubted += doubts
            if is_figure:
                line = self._corrected(gray, line)
            line = [word for word in line if word.text]
            if line and other is not None:
                line, doubt = figures.settle(line, other)
                doubted += [doubt] if doubt else []
            if line:
                texts.append(join_words(line))
                words += line
        return PrintedText("\n".join(texts), words, doubted)

    def _words(self, engine: Any, gray: NDArray[np.uint8], row: Box) -> list[OcrWord]:
        """Return the words of one row of a block, in pixels of the block."""
        pixels = gray[row.y1 : row.y2, row.x1 : row.x2]
        border = (_BORDER, _BORDER, _BORDER, _BORDER)
        image = cv2.copyMakeBorder(pixels, *border, cv2.BORDER_CONSTANT, value=[paper_level(pixels)])
        height, width = image.shape
        engine.SetImageBytes(image.tobytes(), width, height, 1, width)
        # Tesseract's own limit is by the clock, so a row that it cuts off is read again while processor time is left.
        cut_off = True
        while cut_off:
            left, started = self.seconds_left(), time.monotonic()
            # A limit of 0 milliseconds would mean no limit.
            engine.Recognize(0 if math.isinf(left) else max(1, round(1000 * left)))
            self.seconds_left()
            cut_off = time.monotonic() - started >= left
        items = engine.GetIterator()
        words: list[OcrWord] = []
        for item in () if items is None else tesserocr.iterate_level(items, tesserocr.RIL.WORD):
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

    def _corrected(self, gray: NDArray[np.uint8], line: list[OcrWord]) -> list[OcrWord]:
        """Return a Korean line with the English readings of its uncertain words that are better."""
        if self._english is None:
            return line
        for find_runs, is_better in ((unsure_words, is_latin_word), (uncertain_runs, english_is_better)):
            if not (runs := find_runs(line)):
                continue
            words = list(line)
            top = max(0, min(word.box[1] for word in line) - _CUT)
            bottom = max(word.box[3] for word in line) + _CUT
            gaps = find_gaps(gray[top:bottom])
            for start, end in reversed(runs):
                left, right = run_span(line, (start, end), gaps)
                if right - left < NARROWEST:
                    continue
                english = self._words(self._english, gray, Box(left, top, right, min(bottom, gray.shape[0])))
                if not english:
                    # A neighbour's descenders above the words may leave nothing to read.
                    english = self._words(self._english, gray, Box(left, top + _CUT, right, bottom - _CUT))
                if is_better(line[start:end], english):
                    first = english[0]
                    english[0] = OcrWord(first.text, first.confidence, first.box, line[start].after_blank)
                    words[start:end] = english
            line = words
        return line

    def _with_figures(
        self, gray: NDArray[np.uint8], line: list[OcrWord]
    ) -> tuple[list[OcrWord], figure_model.SecondReading | None, list[str]]:
        """Return a line with the second reader's figures, and its doubts about others.

        Between them is its reading of a whole line in which it knows no figure.
        """
        if self._figures is None:
            return line, None, []
        runs = figures.figure_runs(line)
        if not runs:
            return line, None, []
        top, bottom = max(0, min(word.box[1] for word in line) - _CUT), max(word.box[3] for word in line) + _CUT
        # A dash alone would be stretched to the height of a letter.
        spare = max(0, _LOWEST - (bottom - top)) // 2
        strip = gray[max(0, top - spare) : bottom + spare]
        gaps = find_gaps(strip)
        printed = line
        other: figure_model.SecondReading | None = None
        doubts: list[str] = []
        # From the right, because a run of several words becomes one word.
        for run in reversed(runs):
            left, right = run_span(printed, run, gaps)
            if run[0] == 0:
                left = gaps[0][1] if gaps and gaps[0][0] == 0 else 0
            if run[1] == len(printed):
                right = gaps[-1][0] if gaps and gaps[-1][1] == gray.shape[1] else gray.shape[1]
            # The model wants paper around a figure; what is read of a neighbour would be worse.
            crop = strip[:, max(0, left - _CUT) : max(left + NARROWEST, right + _CUT)]
            reading = self._figures.read(crop)
            if reading.text.endswith("m") and figures.has_raised_unit(crop):
                reading = replace(reading, text=f"{reading.text}2")
            line, doubt = figures.with_figure(line, run, reading)
            doubts += [doubt] if doubt else []
            if run == (0, len(line)) and not line[0].confirmed:
                other = reading
        return line, other, doubts
