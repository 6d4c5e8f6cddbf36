"""Reads the text layer of an open PDF page by PDFium.

The module does not load a PDF library by itself.
"""

import ctypes
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import cv2
import numpy as np
from numpy.typing import NDArray
from pypdfium2 import PdfPage, raw

from kopub.boxes import Box, is_within
from kopub.pages.documents.drawn_objects import (
    Coverings,
    Placement,
    address,
    begins_line,
    is_clear,
    shapes_of,
)
from kopub.pages.documents.fonts import lacks_font
from kopub.pages.documents.form_fields import field_texts
from kopub.pages.documents.structure_tags import StructureTags
from kopub.pages.documents.text_layer import NO_MARK, Mark, TextLayer, Word
from kopub.pages.nameless import nameless

_Place = tuple[float, float, float, float]
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
_SMALL, _RAISED = 0.8, 0.15
"""Most size of a note's figure, and least difference of its foot, as shares of the number that it stands at."""
_EVEN = "\u1100"
"""The first of the letters of even width: Hangul, and Chinese and Japanese characters."""
_BLANK = 1.17
"""Distance of two letters of a column, in usual ones, from which a blank stands between them."""
_SAME = 0.3
"""Share of its height by which a word that is drawn twice to look bold may be shifted."""
_NARROW, _WIDE = frozenset("ijl.,:;'!|"), frozenset("abdeghkmnopquvwxABCDEGHKMNOPQRUVWX")
"""Letters that are narrow and wide in all fonts but those of even width."""
_UNEVEN = 0.02
"""Most difference of the letters of such a font, as a share of their width."""
_MOST = 200_000
"""Most characters of a layer that is read, more than a page has room for in print."""


def read_layer(page: PdfPage, pixels: NDArray[np.uint8]) -> TextLayer | None:
    """Return the layer of an open page, or None if it has no text.

    `pixels` are the drawn page: (height, width) or (height, width, BGR). Raises `PdfiumError`.
    """
    height, width = pixels.shape[:2]
    text = page.get_textpage()
    try:
        count = text.count_chars()
        if count > _MOST:
            return TextLayer.failed(f"it has {count:,} characters")
        placement = Placement.of(page, width, height)
        rules, fills = shapes_of(page, placement)
        upright = sorted(((x1 + x2) / 2, y1, y2) for x1, y1, x2, y2 in rules if y2 - y1 > x2 - x1)
        tags = StructureTags(page)
        drawing = _Drawing(Coverings(page, placement), upright, tags)
        drawn = drawing.fonts.marked(list(_words(text.raw, count, placement, drawing)))
        fields = [Word(typed, box, Mark.LINE) for typed, box in field_texts(page, placement)]
    finally:
        text.close()
    if not drawn and not fields:
        return None
    grey = pixels if pixels.ndim == 2 else np.asarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY), np.uint8)
    # Text that the crop box cuts off is still on the sheet.
    sheet = placement.box(*(page.get_mediabox() or (0, 0, *page.get_size())))
    outside = 0
    words: list[Word] = []
    last: dict[str, Box] = {}
    for word in drawn:
        if not is_within(word.box, sheet):
            outside += len(word.text)
        if not is_within(word.box, (0, 0, width, height)):
            continue
        before, last[word.text] = last.get(word.text), word.box
        # Some programs print bold by drawing a word twice, a little apart.
        near = _SAME * min(word.box.width, word.box.height)
        if before is None or max(abs(a - b) for a, b in zip(word.box, before, strict=True)) > near:
            words.append(_with_ink_mark(word, grey))
    for value in fields:
        # A field without a frame that holds nothing is not printed.
        if not _with_ink_mark(value, grey).marks & Mark.NO_INK:
            words.append(value)
    cell = max(1, -(-max(width, height) // _CELLS))
    bare = _bare(grey, words, cell)
    return TextLayer(width, height, tuple(words), outside, cell, bare, rules=rules, fills=fills, tags=tuple(tags.tags))


@dataclass
class _Fonts:
    """The widths of letters in each font, which tell those of even width."""

    widths: dict[int, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    of_words: list[int] = field(default_factory=list)

    def note(self, page: ctypes.c_void_p, drawn: ctypes.c_void_p | None, pending: "_OpenWord", words: int) -> None:
        """Measure the letters of a word that is drawn as so many words."""
        font = address(raw.FPDFTextObj_GetFont(drawn)) if drawn else 0
        self.of_words += [font] * words
        widths = self.widths[font]
        for letter, index in zip(pending.letters, pending.places, strict=True):
            if letter in _NARROW or letter in _WIDE:
                if letter in widths:
                    continue
                box = raw.FS_RECTF()
                if raw.FPDFText_GetLooseCharBox(page, index, box) and box.top > box.bottom:
                    widths[letter] = (box.right - box.left) / (box.top - box.bottom)

    def marked(self, words: Sequence[Word]) -> list[Word]:
        """Return all words that were noted, with the mark of fonts of even width."""
        even: set[int] = set()
        for font, widths in self.widths.items():
            # Only a font with both kinds of letters shows that its narrow ones are as wide as others.
            if font and not (_NARROW.isdisjoint(widths) or _WIDE.isdisjoint(widths)):
                widest = max(widths.values())
                if widest - min(widths.values()) <= _UNEVEN * widest:
                    even.add(font)
        return [
            replace(word, marks=word.marks | Mark.FIXED) if font in even else word
            for word, font in zip(words, self.of_words, strict=True)
        ]


@dataclass
class _Drawing:
    """The drawing around the letters of a page, and their fonts."""

    pictures: Coverings
    upright: Sequence[tuple[float, int, int]]
    """The middle, top and bottom of each upright rule, from the left; they part the letters of cells."""
    tags: StructureTags
    fonts: _Fonts = field(default_factory=_Fonts)


@dataclass
class _OpenWord:
    """A word being assembled from characters."""

    marks: Mark
    letters: list[str] = field(default_factory=list)
    boxes: list[_Place] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    """The numbers of the letters on the page."""


def _words(page: ctypes.c_void_p, count: int, placement: Placement, drawing: _Drawing) -> Iterator[Word]:
    """Yield the words in the PDF's order, split at blanks and upright rules."""
    left, right, bottom, top = (ctypes.c_double() for _ in range(4))
    pending = _OpenWord(Mark.LINE)
    for index in range(count):
        code = raw.FPDFText_GetUnicode(page, index)
        if code in _LOW and index and raw.FPDFText_GetUnicode(page, index - 1) in _HIGH:
            continue
        after = raw.FPDFText_GetUnicode(page, index + 1) if code in _HIGH and index + 1 < count else 0
        if after in _LOW:
            letter = chr(0x10000 + ((code - _HIGH.start) << 10) + after - _LOW.start)
        else:
            # A character that no string can hold is still on the page.
            letter = "\ufffd" if not code or code in _HIGH or code in _LOW else chr(code)
        divided = code == _DIVIDED
        if not (divided or letter.isspace()):
            raw.FPDFText_GetCharBox(page, index, left, right, bottom, top)
            if 0 <= top.value - bottom.value < _FLAT:  # a letter that is not drawn has no height
                top.value += _CAPITAL * raw.FPDFText_GetFontSize(page, index)
            box = placement.box(left.value, bottom.value, right.value, top.value)
            before = pending.boxes[-1] if pending.boxes else box
            is_new_line = max(box[1] - before[3], before[1] - box[3]) > 0 and begins_line(page, index)
            if pending.boxes and (
                is_new_line
                or _is_parted(before, box, drawing.upright)
                or _begins_word(page, pending, index, letter, box)
            ):
                yield from _finish(page, pending, drawing)
                pending = _OpenWord(Mark.LINE if is_new_line else NO_MARK)
            unmapped = raw.FPDFText_HasUnicodeMapError(page, index) == 1
            pending.marks |= Mark.UNMAPPED if unmapped else NO_MARK
            pending.letters.append(nameless(code) if unmapped else letter)
            pending.boxes.append(box)
            pending.places.append(index)
            continue
        ends_line = divided or letter in "\r\n"
        if ends_line and not divided and pending.letters and _goes_on(page, index, count):
            continue
        if pending.letters:
            if divided:
                pending.marks |= Mark.HYPHEN
            yield from _finish(page, pending, drawing)
            pending = _OpenWord(NO_MARK)
        if ends_line:
            pending.marks |= Mark.LINE
    if pending.letters:
        yield from _finish(page, pending, drawing)


def _is_parted(a: _Place, b: _Place, upright: Sequence[tuple[float, int, int]]) -> bool:
    """Return whether an upright rule stands between the middles of two boxes."""
    start, end = sorted(((a[0] + a[2]) / 2, (b[0] + b[2]) / 2))
    y = (a[1] + a[3]) / 2
    for x, top, bottom in islice(upright, bisect_right(upright, (start,)), None):
        if x >= end:
            break
        if top <= y <= bottom:
            return True
    return False


def _begins_word(page: ctypes.c_void_p, pending: _OpenWord, index: int, letter: str, box: _Place) -> bool:
    """Return whether a letter that PDFium joins to a word of its row begins another.

    It does if it was drawn later to stand before the word, as signs in another font are. The raised number of a note
    would be a digit of the number that it stands at.
    """
    first, last = pending.boxes[0], pending.boxes[-1]
    if min(box[3], last[3]) <= max(box[1], last[1]):
        return False
    if first != last and (box[2] <= first[0] if first[0] < last[0] else box[0] >= first[2]):
        return True
    is_figure = letter.isdigit() and pending.letters[-1].isdigit()
    if not is_figure or abs(box[3] - last[3]) <= _RAISED * (last[3] - last[1]):
        return False
    # Some fonts have figures that hang below the line, as letters do.
    a, b = raw.FS_RECTF(), raw.FS_RECTF()
    for place, rect in ((pending.places[-1], a), (index, b)):
        raw.FPDFText_GetLooseCharBox(page, place, rect)
    small, large = sorted((abs(a.top - a.bottom), abs(b.top - b.bottom)))
    return small <= _SMALL * large


def _goes_on(page: ctypes.c_void_p, end: int, count: int) -> bool:
    """Return whether letters around a line end touch.

    PDFium ends lines so on a page that it takes for vertical writing.

    `end` is the index of the line end, which is of one or two characters.
    """
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


def _finish(page: ctypes.c_void_p, pending: _OpenWord, drawing: _Drawing) -> Iterator[Word]:
    """Yield a word; a column of vertical writing, whose blanks PDFium drops, as several."""
    drawn = raw.FPDFText_GetTextObject(page, pending.places[0])
    mode = raw.FPDFTextObj_GetTextRenderMode(drawn) if drawn else None
    is_hidden = mode == raw.FPDF_TEXTRENDERMODE_INVISIBLE or (mode == raw.FPDF_TEXTRENDERMODE_FILL and is_clear(drawn))
    marks, boxes = pending.marks, pending.boxes
    first, last = boxes[0], boxes[-1]
    if drawn and not is_hidden and lacks_font(drawn, pending.letters):
        marks |= Mark.UNDRAWN
    across, down = last[0] + last[2] - first[0] - first[2], last[1] + last[3] - first[1] - first[3]
    if abs(down) > abs(across):
        marks |= Mark.DOWN if down > 0 else Mark.UP
    starts = [0]
    even = sum(letter >= _EVEN for letter in pending.letters)
    if marks & Mark.DOWN and 2 * even > len(boxes) > 2:
        _, tops, _, bottoms = np.transpose(boxes)
        steps = np.diff((tops + bottoms) / 2)
        starts += (np.flatnonzero(steps > _BLANK * np.median(steps)) + 1).tolist()
    drawing.fonts.note(page, drawn, pending, len(starts))
    tag = drawing.tags.of(drawn) if drawn else -1
    for start, end in zip(starts, [*starts[1:], len(boxes)], strict=True):
        x1, y1, x2, y2 = zip(*boxes[start:end], strict=True)
        box = Box(round(min(x1)), round(min(y1)), round(max(x2)), round(max(y2)))
        hidden = drawn and (is_hidden or drawing.pictures.hide(drawn, box))
        yield Word("".join(pending.letters[start:end]), box, marks | (Mark.INVISIBLE if hidden else NO_MARK), tag)
        marks &= ~Mark.LINE


def _with_ink_mark(word: Word, grey: NDArray[np.uint8]) -> Word:
    """Return a word marked if nothing is printed at its place."""
    x1, y1, x2, y2 = word.box
    if word.marks & Mark.UNDRAWN:
        return word
    printed = grey[max(0, y1) : max(1, y2 + 1), max(0, x1) : max(1, x2 + 1)]
    return word if printed.size and int(np.ptp(printed)) >= _INK else replace(word, marks=word.marks | Mark.NO_INK)


def _bare(grey: NDArray[np.uint8], words: Sequence[Word], cell: int) -> NDArray[np.bool_]:
    """Return the squares (rows, columns) of `cell` pixels with ink that no word covers."""
    height, width = grey.shape
    rows, columns = -(-height // cell), -(-width // cell)
    # A printed stroke is wider than the pixels that are skipped.
    step = max(1, cell // _LOOKED_AT)
    grey = np.ascontiguousarray(grey[::step, ::step])
    tops, lefts = np.arange(rows) * cell // step, np.arange(columns) * cell // step
    darkest = np.minimum.reduceat(np.minimum.reduceat(grey, tops, axis=0), lefts, axis=1)
    lightest = np.maximum.reduceat(np.maximum.reduceat(grey, tops, axis=0), lefts, axis=1)
    bare = lightest.astype(np.int16) - darkest >= _INK
    for word in words:
        x1, y1, x2, y2 = word.box
        margin = _MARGIN * min(x2 - x1, y2 - y1)
        top, left = max(0, int((y1 - margin) // cell)), max(0, int((x1 - margin) // cell))
        bare[top : int((y2 + margin) // cell) + 1, left : int((x2 + margin) // cell) + 1] = False
    return bare
