"""Places lines of text in the boxes of regions, and makes searchable PDFs. Pure.

In a PDF the lines lie invisibly over the pictures of the pages and can be selected.
"""

import base64
import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kopub.boxes import Box
from kopub.documents.joins import columns

_LINE = 1.6
"""Height of a printed line in sizes of its type."""
_MOST = 300
"""Most lines in a box: no print has more."""


@dataclass(frozen=True, slots=True)
class PlacedLine:
    """A line of text and its box, in the unit of the surrounding box."""

    text: str
    box: Box[float]


def placed_lines(text: str, box: Box[float] | Box[int]) -> list[PlacedLine]:
    """Return the lines of a text, placed from its box's top to bottom.

    Their width follows from their letters. The text's own lines are kept; a text that the reader gave as one line is
    wrapped to the shape of the box. No word is cut in two.
    """
    printed = [" ".join(line.split()) for line in text.split("\n") if line.strip()]
    if not printed:
        return []
    width, height = max(box.width, 1.0), max(box.height, 1.0)
    # With `count` lines, type is height / (_LINE * count) high and a column half as wide: so many columns fit.
    fit = 2 * _LINE * width / height
    count = max(len(printed), math.isqrt(int(sum(map(columns, printed)) / fit)), 1)
    while len(lines := [part for line in printed for part in _wrapped(line, fit * count)]) > count and count < _MOST:
        count += 1
    longest, step = max(map(columns, lines)), height / len(lines)
    placed: list[PlacedLine] = []
    for at, line in enumerate(lines):
        end = box.x1 + width * columns(line) / max(longest, 1)
        placed.append(PlacedLine(line, Box(box.x1, box.y1 + at * step, end, box.y1 + (at + 1) * step)))
    return placed


def _wrapped(line: str, most: float) -> Iterator[str]:
    """Yield a line in parts of at most `most` columns.

    A word that is longer is a part of its own.
    """
    words, length = [], 0
    for word in line.split(" "):
        wide = columns(word)
        if words and length + 1 + wide > most:
            yield " ".join(words)
            words, length = [], 0
        length += wide + bool(words)
        words.append(word)
    yield " ".join(words)


_LONG_SIDE = 842
"""Points of a page's longer side, as for A4: a picture does not say how large its paper was."""
_NARROW, _WIDE = 500, 1000
"""Advance widths of a Latin letter and of any other, in thousandths of the size."""
_LATIN = 0xFF
_FONT = (
    b"c-muNWME)mXK-L(VlYV0sZ3)414bSYk&&915-;ZP0LZQZVzUgO0J9Ra3Xr`8h*dIjODZ^zfHnL8VxFA*<V2``79hcqn^;l6zydUxf#C)aD-`4xmoPAc"
    b"<pn@|29VuA{BDO#dpy6*R|aP07Yw)oGuR{sh#qEz{}w><1wsT(EhCtO0VWK?UO+J87Yv<v0RWcx9JK"
)
"""A TrueType font of three blank glyphs, none, wide and narrow: 304 bytes, packed and as text of base 85."""
_SIZE = 0.8
"""Size of the type in heights of a line."""


@dataclass(frozen=True, slots=True)
class PdfPicture:
    """A page of the PDF: its picture, size and text.

    The picture is a JPEG in RGB or None; size and text are in pixels.
    """

    jpeg: bytes | None
    jpeg_size: tuple[int, int]
    size: tuple[int, int]
    lines: Sequence[PlacedLine]


def searchable_pdf(title: str, pages: Iterable[PdfPicture]) -> bytes:
    """Return a PDF of the pages.

    Nothing of the text is drawn, but archives ask for fonts that are embedded, and Ghostscript keeps the meaning of no
    others: a blank one is.
    """
    writer = _Writer()
    catalogue, tree, font, meaning = (writer.reserve() for _ in range(4))
    codes: dict[str, int] = {}
    kids = [_add_page(writer, page, tree, font, codes) for page in pages]
    writer.put(catalogue, f"<< /Type /Catalog /Pages {tree} 0 R >>")
    writer.put(tree, f"<< /Type /Pages /Count {len(kids)} /Kids [{' '.join(f'{kid} 0 R' for kid in kids)}] >>")
    outlines = zlib.decompress(base64.b85decode(_FONT))
    font_file = writer.add(f"<< /Length {len(outlines)} /Length1 {len(outlines)} >>", outlines)
    described = writer.add(
        "<< /Type /FontDescriptor /FontName /Invisible /Flags 4 /FontBBox [0 -200 1000 800] /ItalicAngle 0"
        f" /Ascent 800 /Descent -200 /CapHeight 800 /StemV 80 /FontFile2 {font_file} 0 R >>"
    )
    glyphs = writer.add(*_compressed(b"\0\2" * (_LATIN + 1) + b"\0\1" * len(codes)))
    letters = writer.add(
        f"<< /Type /Font /Subtype /CIDFontType2 /BaseFont /Invisible /CIDToGIDMap {glyphs} 0 R"
        " /CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >>"
        f" /DW {_WIDE} /W [0 {_LATIN} {_NARROW}] /FontDescriptor {described} 0 R >>"
    )
    writer.put(
        font,
        "<< /Type /Font /Subtype /Type0 /BaseFont /Invisible /Encoding /Identity-H"
        f" /DescendantFonts [{letters} 0 R] /ToUnicode {meaning} 0 R >>",
    )
    # The map from codes to Unicode is in parts of a hundred, as readers require.
    entries, lines = list(codes.items()), ""
    for at in range(0, len(entries), 100):
        part = entries[at : at + 100]
        lines += f"{len(part)} beginbfchar\n"
        for char, code in part:
            lines += f"<{code:04x}> <{char.encode('utf-16-be', 'replace').hex()}>\n"
        lines += "endbfchar\n"
    unicode = (
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /Unicode def /CMapType 2 def\n"
        f"1 begincodespacerange <0000> <ffff> endcodespacerange\n{lines}"
        "endcmap CMapName currentdict /CMap defineresource pop end end"
    )
    writer.put(meaning, *_compressed(unicode.encode()))
    info = writer.add(f"<< /Title <feff{title.encode('utf-16-be', 'replace').hex()}> >>")
    return writer.finished(catalogue, info)


def _add_page(writer: "_Writer", page: PdfPicture, tree: int, font: int, codes: dict[str, int]) -> int:
    scale = _LONG_SIDE / max(*page.size, 1)
    width, height = (max(side, 1) * scale for side in page.size)
    drawn, pictures = "", ""
    if page.jpeg is not None:
        wide, high = page.jpeg_size
        picture = writer.add(
            f"<< /Type /XObject /Subtype /Image /Width {wide} /Height {high} /ColorSpace /DeviceRGB"
            f" /BitsPerComponent 8 /Filter /DCTDecode /Length {len(page.jpeg)} >>",
            page.jpeg,
        )
        pictures = f" /XObject << /P {picture} 0 R >>"
        drawn = f"q {width:.2f} 0 0 {height:.2f} 0 0 cm /P Do Q\n"
    lines: list[str] = []
    for line in page.lines:
        box = Box(*(edge * scale for edge in line.box))
        # PDFium gives the last letter of a line no width, and does not find a lone one: a blank follows.
        natural, digits = -_NARROW, ""
        for char in f"{line.text} ":
            # A Latin letter is its own code, any other the next one. No document has 65,280 different letters; of one
            # that had, the last would share a code.
            code = ord(char) if ord(char) <= _LATIN else min(_LATIN + 1 + len(codes), 0xFFFF)
            code = codes.setdefault(char, code)
            natural += _NARROW if code <= _LATIN else _WIDE
            digits += f"{code:04x}"
        size = max(_SIZE * box.height, 0.1)
        stretch = 100 * box.width / max(natural * size / 1000, 0.1)
        at = f"1 0 0 1 {box.x1:.2f} {height - box.y1 - _SIZE * box.height:.2f} Tm"
        lines.append(f"/F {size:.2f} Tf {max(stretch, 1):.2f} Tz {at} <{digits}> Tj\n")
    content = writer.add(*_compressed(f"{drawn}BT 3 Tr\n{''.join(lines)}ET".encode()))
    return writer.add(
        f"<< /Type /Page /Parent {tree} 0 R /MediaBox [0 0 {width:.2f} {height:.2f}] /Contents {content} 0 R"
        f" /Resources << /Font << /F {font} 0 R >>{pictures} >> >>"
    )


def _compressed(data: bytes) -> tuple[str, bytes]:
    packed = zlib.compress(data)
    return f"<< /Filter /FlateDecode /Length {len(packed)} >>", packed


class _Writer:
    """A writer that collects the objects of a PDF by number."""

    def __init__(self) -> None:
        self._objects: list[bytes] = []

    def reserve(self) -> int:
        self._objects.append(b"")
        return len(self._objects)

    def put(self, number: int, entry: str, stream: bytes | None = None) -> None:
        body = b"" if stream is None else b"\nstream\n" + stream + b"\nendstream"
        self._objects[number - 1] = entry.encode() + body

    def add(self, entry: str, stream: bytes | None = None) -> int:
        number = self.reserve()
        self.put(number, entry, stream)
        return number

    def finished(self, catalogue: int, info: int) -> bytes:
        parts, table = [b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"], ""
        at = len(parts[0])
        for number, content in enumerate(self._objects, 1):
            parts.append(b"%d 0 obj\n" % number + content + b"\nendobj\n")
            table += f"{at:010} 00000 n \n"
            at += len(parts[-1])
        count = len(self._objects) + 1
        ends = f"trailer\n<< /Size {count} /Root {catalogue} 0 R /Info {info} 0 R >>\nstartxref\n{at}\n%%EOF\n"
        return b"".join([*parts, f"xref\n0 {count}\n0000000000 65535 f \n{table}{ends}".encode()])
