"""Hangul in a font that the PDF does not embed: drawn if a font here has it, and kept in any case."""

import subprocess
import sys
from pathlib import Path

import pytest

from kopub.pages.documents import conversion
from tests.support.sources.pdf_files import sheet, text_pdf, written

LINES = tuple(f"제{at}과제 담당 홍길동 2024년 {at}월" for at in range(1, 5))
DOTUM = (
    b"<< /Type /Font /Subtype /Type0 /BaseFont /Dotum /Encoding /UniKS-UTF16-H /DescendantFonts [<< /Type /Font "
    b"/Subtype /CIDFontType2 /BaseFont /Dotum /CIDSystemInfo << /Registry (Adobe) /Ordering (Korea1) /Supplement 1 >> "
    b"/DW 1000 /W [1 [333] 17 26 500] /FontDescriptor << /Type /FontDescriptor /FontName /Dotum /Flags 4 "
    b"/FontBBox [0 -200 1000 900] /ItalicAngle 0 /Ascent 850 /Descent -150 /CapHeight 700 /StemV 80 >> >>] >>"
)
MACHINE = """
import sys
from pathlib import Path
from pypdfium2 import PdfSysfontBase
from kopub.layout.regions import Layout
from kopub.pages.documents import fonts
from kopub.pages.documents.pdf import Pdfs
from kopub.pages.documents.text_layer import TextLayer
from kopub.states import State
from kopub.texts.extracted_text import extract_texts
from kopub.texts.layer_regions import correct_regions

LATIN = (b"DejaVu Sans Book", b"OpenSymbol", b"Liberation Sans")


class Droid(PdfSysfontBase):
    def MapFont(self, _, weight, italic, charset, pitch, face, exact):
        return next(filter(None, (self.default.GetFont(self.default, name) for name in LATIN)))


path, has_korean = sys.argv[1:]
Droid().setup()
if has_korean == "no":
    fonts.korean_faces = tuple
made = Pdfs().make(Path(path), 0, 144)
layer = TextLayer.from_json(made.text_layer)
regions = correct_regions(Layout("a_1", State.BLANK), layer).regions
found = extract_texts(layer, regions)
print(*found.texts.values(), sep=chr(10))
print(bool(found.samples), fonts.draws_hangul(), made.damage)
"""


@pytest.mark.skipif(not conversion.has_korean_font(), reason="there is no Korean font")
@pytest.mark.parametrize("has_korean", ["yes", "no"])
def test_all_hangul_comes_out_whatever_fonts_the_machine_has(tmp_path: Path, has_korean: str):
    path = tmp_path / "dotum.pdf"
    codes = (text.encode("utf-16-be").hex() for text in LINES)
    shown = "".join(f"BT /F2 12 Tf 40 {500 - 20 * at} Td <{code}> Tj ET\n" for at, code in enumerate(codes))
    white = b"1 g BT /F2 12 Tf 40 100 Td <c228aca8c9c4> Tj ET"
    content = written((40, 560, "Projects of 2024")) + b"\n" + shown.encode() + white
    path.write_bytes(text_pdf(sheet(content, box="0 0 420 595"), fonts={"F2": DOTUM}))
    command = [sys.executable, "-c", MACHINE, str(path), has_korean]
    *texts, said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert " ".join(texts).split() == " ".join(("Projects of 2024", *LINES)).split()
    damage = (
        "the picture lacks 64 letters of the text; this machine has no Korean font for a font that the PDF does not "
        "embed: apt-get install fonts-noto-cjk, then index again"
    )
    assert said == ("True True None" if has_korean == "yes" else f"True False {damage}")
