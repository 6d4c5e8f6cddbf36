"""Puts the pieces of a document on the pages that print them. Pure."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from kopub.pages.documents.pieces import BLANK, FORMULA, RUNNING, Piece, PieceCell, PrintedWords, letters_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

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


def place_pieces(pieces: Sequence[Piece], pages: Sequence[Sequence[str]]) -> PlacedPieces:
    """Return the pieces by the page that prints them, given the words of each page.

    A piece over several pages is divided. What is not printed is on the page of the piece before it. Pieces of slides
    are on their own pages if there are as many of both. Running heads and feet are on every page that prints them.
    """
    words = PrintedWords(pages)
    slides = max((piece.slide for piece in pieces if piece.slide is not None), default=-1) + 1
    placed: dict[int, list[Piece]] = defaultdict(list)
    unprinted: dict[int, list[str]] = defaultdict(list)
    last, printed = 0, ""
    heads, feet = (
        [(at, _plain(piece)) for piece in pieces if piece.label == label for at in words.pages_of(piece.text)]
        for label in RUNNING
    )
    for at, head in heads:
        placed[at].append(head)
    for piece in (piece for piece in pieces if piece.label not in RUNNING):
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
    return PlacedPieces(
        {at: tuple(some) for at, some in placed.items()}, {at: tuple(some) for at, some in unprinted.items()}
    )


def _plain(piece: Piece) -> Piece:
    cells = (replace(cell, text=cell.text.replace(BLANK, " ")) for cell in piece.cells)
    return replace(piece, cells=tuple(cells))


def _text(piece: Piece, words: PrintedWords, page: int | None) -> list[tuple[int, Piece]]:
    """Return a piece's text by page; empty if it is not printed."""
    [cell] = piece.cells
    if piece.label == FORMULA:
        taken = words.take(piece.printed_text(cell), page)
        return [(words.page_of(word), piece) for word in taken or () if word is not None][:1]
    return [
        (at, replace(piece, cells=(replace(cell, text=text),)))
        for at, text in _divided(cell.text, words, words.take(cell.text, page)).items()
    ]


def _divided(text: str, words: PrintedWords, taken: Sequence[int | None] | None) -> dict[int, str]:
    """Return a text by page; empty if none of its letters is `taken`."""
    if taken is None:
        return {}
    parts: list[tuple[int, str]] = []
    first = next(words.page_of(word) for word in taken if word is not None)
    done = 0
    for part in _PART.findall(text):
        size = len(letters_of(part))
        printed = [words.page_of(word) for word in taken[done : done + size] if word is not None]
        at, said = parts[-1] if parts else (first, "")
        if part == BLANK:
            # Within a printed word there is none.
            is_word = 0 < done < len(taken) and taken[done - 1] is not None and taken[done - 1] == taken[done]
            parts[-1:] = [(at, said if is_word else f"{said} ")]
        elif printed and printed[0] > at:
            parts.append((printed[0], part))
        else:
            parts[-1:] = [(at, said + part)]
        done += size
    return {at: said.strip() for at, said in parts}


def _table(piece: Piece, words: PrintedWords, page: int | None) -> list[tuple[int, Piece]]:
    """Return the rows of a table by page; empty if it is not printed."""
    taken = words.take_cells(piece.cells, page)
    texts = [_divided(cell.text, words, own) for cell, own in zip(piece.cells, taken, strict=True)]
    piece = _plain(piece)
    letters = [len(letters_of(cell.text)) for cell in piece.cells]
    printed = sum(count for count, parts in zip(letters, texts, strict=True) if parts)
    if not printed or printed < _TABLE_PLACED * sum(letters):
        return []
    rows = [Counter[int]() for _ in range(max(cell.row for cell in piece.cells) + 1)]
    for cell, parts in zip(piece.cells, texts, strict=True):
        rows[cell.row].update({at: len(letters_of(text)) for at, text in parts.items()})
    pages: dict[int, dict[int, list[PieceCell]]] = defaultdict(dict)
    """The cells of each row of each page."""
    for row, own in enumerate(_pages_of_rows(rows)):
        # The words of a cell that are on another page are those of another text that says the same.
        own_texts = [
            (cell, [(min(own, key=lambda at: abs(at - where)), text) for where, text in parts.items()])
            for cell, parts in zip(piece.cells, texts, strict=True)
            if cell.row == row
        ]
        for at in own:
            pages[at][row] = [
                replace(cell, text=" ".join(text for where, text in parts or [(own[0], cell.text)] if where == at))
                for cell, parts in own_texts
            ]
    found: list[tuple[int, Piece]] = []
    for at, held in sorted(pages.items()):
        again = _headings(piece, words, at, min(held)) if found else {}
        found.append((at, _of_rows(piece, {**again, **held})))
    return found


def _pages_of_rows(rows: Sequence[Counter[int]]) -> list[list[int]]:
    """Return the pages of each row of a table, by its letters on each page.

    No row begins on a page before those of the row above it; as many letters as possible are on their row's pages.
    """
    known = sorted(set().union(*rows))
    best = np.zeros(len(known))
    before: list[NDArray[np.intp]] = []
    """For each row and its last page, the last page of the row above."""
    for row in rows:
        sums = np.cumsum([row[at] for at in known])
        gain = best - np.concatenate(([0], sums[:-1]))
        tops = np.maximum.accumulate(gain)
        before.append(np.searchsorted(tops, tops))
        best = sums + tops
    last, found = int(np.argmax(best)), list[list[int]]()
    for row, above in zip(reversed(rows), reversed(before), strict=True):
        first = int(above[last])
        found.append([at for at in known[first : last + 1] if row[at]] or [known[first]])
        last = first
    return found[::-1]


def _headings(piece: Piece, words: PrintedWords, page: int, before: int) -> dict[int, list[PieceCell]]:
    """Return the first rows of a table that a page prints again."""
    again: dict[int, list[PieceCell]] = {}
    for row in range(min(_MOST_HEADINGS, before)):
        cells = [cell for cell in piece.cells if cell.row == row]
        if not any(cell.text for cell in cells) or any(
            words.take(cell.text, page) is None for cell in cells if cell.text
        ):
            break
        again[row] = cells
    return again


def _of_rows(piece: Piece, rows: Mapping[int, Sequence[PieceCell]]) -> Piece:
    """Return the table of some rows, with empty cells below longer ones."""
    numbers = {row: at for at, row in enumerate(sorted(rows))}
    cells = [cell for row in sorted(rows) for cell in rows[row]]
    begun = [
        replace(cell, text="")
        for cell in piece.cells
        if cell.row not in rows and any(row in rows for row in range(cell.row, cell.row + cell.row_span))
    ]
    kept = [
        replace(cell, row=covered[0], row_span=len(covered))
        for cell in (*begun, *cells)
        if (covered := [numbers[row] for row in range(cell.row, cell.row + cell.row_span) if row in numbers])
    ]
    return replace(piece, cells=tuple(sorted(kept, key=lambda cell: (cell.row, cell.column))))
