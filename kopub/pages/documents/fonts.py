"""Fonts of this machine with Hangul, for PDFs that do not embed theirs."""

import ctypes
import sys
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
from pypdfium2 import PdfDocument, PdfSysfontBase, raw

from kopub.pages.documents.drawn_objects import is_white

KOREAN_FONTS = "apt-get install fonts-noto-cjk, then index again"
_HANGUL = 129
"""The character set of a font with Hangul, as Windows numbers it."""
_LONGEST_NAME = 256
_INK = 128
"""The darkest level of a grey page from which nothing is drawn."""
_HANGUL_PAGE = b"""%PDF-1.4
1 0 obj <</Type/Catalog/Pages 2 0 R>> endobj
2 0 obj <</Type/Pages/Kids[3 0 R]/Count 1>> endobj
3 0 obj <</Type/Page/Parent 2 0 R/MediaBox[0 0 90 30]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>> endobj
4 0 obj <</Length 49>> stream
BT /F 24 Tf 3 5 Td <D55C> Tj 45 0 Td <AE00> Tj ET
endstream endobj
5 0 obj <</Type/Font/Subtype/Type0/BaseFont/Dotum/Encoding/UniKS-UTF16-H/DescendantFonts[6 0 R]>> endobj
6 0 obj <</Type/Font/Subtype/CIDFontType2/BaseFont/Dotum/CIDSystemInfo<</Registry(Adobe)/Ordering(Korea1)/Supplement 1>>
/DW 1000/FontDescriptor 7 0 R>> endobj
7 0 obj <</Type/FontDescriptor/FontName/Dotum/Flags 4/FontBBox[0 -200 1000 900]/ItalicAngle 0/Ascent 850/Descent -150
/CapHeight 700/StemV 80>> endobj
trailer <</Root 1 0 R>>
"""
"""A page with two syllables side by side, in a font that is not embedded."""


@cache
def korean_faces() -> tuple[str, ...]:
    """Return the fonts with Hangul that fontconfig knows, as PDFium names them."""
    try:
        fontconfig = ctypes.CDLL("libfontconfig.so.1")
    except OSError:
        return ()
    for function in (
        fontconfig.FcInitLoadConfigAndFonts,
        fontconfig.FcNameParse,
        fontconfig.FcObjectSetCreate,
        fontconfig.FcFontList,
    ):
        function.restype = ctypes.c_void_p
    wanted = ctypes.c_void_p(fontconfig.FcObjectSetCreate())
    for name in (b"family", b"style"):
        fontconfig.FcObjectSetAdd(wanted, name)
    settings = ctypes.c_void_p(fontconfig.FcInitLoadConfigAndFonts())
    korean = ctypes.c_void_p(fontconfig.FcNameParse(b":lang=ko"))
    listing = fontconfig.FcFontList(settings, korean, wanted)
    fonts = ctypes.cast(listing, ctypes.POINTER(_FontSet)).contents if listing else _FontSet()
    names: set[str] = set()
    for font in range(fonts.count):
        parts: list[str] = []
        for part in (b"family", b"style"):
            value = ctypes.c_char_p()
            fontconfig.FcPatternGetString(ctypes.c_void_p(fonts.patterns[font]), part, 0, ctypes.byref(value))
            parts.append((value.value or b"").decode("utf-8", "replace"))
        names.add(" ".join(parts))
    return tuple(sorted(name.removesuffix(" Regular") for name in names))


class _FontSet(ctypes.Structure):
    """fontconfig's list of fonts."""

    _fields_ = (("count", ctypes.c_int), ("room", ctypes.c_int), ("patterns", ctypes.POINTER(ctypes.c_void_p)))


def has_korean_font() -> bool:
    """Return whether there is a font with Hangul; macOS comes with one."""
    return sys.platform == "darwin" or bool(korean_faces())


class KoreanFonts(PdfSysfontBase):
    """The choice of fonts as before, except for Hangul without a glyph."""

    # PDFium calls it by position, whatever the stub names.
    def MapFont(self, _: Any, *request: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        _weight, _italic, charset, *_others = request
        font = self.default.MapFont(self.default, *request)
        if charset != _HANGUL:
            return font
        if font:
            name = ctypes.create_string_buffer(_LONGEST_NAME)
            self.default.GetFaceName(self.default, font, name, _LONGEST_NAME)
            text = name.value.decode("utf-8", "replace")
            if text and any(face.startswith(text) for face in korean_faces()):
                return font
        for face in korean_faces():
            if korean := self.default.GetFont(self.default, face.encode()):
                return korean
        return font


@cache
def prefer_korean_fonts() -> None:
    """Let PDFium draw Hangul in a font that has it, from its next PDF on.

    PDFium believes fonts such as Droid Sans Fallback, which claim Hangul and have none.
    """
    if korean_faces():
        KoreanFonts(PdfSysfontBase.SINGLETON).setup()


@cache
def draws_hangul() -> bool:
    """Return whether PDFium draws Hangul of a font that a PDF does not embed.

    Two syllables that look the same are boxes for a missing glyph.
    """
    prefer_korean_fonts()
    document = PdfDocument(_HANGUL_PAGE)
    try:
        drawn = document[0].render(scale=2, grayscale=True).to_numpy()
    finally:
        document.close()
    left, right = np.split(drawn.reshape(drawn.shape[:2]), 2, axis=1)
    return bool(left.min() < _INK and right.min() < _INK and not np.array_equal(left, right))


def lacks_font(drawn: ctypes.c_void_p, letters: Iterable[str]) -> bool:
    """Return whether visible Hangul is in no font of the PDF or this machine."""
    if not any("가" <= letter <= "힣" for letter in letters):
        return False
    is_lent = raw.FPDFFont_GetIsEmbedded(raw.FPDFTextObj_GetFont(drawn)) == 0
    return is_lent and not draws_hangul() and not is_white(drawn)
