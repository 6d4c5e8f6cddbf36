# ruff: noqa: E501 - markup is easier to read in one line
"""Hostile PDFs that abuse what the format alone can do, by name."""

import io
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from tests.support.sources.hostile_files import page_pdf, stream

_FORM = b"/Type/XObject/Subtype/Form/BBox[0 0 595 842]"
_SIDE = 60_000


def hostile_pdfs(secret: Path, url: str) -> Iterator[tuple[str, bytes]]:
    """Yield PDFs that refer to a folder of secrets and a host, name themselves, or become large."""
    yield from _references(secret, url)
    yield from _circles()
    yield from _structures()
    yield from _pictures()
    yield from _drawings()


def _references(secret: Path, url: str) -> Iterator[tuple[str, bytes]]:
    """Yield PDFs with actions, forms and attached files that name a place elsewhere."""
    places = [str(secret), secret.as_uri(), f"../../../../../../../..{secret}", url]
    actions = [
        action % place.encode()
        for place in places
        for action in (
            b"<</S/Launch/F(%s/secret.pdf)/NewWindow true>>",
            b"<</S/GoToR/F(%s/secret.pdf)/D[0/Fit]>>",
            b"<</S/GoToE/F(%s/secret.pdf)/T<</R/C/N(a)>>>>",
            b"<</S/ImportData/F(%s/secret.txt)>>",
            b"<</S/SubmitForm/F(%s/secret.txt)/Flags 4>>",
            b"<</S/URI/URI(%s/secret.txt)>>",
            b"<</S/JavaScript/JS(app.launchURL\\('%s/secret.txt'\\))>>",
        )
    ]
    notes = [b"<</Type/Annot/Subtype/Link/Rect[0 0 99 99]/A %s>>" % action for action in actions]
    attached = (
        b"<</Type/Annot/Subtype/FileAttachment/Rect[0 0 99 99]/FS<</Type/Filespec/F(%s/secret.pdf)/EF<</F 10 0 R>>>>>>"
    )
    notes += [attached % place.encode() for place in places]
    chained = b"".join(action[:-2] + b"/Next " for action in actions) + b"null" + b">>" * len(actions)
    yield (
        "actions.pdf",
        page_pdf(
            b"",
            [b"<</Type/EmbeddedFile/F(%s/secret.pdf)/Length 0>>stream\n\nendstream" % str(secret).encode()],
            catalog=b"/OpenAction %s" % chained,
            more=b"/Annots[%s]/AA<</O %s/C %s>>" % (b"".join(notes), actions[0], actions[1]),
        ),
    )
    laughs = b"".join(b'<!ENTITY l%d "%s">' % (at, b"&l%d;" % (at - 1) * 10) for at in range(1, 10))
    outside = b"".join(b'<!ENTITY o%d SYSTEM "%s/secret.txt">' % (at, to.encode()) for at, to in enumerate(places))
    xfa = b"<!DOCTYPE x [<!ENTITY l0 'lol'>%s%s]><xdp:xdp xmlns:xdp=\"http://ns.adobe.com/xdp/\">&l9;%s</xdp:xdp>"
    template = stream(b"", xfa % (laughs, outside, b"".join(b"&o%d;" % at for at in range(len(places)))))
    form = b"/AcroForm<</XFA[(preamble) 10 0 R]/Fields[11 0 R]>>/NeedsRendering true"
    field = b"<</FT/Tx/T(a)/V(x)/Type/Annot/Subtype/Widget/Rect[9 9 99 99]>>"
    yield "XFA.pdf", page_pdf(b"", [template, field], catalog=form, more=b"/Annots[11 0 R]")


def _circles() -> Iterator[tuple[str, bytes]]:
    """Yield PDFs in which something leads back to itself."""
    yield "parent of itself.pdf", page_pdf(b"", []).replace(b"/Parent 2 0 R/MediaBox", b"/Parent 3 0 R/MediaBux")
    whole = page_pdf(b"", [])
    start = int(whole.rsplit(b"startxref\n", 1)[1].split()[0])
    yield "table of itself.pdf", whole.replace(b"/Root 1 0 R>>", b"/Root 1 0 R/Prev %d/XRefStm %d>>" % (start, start))
    entries = b"".join(
        struct.pack(">BHB", *entry)
        for entry in ((0, 0, 0), (2, 5, 0), (2, 6, 0), (0, 0, 0), (0, 0, 0), (2, 6, 1), (2, 5, 1), (1, 9, 0))
    )
    head = b"/Type/XRef/Size 8/W[1 2 1]/Root 1 0 R"
    yield (
        "object streams of each other.pdf",
        b"%PDF-1.7\n7 0 obj\n" + stream(head, entries) + b"\nendobj\nstartxref\n9\n%%EOF",
    )
    for name, key in (("names", b"/Names<</EmbeddedFiles 10 0 R/Dests 10 0 R/JavaScript 10 0 R>>/PageLabels 10 0 R"),):
        yield f"{name} of themselves.pdf", page_pdf(b"", [b"<</Kids[10 0 R 10 0 R]/Limits[(a)(z)]>>"], catalog=key)
    outline = b"<</Title(x)/First 10 0 R/Last 10 0 R/Next 10 0 R/Prev 10 0 R/Parent 10 0 R/Count 2000000000>>"
    yield "outlines of themselves.pdf", page_pdf(b"", [outline], catalog=b"/Outlines 10 0 R")
    field = b"<</FT/Tx/T(a)/V(x)/Kids[10 0 R 11 0 R]/Parent 11 0 R/Type/Annot/Subtype/Widget/Rect[9 9 99 99]>>"
    yield (
        "fields of themselves.pdf",
        page_pdf(b"", [field, field], catalog=b"/AcroForm<</Fields[10 0 R 11 0 R]>>", more=b"/Annots[10 0 R 11 0 R]"),
    )
    layer = b"/OCProperties<</OCGs[12 0 R]/D<</Order[12 0 R]/OFF[12 0 R]>>>>"
    yield (
        "layers of themselves.pdf",
        page_pdf(
            b"/X Do",
            [
                stream(_FORM + b"/OC 11 0 R", b"0 0 9 9 re f"),
                b"<</Type/OCMD/OCGs 11 0 R/VE 12 0 R>>",
                b"[/And 12 0 R 12 0 R]",
            ],
            catalog=layer,
        ),
    )
    yield (
        "colours of themselves.pdf",
        page_pdf(
            b"/C cs 0 sc 0 0 595 842 re f",
            [b"[/Indexed 10 0 R 1<00>]", b"[/ICCBased 12 0 R]", stream(b"/N 3/Alternate 11 0 R", b"no profile")],
            b"/ColorSpace<</C 10 0 R/D 11 0 R>>",
        ),
    )
    shown = b"<</Type/Annot/Subtype/Stamp/Rect[0 0 595 842]/AP<</N 10 0 R>>>>"
    forms = [stream(b"%s/Resources<</XObject<</X %d 0 R>>>>" % (_FORM, 11 + at), b"/X Do " * 10) for at in range(9)]
    yield (
        "appearance of forms.pdf",
        page_pdf(b"", [*forms, stream(_FORM, b"0 0 9 9 re f")], more=b"/Annots[%s]" % shown),
    )
    yield "glyph of itself.pdf", _glyph_of_itself()


def _structures() -> Iterator[tuple[str, bytes]]:
    """Yield PDFs whose objects are nested, or are visited once for each of very many paths."""
    mark = b"/MarkInfo<</Marked true>>/StructTreeRoot 10 0 R"
    root, circle = b"<</Type/StructTreeRoot/K 11 0 R>>", b"<</S/P/K[11 0 R 10 0 R]/P 11 0 R/Pg 3 0 R>>"
    yield "tags of themselves.pdf", page_pdf(b"", [root, circle], catalog=mark)
    tag = b"<</S/Sect/Pg 3 0 R/P 10 0 R/K[%s]>>"
    levels = [tag % (b"%d 0 R " % (12 + at) * 10) for at in range(12)]
    yield "tags by many ways.pdf", page_pdf(b"", [root, *levels, tag % b"0"], catalog=mark)
    deep = b"<</S/Span/K " * 50_000 + b"0" + b">>" * 50_000
    yield "tags 50k deep.pdf", page_pdf(b"", [root, deep], catalog=mark)
    yield "arrays deep.pdf", page_pdf(b"[" * 2_000_000, [b"<</A " * 200_000 + b"0" + b">>" * 200_000])
    stitched = b"<</FunctionType 3/Domain[0 1]/Bounds[.5]/Encode[0 1 0 1]/Functions[%d 0 R %d 0 R]>>"
    functions = [stitched % (12 + at, 12 + at) for at in range(40)]
    shading = b"<</ShadingType 2/ColorSpace/DeviceGray/Coords[0 0 595 842]/Function 11 0 R>>"
    last = b"<</FunctionType 2/Domain[0 1]/N 1>>"
    yield "functions.pdf", page_pdf(b"/S sh", [shading, *functions, last])
    yield "filters.pdf", page_pdf(b"/X Do", [stream(_FORM + b"/Filter[%s]" % (b"/AHx" * 100_000), b"00>")])
    for name, box in (
        ("endless box", b"[-1e308 1e308 nan inf]"),
        ("box the wrong way round", b"[842 595 -842 -595]"),
    ):
        yield f"{name}.pdf", page_pdf(b"", [], more=b"/CropBox[9 9 -9 -9]/UserUnit 1e9").replace(b"[0 0 595 842]", box)


def _pictures() -> Iterator[tuple[str, bytes]]:
    """Yield PDFs whose pictures claim far more pixels than they have bytes."""
    head = b"/Type/XObject/Subtype/Image/Width %d/Height %d/ColorSpace/DeviceGray" % (_SIDE, _SIDE)
    shown = b"500 0 0 500 0 0 cm /X Do"
    page = struct.pack(">IBBIIIIIBH", 0, 48, 0, 19, 2**31 - 1, 2**31 - 1, 0, 0, 0, 0)
    region = struct.pack(">IBBI", 1, 38, 0, 26) + struct.pack(">IIIIBB", 2**31 - 1, 2**31 - 1, 0, 0, 0, 0) + bytes(8)
    yield "JBIG2.pdf", page_pdf(shown, [stream(head + b"/BitsPerComponent 1/Filter/JBIG2Decode", page + region)])
    fax = b"/BitsPerComponent 1/Filter/CCITTFaxDecode/DecodeParms<</K -1/Columns 2147483647/Rows 2147483647>>"
    yield "fax.pdf", page_pdf(shown, [stream(head + fax, bytes(9))])
    for name, kind, filter in (("JPX", "JPEG2000", b"JPXDecode"), ("DCT", "JPEG", b"DCTDecode")):
        written = io.BytesIO()
        Image.new("L", (64, 64), "white").save(written, kind)
        small = written.getvalue()
        at = small.index(b"ihdr") + 4 if kind == "JPEG2000" else small.index(b"\xff\xc0") + 5
        sides = struct.pack(">II" if kind == "JPEG2000" else ">HH", _SIDE, _SIDE)
        large = small[:at] + sides + small[at + len(sides) :]
        yield f"{name}.pdf", page_pdf(shown, [stream(head + b"/BitsPerComponent 8/Filter/" + filter, large)])
    predicted = b"/BitsPerComponent 16/Filter/FlateDecode/DecodeParms<</Predictor 15/Columns 2147483647/Colors 32/BitsPerComponent 16>>"
    yield "predictor.pdf", page_pdf(shown, [stream(head + predicted, zlib.compress(bytes(1 << 20)))])


def _drawings() -> Iterator[tuple[str, bytes]]:
    """Yield PDFs with more letters, dashes, corners or triangles than anybody draws."""

    def packed(content: bytes) -> list[bytes]:
        return [
            stream(_FORM + b"/Filter/FlateDecode/Resources<</Font<</F 11 0 R>>>>", zlib.compress(content, 9)),
            _FONT,
        ]

    line = b"BT /F 4 Tf 1 0 0 1 20 %d Tm (" + b"letters " * 12 + b") Tj ET\n"
    yield "letters.pdf", page_pdf(b"/X Do", packed(b"".join(line % (at % 800) for at in range(20_000))))
    yield "dashes.pdf", page_pdf(b"[.0001 .0001] 0 d 9 w 0 0 m 595 842 l S " * 50, [])
    corners = b"".join(b"%d %d l " % (at * 7919 % 595, at * 104_729 % 842) for at in range(300_000))
    yield "corners.pdf", page_pdf(b"/X Do", packed(b"0 0 m " + corners + b"f* 1 j 1 J 40 w 0 0 m " + corners + b"S"))
    mesh = b"/ShadingType 4/ColorSpace/DeviceRGB/BitsPerCoordinate 32/BitsPerComponent 8/BitsPerFlag 8/Decode[0 595 0 842 0 1 0 1 0 1]/Filter/FlateDecode"
    triangle = b"".join(b"\0" + struct.pack(">II", *at) + b"abc" for at in ((0, 0), (2**32 - 1, 0), (0, 2**32 - 1)))
    yield "mesh.pdf", page_pdf(b"/S sh", [stream(mesh, zlib.compress(triangle * 200_000, 9))])
    ranges = b"100 beginbfrange\n" + b"<0000> <FFFF> <D83DDE00D83DDE00D83DDE00>\n" * 100 + b"endbfrange\n"
    cmap = b"/CIDInit/ProcSet findresource begin begincmap /M usecmap 1 begincodespacerange <0000> <FFFF> endcodespacerange\n"
    font = b"<</Type/Font/Subtype/Type0/BaseFont/A/Encoding/Identity-H/ToUnicode 11 0 R/DescendantFonts[<</Type/Font/Subtype/CIDFontType2/BaseFont/A/W[0 4294967295 1]/CIDSystemInfo<</Registry(A)/Ordering(B)/Supplement 0>>>>]>>"
    maps = stream(b"", cmap + ranges * 20 + b"endcmap end")
    yield "meanings.pdf", page_pdf(b"BT /T 9 Tf 1 0 0 1 50 700 Tm <00410042> Tj ET", [font, maps])


_FONT = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"


def _glyph_of_itself() -> bytes:
    """Return a PDF with a TrueType font whose glyph consists of ten of itself."""
    part = struct.pack(">HHbb", 0x0020 | 0x0002, 1, 0, 0)
    glyph = struct.pack(">hhhhh", -1, 0, 0, 1000, 1000) + part * 9 + struct.pack(">HHbb", 0x0002, 1, 0, 0)
    empty = struct.pack(">hhhhh", 0, 0, 0, 0, 0) + bytes(2)
    glyphs = empty + glyph
    letters = struct.pack(">HHHHI", 0, 1, 1, 0, 12) + struct.pack(">HHH", 0, 262, 0) + bytes([1] * 256)
    tables = {
        b"cmap": letters,
        b"glyf": glyphs,
        b"head": struct.pack(
            ">IIIIHHQQhhhhHHhhh", 0x10000, 0, 0, 0x5F0F3CF5, 0, 1000, 0, 0, 0, 0, 1000, 1000, 0, 8, 2, 1, 0
        ),
        b"hhea": struct.pack(">IhhhHhhhhhhhhhhhH", 0x10000, 800, -200, 0, 1000, 0, 0, 1000, 1, 0, 0, 0, 0, 0, 0, 0, 1),
        b"hmtx": struct.pack(">Hhh", 1000, 0, 0),
        b"loca": struct.pack(">III", 0, len(empty), len(glyphs)),
        b"maxp": struct.pack(">IHHHHHHHHHHHHHH", 0x10000, 2, 9, 9, 9, 9, 2, 0, 0, 0, 0, 0, 0, 65_535, 65_535),
    }
    listed, content, at = b"", b"", 12 + 16 * len(tables)
    for name, table in tables.items():
        padded = table + bytes(-len(table) % 4)
        listed += struct.pack(">4sIII", name, 0, at + len(content), len(table))
        content += padded
    program = struct.pack(">IHHHH", 0x10000, len(tables), 64, 2, 48) + listed + content
    font = b"<</Type/Font/Subtype/TrueType/BaseFont/A/FirstChar 97/LastChar 97/Widths[1000]/FontDescriptor<</Type/FontDescriptor/FontName/A/Flags 4/FontFile2 11 0 R>>>>"
    return page_pdf(b"BT /T 99 Tf 50 400 Td (aaaa) Tj ET", [font, stream(b"/Length1 %d" % len(program), program)])
