"""Text layers of PDF pages: words where they are printed, and their marks."""

from pathlib import Path

import numpy as np
import pytest

from kopub.pages.documents import pdf as pdf_pages
from kopub.pages.documents.pdf import Pdfs
from kopub.pages.documents.pictures import Pictures
from kopub.pages.documents.text_layer import Mark, TextLayer
from kopub.pages.page import decode
from kopub.texts.layer_lines import lines_of, text_of
from tests.support.sources.corpora import page_image
from tests.support.sources.pdf_files import HELVETICA, UNMAPPED, mapped_pdf, pdf, sheet, text_pdf, written

A5 = "0 0 420 595"
WIDE = "0 0 200 80"
LINES = ((72, 400, "Hello world"), (72, 380, "second line"))


@pytest.fixture
def read(tmp_path: Path):
    """Return a function that gives a first page's text layer and pixels at 144 dpi."""

    def read(content: bytes) -> tuple[TextLayer | None, np.ndarray]:
        path = tmp_path / "some.pdf"
        path.write_bytes(content)
        made = Pdfs().make(path, 0, 144)
        return TextLayer.from_json(made.text_layer) if made.text_layer else None, decode(made.data)

    return read


def texts(layer: TextLayer) -> list[str]:
    return [word.text for word in layer.words]


def printed(pixels: np.ndarray) -> list[int]:
    """Return (x1, y1, x2, y2) of all ink."""
    rows, columns = np.nonzero(pixels[..., 0] < 128)
    return [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]


@pytest.mark.parametrize(
    ("entries", "turned"),
    [
        (b"", False),
        (b"/Rotate 90", False),
        (b"/Rotate 180", False),
        (b"/Rotate 270", False),
        (b"/CropBox [40 300 300 500]", False),
        (b"/Rotate 90 /CropBox [40 300 300 500]", False),
        (b"/UserUnit 2", False),
        (b"", True),
    ],
)
def test_words_stand_where_they_are_printed(read, entries: bytes, turned: bool):
    layer, pixels = read(text_pdf(sheet(written(*LINES, turned=turned), entries, box=A5)))
    assert sorted(texts(layer)) == ["Hello", "line", "second", "world"]
    assert (layer.height, layer.width) == pixels.shape[:2]
    x1, y1, x2, y2 = zip(*(word.box for word in layer.words), strict=True)
    np.testing.assert_allclose([min(x1), min(y1), max(x2), max(y2)], printed(pixels), atol=2)
    assert not any(word.marks & (Mark.NO_INK | Mark.INVISIBLE | Mark.UNMAPPED) for word in layer.words)
    assert not layer.bare.any()


def test_lines_and_directions_are_marked(read):
    layer, _ = read(text_pdf(sheet(written(*LINES), box=A5)))
    assert [bool(word.marks & Mark.LINE) for word in layer.words] == [True, False, True, False]
    for entries, mark in ((b"/Rotate 90", Mark.DOWN), (b"/Rotate 270", Mark.UP)):
        layer, _ = read(text_pdf(sheet(written(*LINES), entries, box=A5)))
        assert all(word.marks & mark for word in layer.words)


@pytest.mark.parametrize("entries", [b"", b"/Rotate 90", b"/Rotate 180"])
def test_a_page_that_is_drawn_sideways_is_set_upright(read, entries: bytes):
    lines = ((72, 100, "A table that is wider"), (100, 100, "than it is high was drawn"), (300, 100, "sideways"))
    upright = sheet(written(*lines, turned=True), entries, box=A5)
    layer, _ = read(text_pdf(upright))
    assert (layer.width, layer.height) == (1190, 840)
    assert not any(word.marks & (Mark.UP | Mark.DOWN) for word in layer.words)
    assert text_of(lines_of(layer.words)) == "\n".join(text for _, _, text in lines)
    few, _ = read(text_pdf(sheet(written(*lines) + b"\n" + written(*lines[:1], turned=True), entries, box=A5)))
    assert (few.width < few.height) is (entries != b"/Rotate 90")


def test_a_column_of_vertical_writing_has_its_blanks(read):
    columns = ((300, "세로쓰기 문서의 첫째"), (260, "둘째 줄은 왼쪽에"))
    letters = {char: chr(ord("A") + at) for at, char in enumerate(sorted({*"".join(text for _, text in columns)}))}
    drawn = [
        (x, 500 - 20 * at - 6 * text[:at].count(" "), letters[char])
        for x, text in columns
        for at, char in enumerate(text)
        if char != " "
    ]
    meanings = {letter: char for char, letter in letters.items()}
    layer, _ = read(mapped_pdf(sheet(written(*drawn, size=20), box=A5), meanings))
    assert text_of(lines_of(layer.words)).split("\n") == [text for _, text in columns]


def test_what_a_crop_box_cuts_away_is_left_out_and_what_lies_beyond_the_sheet_is_counted(read):
    lines = (*LINES, (72, 100, "cut away"), (900, 400, "nowhere"))
    layer, _ = read(text_pdf(sheet(written(*lines), b"/CropBox [40 300 300 500]", box=A5)))
    assert texts(layer) == ["Hello", "world", "second", "line"]
    assert layer.outside == len("nowhere")


def test_invisible_words_and_words_without_ink_are_marked(read):
    page = written(LINES[0]) + b"\n" + written((72, 300, "hidden"), mode=3) + b"\n0 0 1 rg 60 190 200 20 re f\n"
    page += b"0 0 1 rg " + written((72, 195, "drowned"))
    layer, _ = read(text_pdf(sheet(page, box=A5)))
    marks = {word.text: word.marks & (Mark.INVISIBLE | Mark.NO_INK) for word in layer.words}
    assert marks == {"Hello": 0, "world": 0, "hidden": Mark.INVISIBLE | Mark.NO_INK, "drowned": Mark.NO_INK}


def test_characters_of_a_font_without_a_unicode_map_are_marked(read):
    page = b"BT /F2 12 Tf 72 400 Td <003100320033> Tj ET"
    layer, _ = read(text_pdf(sheet(page, box=A5), fonts={"F2": UNMAPPED}))
    assert all(word.marks & Mark.UNMAPPED for word in layer.words)
    layer, _ = read(mapped_pdf(sheet(written((72, 400, "abc")), box=A5), {"a": "가", "b": "\ue000", "c": "\ud800"}))
    assert texts(layer) == ["가\ue000\ufffd"]


def test_print_that_no_word_covers_is_bare(read):
    page = written(*LINES) + b"\n72 200 100 40 re f"
    layer, _ = read(text_pdf(sheet(page, box=A5)))
    rows, columns = np.nonzero(layer.bare)
    assert rows.min() * layer.cell == pytest.approx(2 * (595 - 240), abs=layer.cell)
    assert (columns.max() + 1) * layer.cell == pytest.approx(2 * 172, abs=2 * layer.cell)


def test_print_made_bold_by_drawing_it_twice_counts_once(read):
    layer, _ = read(text_pdf(sheet(written((72, 400, "bold"), (72.4, 400, "bold"), (72, 300, "bold")), box=A5)))
    assert texts(layer) == ["bold", "bold"]


def test_the_raised_number_of_a_note_is_no_digit_of_the_number_before_it(read):
    note = b"\nBT /F1 12 Tf 20 50 Td (Sales 1,325) Tj /F1 6 Tf 5 Ts (1\\)) Tj ET"
    assert texts(read(text_pdf(sheet(note, box=WIDE)))[0]) == ["Sales", "1,325", "1)"]
    even = b"\nBT /F1 12 Tf 20 50 Td (Sales 1,325) Tj /F1 11 Tf (1\\)) Tj ET"
    assert texts(read(text_pdf(sheet(even, box=WIDE)))[0]) == ["Sales", "1,3251)"]


def test_a_sign_drawn_after_its_row_stands_in_the_gap_that_it_was_left(read):
    row = written((20, 50, "North"), (58, 50, "South")) + b"\n" + written((52, 50, "-"), (100, 50, "West"))
    layer, _ = read(text_pdf(sheet(row, box=WIDE)))
    assert text_of(lines_of(layer.words)) == "North - South West"


def test_a_word_that_a_hyphen_divides_is_marked(read):
    lines = (72, 400, "a micro-"), (72, 386, "kernel and more words")
    layer, _ = read(text_pdf(sheet(written(*lines), box=A5)))
    assert [word.text for word in layer.words if word.marks & Mark.HYPHEN] == ["micro"]


def test_a_page_without_text_and_an_image_have_no_layer(read, tmp_path: Path):
    assert read(text_pdf(sheet(b"0 0 20 20 re f", box=A5)))[0] is None
    (tmp_path / "scan.png").write_bytes(page_image())
    assert Pictures().make(tmp_path / "scan.png", 0, 144).text_layer is None


def test_a_stored_layer_comes_back_as_it_was(read):
    layer, _ = read(text_pdf(sheet(written(*LINES) + b"\n72 200 100 40 re f", box=A5)))
    again = TextLayer.from_json(layer.to_json())
    assert (again.words, again.outside, again.cell) == (layer.words, layer.outside, layer.cell)
    np.testing.assert_array_equal(again.bare, layer.bare)


@pytest.mark.parametrize("stored", ["{}", "[", "[]", "null", '{"size": [1, 1]}', "[" * 100_000])
def test_a_damaged_layer_says_that_it_is_damaged(stored: str):
    layer = TextLayer.from_json(stored)
    assert layer.words == ()
    assert layer.failure.startswith("it is damaged: ")
    assert TextLayer.from_json(layer.to_json()).failure == layer.failure


PICTURE = "q 300 0 0 200 50 300 cm BI /W 2 /H 2 /BPC 8 /CS /G /F /AHx ID 00FF00FF> EI Q"
"""Two black and two white fields, around the print of `LINES`."""


def stencil(field: str) -> str:
    """Return the picture as a mask that paints some of its four fields black."""
    return PICTURE.replace("/BPC 8 /CS /G", "/IM true /BPC 1").replace("00FF00FF", field)


@pytest.mark.parametrize(
    ("picture", "hidden"),
    [
        (f"{PICTURE} %s", False),
        (f"%s {PICTURE}", True),
        (f"%s {stencil('0000')}", True),
        (f"%s {stencil('C0C0')}", False),
    ],
)
def test_text_below_a_picture_is_invisible(read, picture: str, hidden: bool):
    layer, _ = read(text_pdf(sheet((picture % written(*LINES).decode()).encode(), box=A5)))
    assert {bool(word.marks & Mark.INVISIBLE) for word in layer.words} == {hidden}


def test_text_below_a_picture_in_a_form_is_invisible(read):
    form = "<< /Type /XObject /Subtype /Form /BBox [0 0 9 9] /Matrix [40 0 0 40 40 300] /Length {} >> stream\n{}"
    drawn = PICTURE.replace("300 0 0 200 50 300", "9 0 0 9 0 0")
    page = sheet(
        written(*LINES) + b"\n/X1 Do", b"/Resources << /Font << /F1 5 0 R >> /XObject << /X1 6 0 R >> >>", box=A5
    )
    layer, _ = read(pdf(page, objects=[HELVETICA, form.format(len(drawn), f"{drawn}\nendstream").encode()]))
    assert all(word.marks & Mark.INVISIBLE for word in layer.words)


def test_text_without_colour_is_invisible(read):
    font = b"/Resources << /Font << /F1 5 0 R >> /ExtGState << /G1 << /ca 0 >> >> >>"
    page = sheet(b"/G1 gs " + written(*LINES), font, box=A5)
    layer, _ = read(pdf(page, objects=[HELVETICA]))
    assert all(word.marks & Mark.INVISIBLE for word in layer.words)


def test_text_that_cannot_be_read_costs_the_layer_and_not_the_page(read, monkeypatch: pytest.MonkeyPatch):
    def fails(*_: object) -> None:
        raise ValueError("cannot convert float NaN to integer")

    monkeypatch.setattr(pdf_pages, "read_layer", fails)
    layer, pixels = read(text_pdf(sheet(written(*LINES), box=A5)))
    assert (layer.words, layer.failure) == ((), "cannot convert float NaN to integer")
    assert pixels.shape == (1190, 840, 3)


def form() -> bytes:
    """Return a form: a name, a ticked box, an empty one, a hidden one and a password."""
    frame = (
        b"<< /Type /XObject /Subtype /Form /BBox [0 0 20 20] /Length 22 >> stream\n1 w 2 2 16 16 re S    \nendstream"
    )
    widget = "<< /Type /Annot /Subtype /Widget /P 3 0 R /Rect [%s] /F %d /T (%s) %s >>"
    ticks = "/FT /Btn /V /%s /AS /%s /AP << /N << /Yes 6 0 R /Off 6 0 R >> >>"
    typed = "/FT /Tx /DA (/F1 12 Tf 0 g) /Ff %d /V (%s)"
    fields = [
        widget % ("72 500 200 520", 4, "name", typed % (0, "Hong Gildong")),
        widget % ("72 450 92 470", 4, "yes", ticks % ("Yes", "Yes")),
        widget % ("72 420 92 440", 4, "no", ticks % ("Off", "Off")),
        widget % ("72 390 92 410", 6, "hidden", ticks % ("Yes", "Yes")),
        widget % ("72 350 200 370", 4, "secret", typed % (1 << 13, "pass")),
    ]
    numbers = " ".join(f"{at} 0 R" for at in range(7, 7 + len(fields)))
    font = "<< /Font << /F1 5 0 R >> >>"
    page = sheet(written((100, 454, "I agree"), (100, 424, "I refuse")), f"/Annots [{numbers}]".encode(), box=A5)
    catalog = f"/AcroForm << /Fields [{numbers}] /DR {font} >>".encode()
    entries, content = page
    resources = f" /Resources {font}".encode()
    return pdf((entries + resources, content), catalog=catalog, objects=[HELVETICA, frame, *map(str.encode, fields)])


def test_fields_of_a_form_are_words_and_ticked_boxes_are_told_from_others(read):
    layer, _ = read(form())
    held = {word.text: word.box for word in layer.words}
    assert {*held} == {"I", "agree", "refuse", "Hong Gildong", "☑", "☐"}
    assert abs(held["☑"][1] - held["agree"][1]) < 30 < abs(held["☐"][1] - held["agree"][1])


def test_a_word_ends_with_its_line_where_pdfium_joins_lines(read):
    # PDFium compares letters in the coordinates of their own forms, in which both words stand at one place.
    drawn = written((2, 12, "mm"), size=12)
    form = (
        b"<< /Type /XObject /Subtype /Form /BBox [0 0 200 40] /Resources << /Font << /F1 5 0 R >> >> /Length %d >> "
        b"stream\n%s\nendstream" % (len(drawn), drawn)
    )
    content = b"q 1 0 0 1 50 500 cm /X Do Q q 1 0 0 1 50 460 cm /X Do Q"
    layer, _ = read(pdf(sheet(content, b"/Resources << /XObject << /X 6 0 R >> >>", A5), objects=[HELVETICA, form]))
    assert [(word.text, bool(word.marks & Mark.LINE)) for word in layer.words] == [("mm", True), ("mm", True)]
