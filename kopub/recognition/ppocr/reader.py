"""Reading of text blocks and tables, line by line, with a recognition model of PP-OCR."""

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kopub.recognition.tesseract.figures import keep_from_reporting
from kopub.recognition.tesseract.reader import BlockText, find_rows, has_print, read_table
from kopub.recognition.tesseract.words import OcrWord
from kopub.states import TRIES_AGAIN

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BORDER = 4
"""Pixels of paper around a line, as PP-OCR's own detection leaves them."""


class LineReader:
    """A recognition model on one core, used by one thread at a time."""

    name: ClassVar[str] = "PP-OCR"
    unsure: ClassVar[float] = 80.0
    """Mean confidence of a page below which its text is in doubt: RapidOCR drops lines below 50, and most have 95."""

    def __init__(self, model: Path) -> None:
        keep_from_reporting()
        from rapidocr import RapidOCR

        parameters = {
            "Rec.model_path": str(model),
            "EngineConfig.onnxruntime.intra_op_num_threads": 1,
            "Global.log_level": "critical",
            "Global.text_score": 0.0,
            # A line of a wide page keeps its height.
            "Global.max_side_len": 10_000,
        }
        self._engine = RapidOCR(params=parameters)
        self._deadline = math.inf

    def limit(self, seconds: float) -> None:
        """Limit all further reading to `seconds` of this thread's processor time in total.

        Beyond it raises `RuntimeError`.
        """
        self._deadline = time.thread_time() + seconds

    def block(self, gray: "NDArray[np.uint8]") -> BlockText:
        """Read one block, uint8 (height, width), by its printed lines."""
        if not has_print(gray):
            return BlockText("", ())
        words: list[OcrWord] = []
        for row in find_rows(gray):
            top, bottom = max(0, row.y1 - _BORDER), row.y2 + _BORDER
            text, score = self._line(gray[top:bottom, max(0, row.x1 - _BORDER) : row.x2 + _BORDER])
            if text:
                words.append(OcrWord(text, 100 * score, (row.x1, row.y1, row.x2, row.y2), after_blank=False))
        return BlockText("\n".join(word.text for word in words), words)

    def table(self, gray: "NDArray[np.uint8]", scale: float) -> BlockText:
        """Read a table as `<table>` HTML, or as a block without a grid."""
        return read_table(gray, scale, lambda cells: [self.block(cell) for cell in cells])

    def _line(self, gray: "NDArray[np.uint8]") -> tuple[str, float]:
        """Return the text of a line and its confidence, 0 to 1."""
        if time.thread_time() > self._deadline:
            raise RuntimeError(f"PP-OCR took too long for this page (recognition.page_seconds): {TRIES_AGAIN}")
        read: Any = self._engine(np.repeat(gray[:, :, None], 3, axis=2), use_det=False, use_cls=False, use_rec=True)
        return read.txts[0].strip(), float(read.scores[0])
