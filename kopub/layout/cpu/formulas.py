"""Display formulas among the text blocks of a page, and their numbers.

They are found by the shapes of the print at full resolution. Equals signs, fraction bars and signs taller than a line
suggest a formula; Hangul, words and the even pitch of a typewriter suggest text. A formula that is missed is still read
as text, so uncertain blocks stay text.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from math import ceil
from typing import TYPE_CHECKING

import cv2
import numpy as np

from kopub.boxes import Box, union
from kopub.layout.cpu.segmentation import Segmentation
from kopub.layout.ink import PRINT_CONTRAST, ink_mask, true_runs

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LABELS = frozenset({"text", "doc_title", "paragraph_title", "footnote"})
"""Labels that formulas may have got by size: tall fractions look like titles, and limits of sums like footnotes."""
_ROWS = 12
"""Most rows of a formula block; a longer one is a listing or prose."""
_EDGE = 3
"""Pixels around the ink that belong to its letters."""
_LETTERS = 5
"""Most letters in a run that (nearly) touch: a longer run is a word of text or code; function names have no more."""
_WORD = 4
"""Letters of a short word: in text, two fifths of the letters are in such close runs, or three fifths in looser ones
(sans serif)."""
_SPACED_LETTERS = 8
"""Most letters in a run with gaps smaller than the blank around an operator: more are words in wide-set print."""
_SQUARE = 0.15
"""Most glyphs, as a share, that are square and as high as a line: Hangul has more than a third, a formula a capital."""
_PITCH, _FEW_PITCH = 0.78, 0.9
"""Evenness of pitch from which print is a typewriter's; fewer than `_FEW` glyphs may fall on a grid by chance."""
_FEW = 15


@dataclass(frozen=True, slots=True)
class FormulaGroup:
    """Blocks that form one formula, by their places in reading order.

    `parts` are (box, label) in pixels of the full page.
    """

    blocks: tuple[int, ...]
    parts: tuple[tuple[Box, str], ...]


def find_formulas(page: Segmentation, labels: Sequence[str], gray: "NDArray[np.uint8]") -> list[FormulaGroup]:
    """Find formulas among the labelled blocks of a page.

    `gray` is the page, uint8 (height, width), at full size.
    """
    em = page.em / page.scale
    prints = {
        place: BlockPrint(_crop(gray, _to_full_page(block.box, page)), em)
        for place, (block, label) in enumerate(zip(page.blocks, labels, strict=True))
        if label in _LABELS and len(block.rows) <= _ROWS and _is_set_apart(block.box, page)
    }
    formulas = []
    for places in _groups(prints, page):
        box = _to_full_page(union([page.blocks[place].box for place in places]), page)
        formulas.append(FormulaGroup(places, tuple(_split_formula(_crop(gray, box), box, em))))
    return formulas


def _is_set_apart(box: Box, page: Segmentation) -> bool:
    """Return whether a block is indented and not a full line, as formulas are."""
    texts = [block.box for block in page.blocks if block.kind == "text"]
    return box.width < 0.9 * max(other.width for other in texts) and any(
        other.x1 < box.x1 - page.em and other.x2 > box.x1 for other in texts
    )


def _groups(prints: Mapping[int, "BlockPrint"], page: Segmentation) -> list[tuple[int, ...]]:
    """Return the places of each formula's pieces, such as limits, numerators and rows."""
    seeds = [place for place, printed in prints.items() if printed.has_signs and not printed.is_prose]
    pieces = {place for place, printed in prints.items() if not printed.is_prose}
    groups = []
    while seeds:
        group = [seeds[0]]
        while True:
            touching = (place for place in sorted(pieces - set(group)) if _is_piece(place, group, pieces, page))
            piece = next(touching, None)
            if piece is None:
                break
            group.append(piece)
        seeds = [place for place in seeds if place not in group]
        pieces -= set(group)
        groups.append(tuple(sorted(group)))
    return groups


def _is_piece(place: int, group: Sequence[int], pieces: Set[int], page: Segmentation) -> bool:
    """Return whether a block almost touches a formula, with nothing in between."""
    box, whole = page.blocks[place].box, union([page.blocks[other].box for other in group])
    near = max(box.y1 - whole.y2, whole.y1 - box.y2) < 0.7 * page.em
    narrow, wide = sorted((box, whole), key=lambda part: part.width)
    beside = narrow.x1 >= wide.x1 - page.em and narrow.x2 <= wide.x2 + page.em
    both = union([box, whole])
    strangers = (block.box for other, block in enumerate(page.blocks) if other not in pieces)
    return near and beside and not any(other.overlaps(both) and not other.overlaps(whole) for other in strangers)


class BlockPrint:
    """The print of a crop, uint8 (height, width), whose body text is `em` pixels high."""

    def __init__(self, gray: "NDArray[np.uint8]", em: float) -> None:
        self.em = em
        self.ink = ink_mask(gray, PRINT_CONTRAST).astype(np.uint8)
        high, wide = gray.shape
        _, numbers, stats, _ = cv2.connectedComponentsWithStats(self.ink, connectivity=8)
        self.shapes: list[tuple[Box, int]] = []
        for number, (x, y, w, h, area) in enumerate(stats[1:].tolist(), 1):
            if w > 0.9 * wide and h > 0.9 * high and area < 0.2 * w * h:
                # This is a frame around the print.
                self.ink[numbers == number] = 0
            elif max(w, h) >= 0.08 * em:
                self.shapes.append((Box(x, y, x + w, y + h), area))

    @property
    def has_signs(self) -> bool:
        """True if there is a sign that occurs in formulas but not in text.

        A drawing, whose shapes are mostly mere strokes, does not count.
        """
        if self._typical < 0.1 * self.em:
            return False
        return bool(self._equals) or self._has_tall_sign() or bool(self._fractions)

    @cached_property
    def is_prose(self) -> bool:
        """True if this is text or code, whatever signs it contains."""
        # The digits of an equation number are as close as the letters of a word, so they do not count.
        columns = [box for box in self._columns() if not any(box.inside(number) for number in self.numbers)]
        runs = _runs_of(columns, 0.13 * self.em)
        close = sum(run for run in runs if run >= _WORD)
        wide = sum(run for run in _runs_of(columns, 0.2 * self.em) if run >= _WORD)
        square = sum(
            box.height > 0.85 * self.em and 0.7 < box.height / box.width < 1.6
            for box in columns
            if not any(box.overlaps(bar) for bar in self._fractions)
        )
        return (
            square > _SQUARE * len(columns)
            or max(runs, default=0) > _LETTERS
            or (len(columns) >= _FEW and max(close / 0.4, wide / 0.6) > len(columns))
            or max(_runs_of(columns, 0.25 * self.em), default=0) > _SPACED_LETTERS
            or _pitch(columns, self.em) > (_PITCH if len(columns) >= _FEW else _FEW_PITCH)
        )

    @cached_property
    def _typical(self) -> float:
        return float(np.median([box.height for box, _ in self.shapes])) if self.shapes else 0.0

    @cached_property
    def _bars(self) -> list[Box]:
        return [box for box, _ in self.shapes if box.height <= 0.12 * self.em and box.width >= 0.3 * self.em]

    @cached_property
    def _equals(self) -> set[Box]:
        """The strokes of equals signs."""
        strokes: set[Box] = set()
        for upper, lower in product(self._bars, repeat=2):
            aligned = max(abs(upper.x1 - lower.x1), abs(upper.x2 - lower.x2)) <= 0.08 * self.em
            near = 0.08 * self.em < lower.y1 - upper.y1 < 0.45 * self.em and upper.width < 1.1 * self.em
            if aligned and near and not self.ink[upper.y2 : lower.y1, upper.x1 : upper.x2].any():
                strokes |= {upper, lower}
        return strokes

    @cached_property
    def _fractions(self) -> list[Box]:
        """The bars of fractions."""
        return [bar for bar in self._bars if bar not in self._equals and self._is_fraction(bar)]

    def _has_tall_sign(self) -> bool:
        """Return whether there is a thin, tall stroke: a sum, integral, root or bracket."""
        return any(
            box.height > max(1.35 * self.em, 1.6 * self._typical)
            and 0.1 * self.em < box.width < 1.2 * box.height
            and area < 0.45 * box.width * box.height
            for box, area in self.shapes
        )

    def _is_fraction(self, bar: Box) -> bool:
        """Return whether there is print above and below a bar, centred and no wider."""
        reach, side = round(1.2 * self.em), max(1, round(0.15 * self.em))
        for part in (self.ink[max(0, bar.y1 - reach) : bar.y1][::-1], self.ink[bar.y2 : bar.y2 + reach]):
            filled = np.flatnonzero(part[:, bar.x1 : bar.x2].any(axis=1))
            if not filled.size or filled[0] > 0.55 * self.em or np.ptp(filled) < 0.35 * self.em:
                return False
            beside = part[: reach // 2]
            if beside[:, max(0, bar.x1 - side) : bar.x1].any() or beside[:, bar.x2 : bar.x2 + side].any():
                return False
            across = np.flatnonzero(part[:, bar.x1 : bar.x2].any(axis=0))
            if abs((across[0] + across[-1]) / 2 - bar.width / 2) > max(0.2 * self.em, 0.12 * bar.width):
                return False
        return True

    @cached_property
    def numbers(self) -> list[Box]:
        """Numbers in round brackets, set apart at the right edge, top to bottom."""
        # An even kernel would move the left edge.
        words = cv2.morphologyEx(self.ink, cv2.MORPH_CLOSE, np.ones((3, 2 * round(0.25 * self.em) + 1), np.uint8))
        _, _, stats, _ = cv2.connectedComponentsWithStats(words, connectivity=8)
        boxes = [Box(x, y, x + w, y + h) for x, y, w, h, _ in stats[1:].tolist()]
        edge = max((box.x2 for box in boxes), default=0)
        numbers = (box for box in boxes if box.x2 > edge - 0.3 * self.em and self._is_number(box))
        return sorted(numbers, key=lambda number: number.y1)

    def _is_number(self, word: Box) -> bool:
        if not (0.8 * self.em < word.height < 1.6 * self.em and 0.9 * self.em < word.width < 4 * self.em):
            return False
        if self.ink[word.y1 : word.y2, max(0, word.x1 - round(0.7 * self.em)) : word.x1].any():
            return False
        shapes = sorted(box for box, _ in self.shapes if box.inside(word))
        inner = shapes[1:-1]
        # Digits are shorter than the brackets around them and taller than small letters; dots or hyphens may separate
        # them.
        digits = [box for box in inner if 0.5 * word.height < box.height < 0.85 * word.height]
        dots = [box for box in inner if max(box.width, box.height) < 0.4 * self.em]
        if not digits or len(digits) + len(dots) < len(inner):
            return False
        return self._bends(shapes[0], -1) and self._bends(shapes[-1], 1)

    def _bends(self, box: Box, side: int) -> bool:
        """Return whether a shape is a round bracket.

        The middle of one is further to one `side` (-1 left, 1 right) than its ends.
        """
        if box.height < 0.8 * self.em or box.width > 0.5 * box.height:
            return False
        thirds = np.array_split(_crop(self.ink, box), 3)
        top, middle, bottom = (float(np.nonzero(third)[1].mean()) for third in thirds)
        return min(side * (middle - top), side * (middle - bottom)) > 0.1 * box.width

    def _columns(self) -> list[Box]:
        """Return the glyphs: the ink of each row, cut at its white columns."""
        rows = [row for row in true_runs(np.asarray(self.ink.any(axis=1))) if row[1] - row[0] > 0.2 * self.em]
        glyphs = []
        for top, bottom in rows:
            strip = self.ink[top:bottom]
            for start, end in true_runs(np.asarray(strip.any(axis=0))):
                high = np.flatnonzero(strip[:, start:end].any(axis=1))
                glyphs.append(Box(start, top + int(high[0]), end, top + int(high[-1]) + 1))
        return glyphs


def _runs_of(glyphs: Sequence[Box], gap: float) -> list[int]:
    """Return the lengths of the runs of glyphs that are less than `gap` apart."""
    runs = [1] if glyphs else []
    for last, glyph in pairwise(glyphs):
        if 0 <= glyph.x1 - last.x2 < gap:
            runs[-1] += 1
        else:
            runs.append(1)
    return runs


def _pitch(glyphs: Sequence[Box], em: float) -> float:
    """Return how evenly glyphs fit a grid of the best pitch, 0 to 1.

    It is the mean resultant length of their phases.
    """
    # Dots and strokes may be anywhere in a typewriter's cell.
    middles = np.array([(box.x1 + box.x2) / 2 for box in glyphs if box.width > 0.15 * em])
    if len(middles) < 4:
        return 0.0
    pitches = np.arange(0.4, 0.75, 0.01) * em
    return float(np.abs(np.exp(2j * np.pi * middles[:, None] / pitches).mean(axis=0)).max())


def _split_formula(gray: "NDArray[np.uint8]", origin: Box, em: float) -> list[tuple[Box, str]]:
    """Split print, `gray` at `origin`, into labelled boxes of formulas and their numbers."""
    printed = BlockPrint(gray, em)
    parts: list[tuple[Box, str]] = []
    for top, bottom, number in _split_by_number(printed.ink, printed.numbers):
        band = printed.ink[top:bottom]
        formula = _ink_box(band, top)
        if number:
            rest = band.copy()
            rest[number.y1 - top : number.y2 - top, number.x1 : number.x2] = 0
            if rest.any() and not number.overlaps(_ink_box(rest, top)):
                parts += [(_ink_box(rest, top), "display_formula"), (number, "formula_number")]
                continue
        parts.append((formula, "display_formula"))
    x, y = origin.x1, origin.y1
    # The letters' soft edge is too light to count as ink, so the boxes are grown by it.
    return [
        (Box(x + x1 - _EDGE, y + y1 - _EDGE, x + x2 + _EDGE, y + y2 + _EDGE), label)
        for (x1, y1, x2, y2), label in parts
    ]


def _split_by_number(ink: "NDArray[np.uint8]", numbers: Sequence[Box]) -> list[tuple[int, int, Box | None]]:
    """Return a band (top, bottom, number) per number, cut at white rows below it."""
    bands: list[tuple[int, int, Box | None]] = []
    top = 0
    for number, following in pairwise(numbers):
        white = ~ink[number.y2 : following.y1].any(axis=1)
        if white.any():
            bottom = number.y2 + int(white.argmax())
            bands.append((top, bottom, number))
            top = bottom
    return [*bands, (top, len(ink), numbers[-1] if numbers else None)]


def _ink_box(ink: "NDArray[np.uint8]", top: int) -> Box:
    """Return the box around the ink of rows from `top`, which must have some."""
    rows, columns = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
    return Box(int(columns[0]), top + int(rows[0]), int(columns[-1]) + 1, top + int(rows[-1]) + 1)


def _to_full_page(box: Box, page: Segmentation) -> Box:
    """Return a box in pixels of the full page, with the letters' soft edge."""
    x1, y1, x2, y2 = box
    pad = 1
    return Box(
        max(0, int((x1 - pad) / page.scale)),
        max(0, int((y1 - pad) / page.scale)),
        ceil((x2 + pad) / page.scale),
        ceil((y2 + pad) / page.scale),
    )


def _crop(gray: "NDArray[np.uint8]", box: Box) -> "NDArray[np.uint8]":
    return gray[box.y1 : box.y2, box.x1 : box.x2]
