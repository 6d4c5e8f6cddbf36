"""The text layer of a PDF page: words and their positions.

It holds only facts. The reader of a layer judges whether it can be trusted, so a new judgement does not need the PDF.
The types do not load a PDF library.
"""

import base64
import ctypes
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntFlag
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np

from kopub.errors import SourceError, counted, first_line, quoted
from kopub.fingerprints import CodeVersion, fingerprint

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pypdfium2 import PdfObject, PdfPage

Box = tuple[int, int, int, int]
"""(x1, y1, x2, y2) in pixels of the upright page."""


class Mark(IntFlag):
    """Properties of a word besides its text and position."""

    INVISIBLE = 1
    """Drawn without stroke or fill, as OCR programs write their text over a scan."""
    NO_INK = 2
    """Nothing is printed at its position."""
    UNMAPPED = 4
    """It has a character for which its font has no Unicode mapping."""
    HYPHEN = 8
    """Split by a hyphen at the end of a line, which is not in its text; it continues in the next word."""
    LINE = 16
    """The first word of a line."""
    DOWN = 32
    """Runs from top to bottom: vertical writing, or a line turned to the right."""
    UP = 64
    """Runs from bottom to top: a line turned to the left."""


NO_MARK = Mark(0)


@dataclass(frozen=True, slots=True)
class Word:
    """Characters without a blank between them, as the PDF has them."""

    text: str
    box: Box
    marks: Mark = NO_MARK


@dataclass(frozen=True)
class TextLayer:
    """The words of a page in the PDF's order.

    The page has `width` by `height` pixels. `words` leaves out what the page's crop box cuts off; `outside` counts the
    characters beyond the whole sheet. `bare` marks ink that no word covers: it is true for each square of `cell` pixels
    with such ink. `failure` says why an existing layer could not be read; it then has no words.
    """

    width: int
    height: int
    words: tuple[Word, ...]
    outside: int
    cell: int
    bare: "NDArray[np.bool_]"
    failure: str = ""

    @classmethod
    def failed(cls, why: str) -> Self:
        """Return a layer that cannot be read."""
        return cls(0, 0, (), 0, 1, np.zeros((0, 0), bool), why)

    @cached_property
    def characters(self) -> int:
        """Number of characters in all words."""
        return sum(len(word.text) for word in self.words)

    def marked(self, mark: Mark) -> int:
        """Return the number of characters in words with a mark."""
        return sum(len(word.text) for word in self.words if word.marks & mark)

    @property
    def is_of_scan(self) -> bool:
        """True if most of it is invisible, like text that OCR lays over a scan."""
        return self.marked(Mark.INVISIBLE) >= max(_FEWEST_INVISIBLE, _MOST_INVISIBLE * self.characters)

    def to_json(self) -> str:
        """Return the layer as it is stored."""
        if self.failure:
            return json.dumps({"failure": self.failure}, ensure_ascii=False)
        packed = zlib.compress(np.packbits(self.bare).tobytes())
        return json.dumps(
            {
                "size": [self.width, self.height],
                "words": [word.text for word in self.words],
                "boxes": [edge for word in self.words for edge in word.box],
                "marks": [int(word.marks) for word in self.words],
                "outside": self.outside,
                "cell": self.cell,
                "squares": list(self.bare.shape),
                "bare": base64.b64encode(packed).decode(),
            },
            ensure_ascii=False,
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, stored: str) -> Self:
        """Return the layer stored by `to_json`; other text gives a failed layer."""
        try:
            held = json.loads(stored)
            if "failure" in held:
                return cls.failed(str(held["failure"]))
            width, height = map(int, held["size"])
            rows, columns = held["squares"]
            if min(width, height, held["cell"], rows, columns) < 1:
                raise ValueError("a page without size")
            bits = np.frombuffer(zlib.decompress(base64.b64decode(held["bare"])), np.uint8)
            boxes = zip(*[iter(map(int, held["boxes"]))] * 4, strict=True)
            return cls(
                width,
                height,
                tuple(
                    Word(str(text), box, Mark(marks))
                    for text, box, marks in zip(held["words"], boxes, held["marks"], strict=True)
                ),
                int(held["outside"]),
                int(held["cell"]),
                np.unpackbits(bits, count=rows * columns).astype(bool).reshape(rows, columns),
            )
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError, zlib.error) as error:
            return cls.failed(f"it is damaged: {first_line(error)}")


def layer_id(stored: str | None) -> str | None:
    """Return the hash of a stored layer, or None without a layer."""
    return None if stored is None else fingerprint([stored])


class StoredLayers:
    """The text layers of one shard, by row; `stored` is how its file holds them."""

    def __init__(self, place: str, shard_key: str, stored: Sequence[str | None]) -> None:
        self._place = place
        self._shard_key = shard_key
        self._stored = stored

    def layer(self, page_id: str, row: int, text_layer_id: str | None) -> TextLayer | None:
        """Return the layer at `row`, from 0; None without an id in `raw_pages`.

        Raises `SourceError` if the row holds another layer.
        """
        if text_layer_id is None:
            return None
        stored = self._stored[row] if row < len(self._stored) else None
        if stored is None or layer_id(stored) != text_layer_id:
            raise SourceError(
                f"{self._place}: row {row} does not hold the text layer that raw_pages saw of {quoted(page_id)}: "
                f"materialize raw_pages of {self._shard_key} again"
            )
        return TextLayer.from_json(stored)


@dataclass(frozen=True, slots=True)
class MadePage:
    """The encoded image of a page, and its text layer as it is stored.

    The layer is None if there is none, as for an image. `damage` says which part of the page could not be drawn.
    """

    data: bytes
    text_layer: str | None = None
    damage: str | None = None


@dataclass(frozen=True, slots=True)
class PageCount:
    """A document's numbers of pages, attached files, and claimed but missing pages."""

    pages: int
    attachments: int = 0
    missing: int = 0

    def left_out(self) -> Iterator[str]:
        """Yield the reasons why parts of the document become no page."""
        if self.attachments:
            yield f"{counted(self.attachments, 'attached file')} in it: save them as files of their own"
        if self.missing:
            yield f"it says that it has {self.pages + self.missing:,} pages, of which {self.pages:,} can be found"


@dataclass(frozen=True, slots=True)
class Failure:
    """A task without a result; if it `may_pass`, the bytes are not to blame."""

    reason: str
    may_pass: bool = False


TEXT_CODE = CodeVersion(
    "pages.pdf_text",
    {
        1: "the first release",
        2: "text below a picture and text without colour are invisible; a layer that cannot be read says why",
    },
)
"""A new version reads every layer again; the pages are drawn for it, and come out the same."""

_DIVIDED = 0x02
"""The character that PDFium returns for a hyphen that splits a word at the end of a line."""
_HIGH, _LOW = range(0xD800, 0xDC00), range(0xDC00, 0xE000)
"""The two halves of a character beyond the first 65,536."""
_SUBPIXELS = 64
"""PDFium rounds points to whole pixels, so it is given a page this many times as large, to place boxes exactly."""
_CELLS = 256
"""Squares along the longer side of a page for its bare ink: three per line of 10 points on A4."""
_INK = 32
"""Grey levels between the lightest and darkest pixel of an area with print; more than JPEG noise."""
_LOOKED_AT = 6
"""Pixels checked along a square's side: every other one at 300 dpi."""
_MARGIN = 0.25
"""Margin around a word's box that counts as covered, as a share of its height: for accents, smoothing and overhangs."""
_SAME = 0.3
"""Share of its height by which a word that is drawn twice to look bold may be shifted."""
_MOST = 200_000
"""Most characters of a layer that is read, more than a page has room for in print."""
_OPAQUE = 250
"""Alpha, of 255, from which a picture's pixel hides what is below it."""
_MOST_INVISIBLE, _FEWEST_INVISIBLE = 0.5, 3
"""Share of a layer's characters, and the least number, whose invisibility makes it that of a scan."""
_MOST_CLEAR = 0.5
"""Largest transparent share of a picture that hides text below it; a stamp or a watermark is mostly transparent."""


@dataclass(frozen=True, slots=True)
class _Placement:
    """The transform from a PDF's points to the upright page's pixels."""

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
    """Return the layer of an open page, or None if it has no text.

    `pixels` are the drawn page: (height, width) or (height, width, BGR). Raises `PdfiumError`.
    """
    import cv2

    height, width = pixels.shape[:2]
    text = page.get_textpage()
    try:
        count = text.count_chars()
        if count > _MOST:
            return TextLayer.failed(f"it has {count:,} characters")
        placement = _Placement.of(page, width, height)
        found = list(_words(text.raw, count, placement, _Pictures(page, placement)))
    finally:
        text.close()
    if not found:
        return None
    grey = pixels if pixels.ndim == 2 else np.asarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY), np.uint8)
    within = [word for word in found if _is_within(word.box, (0, 0, width, height))]
    words = tuple(_held_against(word, grey) for word in _drawn_once(within))
    # Text that the crop box cuts off is still on the sheet.
    sheet = placement.box(*(page.get_mediabox() or (0, 0, *page.get_size())))
    outside = sum(len(word.text) for word in found if not _is_within(word.box, sheet))
    cell = max(1, -(-max(width, height) // _CELLS))
    return TextLayer(width, height, words, outside, cell, _bare(grey, words, cell))


class _OpenWord:
    """A word being assembled from characters."""

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
        """Return whether the word runs up or down the page; `NO_MARK` if across it."""
        first, last = self.boxes[0], self.boxes[-1]
        across, down = (last[axis] + last[axis + 2] - first[axis] - first[axis + 2] for axis in (0, 1))
        if abs(down) <= abs(across):
            return NO_MARK
        return Mark.DOWN if down > 0 else Mark.UP


class _Pictures:
    """The pictures of a page, which hide text drawn before them, as in scans."""

    def __init__(self, page: "PdfPage", placement: _Placement) -> None:
        from pypdfium2 import raw

        self._order: dict[int, int] = {}
        """The position of each text object in drawing order, by its address."""
        self._found: list[tuple[int, Box, PdfObject]] = []
        self._hides: dict[int, bool] = {}
        for at, drawn in enumerate(page.get_objects(filter=[raw.FPDF_PAGEOBJ_TEXT, raw.FPDF_PAGEOBJ_IMAGE])):
            if raw.FPDFPageObj_GetType(drawn.raw) == raw.FPDF_PAGEOBJ_TEXT:
                self._order[_address(drawn.raw)] = at
            elif self._order:
                x1, y1, x2, y2 = placement.box(*_bounds(drawn))
                self._found.append((at, (int(x1), int(y1), int(x2), int(y2)), drawn))

    def hide(self, text: ctypes.c_void_p, box: Box) -> bool:
        """Return whether a picture drawn later covers the middle of a text object's word."""
        if not self._found or (drawn := self._order.get(_address(text))) is None:
            return False
        return any(
            at > drawn and _is_within(box, around) and self._is_opaque(at, picture)
            for at, around, picture in self._found
        )

    def _is_opaque(self, at: int, picture: "PdfObject") -> bool:
        if at not in self._hides:
            self._hides[at] = _clear_share(picture) <= _MOST_CLEAR
        return self._hides[at]


def _address(drawn: object) -> int:
    return ctypes.cast(drawn, ctypes.c_void_p).value or 0  # pyright: ignore[reportArgumentType]


def _bounds(drawn: "PdfObject") -> tuple[float, float, float, float]:
    """Return (left, bottom, right, top) on the page; PDFium gives them relative to a form."""
    left, bottom, right, top = drawn.get_bounds()
    corners = [(x, y) for x in (left, right) for y in (bottom, top)]
    form = drawn.container
    while form is not None:
        matrix = form.get_matrix()
        corners = [matrix.on_point(x, y) for x, y in corners]
        form = form.container
    xs, ys = zip(*corners, strict=True)
    return min(xs), min(ys), max(xs), max(ys)


def pixels_of(drawn: "PdfObject", page: "PdfPage", pixels: "NDArray[np.uint8]") -> "NDArray[np.uint8]":
    """Return the part of a drawn page that an object occupies, which may be empty."""
    height, width = pixels.shape[:2]
    left, top, right, bottom = _Placement.of(page, width, height).box(*_bounds(drawn))
    return pixels[max(0, round(top)) : max(0, round(bottom)), max(0, round(left)) : max(0, round(right))]


def _clear_share(picture: "PdfObject") -> float:
    """Return the share of a picture, 0 to 1, through which what is below shows."""
    from pypdfium2 import PdfImage, PdfiumError

    assert isinstance(picture, PdfImage)
    try:
        pixels = picture.get_bitmap(render=True, scale_to_original=False).to_numpy()
    except PdfiumError:
        return 1.0  # a picture that cannot be decoded is not drawn
    return 0.0 if pixels.ndim < 3 or pixels.shape[2] < 4 else float((pixels[..., 3] < _OPAQUE).mean())


def _words(page: ctypes.c_void_p, count: int, placement: _Placement, pictures: _Pictures) -> Iterator[Word]:
    """Yield the words in the PDF's order, split at the blanks that PDFium adds."""
    from pypdfium2 import raw

    left, right, bottom, top = (ctypes.c_double() for _ in range(4))
    pending = _OpenWord(Mark.LINE)
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
            yield _finish(page, pending, pictures)
            pending = _OpenWord(NO_MARK)
        if ends_line:
            pending.marks |= Mark.LINE
    if pending.text:
        yield _finish(page, pending, pictures)


def _finish(page: ctypes.c_void_p, pending: _OpenWord, pictures: _Pictures) -> Word:
    from pypdfium2 import raw

    word = pending.word()
    drawn = raw.FPDFText_GetTextObject(page, pending.first)
    if not drawn:
        return word
    mode = raw.FPDFTextObj_GetTextRenderMode(drawn)
    hidden = (
        mode == raw.FPDF_TEXTRENDERMODE_INVISIBLE
        or (mode == raw.FPDF_TEXTRENDERMODE_FILL and _is_clear(drawn))
        or pictures.hide(drawn, word.box)
    )
    return replace(word, marks=word.marks | Mark.INVISIBLE) if hidden else word


def _is_clear(text: ctypes.c_void_p) -> bool:
    from pypdfium2 import raw

    red, green, blue, alpha = (ctypes.c_uint() for _ in range(4))
    return bool(raw.FPDFPageObj_GetFillColor(text, red, green, blue, alpha)) and alpha.value == 0


def _letter(code: int, after: int) -> str:
    """Return a character of one or two UTF-16 units."""
    if code in _HIGH and after in _LOW:
        return chr(0x10000 + ((code - _HIGH.start) << 10) + after - _LOW.start)
    # A character that no string can hold is still on the page.
    return "\ufffd" if not code or code in _HIGH or code in _LOW else chr(code)


def _is_within(box: Box, whole: tuple[float, float, float, float]) -> bool:
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    return whole[0] <= x < whole[2] and whole[1] <= y < whole[3]


def _drawn_once(words: Sequence[Word]) -> Iterator[Word]:
    """Yield the words without repeats at the same position, which make print bold."""
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
    """Return the squares (rows, columns) of `cell` pixels with ink that no word covers."""
    height, width = grey.shape
    rows, columns = -(-height // cell), -(-width // cell)
    # A printed stroke is wider than the pixels that are skipped.
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
