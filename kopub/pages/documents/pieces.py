"""The pieces of a document's own structure, and their places in its print. Pure."""

import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import compress, product
from pathlib import Path
from typing import Any, Self

TABLE, CHART, FORMULA = "table", "chart", "display_formula"
"""Labels of a table, of the figures of a chart, and of a formula in TeX."""
RUNNING = ("header", "footer")
"""Labels of what is printed on many pages, above and below all else."""
BLANK = "\u200b"
"""Stands between two texts that are printed with or without a blank between them."""


@dataclass(frozen=True, slots=True)
class PieceCell:
    """The text of a cell, with its upper left corner, from 0, and its spans."""

    row: int
    column: int
    row_span: int
    column_span: int
    text: str


@dataclass(frozen=True, slots=True)
class Piece:
    """A title, paragraph, list entry, table or note as the file holds it.

    `label` is a label of regions. A table has cells in the order of their rows; anything else has one. `slide` is the
    number of its slide among those that are shown, from 0. `box` is the place (x1, y1, x2, y2) of a chart in shares of
    its page. A piece that is not `printed`, such as a speaker's note, is on the page of its neighbours. `level` is that
    of a title, 1 for the uppermost below the document's own. `sheet` is the name of its sheet, no row of which a page
    cuts.
    """

    label: str
    cells: tuple[PieceCell, ...]
    slide: int | None = None
    box: tuple[float, float, float, float] | None = None
    printed: bool = True
    level: int = 1
    sheet: str | None = None

    @classmethod
    def of(cls, label: str, text: str, slide: int | None = None, level: int = 1) -> Self:
        """Return a piece that is no table."""
        return cls(label, (PieceCell(0, 0, 1, 1, text),), slide, level=level)

    @property
    def is_table(self) -> bool:
        """True if its content is a table."""
        return self.label in (TABLE, CHART)

    @property
    def text(self) -> str:
        """Its texts, one per line."""
        return "\n".join(cell.text for cell in self.cells if cell.text)

    def printed_text(self, cell: PieceCell) -> str:
        """Return the text of a cell in signs that are printed."""
        return _TEX.sub("", cell.text) if self.label == FORMULA else cell.text

    def to_json(self) -> list[Any]:
        """Return the piece as it is stored."""
        cells = [[cell.row, cell.column, cell.row_span, cell.column_span, cell.text] for cell in self.cells]
        return [self.label, cells, self.box, self.printed, self.level]

    @classmethod
    def from_json(cls, stored: Sequence[Any]) -> Self:
        """Return the piece stored by `to_json`. Raises `ValueError` or `TypeError`."""
        label, cells, box, printed, level = stored
        return cls(
            str(label),
            tuple(
                PieceCell(int(row), int(column), int(rows), int(columns), str(text))
                for row, column, rows, columns, text in cells
            ),
            box=None if box is None else (float(box[0]), float(box[1]), float(box[2]), float(box[3])),
            printed=bool(printed),
            level=int(level),
        )


@dataclass(frozen=True, slots=True)
class Conversion:
    """A document's PDF, and by page, from 0, what it `lost` and the document's pieces."""

    pdf: Path
    lost: Mapping[int, str]
    pieces: Mapping[int, Sequence[Piece]] = field(default_factory=dict)


_MOST_CELLS = 400_000
"""Most cells of a table, empty ones included."""


def with_empty_cells(cells: Sequence[PieceCell]) -> list[PieceCell]:
    """Return a table's cells in order, with empty ones where it has none.

    Raises `ValueError` for too many.
    """
    height = max(cell.row + cell.row_span for cell in cells)
    width = max(cell.column + cell.column_span for cell in cells)
    if height * width > _MOST_CELLS:
        raise ValueError("a table of too many cells")
    free = set(product(range(height), range(width)))
    for cell in cells:
        rows = range(cell.row, cell.row + cell.row_span)
        free.difference_update(product(rows, range(cell.column, cell.column + cell.column_span)))
    empty = [PieceCell(*place, 1, 1, "") for place in free]
    return sorted([*cells, *empty], key=lambda cell: (cell.row, cell.column))


_TEX = re.compile(r"\\(?:begin|end)\{[a-z]+\}|\\(?:[A-Za-z]+|.)|[{}^_&]")
"""What of TeX is not printed."""
_RULE = re.compile(r"([^\w\s])\1{3,}")
"""A rule or leader of one sign, printed in any length."""
_IN_NUMBER = re.compile(r"\d[.,]\d")
_SEED = 6
"""Letters of a text that are looked up at once."""
_SHORT = 4
"""Letters below which a whole text must be a word of the print, and a last part must follow the others."""
_LONG = 24
"""Letters of a cell that takes its words before others if it is printed once and whole."""
_FAR = 4000
"""Most letters of the print between two parts of one text: those of a foot, a head and other cells."""
_PLACED = 0.7
"""Share of its letters that a text must have in print; its number may be printed in another form."""


def letters_of(text: str) -> str:
    """Return what is compared of a text: its visible characters, in one form."""
    plain = _RULE.sub(r"\1", unicodedata.normalize("NFKC", text)).casefold()
    return "".join(char for char in plain if char.isprintable() and char != " ")


class PrintedWords:
    """The words of pages in print, each of which belongs to one text."""

    def __init__(self, pages: Iterable[Iterable[str]]) -> None:
        self._words: list[int] = []
        """The number of each letter's word, counted over all pages."""
        self._edges: set[int] = {0}
        """Where words begin and end."""
        self._pages: list[range] = []
        """The letters of each page."""
        self._word_counts: list[int] = []
        """The number of words up to the end of each page."""
        letters, count = list[str](), 0
        for words in pages:
            first = len(self._words)
            for word in words:
                letters.append(letters_of(word))
                self._words += [count] * len(letters[-1])
                self._edges.add(len(self._words))
                count += 1
            self._pages.append(range(first, len(self._words)))
            self._word_counts.append(count)
        self._letters = "".join(letters)
        self._taken = bytearray(len(self._letters))
        self._at = 0
        """The place after the text before, near which the next is looked for."""

    def take(self, text: str, page: int | None = None) -> list[int | None] | None:
        """Return the word of each letter of a text, and give it these words.

        A letter that is not printed has none. None if the text is not printed, or not on the one `page` where it may
        be.
        """
        return self._take(text, self._at, self._within(page), None)

    def take_cells(self, cells: Sequence[PieceCell], page: int | None = None) -> list[list[int | None] | None]:
        """Return what `take` returns for each cell of a table, in the order of rows.

        A cell is first looked for on the pages of its row and the next, right behind print that is taken: a sheet's
        page has its numbers before its texts, both in the order of rows. Of two such places, a cell has the one nearer
        to that of the cell above it. A row begins where the one above it ends. A table within a row of another is on an
        earlier page than the text before it.
        """
        within = self._within(page)
        letters = [letters_of(cell.text) for cell in cells]
        longest = max(letters, key=len)
        place = self._find(longest, self._at, within, False, 0) if len(longest) >= _SHORT else None
        if place is not None and self.page_of(self._words[place]) < self.page_of(self._words[max(self._at - 1, 0)]):
            self._at = place
        # Long cells that are printed once and whole take their words before all others.
        whole: dict[int, tuple[list[int | None] | None, int]] = {}
        """The words of such a cell, and the place after it, by the cell's number."""
        begin = at = self._at
        for number, text in enumerate(letters):
            near = range(max(within.start, at - _FAR), min(within.stop, at + _FAR))
            if len(text) >= _LONG and self._letters.count(text, near.start, near.stop) == 1:
                place = self._find(text, at, near, False, 0)
                if place is not None:
                    words = self._take(cells[number].text, place, near, None)
                    whole[number] = words, (at := self._at)
        self._at = begin
        of_cells: list[list[int | None] | None] = []
        above: dict[int, int] = {}
        row, pages = -1, list[int]()
        of_row: range | None = None
        for number, cell in enumerate(cells):
            if pages and cell.row != row:
                pages = [max(pages[1:] or pages)]
            row = cell.row
            at = above.get(cell.column, self._at)
            if pages:
                after = next((letters.stop for letters in self._pages[max(pages) + 1 :] if letters), len(self._letters))
                of_row = range(self._pages[min(pages)].start, after) if page is None else self._pages[page]
                at = min(max(at, of_row.start), of_row.stop)
            words, self._at = whole.get(number) or (self._take(cell.text, at, within, of_row), self._at)
            of_cells.append(words)
            if words is not None:
                above[cell.column] = self._at
                pages.append(self.page_of(self._words[self._at - 1]))
        return of_cells

    def _within(self, page: int | None) -> range:
        return range(len(self._letters)) if page is None else self._pages[page]

    def _take(self, text: str, at: int, within: range, near: range | None) -> list[int | None] | None:
        """Take a text nearest to `at`, a cell first within `near`."""
        wanted = letters_of(text)
        at = min(max(at, within.start), within.stop)
        words: list[int | None] = [None] * len(wanted)
        places: list[int] = []
        done = 0
        whole = None
        if wanted and near is not None:
            within = near if len(wanted) < _SEED else within
            whole = self._find(wanted, at, near, False, 0, follows=True)
            whole = self._find(wanted, at, near, False, 0) if whole is None else whole
        if wanted and whole is None:
            whole = self._find(wanted, at, within, False, len(wanted))
        while done < len(wanted) and len(places) + len(wanted) - done >= _PLACED * len(wanted):
            seed = wanted[done : done + _SEED]
            place = whole
            if whole is None and (len(seed) < _SEED or self._seeds[hash(seed) % len(self._seeds)]):
                place = self._find(seed, at, within, bool(places), len(wanted))
            if place is None:
                done += 1
                continue
            while (
                done < len(wanted)
                and place < within.stop
                and self._letters[place] == wanted[done]
                and not self._taken[place]
            ):
                self._taken[place] = True
                words[done] = self._words[place]
                places.append(place)
                done, place = done + 1, place + 1
            at = place
        if not wanted or len(places) < _PLACED * len(wanted):
            for place in places:
                self._taken[place] = False
            parts = [part for part in text.split(BLANK) if letters_of(part)]
            if len(parts) < 2:
                return None
            # What stands between them, such as a formula, may be long.
            of_parts: list[int | None] = []
            is_printed = False
            for part in parts:
                of_part = self._take(part, at, within, near)
                if of_part:
                    is_printed, at = True, self._at
                of_parts += of_part or [None] * len(letters_of(part))
            return of_parts if is_printed else None
        self._at = at
        return words

    @cached_property
    def _seeds(self) -> bytearray:
        """A mark at the hash of each seed in print; others cannot be found."""
        marks = bytearray(16 * len(self._letters) + 1)
        for place in range(len(self._letters) - _SEED + 1):
            marks[hash(self._letters[place : place + _SEED]) % len(marks)] = True
        return marks

    def pages_of(self, text: str) -> list[int]:
        """Return the pages that print a text, and give it its words on each."""
        return [page for page in range(len(self._pages)) if self.take(text, page) is not None]

    def page_of(self, word: int) -> int:
        """Return the page of a word, both from 0."""
        return bisect_right(self._word_counts, word)

    def untaken(self) -> set[int]:
        """Return the words that belong to no text, or have no letters to compare."""
        letters, taken = Counter(self._words), Counter(compress(self._words, self._taken))
        return {word for word in range(self._word_counts[-1]) if 2 * taken[word] < letters[word] or not letters[word]}

    def _find(self, seed: str, at: int, within: range, has_begun: bool, size: int, follows: bool = False) -> int | None:
        """Return the free place of a seed nearest to `at`.

        If it `follows`, the letter before it is taken.
        """
        start, end = within.start, within.stop
        if has_begun:
            start, end = max(start, at - _FAR), min(end, at + _FAR)
        if has_begun and len(seed) < _SHORT:
            start, end = max(start, at), min(end, at + len(seed))
        must_be_word = size < _SHORT
        after = self._letters.find(seed, at, end)
        while after >= 0 and not self._is_free(after, len(seed), must_be_word, follows):
            after = self._letters.find(seed, after + 1, end)
        if after >= 0:
            # What is farther back is farther off.
            start = max(start, 2 * at - after - len(seed))
        before = self._letters.rfind(seed, start, at)
        while before >= 0 and not self._is_free(before, len(seed), must_be_word, follows):
            before = self._letters.rfind(seed, start, before + len(seed) - 1)
        if must_be_word and max(after, before) < 0 and self._letters.startswith(seed, at, end) and not follows:
            # Words of narrow columns are joined in print.
            return at if self._is_free(at, len(seed), False) else None
        if min(after, before) < 0:
            return max(after, before) if max(after, before) >= 0 else None
        return after if after - at <= at - before - len(seed) else before

    def _is_free(self, place: int, size: int, must_be_word: bool, follows: bool = False) -> bool:
        if any(self._taken[place : place + size]):
            return False
        if follows and not any(self._taken[max(place - 1, 0) : place]):
            return False
        for edge in (place, place + size) if must_be_word else ():
            # No number, and no word apart from its signs, goes across either end.
            if edge not in self._edges and (
                _IN_NUMBER.search(self._letters[max(0, edge - 2) : edge + 2])
                or all(map(str.isalnum, self._letters[edge - 1 : edge + 1]))
            ):
                return False
        return True
