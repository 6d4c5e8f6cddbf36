"""Searchable PDFs of pictures, as PDFium reads them."""

import io
import re
import shutil
import subprocess
import zlib
from pathlib import Path

import pikepdf
import pytest
from PIL import Image
from pypdfium2 import PdfDocument

from kopub.config.settings import ROOT
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


def test_ghostscript_makes_an_archive_copy_with_all_words(tmp_path: Path) -> None:
    program = shutil.which("gs")
    if program is None:
        pytest.skip("Ghostscript is not installed: apt-get install --no-install-recommends ghostscript")
    lines = ["한국어 문서의 텍스트 층", "Plain Latin text, 2026", "수식 α²+β² ≤ x", "漢字 혼용 문장"]
    (tmp_path / "made.pdf").write_bytes(searchable_pdf("보고서", [picture("\n".join(lines))]))
    asked = ["-dPDFA=2", "-dPDFACompatibilityPolicy=1", "-sColorConversionStrategy=UseDeviceIndependentColor"]
    command = [program, "-q", *asked, "-sDEVICE=pdfwrite", "-o", "archived.pdf", "made.pdf"]
    assert f"gs {' '.join(asked)}" in (ROOT / "docs" / "documents.md").read_text("utf-8")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    # Ghostscript 10 keeps the text and leaves out the title; anything else that it says is a fault of the font.
    said = [line for line in (done.stdout + done.stderr).splitlines() if line and "discarding DOCINFO" not in line]
    assert (done.returncode, said) == (0, [])
    archived = (tmp_path / "archived.pdf").read_bytes()
    assert re.search(rb"<pdfaid:part>2</pdfaid:part>|pdfaid:part='2'", archived), "Ghostscript went back to plain PDF"
    require_archivable(archived)
    text = PdfDocument(archived)[0].get_textpage().get_text_bounded()
    assert [" ".join(line.split()) for line in text.splitlines() if line.strip()] == lines


def require_archivable(data: bytes) -> None:
    """Check what veraPDF's profile of PDF/A-2b asks of the parts that this file has; veraPDF is in no package."""
    assert re.match(rb"%PDF-1\.[0-7]\r?\n%[\x80-\xff]{4}", data)
    with pikepdf.open(io.BytesIO(data)) as pdf:
        assert not pdf.check_pdf_syntax()
        assert len(pdf.trailer.ID) == 2
        assert not pdf.is_encrypted
        assert not {"/AA", "/OpenAction", "/AcroForm"} & set(pdf.Root.keys())
        assert not {"/JavaScript", "/EmbeddedFiles"} & set(pdf.Root.get("/Names", {}).keys())
        with pdf.open_metadata() as metadata:
            assert metadata.pdfa_status == "2B"
        # Without the profile of a printer, no colour may be that of a device.
        images = [part for part in pdf.objects if isinstance(part, pikepdf.Stream) and part.get("/Subtype") == "/Image"]
        assert [image.ColorSpace[0] for image in images] == ["/ICCBased"] * len(images)
        operators = {str(operator) for page in pdf.pages for _, operator in pikepdf.parse_content_stream(page)}
        assert not {"g", "G", "rg", "RG", "k", "K"} & operators
        for font in (part for part in pdf.objects if isinstance(part, pikepdf.Dictionary)):
            if font.get("/Type") == "/Font" and font.Subtype != "/Type0":
                embedded = font.FontDescriptor.FontFile2.read_bytes()
                assert embedded[:4] in (b"\0\1\0\0", b"true")
                assert font.Subtype != "/CIDFontType2" or "/CIDToGIDMap" in font
            if font.get("/Type") == "/Font" and font.Subtype == "/Type0":
                assert "/ToUnicode" in font


def test_the_font_is_embedded_with_a_glyph_and_a_meaning_for_each_character() -> None:
    made = searchable_pdf("", [picture("가나 A 𝒳")])
    assert made.count(b"/FontFile2") == 1
    streams = [
        zlib.decompress(found)
        for found in re.findall(rb"FlateDecode /Length \d+ >>\nstream\n(.*?)\nendstream", made, re.DOTALL)
    ]
    glyphs = next(stream for stream in streams if stream.startswith(b"\0\2" * 256))
    meaning = next(stream for stream in streams if b"beginbfchar" in stream)
    codes = {
        int(code, 16): bytes.fromhex(says.decode()).decode("utf-16-be")
        for code, says in re.findall(rb"^<(\w{4})> <(\w+)>$", meaning, re.MULTILINE)
    }
    assert set(codes.values()) == set("가나 A𝒳")
    assert {codes[code]: glyphs[2 * code + 1] for code in codes} == {"가": 1, "나": 1, "𝒳": 1, " ": 2, "A": 2}
