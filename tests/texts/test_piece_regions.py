"""The regions of a page of an office file: its pieces, and whatever else is printed."""

import numpy as np

from kopub.boxes import Box
from kopub.layout.regions import Layout, Region, Task
from kopub.pages.documents.pieces import Piece, PieceCell
from kopub.pages.documents.text_layer import TextLayer, Word
from kopub.recognition.regions import TextOrigin
from kopub.states import State
from kopub.texts.layer_regions import correct_regions
from kopub.texts.piece_regions import texts_of_pieces

WORDS = {
    "대외비": (800, 10, 900, 30),
    "1.": (60, 100, 80, 120),
    "추진": (100, 100, 150, 120),
    "배경": (160, 100, 210, 120),
    "부서": (100, 200, 150, 220),
    "증감": (300, 200, 350, 220),
    "총무과": (100, 240, 160, 260),
    "△48,163": (300, 240, 380, 260),
    "1분기": (520, 480, 570, 500),
    "20": (505, 430, 525, 450),
}


def table(label: str, *rows: tuple[str, ...], **more) -> Piece:
    cells = (PieceCell(row, at, 1, 1, text) for row, held in enumerate(rows) for at, text in enumerate(held))
    return Piece(label, tuple(cells), **more)


def layer(*pieces: Piece) -> TextLayer:
    words = tuple(Word(text, Box(*box)) for text, box in WORDS.items())
    made = TextLayer(1000, 1000, words, 0, 10, np.zeros((100, 100), bool), pieces=pieces)
    return TextLayer.from_json(made.to_json())


def test_pieces_are_regions_in_their_order_and_no_other_print_is_lost() -> None:
    stored = layer(
        Piece.of("paragraph_title", "추진 배경"),
        table("table", ("부서", "증감"), ("총무과", "△48,163")),
        table("chart", ("", "매출"), ("1분기", "12.5"), box=(0.5, 0.4, 0.9, 0.52), printed=False),
        Piece("aside_text", (PieceCell(0, 0, 1, 1, "설비 점검 때문"),), printed=False),
    )
    seen = (
        Region(0, "header", Task.ABANDON, 1.0, (790.0, 5.0, 910.0, 35.0)),
        # What layout made of the title, the table and the chart.
        Region(1, "text", Task.TEXT, 1.0, (50.0, 90.0, 400.0, 280.0)),
        Region(2, "image", Task.SKIP, 1.0, (500.0, 400.0, 900.0, 520.0)),
        Region(3, "image", Task.SKIP, 1.0, (500.0, 700.0, 900.0, 900.0)),
    )
    found = correct_regions(Layout("a_1", State.OK, None, seen), stored).regions
    assert [(region.index, region.label, region.text) for region in found] == [
        (0, "header", None),
        (1, "paragraph_title", "1. 추진 배경"),
        (2, "table", "<table><tr><td>부서</td><td>증감</td></tr><tr><td>총무과</td><td>△48,163</td></tr></table>"),
        (3, "chart", None),
        (4, "table", "<table><tr><td></td><td>매출</td></tr><tr><td>1분기</td><td>12.5</td></tr></table>"),
        (5, "text", None),
        (6, "image", None),
        (7, "aside_text", "설비 점검 때문"),
    ]
    assert [found[at].bbox for at in (1, 2, 3, 7)] == [
        (60, 100, 210, 120),
        (100, 200, 380, 260),
        (500, 400, 900, 520),
        (0, 1000, 1000, 1000),
    ]
    origins = {index: text.origin for index, text in texts_of_pieces(found, stored).items()}
    document, unprinted = TextOrigin.DOCUMENT, TextOrigin.UNPRINTED
    assert origins == {1: document, 2: document, 4: unprinted, 7: unprinted}


def test_a_page_that_prints_nothing_keeps_its_note() -> None:
    note = Piece("aside_text", (PieceCell(0, 0, 1, 1, "말로만"),), printed=False)
    blank = TextLayer.from_json(TextLayer.empty(300, 200).to_json())
    layout = Layout("a_1", State.BLANK)
    assert correct_regions(layout, blank) == layout
    stored = TextLayer(300, 200, (), 0, 300, np.zeros((1, 1), bool), pieces=(note,))
    found = correct_regions(layout, stored)
    assert (found.state, [region.text for region in found.regions]) == (State.OK, ["말로만"])
