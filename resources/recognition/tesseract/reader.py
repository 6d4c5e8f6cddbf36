"""Reads blocks of text, and tables by their cells, with Tesseract's engines."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from resources.layout.boxes import Box
from resources.layout.ink import paper_level
from resources.recognition.tesseract.bilingual import Word, english_is_better, joined, run_span, uncertain_runs
from resources.recognition.tesseract.leaders import erased, find_leaders, with_leaders
from resources.recognition.tesseract.rows import gaps, text_rows
from resources.recognition.tesseract.table_cells import find_cells, table_html
from resources.recognition.tesseract.tessdata import LANGUAGES

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BORDER = 12
"""Pixels of paper put around a row: Tesseract drops letters that touch the edge, and with more it sees a page."""
_CUT = 4
"""Pixels above and below the words of a line that still belong to it."""
_NARROWEST = 3
"""Pixels; a narrower run holds no letter."""
_EMPTY = 48
"""Grey levels between the lightest and darkest pixel of a cell without print."""


@dataclass(frozen=True, slots=True)
class BlockText:
    """The text of a block or table, and the words that Tesseract read in it, with how sure it was of each."""

    text: str
    words: Sequence[Word]


class Reader:
    """Belongs to one thread at a time. `folder` holds the traineddata files of the languages.

    Korean and English have an engine each: one engine of both reads Hangul for Latin. Other languages, and others
    beside these, are read by one engine of them all.
    """

    def __init__(self, folder: str, languages: Sequence[str] = LANGUAGES) -> None:
        import tesserocr

        line = tesserocr.PSM.SINGLE_LINE
        apart = set(languages) == set(LANGUAGES)
        main = LANGUAGES[0] if apart else "+".join(languages)
        self._main = tesserocr.PyTessBaseAPI(path=folder, lang=main, psm=line)
        self._english = tesserocr.PyTessBaseAPI(path=folder, lang=LANGUAGES[1], psm=line) if apart else None

        self._deadline = math.inf

    def limit(self, seconds: float) -> None:
        """Let whatever is read from now on take so long together; a reading that takes longer raises `RuntimeError`."""
        self._deadline = time.monotonic() + seconds

    def close(self) -> None:
        """Free the engines."""
        self._main.End()
        if self._english is not None:
            self._english.End()

    def block(self, gray: "NDArray[np.uint8]") -> BlockText:
        """Read one block, uint8 (height, width), line by line as printed."""
        leaders = find_leaders(gray)
        plain = erased(gray, leaders)
        rows = [words for row in text_rows(plain) if (words := self._words(self._main, plain, row))]
        lines = [self._corrected(plain, line) for line in with_leaders(rows, leaders)]
        return BlockText("\n".join(map(joined, lines)), [word for line in lines for word in line])

    def table(self, gray: "NDArray[np.uint8]", scale: float) -> BlockText:
        """Read a ruled table as `<table>` HTML, as a block when no grid is found."""
        cells = find_cells(gray, scale)
        if len(cells) < 2:
            return self.block(gray)
        read = [self._cell(gray, cell.box) for cell in cells]
        html = table_html(cells, [" ".join(cell.text.split()) for cell in read])
        return BlockText(html, [word for cell in read for word in cell.words])

    def _cell(self, gray: "NDArray[np.uint8]", box: Box) -> BlockText:
        inside = gray[box.y1 : box.y2, box.x1 : box.x2]
        if min(box.width, box.height) < _NARROWEST or int(np.ptp(inside)) < _EMPTY:
            return BlockText("", ())
        return self.block(inside)

    def _corrected(self, gray: "NDArray[np.uint8]", line: list[Word]) -> list[Word]:
        """A line of the Korean engine, its uncertain words read again by the English one where there is one."""
        runs = uncertain_runs(line) if self._english is not None else []
        if not runs:
            return line
        words = list(line)
        top = max(0, min(word.box[1] for word in line) - _CUT)
        bottom = max(word.box[3] for word in line) + _CUT
        white = gaps(gray[top:bottom])
        for start, end in reversed(runs):
            left, right = run_span(line, (start, end), white)
            if right - left < _NARROWEST:
                continue
            english = self._words(self._english, gray, Box(left, top, right, min(bottom, gray.shape[0])))
            if english_is_better(line[start:end], english):
                first = english[0]
                english[0] = Word(first.text, first.confidence, first.box, line[start].after_blank)
                words[start:end] = english
        return words

    def _words(self, engine: Any, gray: "NDArray[np.uint8]", row: Box) -> list[Word]:
        """The words that `engine` reads in one row of a block, with boxes in pixels of the block."""
        import cv2
        import tesserocr

        pixels = gray[row.y1 : row.y2, row.x1 : row.x2]
        border = (_BORDER, _BORDER, _BORDER, _BORDER)
        image = cv2.copyMakeBorder(pixels, *border, cv2.BORDER_CONSTANT, value=[paper_level(pixels)])
        height, width = image.shape
        engine.SetImageBytes(image.tobytes(), width, height, 1, width)
        left = self._deadline - time.monotonic()
        # A limit of 0 milliseconds would be none.
        engine.Recognize(0 if math.isinf(left) else max(1, round(1000 * left)))
        if time.monotonic() > self._deadline:
            raise RuntimeError("Tesseract took too long for this page (recognition.page_seconds)")
        found = engine.GetIterator()
        if found is None:
            return []
        words: list[Word] = []
        for item in tesserocr.iterate_level(found, tesserocr.RIL.WORD):
            if item.Empty(tesserocr.RIL.WORD):
                continue
            x1, y1, x2, y2 = item.BoundingBox(tesserocr.RIL.WORD)
            across, down = row.x1 - _BORDER, row.y1 - _BORDER
            text, confidence = item.GetUTF8Text(tesserocr.RIL.WORD), item.Confidence(tesserocr.RIL.WORD)
            blank = bool(words) and item.BlanksBeforeWord() > 0
            words.append(Word(text, confidence, (x1 + across, y1 + down, x2 + across, y2 + down), blank))
        return words
