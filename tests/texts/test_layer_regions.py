"""Regions corrected by a text layer: no letter of it is lost in a picture or outside of all regions."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from kopub.boxes import Box
from kopub.layout.regions import Layout, Region, Task
from kopub.pages.documents.pdf import Pdfs
from kopub.pages.documents.text_layer import NO_MARK, Mark, TextLayer, Word
from kopub.states import State
from kopub.texts.extracted_text import extract_texts
from kopub.texts.layer_regions import correct_regions
from tests.support.sources.pdf_files import sheet, text_pdf, written

ROWS = (("Item", "2023", "2024"), ("Staff", "1,204", "-310"), ("Other", "(12)", "4.5"))
BANDS = "".join(f"{0.6 + 0.1 * row} g 36 {400 - 20 * row} 300 20 re f\n" for row in range(3)).encode() + b"0 g\n"


def cells(x: int = 40, top: int = 406) -> bytes:
    return written(*((x + 100 * at, top - 20 * row, text.replace("(", r"\(").replace(")", r"\)"))
                     for row, texts in enumerate(ROWS) for at, text in enumerate(texts)), size=10)  # fmt: skip


@pytest.fixture
def texts(tmp_path: Path):
    """Return a function that gives (label, text) of a page's corrected regions; boxes are in points from the top."""

    def texts(
        content: bytes,
        *regions: tuple[str, Task, tuple[int, int, int, int]],
        fonts: Mapping[str, bytes] | None = None,
    ) -> list[tuple[str, str]]:
        path = tmp_path / "some.pdf"
        path.write_bytes(text_pdf(sheet(content, box="0 0 420 595"), fonts=fonts))
        made = Pdfs().make(path, 0, 144)
        layer = TextLayer.from_json(made.text_layer or "")
        found = tuple(
            Region(at, label, task, 1.0, (2.0 * x1, 2.0 * y1, 2.0 * x2, 2.0 * y2))
            for at, (label, task, (x1, y1, x2, y2)) in enumerate(regions)
        )
        corrected = correct_regions(Layout("some_1", State.OK, regions=found), layer).regions
        taken = extract_texts(layer, corrected).texts
        assert [region.index for region in corrected] == list(range(len(corrected)))
        return [(region.label, taken.get(region.index, "")) for region in corrected]

    return texts


TABLE = (
    "<table><tr><td>Item</td><td>2023</td><td>2024</td></tr><tr><td>Staff</td><td>1,204</td><td>-310</td></tr>"
    "<tr><td>Other</td><td>(12)</td><td>4.5</td></tr></table>"
)


def test_rows_on_filled_bands_that_look_like_pictures_are_one_table(texts):
    bands = [("image", Task.SKIP, (36, 175 + 20 * row, 336, 195 + 20 * row)) for row in range(3)]
    assert texts(BANDS + cells(), *bands) == [("table", TABLE)]


def test_rules_end_where_their_clip_cuts_them(texts):
    upright = " ".join(f"{40 + 90 * at} 0 m {40 + 90 * at} 420 l S" for at in range(4))
    level = " ".join(f"40 {420 - 20 * at} m 310 {420 - 20 * at} l S" for at in range(4))
    below = written((46, 300, "A line of text below the table"), (140, 200, "7"), size=10)
    drawn = f"0.5 w {level} q 40 360 270 60 re W n {upright} Q ".encode() + cells() + b"\n" + below
    found = texts(drawn)
    assert ("table", TABLE) in found
    assert [text for label, text in found if label != "table"] == ["A line of text below the table", "7"]


def test_aligned_columns_are_a_table_and_the_lines_around_them_stay(texts):
    content = cells() + written((40, 450, "The budget of two years is here"), (40, 340, "It was paid at once"), size=10)
    lines = [("text", Task.TEXT, (36, 130, 340, 265))]
    assert texts(content, *lines) == [
        ("text", "The budget of two years is here"),
        ("table", TABLE),
        ("text", "It was paid at once"),
    ]


def test_words_in_a_picture_and_in_no_region_get_regions(texts):
    curves = b"".join(b"%d 500 m %d 470 200 460 %d 440 c S\n" % (60 + at, 90 + at, 80 + at) for at in range(0, 200, 6))
    content = curves + written((60, 430, "Name of an axis"), (60, 100, "Alone at the foot"), size=10)
    assert texts(content, ("image", Task.SKIP, (40, 90, 300, 180))) == [
        ("image", ""),
        ("text", "Name of an axis"),
        ("text", "Alone at the foot"),
    ]


def test_prose_in_two_columns_is_no_table(texts):
    left = [(40, 400 - 14 * at, f"these are the words of line {at}") for at in range(6)]
    right = [(220, 400 - 14 * at, f"and others stand beside it {at}") for at in range(6)]
    columns = [("text", Task.TEXT, (36, 180, 200, 275)), ("text", Task.TEXT, (210, 180, 400, 275))]
    assert [label for label, _ in texts(written(*left, *right, size=10), *columns)] == ["text", "text"]


def test_a_title_in_brackets_is_no_formula_and_a_page_that_looks_blank_has_its_words():
    words = (Word("<참고", Box(100, 100, 160, 130), Mark.LINE), Word("3>", Box(170, 100, 200, 130)))
    layer = TextLayer(800, 1000, words, 0, 10, np.zeros((100, 80), bool))
    formula = Region(0, "display_formula", Task.FORMULA, 1.0, (90, 90, 210, 140))
    found = correct_regions(Layout("some_1", State.OK, regions=(formula,)), layer)
    assert [(region.label, region.task) for region in found.regions] == [("text", Task.TEXT)]
    found = correct_regions(Layout("some_1", State.BLANK, "nothing is printed"), layer)
    assert (found.state, found.reason, extract_texts(layer, found.regions).texts) == (State.OK, None, {0: "<참고 3>"})


def test_columns_of_vertical_writing_are_one_region_from_right_to_left():
    words = [
        Word(text, Box(x, 100 + 100 * at, x + 30, 190 + 100 * at), Mark.DOWN | (Mark.LINE if not at else NO_MARK))
        for x, column in ((500, "첫째 줄의 글"), (430, "둘째 줄의 글"))
        for at, text in enumerate(column.split())
    ]
    layer = TextLayer(800, 1000, tuple(words), 0, 10, np.zeros((100, 80), bool))
    columns = (420, 90, 470, 400), (490, 90, 540, 290), (490, 290, 540, 400)
    # Layout may take what stands beside each other in its columns for lines.
    rows = (425, 90, 535, 195), (425, 195, 535, 400)
    for boxes in (columns, rows):
        blocks = tuple(Region(at, "text", Task.TEXT, 1.0, box) for at, box in enumerate(boxes))
        found = correct_regions(Layout("some_1", State.OK, regions=blocks), layer)
        assert extract_texts(layer, found.regions).texts == {0: "첫째 줄의 글\n둘째 줄의 글"}


def test_a_turned_line_in_the_margin_is_no_part_of_the_lines_beside_it():
    stamp = Word("2024", Box(40, 100, 70, 290), Mark.UP), Word("Archive:", Box(40, 300, 70, 490), Mark.UP)
    level = Word("the-first-line", Box(100, 150, 700, 180)), Word("5", Box(40, 292, 70, 298))
    layer = TextLayer(800, 1000, (*level, *stamp), 0, 10, np.zeros((100, 80), bool))
    lines = (Region(0, "text", Task.TEXT, 1.0, (30, 140, 710, 310)),)
    found = correct_regions(Layout("some_1", State.OK, regions=lines), layer)
    assert sorted(extract_texts(layer, found.regions).texts.values()) == ["5", "Archive: 2024", "the-first-line"]


def test_two_columns_that_layout_took_for_lines_are_read_one_after_the_other(texts):
    left = [(40, 500 - 16 * at, f"this is line number {at} of the left column") for at in range(10)]
    right = [(230, 500 - 16 * at, f"here is line number {at} of its neighbour") for at in range(10)]
    title = [(40, 540, "A title above both of the columns on this page")]
    regions = [
        ("paragraph_title", Task.TEXT, (36, 40, 400, 60)),
        *(("text", Task.TEXT, (36, 80 + 80 * at, 400, 159 + 80 * at)) for at in range(2)),
    ]
    found = texts(written(*title, *left, *right, size=9), *regions)
    lines = [line for _, text in found for line in text.splitlines()]
    assert lines == [text for _, _, text in (*title, *left, *right)]


def test_the_dots_of_a_contents_list_leave_no_gutter(texts):
    titles = [f"{at} A chapter about all that there is to know of {'more ' * (at % 3)}it" for at in range(10)]
    rows: list[tuple[int, int, str]] = []
    for at, title in enumerate(titles):
        dots = [(x, 500 - 16 * at, ".") for x in range(232 + 25 * (at % 3), 380, 5)]
        rows += [(40, 500 - 16 * at, title), *dots, (390, 500 - 16 * at, str(at))]
    frame = b"398 350 m 398 506 l S\n"
    found = texts(frame + written(*rows, size=9), ("text", Task.TEXT, (36, 80, 396, 260)))
    lines = [line for _, text in found for line in text.splitlines()]
    assert [line.split("…")[0].strip() for line in lines] == titles


def test_a_chart_beside_prose_is_a_column_of_its_own(texts):
    prose = [(40, 500 - 16 * at, f"this is line number {at} of the left column") for at in range(10)]
    ticks = [(240, 500 - 32 * at, f"{400 - 100 * at}") for at in range(5)]
    ends = ((270 + at, 290 + at, 380 - at) for at in range(0, 90, 6))
    curves = b"".join(b"%d 500 m %d 470 330 400 %d 360 c S\n" % end for end in ends)
    found = texts(curves + written(*prose, *ticks, size=9), ("text", Task.TEXT, (36, 80, 400, 260)))
    lines = [line for _, text in found for line in text.splitlines()]
    assert lines[:10] == [text for _, _, text in prose]


def test_rows_of_labels_and_figures_are_no_column(texts):
    rows = [
        (x, 500 - 16 * at, text)
        for at in range(10)
        for x, text in ((40, f"the item {at}"), (190, f"{at},123"), (300, f"{at}.5"))
    ]
    found = texts(written(*rows, size=9), ("text", Task.TEXT, (36, 80, 400, 260)))
    assert [label for label, _ in found] == ["table"]
    assert found[0][1].count("<td>") == 30


def test_terms_beside_their_explanations_are_no_columns(texts):
    terms = [(40, 500 - 48 * at, f"term {at}") for at in range(4)]
    prose = [(130, 500 - 16 * at, f"this is line number {at} of what the terms mean") for at in range(12)]
    drawn = sorted([*terms, *prose], key=lambda line: (-line[1], line[0]))
    found = texts(written(*drawn, size=9), ("text", Task.TEXT, (36, 80, 400, 290)))
    assert found[0][1].splitlines()[0] == "term 0 this is line number 0 of what the terms mean"


def test_a_table_of_every_other_row_on_a_band_is_whole(texts):
    band = b"0.9 g 36 400 300 20 re f 36 360 300 20 re f 0 g\n"
    found = texts(band + cells(), ("table", Task.TABLE, (36, 215, 336, 235)))
    # The row between the two bands has no cells of its own; the layout found the last row alone.
    assert found == [("table", TABLE)]


def test_a_narrow_column_is_parted_where_white_runs_through_all_rows(texts):
    figures = ("9,512", "804", "(7,310)", "1,266", "95")
    names = ("new", "old", "new", "", "kept")
    rows = [
        *((40, 400 - 15 * at, f"{'road' * (at % 3 + 1)} works") for at in range(5)),
        *((200 - 5.0 * len(text), 400 - 15 * at, text.replace("(", r"\(").replace(")", r"\)"))
          for at, text in enumerate(figures)),
        *((208, 400 - 15 * at, text) for at, text in enumerate(names) if text),
    ]  # fmt: skip
    [(label, html)] = texts(written(*rows, size=10), ("text", Task.TEXT, (36, 180, 340, 265)))
    assert label == "table"
    assert "<td>9,512</td><td>new</td>" in html
    assert "<td>roadroad works</td><td>804</td><td>old</td>" in html


COURIER = {"C": b"<< /Type /Font /Subtype /Type1 /BaseFont /Courier /Encoding /WinAnsiEncoding >>"}
CODE = ((40, 400, "for i in range(30):"), (64, 388, "print(i, end)"), (40, 364, "done = True"))


def test_lines_in_a_font_of_even_width_are_code_with_their_indents(texts):
    listing = written(*((x, y, text.replace("(", r"\(").replace(")", r"\)")) for x, y, text in CODE), size=10, font="C")
    content = written((40, 450, "This counts all the numbers up to thirty"), size=10) + b"\n" + listing
    content += b"\n" + written((40, 300, "and then it says that it is done"), size=10)
    # Layout joins the prose with the code, or tears the code.
    for regions in ([(36, 130, 400, 310)], [(36, 130, 400, 205), (36, 205, 400, 310)]):
        assert texts(content, *(("text", Task.TEXT, box) for box in regions), fonts=COURIER) == [
            ("text", "This counts all the numbers up to thirty"),
            ("algorithm", "```\nfor i in range(30):\n    print(i, end)\n\ndone = True\n```"),
            ("text", "and then it says that it is done"),
        ]


def test_a_letter_typed_in_such_a_font_is_no_code(texts):
    lines = ((40, 400, "Dear office, the bridge"), (40, 388, "is open. We thank you"), (40, 376, "for your help."))
    content = written(*lines, size=10, font="C")
    assert [label for label, _ in texts(content, ("text", Task.TEXT, (36, 180, 400, 230)), fonts=COURIER)] == ["text"]
