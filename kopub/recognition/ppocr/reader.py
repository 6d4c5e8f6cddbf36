"""Reading of text blocks and tables, line by line, with a recognition model of PP-OCR."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kopub.recognition.print_reader import OcrWord, PrintedText, PrintReader, find_rows, has_print
from kopub.recognition.tesseract.figure_model import keep_from_reporting

_BORDER = 4
"""Pixels of paper around a line, as PP-OCR's own detection leaves them."""


class LineReader(PrintReader):
    """A recognition model of PP-OCR on one core."""

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

    def close(self) -> None:
        """Do nothing, because the session goes with the reader."""

    def block(self, gray: NDArray[np.uint8]) -> PrintedText:
        """Read one block, uint8 (height, width), by its printed lines."""
        if not has_print(gray):
            return PrintedText("", ())
        words: list[OcrWord] = []
        for row in find_rows(gray):
            top, bottom = max(0, row.y1 - _BORDER), row.y2 + _BORDER
            line = gray[top:bottom, max(0, row.x1 - _BORDER) : row.x2 + _BORDER]
            self.seconds_left()
            rgb = np.repeat(line[:, :, None], 3, axis=2)
            result: Any = self._engine(rgb, use_det=False, use_cls=False, use_rec=True)
            if text := result.txts[0].strip():
                confidence = 100 * float(result.scores[0])
                words.append(OcrWord(text, confidence, (row.x1, row.y1, row.x2, row.y2), after_blank=False))
        return PrintedText("\n".join(word.text for word in words), words)
