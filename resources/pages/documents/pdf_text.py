"""Reads the text layer of a PDF's page with PDFium, and holds it against the pixels that were drawn of the page."""

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from resources.code_version import CodeVersion
from resources.pages.documents.text_layer import NO_MARK, Box, Mark, TextLayer, Word

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pypdfium2 import PdfPage

CODE = CodeVersion("pages.pdf_text", {1: "the first release"})
"""A new version reads every layer again; the pages are drawn for it, and come out the same."""

_DIVIDED = 0x02
"""What PDFium gives for a hyphen that ends a line within a word."""
_HIGH, _LOW = range(0xD800, 0xDC00), range(0xDC00, 0xE000)
"""The two halves of a character beyond the first 65,536."""
_SUBPIXELS = 64
"""PDFium places points on whole pixels: of a page this many times as large, so that boxes lie where they should."""
_CELLS = 256
"""Squares along the longer side of a page for its bare ink: three to a line of 10 points on A4."""
_INK = 32
"""Grey levels between the lightest and the darkest pixel of a place with print; more than JPEG noise."""
_LOOKED_AT = 6
"""Pixels of a square's side that are looked at: every other one at 300 dpi."""
_MARGIN = 0.25
"""Of a word's height around its box that is covered too: accents, smoothing and glyphs that leave their boxes."""
_SAME = 0.3
"""Of its height by which a word drawn again, to look bold, may be moved."""
_MOST = 200_000
"""Characters of a page, more than print has room for; what has more is taken for no layer."""


@dataclass(frozen=True, slots=True)
class _Placement:
    """From points of the PDF to pixels of the upright page: what the page's rotation and crop box make of them."""

    matrix: "NDArray[np.float64]"
    offset: "NDArray[np.float64]"

    @classmethod
    def of(cls, page: "PdfPage", width: int, height: int) -> "_Placement":
        from pypdfium2 import raw

        x, y = ctypes.c_int(), ctypes.c_int()

        def pixel(across: float, up: float) -> "NDArray[np.float64]":
            size = (width * _SUBPIXELS, height * _SUBPIXELS)
            raw.FPDF_PageToDevice(page.raw, 0, 0, *size, 0, across, up, x, y)
            return np.array((x.value, y.value), np.float64) / _SUBPIXELS

        reach = 100.0
        origin = pixel(0, 0)
        matrix = np.column_stack(((pixel(reach, 0) - origin) / reach, (pixel(0, reach) - origin) / reach))
        return cls(matrix, origin)

    def box(self, left: float, bottom: float, right: float, top: float) -> tuple[float, float, float, float]:
        corners = self.matrix @ np.array(((left, right), (bottom, top))) + self.offset[:, None]
        (x1, x2), (y1, y2) = np.sort(corners, axis=1)
        return float(x1), float(y1), float(x2), float(y2)


def read_layer(page: "PdfPage", pixels: "NDArray[np.uint8]") -> TextLayer | None:
    """The layer of an open page, drawn as `pixels` (height, width) or (height, width, BGR); None where it has no text.

    Raises `PdfiumError`.
    """
    import cv2

    height, width = pixels.shape[:2]
    text = page.get_textpage()
    try:
        count = text.count_chars()
        placement = _Placement.of(page, width, height)
        found = list(_words(text.raw, count, placement)) if count <= _MOST else []
    finally:
        text.close()
    if not found:
        return None
    grey = pixels if pixels.ndim == 2 else np.asarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY), np.uint8)
    within = [word for word in found if _is_within(word.box, (0, 0, width, height))]
    words = tuple(_held_against(word, grey) for word in _drawn_once(within))
    # What a crop box cuts away is on the sheet all the same.
    sheet = placement.box(*(page.get_mediabox() or (0, 0, *page.get_size())))
    outside = sum(len(word.text) for word in found if not _is_within(word.box, sheet))
    cell = max(1, -(-max(width, height) // _CELLS))
    return TextLayer(width, height, words, outside, cell, _bare(grey, words, cell))


class _Pending:
    """The characters of a word so far."""

    def __init__(self, marks: Mark) -> None:
        self.text = ""
        self.marks = marks
        self.boxes: list[tuple[float, float, float, float]] = []
        self.first = 0

    def add(self, index: int, letter: str, box: tuple[float, float, float, float], unmapped: bool) -> None:
        if not self.text:
            self.first = index
        self.text += letter
        self.boxes.append(box)
        if unmapped:
            self.marks |= Mark.UNMAPPED

    def word(self) -> Word:
        (x1, y1, _, _), (_, _, x2, y2) = (tuple(map(pick, zip(*self.boxes, strict=True))) for pick in (min, max))
        return Word(self.text, (round(x1), round(y1), round(x2), round(y2)), self.marks | self._direction())

    def _direction(self) -> Mark:
        """Where the last character stands from the first; one character alone has no direction."""
        first, last = self.boxes[0], self.boxes[-1]
        across, down = (last[axis] + last[axis + 2] - first[axis] - first[axis + 2] for axis in (0, 1))
        if abs(down) <= abs(across):
            return NO_MARK
        return Mark.DOWN if down > 0 else Mark.UP


def _words(page: ctypes.c_void_p, count: int, placement: _Placement) -> Iterator[Word]:
    """The words in the order of the PDF; PDFium adds the blanks and line ends that the print shows."""
    from pypdfium2 import raw

    left, right, bottom, top = (ctypes.c_double() for _ in range(4))
    pending = _Pending(Mark.LINE)
    for index in range(count):
        code = raw.FPDFText_GetUnicode(page, index)
        if code in _LOW and index and raw.FPDFText_GetUnicode(page, index - 1) in _HIGH:
            continue
        letter = _letter(code, raw.FPDFText_GetUnicode(page, index + 1) if code in _HIGH and index + 1 < count else 0)
        divided = code == _DIVIDED
        if not (divided or letter.isspace()):
            raw.FPDFText_GetCharBox(page, index, left, right, bottom, top)
            box = placement.box(left.value, bottom.value, right.value, top.value)
            pending.add(index, letter, box, raw.FPDFText_HasUnicodeMapError(page, index) == 1)
            continue
        ends_line = divided or letter in "\r\n"
        if pending.text:
            if divided:
                pending.marks |= Mark.HYPHEN
            yield _finished(page, pending)
            pending = _Pending(NO_MARK)
        if ends_line:
            pending.marks |= Mark.LINE
    if pending.text:
        yield _finished(page, pending)


def _finished(page: ctypes.c_void_p, pending: _Pending) -> Word:
    from pypdfium2 import raw

    drawn = raw.FPDFText_GetTextObject(page, pending.first)
    if drawn and raw.FPDFTextObj_GetTextRenderMode(drawn) == raw.FPDF_TEXTRENDERMODE_INVISIBLE:
        pending.marks |= Mark.INVISIBLE
    return pending.word()


def _letter(code: int, after: int) -> str:
    """A character of one or two UTF-16 units."""
    if code in _HIGH and after in _LOW:
        return chr(0x10000 + ((code - _HIGH.start) << 10) + after - _LOW.start)
    # What no string can hold still stands on the page.
    return "\ufffd" if not code or code in _HIGH or code in _LOW else chr(code)


def _is_within(box: Box, whole: tuple[float, float, float, float]) -> bool:
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    return whole[0] <= x < whole[2] and whole[1] <= y < whole[3]


def _drawn_once(words: Sequence[Word]) -> Iterator[Word]:
    """Without the words that stand where the same word stood just before: print is made bold so."""
    last: dict[str, Box] = {}
    for word in words:
        before, last[word.text] = last.get(word.text), word.box
        near = _SAME * min(word.box[2] - word.box[0], word.box[3] - word.box[1])
        if before is None or max(abs(a - b) for a, b in zip(word.box, before, strict=True)) > near:
            yield word


def _held_against(word: Word, grey: "NDArray[np.uint8]") -> Word:
    x1, y1, x2, y2 = word.box
    printed = grey[max(0, y1) : max(1, y2 + 1), max(0, x1) : max(1, x2 + 1)]
    return word if printed.size and int(np.ptp(printed)) >= _INK else replace(word, marks=word.marks | Mark.NO_INK)


def _bare(grey: "NDArray[np.uint8]", words: Sequence[Word], cell: int) -> "NDArray[np.bool_]":
    """(rows, columns) of squares of `cell` pixels: those with ink that no word covers."""
    height, width = grey.shape
    rows, columns = -(-height // cell), -(-width // cell)
    # A stroke of print is wider than the pixels that are passed over.
    step = max(1, cell // _LOOKED_AT)
    grey = np.ascontiguousarray(grey[::step, ::step])
    tops, lefts = (np.arange(count) * cell // step for count in (rows, columns))
    darkest = np.minimum.reduceat(np.minimum.reduceat(grey, tops, axis=0), lefts, axis=1)
    lightest = np.maximum.reduceat(np.maximum.reduceat(grey, tops, axis=0), lefts, axis=1)
    bare = lightest.astype(np.int16) - darkest >= _INK
    for word in words:
        x1, y1, x2, y2 = word.box
        margin = _MARGIN * min(x2 - x1, y2 - y1)
        top, left = (max(0, int((edge - margin) // cell)) for edge in (y1, x1))
        bare[top : int((y2 + margin) // cell) + 1, left : int((x2 + margin) // cell) + 1] = False
    return bare
