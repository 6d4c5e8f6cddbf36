# ruff: noqa: E501 - markup is easier to read in one line
"""Hostile files, by name: references to the machine and to hosts, bombs, and damage.

Each kind is made in every format that can hold it.
"""

import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from PIL import Image

from tests.support.sources.hwp_files import hwpx, paragraph
from tests.support.sources.office_files import archive, docx, open_document, pptx, xlsx

_XLINK = "http://www.w3.org/1999/xlink"
_LINKS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PICTURE = "http://schemas.openxmlformats.org/drawingml/2006/picture"
_DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main"
_PLACE = "http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing"
TOKEN = "SECRETTOKEN"
COLOUR = (255, 0, 255)
"""The colour of everything secret, which no page may show."""


def secrets(folder: Path) -> None:
    """Write files of the machine that hostile files refer to: a picture, a PDF, a text, a style sheet."""
    folder.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (400, 400), COLOUR).save(folder / "secret.png")
    (folder / "secret.svg").write_text(svg('<rect width="400" height="400" fill="#ff00ff"/>'))
    (folder / "secret.pdf").write_bytes(page_pdf(b"1 0 1 rg 0 0 595 842 re f", []))
    (folder / "secret.txt").write_text(TOKEN)
    (folder / "secret.html").write_text(f"<p>{TOKEN}</p>")
    (folder / "secret.docx").write_bytes(docx(TOKEN))
    (folder / "secret.xlsx").write_bytes(xlsx([[TOKEN]]))


def references(folder: Path, url: str) -> dict[str, bytes]:
    """Return files that refer to the `secrets` in a folder and to a host, by name."""
    up = f"../../../../../../../..{folder}"
    targets = {"absolute": str(folder), "file": folder.as_uri(), "relative": up, "host": url}
    made: dict[str, bytes] = {}
    for how, to in targets.items():
        for kind in ("png", "svg", "pdf"):
            made |= {
                f"{name}-{how}-{kind}{Path(name).suffix}": content for name, content in _pictures(f"{to}/secret.{kind}")
            }
        made |= {f"{name}-{how}{Path(name).suffix}": content for name, content in _others(to)}
    return made


def _pictures(to: str) -> Iterator[tuple[str, bytes]]:
    """Yield files that show a picture elsewhere."""
    inside = svg(f'<image width="400" height="400" xlink:href="{to}"/><use xlink:href="{to}#a"/>')
    yield (
        "include.rtf",
        f'{{\\rtf1 {{\\field{{\\*\\fldinst {{INCLUDEPICTURE "{to}" \\\\d }}}}{{\\fldrslt x}}}}}}'.encode(),
    )
    yield "svg.docx", with_picture("media/i.svg", {"word/media/i.svg": inside}, "embed")
    yield "linked.docx", with_picture(to, {}, "link")
    shown = f'<draw:frame svg:width="9cm" svg:height="9cm"><draw:image xlink:href="%s" xmlns:xlink="{_XLINK}"/></draw:frame>'
    for kind, suffix in (("text", "odt"), ("presentation", "odp"), ("spreadsheet", "ods")):
        yield f"linked.{suffix}", in_open_document(kind, shown % to, {})
        yield f"svg.{suffix}", in_open_document(kind, shown % "Pictures/i.svg", {"Pictures/i.svg": inside})
    yield "picture.html", f'<p>x</p><img src="{to}"><iframe src="{to}"></iframe><object data="{to}"></object>'.encode()


def _others(to: str) -> Iterator[tuple[str, bytes]]:
    """Yield files that take text, templates, data or fonts from elsewhere."""
    yield (
        "text.rtf",
        f'{{\\rtf1 {{\\field{{\\*\\fldinst {{INCLUDETEXT "{to}/secret.docx" }}}}{{\\fldrslt x}}}}}}'.encode(),
    )
    yield "template.rtf", f"{{\\rtf1 {{\\*\\template {to}/secret.docx}} words}}".encode()
    settings = {
        "word/_rels/settings.xml.rels": _relations(
            f'Id="r1" Type="{_LINKS}/attachedTemplate" Target="{to}/secret.docx"'
        ),
        "word/settings.xml": f'<w:settings xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" '
        f'xmlns:r="{_LINKS}"><w:attachedTemplate r:id="r1"/></w:settings>',
    }
    yield "template.docx", joined(docx("words"), settings)
    yield (
        "field.docx",
        docx(body=_field(f'INCLUDETEXT "{to}/secret.txt"') + _field(f'INCLUDEPICTURE "{to}/secret.png" \\d')),
    )
    section = f'<text:section text:name="s"><text:section-source xlink:href="{to}/secret.docx" xmlns:xlink="{_XLINK}"/></text:section>'
    yield "section.odt", in_open_document("text", section, {})
    yield (
        "sheet.ods",
        in_open_document(
            "spreadsheet",
            f'<table:table table:name="x"><table:table-source xlink:href="{to}/secret.xlsx" xmlns:xlink="{_XLINK}"/></table:table>',
            {},
        ),
    )
    font = f'@font-face{{font-family:x;src:url("{to}/secret.ttf")}}@import url("{to}/secret.css");'
    page = f'<style>{font}</style><link rel="stylesheet" href="{to}/secret.css"><p style="background:url({to}/secret.png)">x</p>'
    yield "style.html", page.encode()
    formulas = [[f'=WEBSERVICE("{to}/secret.txt")', f"='{to}/[secret.xlsx]S1'!A1"]]
    yield "formula.xlsx", xlsx(formulas)
    yield "entity.docx", docx("&x;", head=f'<!DOCTYPE d [<!ENTITY x SYSTEM "{to}/secret.txt">]>')
    yield (
        "stream.pdf",
        page_pdf(
            b"/X Do",
            [
                f"<</Type/XObject/Subtype/Form/BBox[0 0 595 842]/F({to}/secret.pdf)/Length 0>>stream\n\nendstream".encode()
            ],
        ),
    )


def svg(inside: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="{_XLINK}" width="400" height="400">'
        f'<rect width="400" height="400" fill="#eeeeee"/>{inside}</svg>'
    )


def _relations(*each: str) -> str:
    listed = "".join(f'<Relationship {one} TargetMode="External"/>' for one in each)
    return (
        f'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{listed}</Relationships>'
    )


def joined(content: bytes, parts: Mapping[str, str | bytes]) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        return archive({**{name: file.read(name) for name in file.namelist()}, **parts})


def with_picture(target: str, parts: Mapping[str, str | bytes], how: str) -> bytes:
    """Return a DOCX with a picture: one of its `parts`, or a link."""
    blip = f'<a:blip r:{how}="p1"/><a:stretch><a:fillRect/></a:stretch>'
    shown = (
        f'<w:p><w:r><w:drawing><wp:inline xmlns:wp="{_PLACE}"><wp:extent cx="3600000" cy="3600000"/><wp:docPr id="1" name="p"/>'
        f'<a:graphic xmlns:a="{_DRAWING}"><a:graphicData uri="{_PICTURE}"><pic:pic xmlns:pic="{_PICTURE}"><pic:nvPicPr>'
        f'<pic:cNvPr id="1" name="p"/><pic:cNvPicPr/></pic:nvPicPr><pic:blipFill>{blip}</pic:blipFill><pic:spPr><a:xfrm>'
        '<a:off x="0" y="0"/><a:ext cx="3600000" cy="3600000"/></a:xfrm><a:prstGeom prst="rect"/></pic:spPr></pic:pic>'
        "</a:graphicData></a:graphic></wp:inline></w:drawing></w:r></w:p>"
    )
    outside = ' TargetMode="External"' if how == "link" else ""
    links = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        f'<Relationship Id="p1" Type="{_LINKS}/image" Target="{target}"{outside}/></Relationships>'
    )
    made = joined(docx("words", body=shown), {"word/_rels/document.xml.rels": links, **parts})
    with zipfile.ZipFile(io.BytesIO(made)) as file:
        types = file.read("[Content_Types].xml").decode()
    kinds = '<Default Extension="svg" ContentType="image/svg+xml"/><Default Extension="png" ContentType="image/png"/>'
    return joined(made, {"[Content_Types].xml": types.replace("<Override", f"{kinds}<Override", 1)})


def in_open_document(kind: str, inside: str, parts: Mapping[str, str | bytes]) -> bytes:
    """Return an OpenDocument file that has some XML inside."""
    made = open_document(kind, "words")
    with zipfile.ZipFile(io.BytesIO(made)) as file:
        content = file.read("content.xml").decode()
        manifest = file.read("META-INF/manifest.xml").decode()
    ends = {"text": "</office:text>", "presentation": "</draw:page>", "spreadsheet": "</office:spreadsheet>"}
    if kind == "spreadsheet" and "draw:frame" in inside:
        inside = f'<table:table table:name="p"><table:shapes>{inside}</table:shapes><table:table-row><table:table-cell/></table:table-row></table:table>'
    entry = '<m:file-entry m:full-path="Pictures/i.svg" m:media-type="image/svg+xml"/>'
    manifest = manifest.replace("</m:manifest>", f"{entry}</m:manifest>")
    if "<text:p>" not in inside and kind == "text" and "draw:frame" in inside:
        inside = f"<text:p>{inside}</text:p>"
    content = content.replace(ends[kind], f"{inside}{ends[kind]}", 1)
    return joined(made, {"content.xml": content, "META-INF/manifest.xml": manifest, **parts})


def _field(code: str) -> str:
    kinds = ("begin", "separate", "end")
    begin, middle, end = (f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in kinds)
    return f"<w:p>{begin}<w:r><w:instrText>{code}</w:instrText></w:r>{middle}<w:r><w:t>x</w:t></w:r>{end}</w:p>"


def page_pdf(
    content: bytes,
    objects: Sequence[bytes],
    resources: bytes = b"/XObject<</X 10 0 R>>/Pattern<</P 10 0 R>>/Shading<</S 10 0 R>>",
    catalog: bytes = b"",
    more: bytes = b"",
) -> bytes:
    """Return a PDF of one page; `objects` are numbered from 10, and `more` is of the page."""
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Contents 4 0 R/Resources<<%s/ExtGState<</G 10 0 R>>/Font<</F 5 0 R/T 10 0 R>>>>%s>>"
    numbered = {
        1: b"<</Type/Catalog/Pages 2 0 R%s>>" % catalog,
        2: b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        3: page % (resources, more),
        4: b"<</Length %d>>stream\n%s\nendstream" % (len(content), content),
        5: b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        **dict(enumerate(objects, 10)),
    }
    written = bytearray(b"%PDF-1.7\n")
    places = {}
    for number, body in numbered.items():
        places[number] = len(written)
        written += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(written)
    written += b"xref\n0 %d\n0000000000 65535 f \n" % (max(places) + 1)
    for number in range(1, max(places) + 1):
        written += b"%010d 00000 %c \n" % (places.get(number, 0), b"n"[0] if number in places else b"f"[0])
    return bytes(written) + b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (max(places) + 1, start)


def stream(head: bytes, content: bytes) -> bytes:
    return b"<<%s/Length %d>>stream\n%s\nendstream" % (head, len(content), content)


def nested_forms(depth: int = 10, times: int = 10) -> bytes:
    """Return a PDF whose forms draw the next one several times each: `times` to the power of `depth`."""
    box = b"/Type/XObject/Subtype/Form/BBox[0 0 595 842]"
    forms = [
        stream(b"%s/Resources<</XObject<</X %d 0 R>>>>" % (box, 11 + at), b"/X Do " * times) for at in range(depth)
    ]
    return page_pdf(b"/X Do", [*forms, stream(box, b"0 0 9 9 re f")])


def fine_pattern(step: str = ".001") -> bytes:
    """Return a PDF that fills its page with a pattern of tiny tiles."""
    head = b"/Type/Pattern/PatternType 1/PaintType 1/TilingType 1/BBox[0 0 .01 .01]/XStep %s/YStep %s/Resources<<>>"
    return page_pdf(
        b"/Pattern cs /P scn 0 0 595 842 re f",
        [stream(head.replace(b"%s", step.encode()), b"1 0 0 rg 0 0 .001 .001 re f")],
    )


def _pdf_bombs() -> Iterator[tuple[str, bytes]]:
    for depth in (7, 8, 9, 10, 12):
        yield f"forms {depth}.pdf", nested_forms(depth)
    yield (
        "form of itself.pdf",
        page_pdf(
            b"/X Do",
            [stream(b"/Type/XObject/Subtype/Form/BBox[0 0 9 9]/Resources<</XObject<</X 10 0 R>>>>", b"/X Do")],
        ),
    )
    for step in (".001", ".002", ".0001"):
        yield f"pattern {step}.pdf", fine_pattern(step)
    yield (
        "pattern of itself.pdf",
        page_pdf(
            b"/Pattern cs /P scn 0 0 595 842 re f",
            [
                stream(
                    b"/Type/Pattern/PatternType 1/PaintType 1/TilingType 1/BBox[0 0 9 9]/XStep 9/YStep 9/Resources<</Pattern<</P 10 0 R>>>>",
                    b"/Pattern cs /P scn 0 0 9 9 re f",
                )
            ],
        ),
    )
    function = b"<</FunctionType 4/Domain[0 1 0 1]/Range[0 1 0 1 0 1]/Length 6>>stream\n{ 0.5 }\nendstream"
    yield (
        "shading.pdf",
        page_pdf(b"/S sh " * 5000, [b"<</ShadingType 1/ColorSpace/DeviceRGB/Function 11 0 R>>", function]),
    )
    mask = b"<</Type/ExtGState/SMask<</S/Luminosity/G 11 0 R>>>>"
    group = b"/Type/XObject/Subtype/Form/BBox[0 0 595 842]/Group<</S/Transparency/CS/DeviceRGB>>/Resources<</ExtGState<</G 10 0 R>>>>"
    yield (
        "soft mask of itself.pdf",
        page_pdf(b"/G gs 0 0 595 842 re f", [mask, stream(group, b"/G gs 0 0 595 842 re f")]),
    )
    glyph = b"<</Type/Font/Subtype/Type3/FontBBox[0 0 9 9]/FontMatrix[1 0 0 1 0 0]/CharProcs<</a 11 0 R>>/Encoding<</Differences[97/a]>>/FirstChar 97/LastChar 97/Widths[9]/Resources<</Font<</T 10 0 R>>>>>>"
    yield (
        "font of itself.pdf",
        page_pdf(b"BT /T 9 Tf (aaaa) Tj ET", [glyph, stream(b"", b"9 0 d0 BT /T 9 Tf (aaaaaaaaaa) Tj ET")]),
    )
    for size in (100, 400):
        packed = zlib.compress(b"0 0 m 9 9 l S " * (size << 16), 9)
        yield (
            f"content {size} MB.pdf",
            page_pdf(b"/X Do", [stream(b"/Type/XObject/Subtype/Form/BBox[0 0 9 9]/Filter/FlateDecode", packed)]),
        )
    packed = zlib.compress(bytes(300 << 20), 9)
    for side in (20_000, 50_000, 500_000):
        head = (
            b"/Type/XObject/Subtype/Image/Width %d/Height %d/ColorSpace/DeviceRGB/BitsPerComponent 8/Filter/FlateDecode"
        )
        yield f"picture {side}.pdf", page_pdf(b"500 0 0 500 0 0 cm /X Do", [stream(head % (side, side), packed)])
    yield (
        "flate in flate.pdf",
        page_pdf(
            b"/X Do",
            [
                stream(
                    b"/Type/XObject/Subtype/Form/BBox[0 0 9 9]/Filter[/FlateDecode/FlateDecode]",
                    zlib.compress(packed, 9),
                )
            ],
        ),
    )
    for size in (10, 1000):
        yield f"depth of saved states {size}k.pdf", page_pdf(b"q " * (size * 1000), [])
    for sides in ((14_400, 14_400), (200_000, 200_000), (1_000_000, 1)):
        yield f"page of {sides[0]}.pdf", page_pdf(b"", []).replace(b"0 0 595 842", b"0 0 %d %d" % sides)
    many = 100_000
    notes = b" ".join(b"%d 0 R" % (10 + at) for at in range(many))
    note = b"<</Type/Annot/Subtype/Square/Rect[0 0 99 99]/C[1 0 0]>>"
    yield (
        "annotations.pdf",
        page_pdf(b"", [note] * many).replace(b"/Contents 4 0 R", b"/Contents 4 0 R/Annots[%s]" % notes),
    )
    yield "pages of themselves.pdf", page_pdf(b"", []).replace(b"/Kids[3 0 R]", b"/Kids[2 0 R]")
    yield "a million pages.pdf", page_pdf(b"", []).replace(b"/Count 1", b"/Count 1000000")
    yield (
        "a million kids.pdf",
        page_pdf(b"", []).replace(b"/Kids[3 0 R]/Count 1", b"/Kids[%s]/Count 3000" % (b"3 0 R " * 3000)),
    )


def _picture_bombs() -> Iterator[tuple[str, bytes]]:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    packed = zlib.compress(bytes(200 << 20), 9)
    for side in (13_000, 60_000, 2_000_000_000):
        head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
        start = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head)
        yield f"{side}.png", start + chunk(b"IDAT", packed) + chunk(b"IEND", b"")
    head = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 9, 9, 8, 2, 0, 0, 0))
    yield (
        "text.png",
        head + chunk(b"zTXt", b"a\0\0" + packed) + chunk(b"IDAT", zlib.compress(bytes(9 * 28))) + chunk(b"IEND", b""),
    )
    yield (
        "profile.png",
        head + chunk(b"iCCP", b"a\0\0" + packed) + chunk(b"IDAT", zlib.compress(bytes(9 * 28))) + chunk(b"IEND", b""),
    )
    for format, suffix in (
        ("BMP", "bmp"),
        ("GIF", "gif"),
        ("TIFF", "tif"),
        ("WEBP", "webp"),
        ("JPEG", "jpg"),
        ("JPEG2000", "jp2"),
    ):
        written = io.BytesIO()
        Image.new("RGB", (64, 64), "white").save(written, format)
        small = written.getvalue()
        yield f"small.{suffix}", small[: len(small) // 2]
        if format == "BMP":
            yield "sides.bmp", small[:18] + struct.pack("<ii", 60_000, 60_000) + small[26:]
        if format == "GIF":
            yield "sides.gif", small[:6] + struct.pack("<HH", 65_000, 65_000) + small[10:]
        if format == "JPEG2000":
            at = small.index(b"ihdr") + 4
            yield "sides.jp2", small[:at] + struct.pack(">II", 60_000, 60_000) + small[at + 8 :]
    tags = [
        (256, 60_000),
        (257, 60_000),
        (258, 8),
        (259, 8),
        (262, 1),
        (273, 8),
        (277, 1),
        (278, 60_000),
        (279, len(packed)),
    ]
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    directory = struct.pack("<H", len(tags)) + entries
    yield "sides.tif", struct.pack("<2sHI", b"II", 42, 8 + len(packed)) + packed + directory + bytes(4)
    looped = struct.pack("<2sHI", b"II", 42, 8) + struct.pack("<H", 2) + entries[:24] + struct.pack("<I", 8)
    yield "directory of itself.tif", looped
    frames = io.BytesIO()
    one = Image.new("1", (8, 8))
    one.save(frames, "TIFF", save_all=True, append_images=[one] * 3000)
    yield "frames.tif", frames.getvalue()


def far_cell(place: str = "XFD1048576", prefixed: bool = False) -> bytes:
    """Return an XLSX with one cell far away, whose elements may have a prefix."""
    made = xlsx([["x"]])
    with zipfile.ZipFile(io.BytesIO(made)) as file:
        sheet = file.read("xl/worksheets/sheet1.xml").decode()
    row = "".join(filter(str.isdecimal, place))
    sheet = sheet.replace('r="A1"', f'r="{place}"').replace('r="1"', f'r="{row}"')
    if prefixed:
        sheet = sheet[sheet.index("<worksheet") :]
        sheet = sheet.replace("<", "<x:").replace("<x:/", "</x:").replace("xmlns=", "xmlns:x=")
    return joined(made, {"xl/worksheets/sheet1.xml": sheet})


def repeated_cells(kind: str, rows: int, columns: int, more: str = "") -> bytes:
    """Return an OpenDocument file with a table whose one cell, with attributes of its own, is repeated."""
    cell = f'<table:table-cell table:number-columns-repeated="{columns}"{more}/>'
    row = f'<table:table-row table:number-rows-repeated="{rows}">{cell}</table:table-row>'
    return in_open_document(kind, f'<table:table table:name="r">{row}</table:table>', {})


def _office_bombs() -> Iterator[tuple[str, bytes]]:
    for place in ("XFD1048576", "XFD20000", "A1048576"):
        yield f"{place}.xlsx", far_cell(place)
    bomb = archive({"word/document.xml": b" " * (600 << 20)})
    for suffix in ("docx", "xlsx", "pptx", "odt", "ods", "odp", "hwpx"):
        yield f"zip.{suffix}", bomb
    laughs = "".join(f'<!ENTITY l{at} "{f"&l{at - 1};" * 10}">' for at in range(1, 10))
    yield "laughs.docx", docx("&l9;", head=f"<!DOCTYPE d [<!ENTITY l0 'lol'>{laughs}]>")
    for depth in (200, 3000):
        inside = "<w:tbl><w:tr><w:tc>" * depth + "<w:p/>" + "</w:tc></w:tr></w:tbl>" * depth
        yield f"tables {depth} deep.docx", docx("x", body=inside)
        yield (
            f"groups {depth} deep.odt",
            in_open_document("text", "<text:section>" * depth + "</text:section>" * depth, {}),
        )
    yield "a letter of 100 MB.docx", docx("x" * (100 << 20))
    yield "paragraphs.docx", docx(*["x"] * 100_000)
    yield "strings.xlsx", xlsx([["x" * 30_000] * 2_000])
    yield "cells.xlsx", xlsx([["\t".join("1" * 100)] * 10_000])
    yield (
        "repeated.ods",
        repeated_cells("spreadsheet", 1_000_000, 16_000, ' office:value-type="float" office:value="1"'),
    )
    yield "repeated.odt", repeated_cells("text", 1_000_000, 16_000)
    yield "spaces.odt", in_open_document("text", '<text:p><text:s text:c="2000000000"/></text:p>', {})
    yield "groups.rtf", b"{\\rtf1 " + b"{" * 1_000_000
    yield "bin.rtf", b"{\\rtf1 {\\pict\\pngblip\\bin2000000000 x}}"
    yield "tables.html", b"<table><tr><td>" * 20_000
    yield "span.html", b"<table><tr><td rowspan=2000000000 colspan=2000000000>x</table>"
    yield "slides.pptx", pptx(*["x"] * 3_000)
    yield "paragraphs.hwpx", hwpx(*[paragraph("x")] * 50_000)
    yield "table.hwpx", hwpx(paragraph("x", '<hp:tbl rowCnt="65535" colCnt="65535"/>'))
    yield "deep.hwpx", hwpx(paragraph("x", "<hp:ctrl>" * 3000 + "</hp:ctrl>" * 3000))


def bombs() -> dict[str, bytes]:
    """Return files that are small and become large, or take long, by name."""
    return dict([*_pdf_bombs(), *_picture_bombs(), *_office_bombs()])


def damaged(good: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files cut off, with bytes changed, and with the name of another kind."""
    made: dict[str, bytes] = {}
    for name, content in good.items():
        stem, suffix = Path(name).stem, Path(name).suffix
        for share in (0.1, 0.5, 0.9):
            made[f"cut {share} {name}"] = content[: int(len(content) * share)]
        changes: tuple[Callable[[int], bool], ...] = (lambda at: at % 97 == 0, lambda at: at % 1009 == 0)
        for number, changes_at in enumerate(changes):
            made[f"changed {number} {name}"] = bytes(
                byte ^ 0x55 if changes_at(at) else byte for at, byte in enumerate(content)
            )
        made[f"named {stem}{'.png' if suffix == '.pdf' else '.pdf'}"] = content
    return made
