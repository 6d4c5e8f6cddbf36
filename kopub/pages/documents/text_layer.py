"""The text layer of a PDF page: words and their positions.

It holds only facts. The reader of a layer judges whether it can be trusted, so a new judgement does not need the PDF.
The types do not load a PDF library.
"""

import base64
import ctypes
import json
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntFlag
from functools import cached_property
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Self

import numpy as np

from kopub.errors import SourceError, counted, first_line, quoted
from kopub.fingerprints import CodeVersion, fingerprint
from kopub.pages.documents.drawn_objects import Box, Coverings, Placement, begins_line, is_clear, is_within, shapes_of
from kopub.pages.documents.fonts import lacks_font
from kopub.pages.documents.form_fields import field_texts
from kopub.pages.documents.pieces import Piece
from kopub.pages.nameless import nameless

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pypdfium2 import PdfPage


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
    UNDRAWN = 128
    """Not drawn here: this machine has no font with its Hangul, and the PDF does not embed its own."""


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
    with such ink. `rules` are the straight lines that the PDF draws, and `fills` the boxes that it fills. `failure`
    says why an existing layer could not be read; it then has no words. If the PDF was made of a document that has a
    structure, `pieces` are its parts on this page, and `pictures` the boxes of the page's pictures.
    """

    width: int
    height: int
    words: tuple[Word, ...]
    outside: int
    cell: int
    bare: "NDArray[np.bool_]"
    failure: str = ""
    rules: tuple[Box, ...] = ()
    fills: tuple[Box, ...] = ()
    pieces: tuple[Piece, ...] = ()
    pictures: tuple[Box, ...] = ()

    @classmethod
    def empty(cls, width: int, height: int) -> Self:
        """Return the layer of a page without a word."""
        return cls(width, height, (), 0, max(width, height), np.zeros((1, 1), bool))

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
                "boxes": _edges(word.box for word in self.words),
                "marks": [int(word.marks) for word in self.words],
                "outside": self.outside,
                "cell": self.cell,
                "squares": list(self.bare.shape),
                "bare": base64.b64encode(packed).decode(),
                **({"rules": _edges(self.rules)} if self.rules else {}),
                **({"fills": _edges(self.fills)} if self.fills else {}),
                **({"pieces": [piece.to_json() for piece in self.pieces]} if self.pieces else {}),
                **({"pictures": _edges(self.pictures)} if self.pictures else {}),
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
            return cls(
                width,
                height,
                tuple(
                    Word(str(text), box, Mark(marks))
                    for text, box, marks in zip(held["words"], _boxes(held["boxes"]), held["marks"], strict=True)
                ),
                int(held["outside"]),
                int(held["cell"]),
                np.unpackbits(bits, count=rows * columns).astype(bool).reshape(rows, columns),
                rules=tuple(_boxes(held.get("rules", ()))),
                fills=tuple(_boxes(held.get("fills", ()))),
                pieces=tuple(map(Piece.from_json, held.get("pieces", ()))),
                pictures=tuple(_boxes(held.get("pictures", ()))),
            )
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError, zlib.error) as error:
            return cls.failed(f"it is damaged: {first_line(error)}")


def _edges(boxes: Iterable[Box]) -> list[int]:
    return [edge for box in boxes for edge in box]


def _boxes(edges: Iterable[int]) -> Iterator[Box]:
    return zip(*[iter(map(int, edges))] * 4, strict=True)


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
        3: "the rules and filled boxes of a page are kept; a word ends at an upright rule, not where letters touch",
        4: "the fields of forms are words, with what was typed and whether a box is ticked; a word ends with its line; "
        "characters that a font does not name are told from others; a page drawn sideways is set upright, and columns "
        "of vertical writing keep their blanks",
    },
)
"""A new version reads every layer again; the pages are drawn for it, and come out the same."""

_DIVIDED = 0x02
"""The character that PDFium returns for a hyphen that splits a word at the end of a line."""
_HIGH, _LOW = range(0xD800, 0xDC00), range(0xDC00, 0xE000)
"""The two halves of a character beyond the first 65,536."""
_CELLS = 256
"""Squares along the longer side of a page for its bare ink: three per line of 10 points on A4."""
_INK = 32
"""Grey levels between the lightest and darkest pixel of an area with print; more than JPEG noise."""
_LOOKED_AT = 6
"""Pixels checked along a square's side: every other one at 300 dpi."""
_MARGIN = 0.25
"""Margin around a word's box that counts as covered, as a share of its height: for accents, smoothing and overhangs."""
_LINE_END = (0x0D, 0x0A)
_TOUCHES = 0.12
"""Most distance of two letters of a word, as a share of their size; a blank is wider."""
_FLAT, _CAPITAL = 0.05, 0.7
"""Points below which a letter has no height, and the usual height as a share of its font's size."""
_EVEN = "\u1100"
"""The first of the letters of even width: Hangul, and Chinese and Japanese characters."""
_BLANK = 1.17
"""Distance of two letters of a column, in usual ones, from which a blank stands between them."""
_SAME = 0.3
"""Share of its height by which a word that is drawn twice to look bold may be shifted."""
_MOST = 200_000
"""Most characters of a layer that is read, more than a page has room for in print."""
_MOST_INVISIBLE, _FEWEST_INVISIBLE = 0.5, 3
"""Share of a layer's characters, and the least number, whose invisibility makes it that of a scan."""


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
        placement = Placement.of(page, width, height)
        shapes = shapes_of(page, placement)
        found = list(_words(text.raw, count, placement, Coverings(page, placement), _Fences(shapes.rules)))
        fields = [Word(value, box, Mark.LINE) for value, box in field_texts(page, placement)]
    finally:
        text.close()
    if not found and not fields:
        return None
    grey = pixels if pixels.ndim == 2 else np.asarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY), np.uint8)
    within = [word for word in found if is_within(word.box, (0, 0, width, height))]
    # A field without a frame that holds nothing is not printed.
    shown = (word for word in fields if not _held_against(word, grey).marks & Mark.NO_INK)
    words = (*(_held_against(word, grey) for word in _drawn_once(within)), *shown)
    # Text that the crop box cuts off is still on the sheet.
    sheet = placement.box(*(page.get_mediabox() or (0, 0, *page.get_size())))
    outside = sum(len(word.text) for word in found if not is_within(word.box, sheet))
    cell = max(1, -(-max(width, height) // _CELLS))
    bare = _bare(grey, words, cell)
    return TextLayer(width, height, words, outside, cell, bare, rules=shapes.rules, fills=shapes.fills)


class _Fences:
    """The upright rules of a page, which part the letters of cells."""

    def __init__(self, rules: Iterable[Box]) -> None:
        upright = (rule for rule in rules if rule[3] - rule[1] > rule[2] - rule[0])
        self._rules = sorted(((x1 + x2) / 2, y1, y2) for x1, y1, x2, y2 in upright)

    def part(self, a: Sequence[float], b: Sequence[float]) -> bool:
        """Return whether a rule stands between the middles of two boxes."""
        start, end = sorted(((a[0] + a[2]) / 2, (b[0] + b[2]) / 2))
        first = bisect_right(self._rules, (start,))
        y = (a[1] + a[3]) / 2
        between = takewhile(lambda rule: rule[0] < end, islice(self._rules, first, None))
        return any(top <= y <= bottom for _, top, bottom in between)


class _OpenWord:
    """A word being assembled from characters."""

    def __init__(self, marks: Mark) -> None:
        self.letters: list[str] = []
        self.marks = marks
        self.boxes: list[tuple[float, float, float, float]] = []
        self.first = 0

    def add(self, index: int, letter: str, box: tuple[float, float, float, float], unmapped: bool) -> None:
        if not self.letters:
            self.first = index
        self.letters.append(letter)
        self.boxes.append(box)
        if unmapped:
            self.marks |= Mark.UNMAPPED

    def words(self) -> Iterator[Word]:
        """Yield the word; a column of vertical writing, whose blanks PDFium drops, as several."""
        marks = self.marks | self._direction()
        starts = [0]
        even = sum(letter >= _EVEN for letter in self.letters)
        if marks & Mark.DOWN and 2 * even > len(self.letters) > 2:
            middles = [(box[1] + box[3]) / 2 for box in self.boxes]
            steps = np.diff(middles)
            starts += [at + 1 for at in np.flatnonzero(steps > _BLANK * np.median(steps)).tolist()]
        for start, end in zip(starts, [*starts[1:], len(self.boxes)], strict=True):
            (x1, y1, _, _), (_, _, x2, y2) = (
                tuple(map(pick, zip(*self.boxes[start:end], strict=True))) for pick in (min, max)
            )
            box = (round(x1), round(y1), round(x2), round(y2))
            yield Word("".join(self.letters[start:end]), box, marks)
            marks &= ~Mark.LINE

    def _direction(self) -> Mark:
        """Return whether the word runs up or down the page; `NO_MARK` if across it."""
        first, last = self.boxes[0], self.boxes[-1]
        across, down = (last[axis] + last[axis + 2] - first[axis] - first[axis + 2] for axis in (0, 1))
        if abs(down) <= abs(across):
            return NO_MARK
        return Mark.DOWN if down > 0 else Mark.UP


def _words(
    page: ctypes.c_void_p, count: int, placement: Placement, pictures: Coverings, fences: _Fences
) -> Iterator[Word]:
    """Yield the words in the PDF's order, split at blanks and upright rules."""
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
            if 0 <= top.value - bottom.value < _FLAT:  # a letter that is not drawn has no height
                top.value += _CAPITAL * raw.FPDFText_GetFontSize(page, index)
            box = placement.box(left.value, bottom.value, right.value, top.value)
            apart = pending.boxes and max(box[1] - pending.boxes[-1][3], pending.boxes[-1][1] - box[3]) > 0
            is_new_line = bool(apart) and begins_line(page, index)
            if pending.boxes and (is_new_line or fences.part(pending.boxes[-1], box)):
                yield from _finish(page, pending, pictures)
                pending = _OpenWord(Mark.LINE if is_new_line else NO_MARK)
            unmapped = raw.FPDFText_HasUnicodeMapError(page, index) == 1
            pending.add(index, nameless(code) if unmapped else letter, box, unmapped)
            continue
        ends_line = divided or letter in "\r\n"
        if ends_line and not divided and pending.letters and _goes_on(page, index, count):
            continue
        if pending.letters:
            if divided:
                pending.marks |= Mark.HYPHEN
            yield from _finish(page, pending, pictures)
            pending = _OpenWord(NO_MARK)
        if ends_line:
            pending.marks |= Mark.LINE
    if pending.letters:
        yield from _finish(page, pending, pictures)


def _goes_on(page: ctypes.c_void_p, end: int, count: int) -> bool:
    """Return whether letters around a line end touch.

    PDFium ends lines so on a page that it takes for vertical writing.

    `end` is the index of the line end, which is of one or two characters.
    """
    from pypdfium2 import raw

    before, after = end, end
    while before >= 0 and raw.FPDFText_GetUnicode(page, before) in _LINE_END:
        before -= 1
    while after < count and raw.FPDFText_GetUnicode(page, after) in _LINE_END:
        after += 1
    if before < 0 or after >= count:
        return False
    a, b = raw.FS_RECTF(), raw.FS_RECTF()
    if not (raw.FPDFText_GetLooseCharBox(page, before, a) and raw.FPDFText_GetLooseCharBox(page, after, b)):
        return False
    size = abs(a.top - a.bottom)
    is_level = max(abs(a.top - b.top), abs(a.bottom - b.bottom)) <= _TOUCHES * size
    return is_level and a.left < b.left and abs(b.left - a.right) <= _TOUCHES * size


def _finish(page: ctypes.c_void_p, pending: _OpenWord, pictures: Coverings) -> Iterator[Word]:
    from pypdfium2 import raw

    drawn = raw.FPDFText_GetTextObject(page, pending.first)
    mode = raw.FPDFTextObj_GetTextRenderMode(drawn) if drawn else None
    is_hidden = mode == raw.FPDF_TEXTRENDERMODE_INVISIBLE or (mode == raw.FPDF_TEXTRENDERMODE_FILL and is_clear(drawn))
    if drawn and not is_hidden and lacks_font(drawn, pending.letters):
        pending.marks |= Mark.UNDRAWN
    for word in pending.words():
        hidden = drawn and (is_hidden or pictures.hide(drawn, word.box))
        yield replace(word, marks=word.marks | Mark.INVISIBLE) if hidden else word


def _letter(code: int, after: int) -> str:
    """Return a character of one or two UTF-16 units."""
    if code in _HIGH and after in _LOW:
        return chr(0x10000 + ((code - _HIGH.start) << 10) + after - _LOW.start)
    # A character that no string can hold is still on the page.
    return "\ufffd" if not code or code in _HIGH or code in _LOW else chr(code)


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
    if word.marks & Mark.UNDRAWN:
        return word
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
