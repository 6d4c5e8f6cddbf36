"""Small PDFs built by hand, with bars or with text in mapped or unmapped fonts."""

from collections.abc import Mapping, Sequence

BLACK = (0, 0, 0)
HELVETICA = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
UNMAPPED = (
    b"<< /Type /Font /Subtype /Type0 /BaseFont /Nobody /Encoding /Identity-H /DescendantFonts [<< /Type /Font "
    b"/Subtype /CIDFontType2 /BaseFont /Nobody /CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) "
    b"/Supplement 0 >> /FontDescriptor << /Type /FontDescriptor /FontName /Nobody /Flags 4 >> >>] >>"
)
"""A font whose glyph numbers cannot be mapped to characters."""


def bar(color: tuple[float, float, float] = BLACK) -> bytes:
    """Return a 20 x 10 bar in the upper left corner of a `sheet`."""
    red, green, blue = color
    return f"{red / 255} {green / 255} {blue / 255} rg 0 70 20 10 re f".encode()


def sheet(content: bytes = bar(), more: bytes = b"", box: str = "0 0 60 80") -> tuple[bytes, bytes]:
    """Return a page as the entries of its dictionary and its content stream."""
    return b"/MediaBox [%s] %s" % (box.encode(), more), content


def pdf(
    *sheets: tuple[bytes, bytes], trailer: bytes = b"", catalog: bytes = b"", objects: Sequence[bytes] = ()
) -> bytes:
    """Return a PDF of pages (two objects each from number 3 on) and further `objects`."""
    kids = b" ".join(b"%d 0 R" % (3 + 2 * at) for at in range(len(sheets)))
    bodies = [
        b"<< /Type /Catalog /Pages 2 0 R %s >>" % catalog,
        b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, len(sheets)),
    ]
    for at, (entries, content) in enumerate(sheets):
        bodies.append(b"<< /Type /Page /Parent 2 0 R /Contents %d 0 R %s >>" % (4 + 2 * at, entries))
        bodies.append(b"<< /Length %d >> stream\n%s\nendstream" % (len(content), content))
    bodies += objects
    file = b"%PDF-1.7\n"
    offsets = []
    for at, body in enumerate(bodies, start=1):
        offsets.append(len(file))
        file += b"%d 0 obj\n%s\nendobj\n" % (at, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    start = len(file)
    file += b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(bodies) + 1, table)
    file += b"trailer << /Size %d /Root 1 0 R /ID [<00> <00>] %s >>\n" % (len(bodies) + 1, trailer)
    return file + b"startxref\n%d\n%%%%EOF\n" % start


def written(
    *lines: tuple[float, float, str], size: float = 12, mode: int = 0, font: str = "F1", turned: bool = False
) -> bytes:
    """Return text lines from (x, y) in points; `mode` 3 is invisible, `turned` runs upwards."""
    matrix = "0 1 -1 0" if turned else "1 0 0 1"
    shown = [f"BT /{font} {size} Tf {mode} Tr {matrix} {x} {y} Tm ({text}) Tj ET" for x, y, text in lines]
    return "\n".join(shown).encode("latin-1")


def text_pdf(*sheets: tuple[bytes, bytes], fonts: Mapping[str, bytes] | None = None) -> bytes:
    """Return a PDF of text pages, with named `fonts` beside Helvetica, which is F1."""
    objects = [HELVETICA, *(fonts or {}).values()]
    first = 3 + 2 * len(sheets)
    named = " ".join(f"/{name} {first + at} 0 R" for at, name in enumerate(["F1", *(fonts or {})]))
    resources = f"/Resources << /Font << {named} >> >>".encode()
    return pdf(*((entries + b" " + resources, content) for entries, content in sheets), objects=objects)


def mapped(meanings: Mapping[str, str]) -> Sequence[bytes]:
    """Return Helvetica with a Unicode map of these meanings, and the map to follow it."""
    pairs = "\n".join(f"<{ord(char):02x}> <{ord(meaning):04x}>" for char, meaning in meanings.items())
    ranges = "1 begincodespacerange <00> <ff> endcodespacerange"
    cmap = (
        f"/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /M def /CMapType 2 def {ranges} "
        f"{len(meanings)} beginbfchar\n{pairs}\nendbfchar endcmap end end"
    ).encode()
    return HELVETICA[:-2] + b"/ToUnicode %d 0 R >>", b"<< /Length %d >> stream\n%s\nendstream" % (len(cmap), cmap)


def mapped_pdf(page: tuple[bytes, bytes], meanings: Mapping[str, str]) -> bytes:
    """Return a one-page PDF whose font F1 has a Unicode map of these meanings."""
    font, cmap = mapped(meanings)
    entries, content = page
    return pdf((entries + b" /Resources << /Font << /F1 5 0 R >> >>", content), objects=[font % 6, cmap])
