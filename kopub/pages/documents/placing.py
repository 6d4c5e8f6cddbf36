"""Puts the pieces of a document on the pages that print them. Pure."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, product, takewhile

import numpy as np
from numpy.typing import NDArray

from kopub.pages.documents.pieces import (
    BLANK,
    FORMULA,
    RUNNING,
    Piece,
    PieceCell,
    PrintedWords,
    letters_of,
)

_TABLE_PLACED = 0.5
"""Share of a table's letters that must be in print; some of its cells may be cut off."""
_MOST_HEADINGS = 3
"""Most rows that may be printed again at the head of a page."""
_TELLING = 8
"""Fewest letters of a text that show that it is held twice."""
_PART = re.compile(rf"{BLANK}|\s+|[^\s{BLANK}]+")


@dataclass(frozen=True)
class PlacedPieces:
    """The pieces on each page, from 0, and the texts that no page prints."""

    pages: Mapping[int, tuple[Piece, ...]] = field(default_factory=dict)
    unprinted: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


def place_pieces(
    pieces: Sequence[Piece], pages: Sequence[Sequence[str]], sheets: Mapping[str, int] | None = None
) -> PlacedPieces:
    """Return the pieces by the page that prints them, given the words of each page.

    A piece over several pages is divided. What is not printed is on the page of the piece before it. Pieces of slides
    are on their own pages if there are as many of both, and those of sheets if the first page of each sheet is given by
    its name. Running heads and feet are on every page that prints them.
    """
    starts = sheets or {}
    if not all(piece.sheet in starts for piece in pieces):
        return _placed(pieces, pages)
    placed: dict[int, tuple[Piece, ...]] = {}
    unprinted: dict[int, tuple[str, ...]] = {}
    for sheet, own in groupby(pieces, lambda piece: piece.sheet or ""):
        first = starts[sheet]
        end = min((start for start in starts.values() if start > first), default=len(pages))
        of_sheet = _placed(list(own), pages[first:end])
        placed |= {first + at: of_page for at, of_page in of_sheet.pages.items()}
        unprinted |= {first + at: texts for at, texts in of_sheet.unprinted.items()}
    return PlacedPieces(placed, unprinted)


def _placed(pieces: Sequence[Piece], pages: Sequence[Sequence[str]]) -> PlacedPieces:
    words = PrintedWords(pages)
    slides = max((piece.slide for piece in pieces if piece.slide is not None), default=-1) + 1
    placed: dict[int, list[Piece]] = defaultdict(list)
    unprinted: dict[int, list[str]] = defaultdict(list)
    last, printed = 0, ""
    # Their words are taken first, lest a text of the page takes them.
    running: dict[str, list[tuple[int, Piece]]] = {label: [] for label in RUNNING}
    for label, piece in product(RUNNING, pieces):
        if piece.label == label:
            running[label] += ((at, _plain(piece)) for at in words.pages_of(piece.text))
    heads, feet = running.values()
    for at, head in heads:
        placed[at].append(head)
    for piece in pieces:
        if piece.label in RUNNING:
            continue
        page = piece.slide if piece.slide is not None and slides == len(pages) else None
        parts: list[tuple[int, Piece]] = []
        if piece.printed:
            parts = _table(piece, words, page) if piece.is_table else _text(piece, words, page)
        if parts:
            printed += letters_of(piece.text)
        elif piece.printed and len(letters := letters_of(piece.text)) >= _TELLING and letters in printed:
            # Files hold some texts twice, for older programs and newer ones.
            continue
        else:
            last = last if page is None else page
            # A formula is printed in other signs.
            is_formula = piece.label == FORMULA
            parts = [(last, replace(_plain(piece), printed=is_formula))]
            if piece.printed and not is_formula and any(map(str.isalnum, piece.text)):
                unprinted[last].append(piece.text)
        for last, part in parts:
            placed[last].append(part)
    for at, foot in feet:
        placed[at].append(foot)
    of_pages = {at: tuple(pieces_of_page) for at, pieces_of_page in placed.items()}
    return PlacedPieces(of_pages, {at: tuple(texts) for at, texts in unprinted.items()})


def _plain(piece: Piece) -> Piece:
    cells = (replace(cell, text=cell.text.replace(BLANK, " ")) for cell in piece.cells)
    return replace(piece, cells=tuple(cells))


def _text(piece: Piece, words: PrintedWords, page: int | None) -> list[tuple[int, Piece]]:
    """Return a piece's text by page; empty if it is not printed."""
    [cell] = piece.cells
    if piece.label == FORMULA:
        for word in words.take(piece.printed_text(cell), page) or ():
            if word is not None:
                return [(words.page_of(word), piece)]
        return []
    texts = _divided(cell.text, words, words.take(cell.text, page))
    return [(at, replace(piece, cells=(replace(cell, text=text),))) for at, text in texts.items()]


def _divided(text: str, words: PrintedWords, word_of: Sequence[int | None] | None) -> dict[int, str]:
    """Return a text by page, given each letter's word; empty if it is not printed."""
    if word_of is None:
        return {}
    parts: list[tuple[int, str]] = []
    first = next(words.page_of(word) for word in word_of if word is not None)
    done = 0
    for part in _PART.findall(text):
        size = len(letters_of(part))
        printed = [words.page_of(word) for word in word_of[done : done + size] if word is not None]
        at, text_before = parts[-1] if parts else (first, "")
        if part == BLANK:
            # Within a printed word there is none.
            is_word = 0 < done < len(word_of) and word_of[done - 1] is not None and word_of[done - 1] == word_of[done]
            parts[-1:] = [(at, text_before if is_word else f"{text_before} ")]
        elif printed and printed[0] > at:
            parts.append((printed[0], part))
        else:
            parts[-1:] = [(at, text_before + part)]
        done += size
    return {at: page_text.strip() for at, page_text in parts}


def _table(piece: Piece, words: PrintedWords, page: int | None) -> list[tuple[int, Piece]]:
    """Return the rows of a table by page; empty if it is not printed."""
    words_of_cells = words.take_cells(piece.cells, page)
    texts = [_divided(cell.text, words, own) for cell, own in zip(piece.cells, words_of_cells, strict=True)]
    piece = _plain(piece)
    rows = [Counter[int]() for _ in range(max(cell.row for cell in piece.cells) + 1)]
    letters = printed = 0
    for cell, parts in zip(piece.cells, texts, strict=True):
        size = len(letters_of(cell.text))
        letters += size
        printed += size if parts else 0
        for at, text in parts.items():
            rows[cell.row][at] += len(letters_of(text))
    if not printed or printed < _TABLE_PLACED * letters:
        return []
    pages_of_rows = _pages_of_rows(rows, piece.sheet is not None)
    pages: dict[int, dict[int, list[PieceCell]]] = defaultdict(dict)
    """The cells of each row of each page; a row may have none of its own."""
    for row, own in enumerate(pages_of_rows):
        for at in own:
            pages[at][row] = []
    for cell, parts in zip(piece.cells, texts, strict=True):
        own = pages_of_rows[cell.row]
        by_page: dict[int, list[str]] = defaultdict(list)
        for where, text in parts.items():
            # The words of a cell that are on another page are those of another text that says the same.
            by_page[min(own, key=lambda at: abs(at - where))].append(text)
        if not parts:
            by_page[own[0]].append(cell.text)
        for at in own:
            pages[at][cell.row].append(replace(cell, text=" ".join(by_page[at])))
    tables: list[tuple[int, Piece]] = []
    tall = [cell for cell in piece.cells if cell.row_span > 1]
    for at, cells in sorted(pages.items()):
        headings = _headings(piece, words, at, min(cells)) if tables else {}
        tables.append((at, replace(piece, cells=_of_rows({**headings, **cells}, tall))))
    return tables


def _pages_of_rows(rows: Sequence[Counter[int]], are_whole: bool) -> list[list[int]]:
    """Return the pages of each row of a table, by its letters on each page.

    No row begins on a page before those of the row above it; as many letters as possible are on their row's pages. Rows
    that `are_whole` have one page.
    """
    pages = sorted(set().union(*rows))
    best = np.zeros(len(pages))
    before: list[NDArray[np.intp]] = []
    """For each row and its last page, the last page of the row above."""
    for row in rows:
        own = np.zeros(len(pages))
        own[np.searchsorted(pages, list(row))] = list(row.values())
        sums = np.cumsum(own)
        gain = best if are_whole else best - sums + own
        tops = np.maximum.accumulate(gain)
        before.append(np.searchsorted(tops, tops))
        best = tops + (own if are_whole else sums)
    last, pages_of_rows = int(np.argmax(best)), list[list[int]]()
    for row, above in zip(reversed(rows), reversed(before), strict=True):
        first = int(above[last])
        within = pages[last : last + 1] if are_whole else pages[first : last + 1]
        pages_of_rows.append([at for at in within if row[at]] or [within[0]])
        last = first
    return pages_of_rows[::-1]


def _headings(piece: Piece, words: PrintedWords, page: int, before: int) -> dict[int, list[PieceCell]]:
    """Return the first rows of a table that a page prints again."""
    again: dict[int, list[PieceCell]] = {}
    first = list(takewhile(lambda cell: cell.row < _MOST_HEADINGS, piece.cells))
    for row in range(min(_MOST_HEADINGS, before)):
        cells = [cell for cell in first if cell.row == row]
        texts = [cell.text for cell in cells if cell.text]
        if not texts or any(words.take(text, page) is None for text in texts):
            break
        again[row] = cells
    return again


def _of_rows(rows: Mapping[int, Sequence[PieceCell]], tall: Sequence[PieceCell]) -> tuple[PieceCell, ...]:
    """Return the cells of some rows of a table as its only ones.

    `tall` are all its cells of several rows; one that begins above these rows is empty in them.
    """
    numbers = {row: at for at, row in enumerate(sorted(rows))}
    cells = [replace(cell, text="") for cell in tall if cell.row not in rows]
    for row in sorted(rows):
        cells += rows[row]
    of_rows: list[PieceCell] = []
    for cell in cells:
        covered = [numbers[row] for row in range(cell.row, cell.row + cell.row_span) if row in numbers]
        if covered:
            of_rows.append(replace(cell, row=covered[0], row_span=len(covered)))
    return tuple(sorted(of_rows, key=lambda cell: (cell.row, cell.column)))
