"""Tables of born-digital PDFs: every cell says what the text layer says, with rules, filled bands or neither."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from kopub.boxes import Box
from kopub.layout.regions import Region, Task
from kopub.pages.documents.pdf import Pdfs
from kopub.pages.documents.text_layer import TextLayer, Word
from kopub.texts.extracted_text import ExtractedTexts, extract_texts
from kopub.texts.layer_tables import table_of
from tests.support.sources.pdf_files import mapped_pdf, sheet, written

WIDE, HIGH, LEFT, TOP = 90, 20, 40, 540
SIGNS = dict(zip("{}~^_`", "△▲㎡가나다", strict=True))
"""Characters that Helvetica prints, and what its Unicode map says that they are."""
BUDGET = (
    ("^_", "`^", "%"),
    ("^", "{48,163", "{58.9"),
    ("_", "}1,204", "(12.5)"),
    ("`", "77~", "1467.0"),
    ("^`", "0", "-3.1"),
)


def meant(text: str) -> str:
    return "".join(SIGNS.get(char, char) for char in text)


def typeset(rows: Sequence[Sequence[str]], top: float = TOP) -> bytes:
    """Return the text of rows, each cell `WIDE` by `HIGH` points."""
    lines = [
        (LEFT + 6 + column * WIDE, top - 14 - row * HIGH, text.replace("(", r"\(").replace(")", r"\)"))
        for row, cells in enumerate(rows)
        for column, text in enumerate(cells)
        if text
    ]
    return written(*lines, size=10)


def strokes(columns: int, rows: int, top: float = TOP) -> bytes:
    """Return the rules of a full grid."""
    right, bottom = LEFT + columns * WIDE, top - rows * HIGH
    level = [f"{LEFT} {top - row * HIGH} m {right} {top - row * HIGH} l S" for row in range(rows + 1)]
    upright = [f"{LEFT + at * WIDE} {bottom} m {LEFT + at * WIDE} {top} l S" for at in range(columns + 1)]
    return "\n".join(["0.5 w", *level, *upright, ""]).encode()


@pytest.fixture
def extracted(tmp_path: Path):
    """Return a function that takes the texts of a table that fills the part of a page below `top` points."""

    def extracted(content: bytes, top: float = TOP, bottom: float = 0.0) -> ExtractedTexts:
        path = tmp_path / "some.pdf"
        path.write_bytes(mapped_pdf(sheet(content, box="0 0 420 595"), SIGNS))
        made = Pdfs().make(path, 0, 144)
        assert made.text_layer is not None
        layer = TextLayer.from_json(made.text_layer)
        box = 0.0, 2.0 * (595 - top) - 10, 840.0, 2.0 * (595 - bottom)
        return extract_texts(layer, [Region(0, "table", Task.TABLE, 1.0, box)])

    return extracted


@pytest.fixture
def table(extracted):
    """Return a function that gives the content of such a table."""
    return lambda content, top=TOP, bottom=0.0: extracted(content, top, bottom).texts.get(0, "")


def html(rows: Sequence[Sequence[str]]) -> str:
    cells = ("".join(f"<td>{meant(text)}</td>" for text in row) for row in rows)
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>"


def test_a_ruled_table_has_every_sign(table):
    assert table(strokes(3, 5) + typeset(BUDGET)) == html(BUDGET)


def test_columns_without_rules_are_a_table(table):
    assert table(typeset(BUDGET)) == html(BUDGET)


def test_filled_bands_are_the_rows_of_a_table(table):
    bands = [f"{0.7 + 0.1 * (row % 2)} g {LEFT} {TOP - HIGH - row * HIGH} {3 * WIDE} {HIGH} re f" for row in range(5)]
    assert table("\n".join([*bands, "0 g", ""]).encode() + typeset(BUDGET)) == html(BUDGET)


def test_figures_between_two_rules_are_rows(table):
    right = LEFT + 3 * WIDE
    level = [f"{LEFT} {TOP - at * HIGH} m {right} {TOP - at * HIGH} l S\n" for at in (0, 1, 5)]
    assert table("".join(level).encode() + typeset(BUDGET)) == html(BUDGET)


def test_cells_without_a_rule_between_them_are_one(table):
    rules = strokes(3, 3).replace(
        f"{LEFT + WIDE} {TOP - 3 * HIGH} m {LEFT + WIDE} {TOP} l S".encode(),
        f"{LEFT + WIDE} {TOP - 3 * HIGH} m {LEFT + WIDE} {TOP - HIGH} l S".encode(),
    )
    rules = rules.replace(
        f"{LEFT} {TOP - 2 * HIGH} m".encode(),
        f"{LEFT + WIDE} {TOP - 2 * HIGH} m".encode(),
    )
    found = table(rules + typeset([("^", "", "_"), ("`", "1", "2"), ("", "3", "{4")]))
    assert found == (
        '<table><tr><td colspan="2">가</td><td>나</td></tr><tr><td rowspan="2">다</td><td>1</td><td>2</td></tr>'
        "<tr><td>3</td><td>△4</td></tr></table>"
    )


def test_figures_that_touch_across_a_rule_stay_in_their_cells(table):
    close = written((LEFT + WIDE - 33, TOP - 14, "48,163"), (LEFT + WIDE + 1, TOP - 14, "12"), size=10)
    assert table(strokes(2, 1) + close) == html([("48,163", "12")])


def test_two_tables_of_a_page_stay_apart(table):
    content = strokes(3, 5) + typeset(BUDGET) + strokes(2, 2, top=300) + typeset([("1", "{2"), ("3", "4")], top=300)
    assert table(content, bottom=320) == html(BUDGET)
    assert table(content, top=300) == html([("1", "{2"), ("3", "4")])


def test_a_picture_of_a_table_below_some_words_is_not_taken(table):
    curves = b"".join(
        b"%d 500 m %d 400 300 300 %d 200 c S\n" % (150 + at, 160 + at, 140 + at) for at in range(0, 200, 9)
    )
    assert table(curves + typeset([("^", ""), ("_", "")])) == ""


def test_rows_between_rules_of_dots_complete_what_is_read(extracted):
    places = [(LEFT + across, TOP - HIGH * down) for across in range(0, 3 * WIDE, 3) for down in range(len(BUDGET) + 1)]
    curve = "%d %d m %d %d %d %d %d %d c S\n"
    dots = "".join(curve % (x, y, x, y + 1, x + 1, y + 1, x + 1, y) for x, y in places).encode()
    found = extracted(dots + typeset(BUDGET))
    assert found.texts == {}
    assert found.parts == {0: html(BUDGET)}


def test_the_text_below_the_rules_of_a_table_is_no_row_of_it():
    rules = [Box(0, y, 200, y + 1) for y in (0, 20, 40)] + [Box(x, 0, x + 1, 40) for x in (0, 100, 200)]
    words = [Word(text, Box(x, y, x + 20, y + 10)) for text, x, y in (("가", 10, 5), ("나", 110, 5), ("다", 10, 25))]
    words += [
        Word("1,234", Box(110, 25, 140, 35)),
        Word("주:", Box(10, 46, 30, 56)),
        Word("<잠정>", Box(35, 46, 60, 56)),
    ]
    layer = TextLayer(300, 300, tuple(words), 0, 2, np.zeros((150, 150), bool), rules=tuple(rules))
    table = table_of(layer, words, (0, 0, 200, 60))
    assert table is not None
    cells = "<tr><td>가</td><td>나</td></tr><tr><td>다</td><td>1,234</td></tr>"
    assert table.html() == f"<table>{cells}</table>\n\n주: &lt;잠정&gt;"
