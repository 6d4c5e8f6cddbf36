"""Sorts a text layer's words into regions and printed lines. Pure."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from statistics import median, median_low
from typing import TYPE_CHECKING

import numpy as np

from kopub.pages.documents.text_layer import Box, Mark, TextLayer, Word
from kopub.recognition.content import shorten_leaders

if TYPE_CHECKING:
    from numpy.typing import NDArray

_OVERLAP = 0.5
"""Least share of the smaller word's height by which two words on one line overlap."""
_NEAR = 3
"""Rows up to which a row's words in another font may be drawn after it."""
_BELOW = 0.3
"""Share of a row's height by which a comma may hang below its letters."""
_SHARED = 0.3
"""Share of a word's width that another word may cover if they stand side by side."""
_STACKED = 0.6
"""Least share of steps from word to word that lead down in a column of single characters."""
_APART = 0.5
"""Share of a character's size from which a gap is a blank if PDFium gives none."""
_FITTED = 3
"""Times that the distance of two letters of code is fitted to their steps."""
_IGNORED = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")
"""Hyphens that are not printed, joiners and zero-width marks."""
_LIGATURE = re.compile("[\ufb00-\ufb06]")
_BULLET = re.compile("^[\ue000-\uf8ff](?=\\s|$)")
"""A character of a symbol font at the start of a line: such fonts do not say what their bullets are."""


@dataclass(frozen=True)
class Line:
    """The words of a line from left to right; its box in the reading direction."""

    words: tuple[Word, ...]

    @cached_property
    def box(self) -> Box:
        x1, y1, x2, y2 = zip(*(word.box for word in self.words), strict=True)
        return min(x1), min(y1), max(x2), max(y2)


def lines_of(words: Sequence[Word]) -> list[Line]:
    """Return the lines in reading order.

    This is the order of the PDF if it leads down the page, or else from top to bottom. Turned lines and vertical
    writing are turned upright first, so that their boxes are no longer places on the page.
    """
    rows: list[Line] = []
    for line in _in_order([Line(tuple(run)) for run in _runs(set_upright(words))]):
        for at in range(len(rows) - 1, max(-1, len(rows) - _NEAR - 1), -1):
            goes_on = at == len(rows) - 1 and line.box[0] >= rows[at].box[2]
            if (goes_on and on_one_line(rows[at].box, line.box)) or _is_between(line, rows[at]):
                words = sorted((*rows[at].words, *line.words), key=lambda word: word.box[0])
                rows[at] = Line(tuple(words))
                break
        else:
            rows.append(line)
    return rows


def _is_between(line: Line, row: Line) -> bool:
    """Return whether words belong in the gaps that were left for them in a row."""
    x1, y1, x2, y2 = row.box
    low = y2 + _BELOW * (y2 - y1) if not any(char.isalnum() for word in line.words for char in word.text) else y2
    if not x1 <= line.box[0] <= x2 or not on_one_line((x1, y1, x2, round(low)), line.box):
        return False
    return not any(
        min(word.box[2], other.box[2]) - max(word.box[0], other.box[0]) > _SHARED * (word.box[2] - word.box[0])
        for word in line.words
        for other in row.words
    )


def text_of(lines: Sequence[Line]) -> str:
    """Return the lines as they are printed.

    A hyphenated word is put whole on the line where it begins. The hyphen is removed only if small letters stand on
    both sides of it.
    """
    stacked = _is_stack(lines)
    texts: list[str] = []
    divided = False
    for line in lines:
        first, *rest = line.words
        if divided:
            texts[-1] += first.text if texts[-1][-1:].islower() and first.text[:1].islower() else f"-{first.text}"
            texts += [_join(rest, stacked)] if rest else []
        else:
            texts.append(_join(line.words, stacked))
        divided = bool(line.words[-1].marks & Mark.HYPHEN)
    if divided:
        texts[-1] += "-"
    return "\n".join(text for line in texts if (text := clean(line)))


def code_of(lines: Sequence[Line]) -> str:
    """Return lines of code with the indents and empty lines that fit."""
    width = _pitch(lines)
    left = min((line.box[0] for line in lines), default=0)
    steps = [below.box[3] - above.box[3] for above, below in pairwise(lines)]
    usual = max(1, median_low(steps)) if steps else 1
    texts = []
    for line, step in zip(lines, [usual, *steps], strict=False):
        texts += [""] * (round(step / usual) - 1)
        text = " " * round((line.box[0] - left) / width)
        for at, word in enumerate(line.words):
            if at:
                before = line.words[at - 1]
                text += " " * max(1, round((word.box[0] - before.box[0]) / width) - _cells(before.text))
            text += word.text + ("-" if word.marks & Mark.HYPHEN else "")
        texts.append(unicodedata.normalize("NFC", _IGNORED.sub("", text)))
    return "\n".join(texts)


def _pitch(lines: Sequence[Line]) -> float:
    """Return the distance of two letters of code.

    The ink of a word is a little shorter than its letters, which counts least in long words.
    """
    words = [word for line in lines for word in line.words]
    longest = max((len(word.text) for word in words), default=0)
    long = [word for word in words if 2 * len(word.text) >= longest]
    width = max(1.0, median((word.box[2] - word.box[0]) / _cells(word.text) for word in long)) if long else 1.0
    steps = [b.box[0] - a.box[0] for line in lines for a, b in pairwise(line.words)]
    for _ in range(_FITTED):
        letters = sum(round(step / width) for step in steps)
        width = max(1.0, sum(steps) / letters) if letters > 0 else width
    return width


def _cells(text: str) -> int:
    """Return the letters that a text is as wide as; Hangul takes two of them."""
    return sum(1 + (unicodedata.east_asian_width(char) in "WF") for char in text)


def clean(text: str) -> str:
    """Return a line in NFC, without ligatures and invisible characters.

    A bullet of a symbol font becomes an ordinary one, and a run of dots one sign.
    """
    plain = _LIGATURE.sub(lambda found: unicodedata.normalize("NFKC", found[0]), _IGNORED.sub("", text))
    return shorten_leaders(_BULLET.sub("•", unicodedata.normalize("NFC", plain).strip()))


def set_upright(words: Sequence[Word]) -> list[Word]:
    """Return the words turned so that lines run left to right and downwards."""
    if not words:
        return []
    down, up = (sum(len(word.text) for word in words if word.marks & mark) for mark in (Mark.DOWN, Mark.UP))
    half = sum(len(word.text) for word in words) / 2
    if down > half or _is_column(words):
        return [replace(word, box=(y1, -x2, y2, -x1)) for word in words for x1, y1, x2, y2 in [word.box]]
    if up > half:
        return [replace(word, box=(-y2, x1, -y1, x2)) for word in words for x1, y1, x2, y2 in [word.box]]
    return list(words)


def _is_column(words: Sequence[Word]) -> bool:
    """Return whether the characters are stacked as in vertical writing."""
    if len(words) < 3 or sum(len(word.text) for word in words) > 1.5 * len(words):
        return False
    steps = list(pairwise(word.box for word in words))
    down = sum(min(a[2], b[2]) - max(a[0], b[0]) > _OVERLAP * min(a[2] - a[0], b[2] - b[0]) and b[1] > a[1]
               for a, b in steps)  # fmt: skip
    return down >= _STACKED * len(steps)


def _is_stack(lines: Sequence[Line]) -> bool:
    words = [word for line in lines for word in line.words]
    return len(words) > 2 and all(len(word.text) == 1 for word in words)


def _runs(words: Iterable[Word]) -> Iterable[list[Word]]:
    """Return words that follow each other on a line, in PDF order."""
    run: list[Word] = []
    for word in words:
        if run and (not on_one_line(run[-1].box, word.box) or word.box[0] < run[-1].box[0]):
            yield run
            run = []
        run.append(word)
    if run:
        yield run


def _in_order(lines: list[Line]) -> list[Line]:
    boxes = [line.box for line in lines]
    right = 0
    for above, below in pairwise(boxes):
        right = max(right, above[2])
        # The next line stands higher, which is right only at the head of a second column.
        if below[3] <= above[1] and below[0] < right:
            return _from_the_top(lines)
        if on_one_line(above, below) and below[0] < above[0]:
            return _from_the_top(lines)
    return lines


def _from_the_top(lines: Iterable[Line]) -> list[Line]:
    """Return lines from top to bottom, and from left to right within one."""
    ordered: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: line.box[1] + line.box[3]):
        if ordered and on_one_line(ordered[-1][0].box, line.box):
            ordered[-1].append(line)
        else:
            ordered.append([line])
    return [line for row in ordered for line in sorted(row, key=lambda line: line.box[0])]


def on_one_line(a: Box, b: Box) -> bool:
    """Return whether two boxes overlap as words of one line do."""
    return min(a[3], b[3]) - max(a[1], b[1]) > _OVERLAP * min(a[3] - a[1], b[3] - b[1])


def _join(words: Sequence[Word], stacked: bool) -> str:
    text = ""
    for at, word in enumerate(words):
        apart = not stacked or word.box[0] - words[at - 1].box[2] > _APART * (word.box[3] - word.box[1])
        text += (" " if at and apart else "") + word.text
    return text


@dataclass(frozen=True, slots=True)
class RegionWords:
    """The words of a region in the order of the PDF.

    `bare_share` is the share of its ink, 0 to 1, that no word covers: 1 for ink without any word.
    """

    words: tuple[Word, ...]
    bare_share: float


def words_of_regions(layer: TextLayer, boxes: Sequence[Sequence[float]]) -> list[RegionWords]:
    """Return the words whose middle lies in each box.

    Boxes are (x1, y1, x2, y2) in pixels; where two overlap, the smaller one gets the word.
    """
    homes = _homes(layer, boxes)
    found = []
    for index, box in enumerate(boxes):
        words = tuple(layer.words[at] for at in np.flatnonzero(homes == index))
        found.append(RegionWords(words, _bare_share(layer, box)))
    return found


def outside_of(layer: TextLayer, boxes: Sequence[Sequence[float]]) -> list[Word]:
    """Return the words that are in none of the boxes."""
    return [layer.words[at] for at in np.flatnonzero(_homes(layer, boxes) < 0)]


def _homes(layer: TextLayer, boxes: Sequence[Sequence[float]]) -> "NDArray[np.intp]":
    """Return the index of each word's box, of shape (words,), -1 for none."""
    if not layer.words or not boxes:
        return np.full(len(layer.words), -1)
    places = np.asarray(boxes, np.float64)
    x, y = layer.middles.T
    within = (places[:, 0] <= x[:, None]) & (x[:, None] <= places[:, 2])
    within &= (places[:, 1] <= y[:, None]) & (y[:, None] <= places[:, 3])
    areas = np.prod(places[:, 2:] - places[:, :2], axis=1)
    smallest = np.where(within, areas, np.inf).argmin(axis=1)
    return np.where(within.any(axis=1), smallest, -1)


def _bare_share(layer: TextLayer, box: Sequence[float]) -> float:
    """Return the bare share of the squares within the box.

    Squares on its edges do not count, since they may hold ink from beside it.
    """
    left, top = (int(-(-edge // layer.cell)) for edge in (max(0.0, box[0]), max(0.0, box[1])))
    right, bottom = (int(edge // layer.cell) for edge in box[2:])
    bare = int(layer.bare[top:bottom, left:right].sum())
    printed = bare + int((layer.covered[top:bottom, left:right] & ~layer.bare[top:bottom, left:right]).sum())
    return bare / printed if printed else 0.0


MOST_BARE = 0.25
"""Most of a region's ink that may be outside words: rules, frames, a fill. Text drawn as shapes has more."""


def area(box: Sequence[float]) -> float:
    """Return the area of a box in pixels, at least 1."""
    return max(1.0, (box[2] - box[0]) * (box[3] - box[1]))


def shared(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the area that two boxes have in common, in pixels."""
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
