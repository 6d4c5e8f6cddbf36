"""The paragraphs, tables and boxes of an HWP document, and their pieces. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kopub.pages.documents.hwp_formulas import latex_of
from kopub.pages.documents.pieces import BLANK, FORMULA, TABLE, Piece, PieceCell, with_empty_cells

_BLANKS = f" \t\n\r\u3000{BLANK}"
_MOST_TITLE = 100
"""Most characters of a title; longer paragraphs of an outline are running text."""


@dataclass(frozen=True, slots=True)
class HwpParagraph:
    """A paragraph with the objects that are tied to it.

    `level` is its level in the outline, 1 for the uppermost, 0 for other paragraphs.
    """

    text: str
    level: int = 0
    objects: "Sequence[HwpTable | HwpBox | HwpFormula]" = ()


@dataclass(frozen=True, slots=True)
class HwpCell:
    """A cell with its upper left corner, from 0, and its spans."""

    row: int
    column: int
    row_span: int
    column_span: int
    content: Sequence[HwpParagraph]


@dataclass(frozen=True, slots=True)
class HwpTable:
    """A table with its cells and its caption."""

    cells: Sequence[HwpCell]
    caption: Sequence[HwpParagraph] = ()


@dataclass(frozen=True, slots=True)
class HwpBox:
    """Paragraphs of a box, caption or note, or of a running head or foot."""

    content: Sequence[HwpParagraph]
    label: str = "text"


@dataclass(frozen=True, slots=True)
class HwpFormula:
    """An equation in Hancom's own language."""

    script: str


def pieces_of(content: Sequence[HwpParagraph], label: str = "text") -> Iterator[Piece]:
    """Yield the pieces of paragraphs, each with the objects tied to it behind it."""
    for paragraph in content:
        if text := paragraph.text.strip(_BLANKS):
            is_title = label == "text" and paragraph.level > 0 and len(text) <= _MOST_TITLE
            yield Piece.of("paragraph_title" if is_title else label, text, level=max(1, paragraph.level))
        for tied in paragraph.objects:
            if isinstance(tied, HwpBox):
                yield from pieces_of(tied.content, label if tied.label == "text" else tied.label)
            elif isinstance(tied, HwpTable):
                yield from pieces_of(tied.caption, "figure_title")
                apart: list[HwpTable | HwpBox] = []
                cells: list[PieceCell] = []
                for cell in tied.cells:
                    text = "\n".join(_lines(cell.content, apart))
                    cells.append(PieceCell(cell.row, cell.column, cell.row_span, cell.column_span, text))
                # A table without text is none.
                if any(cell.text for cell in cells):
                    yield Piece(TABLE, tuple(with_empty_cells(cells)))
                # The tables and notes in its cells are behind it.
                yield from pieces_of([HwpParagraph("", objects=apart)])
            elif formula := latex_of(tied.script):
                yield Piece.of(FORMULA, formula)


def _lines(content: Sequence[HwpParagraph], apart: "list[HwpTable | HwpBox]") -> Iterator[str]:
    """Yield the texts of a cell, and add its tables and notes to `apart`."""
    for paragraph in content:
        if text := paragraph.text.strip(_BLANKS):
            yield text
        for tied in paragraph.objects:
            if isinstance(tied, HwpTable) or (isinstance(tied, HwpBox) and tied.label == "footnote"):
                apart.append(tied)
            elif isinstance(tied, HwpBox):
                yield from _lines(tied.content, apart)
            elif formula := latex_of(tied.script):
                yield formula
