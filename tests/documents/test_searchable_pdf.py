"""Searchable PDFs of pictures, as PDFium reads them."""

import io

from PIL import Image
from pypdfium2 import PdfDocument

from kopub.documents.searchable_pdf import PdfPicture, placed_lines, searchable_pdf


def picture(text: str, box: tuple[float, float, float, float] = (100.0, 200.0, 700.0, 300.0)) -> PdfPicture:
    data = io.BytesIO()
    Image.new("RGB", (400, 500), (10, 200, 30)).save(data, "JPEG")
    return PdfPicture(data.getvalue(), (400, 500), (800, 1000), placed_lines(text, box))


def test_the_text_of_a_picture_is_found_where_it_stands() -> None:
    made = searchable_pdf("보고서", [picture("화면 밝기를 조절합니다.\nCafé (3) \\ 漢字 かな 😀"), picture("둘째 쪽")])
    document = PdfDocument(made)
    assert (len(document), document.get_metadata_value("Title")) == (2, "보고서")
    first = document[0].get_textpage()
    assert " ".join(first.get_text_bounded().split()) == "화면 밝기를 조절합니다. Café (3) \\ 漢字 かな 😀"
    assert document[1].get_textpage().get_text_bounded().strip() == "둘째 쪽"
    found = first.search("밝기를")
    start, count = found.get_next() or (0, 0)
    left, bottom, right, top = first.get_rect(0) if first.count_rects(start, count) else (0, 0, 0, 0)
    width, height = document[0].get_size()
    assert round(height) == 842
    assert 100 / 800 <= left / width < right / width <= 701 / 800
    assert 199 / 1000 <= 1 - top / height < 1 - bottom / height <= 251 / 1000


def test_nothing_but_the_picture_is_drawn() -> None:
    document = PdfDocument(searchable_pdf("", [picture("가" * 100)]))
    pixels = document[0].render().to_numpy()
    assert (pixels.min(axis=(0, 1)) == pixels.max(axis=(0, 1))).all()


def test_a_page_without_a_picture_has_its_text_and_a_hostile_one_is_a_page() -> None:
    hostile = PdfPicture(None, (0, 0), (0, 0), placed_lines("\ud800 ) Tj ET \x00 %%EOF", (0.0, 0.0, 0.0, 0.0)))
    bare = PdfPicture(None, (0, 0), (800, 1000), picture("글").lines)
    document = PdfDocument(searchable_pdf("\udfff) >>", [bare, hostile]))
    assert len(document) == 2
    assert document[0].get_textpage().get_text_bounded().strip() == "글"
