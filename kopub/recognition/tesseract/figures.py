"""A second reader of figures, which knows more signs than Tesseract.

PP-OCRv6 reads those that Tesseract's Korean data lack, but no Hangul.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kopub.engine import releases
from kopub.fingerprints import CodeVersion, file_sha256
from kopub.recognition.tesseract.words import CERTAIN, OcrWord, count_syllables, join_words

if TYPE_CHECKING:
    from numpy.typing import NDArray

CODE = CodeVersion("recognition.figures", {1: "the first release"})
NAME = "PP-OCRv6_rec_small.onnx"
INSTALL = "pip install 'kopub[figures]'"
_HEIGHT = 48
"""Pixels of a line's height that the model was trained on."""
_SQUEEZE = 0.8
"""Share of a line's width that is kept: every figure is still read, for a quarter less time."""
_BATCH = 16
_LIKE = str.maketrans("（），．％：－−–—一～", "(),.%:-----~")
"""Characters that the model, made for Chinese, gives for others of the same shape."""
_SQUARE, _CUBE = re.compile(r"(?<=\d)m(?:2|²)$"), re.compile(r"(?<=\d)m(?:3|³)$")
_FIGURE = re.compile(r"[△▲▽▼+\-±(]*\d+(?:[.,]\d+)*[)%℃㎡㎥]*|-")
_SHORT, _CLOSING = 16, ".,:;"
SURE = 0.8
"""Certainty of the least certain character from which a figure counts; wrong ones are mostly below."""


@dataclass(frozen=True, slots=True)
class SecondReading:
    """The text of a line, and the certainty (0 to 1) of its characters.

    It is that of the least certain one.
    """

    text: str
    certainty: float

    @property
    def is_figure(self) -> bool:
        """True for a single figure with its signs and its unit."""
        return bool(_FIGURE.fullmatch(self.text)) and self.certainty >= SURE


class FigureModel:
    """The recognition model of PP-OCRv6 on one core, used by one thread at a time."""

    def __init__(self, model: Path) -> None:
        import cv2

        # ONNX Runtime, which is faster, keeps a forked process from ending once it is imported.
        self._network = cv2.dnn.readNetFromONNX(str(model))
        self._characters = ["", *_characters(model), " "]

    def read(self, lines: Sequence["NDArray[np.uint8]"]) -> list[SecondReading]:
        """Read pictures of single lines, uint8 (height, width)."""
        read = [SecondReading("", 0.0)] * len(lines)
        # Lines of like length fill a batch without much padding.
        order = sorted(range(len(lines)), key=lambda at: lines[at].shape[1] / lines[at].shape[0])
        for start in range(0, len(order), _BATCH):
            part = order[start : start + _BATCH]
            self._network.setInput(_batch([lines[at] for at in part]))
            scores = self._network.forward()
            for at, of_line in zip(part, np.asarray(scores), strict=True):
                read[at] = self._decoded(of_line)
        return read

    def _decoded(self, scores: "NDArray[np.float32]") -> SecondReading:
        """Return the text of a line; of equal neighbours one counts."""
        best = scores.argmax(axis=1)
        kept = [at for at in np.flatnonzero(best).tolist() if at == 0 or best[at] != best[at - 1]]
        text = "".join(self._characters[best[at]] for at in kept).replace(" ", "").translate(_LIKE)
        text = _CUBE.sub("㎥", _SQUARE.sub("㎡", text))
        # The parts of a unit are uncertain characters for a model that lacks it.
        known = [at for at in kept if self._characters[best[at]] not in "m23²³㎡㎥"] if text[-1:] in "㎡㎥" else kept
        return SecondReading(text, min((float(scores[at, best[at]]) for at in known), default=0.0))


def _characters(model: Path) -> list[str]:
    """Return the characters of a model's scores, in order, from the metadata of its file."""
    # Fields of ONNX's `StringStringEntryProto`: the key, then the value after its length as a varint.
    _, _, value = model.read_bytes().rpartition(b"\x0a\x09character\x12")
    length = at = 0
    while True:
        length |= (value[at] & 0x7F) << 7 * at
        at += 1
        if value[at - 1] < 0x80:
            return value[at : at + length].decode().splitlines()


def _batch(lines: Sequence["NDArray[np.uint8]"]) -> "NDArray[np.float32]":
    import cv2

    scaled = []
    for line in lines:
        height, width = line.shape
        size = max(16, round(_SQUEEZE * _HEIGHT * width / height)), _HEIGHT
        scaled.append(cv2.resize(line, size, interpolation=cv2.INTER_AREA if height > _HEIGHT else cv2.INTER_LINEAR))
    batch = np.zeros((len(lines), 3, _HEIGHT, max(line.shape[1] for line in scaled)), np.float32)
    for at, line in enumerate(scaled):
        batch[at, :, :, : line.shape[1]] = line / np.float32(127.5) - 1
    return batch


def figure_runs(line: Sequence[OcrWord]) -> list[tuple[int, int]]:
    """Return ranges (start, end) of words that may be figures.

    A short line is one, even if it begins with a syllable, for which Tesseract takes some signs.
    """
    text = "".join(word.text for word in line)
    if len(text) <= _SHORT and count_syllables(text[1:]) == 0 and (len(text) <= 1 or any(map(str.isdigit, text))):
        return [(0, len(line))]
    runs: list[tuple[int, int]] = []
    for at, word in enumerate(line):
        if count_syllables(word.text) or word.confidence >= CERTAIN:
            continue
        if runs and runs[-1][1] == at and not word.after_blank:
            runs[-1] = (runs[-1][0], at + 1)
        else:
            runs.append((at, at + 1))
    return [
        (start, end) for start, end in runs if any(char.isdigit() for word in line[start:end] for char in word.text)
    ]


def with_figure(line: list[OcrWord], run: tuple[int, int], second: SecondReading) -> tuple[list[OcrWord], str | None]:
    """Return the line with the better reading of a run, and a doubt.

    The doubt names both readings if their digits differ."""
    words = line[slice(*run)]
    first = "".join(join_words(words).split())
    if first.rstrip(_CLOSING) == second.text:
        return line, None
    if not second.is_figure:
        # A square metre may look like a metre.
        is_length = second.certainty >= SURE and _FIGURE.fullmatch(second.text.removesuffix("m"))
        return line, f"{first} or {second.text}" if is_length and second.text.endswith("m") else None
    lefts, tops, rights, bottoms = zip(*(word.box for word in words), strict=True)
    box = min(lefts), min(tops), max(rights), max(bottoms)
    figure = OcrWord(second.text, 99 * second.certainty, box, words[0].after_blank)
    digits = _digits(second.text)
    # Tesseract takes a sign before a figure or the unit after it for one more digit.
    alike = {
        _digits(first),
        _digits(first[not second.text[0].isdigit() :]),
        _digits(first[: -1 if second.text[-1] in "㎡㎥" else None]),
    }
    doubt = f"{first} or {second.text}" if _digits(first) and digits not in alike else None
    return [*line[: run[0]], figure, *line[run[1] :]], doubt


def _digits(text: str) -> str:
    return "".join(filter(str.isdigit, text))


def model() -> Path | None:
    """Return the model file; None unless its package is installed."""
    package = find_spec("rapidocr")
    if package is None or package.origin is None:
        return None
    path = Path(package.origin).parent / "models" / NAME
    return path if path.is_file() else None


def identity() -> dict[str, str]:
    """Return what determines the second readings; empty without the model."""
    if (path := model()) is None:
        return {}
    return {CODE.name: str(CODE.number), "figures": file_sha256(path), **releases("opencv-python-headless")}
