# ruff: noqa: E501 - markup is easier to read in one line
"""Hostile pictures, office files, mails and texts that abuse what their format alone can do, by name."""

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from PIL import Image

from tests.support.sources.hostile_files import in_open_document, joined, svg, with_picture
from tests.support.sources.hostile_pdfs import hostile_pdfs
from tests.support.sources.hwp_files import hwpx, paragraph
from tests.support.sources.office_files import docx, open_document, pptx, xlsx

_LINKS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_SHEETS = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_XLINK = 'xmlns:xlink="http://www.w3.org/1999/xlink"'
_LAUGHS = "<!ENTITY l0 'lol'>" + "".join(f'<!ENTITY l{at} "{f"&l{at - 1};" * 10}">' for at in range(1, 10))


def hostile_formats(secret: Path, url: str) -> dict[str, bytes]:
    """Return hostile files by name, some of which refer to a folder of secrets and to a host."""
    places = [str(secret), secret.as_uri(), f"../../../../../../../..{secret}", url]
    kinds = (_pictures(), _packages(), _office_references(places), _office_bombs(), _texts(places), _mails(places))
    return dict([*hostile_pdfs(secret, url), *(file for kind in kinds for file in kind)])


def _pictures() -> Iterator[tuple[str, bytes]]:
    def chunk(kind: bytes, content: bytes, length: int | None = None) -> bytes:
        size = len(content) if length is None else length
        return struct.pack(">I", size) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    start = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 9, 9, 8, 2, 0, 0, 0))
    pixels, end = zlib.compress(bytes(9 * 28)), chunk(b"IEND", b"")
    yield "chunk.png", start + chunk(b"IDAT", pixels, 2**31 - 1) + end
    frame = struct.pack(">IIIIIHHBB", 0, 9, 9, 0, 0, 1, 1, 0, 0)
    frames = b"".join(chunk(b"fcTL", frame) + chunk(b"fdAT", bytes(4) + pixels) for _ in range(2000))
    yield "moving.png", start + chunk(b"acTL", struct.pack(">II", 2**31 - 1, 0)) + chunk(b"IDAT", pixels) + frames + end
    one = b"\x21\xf9\x04\0\0\0\0\0" + b"," + struct.pack("<HHHHB", 0, 0, 9, 9, 0) + b"\x02\x02\x4c\x01\0"
    yield "moving.gif", b"GIF89a" + struct.pack("<HHBBB", 9, 9, 0xF0, 0, 0) + bytes(6) + one * 100_000 + b";"
    header = struct.pack("<IiiHHIIiiII", 2**31 - 1, 9, 9, 1, 8, 1, 2**31 - 1, 0, 0, 2**32 - 1, 2**32 - 1)
    yield "header.bmp", struct.pack("<2sIHHI", b"BM", 2**32 - 1, 0, 0, 2**32 - 1) + header
    header = struct.pack("<IiiHHIIiiII", 40, 30_000, 30_000, 1, 8, 1, 0, 0, 0, 0, 0)
    yield "runs.bmp", struct.pack("<2sIHHI", b"BM", 2000, 0, 0, 1078) + header + bytes(1024) + b"\xff\0" * 9 + b"\0\1"
    written = io.BytesIO()
    Image.new("L", (4000, 4000), "white").save(written, "JPEG", progressive=True)
    scans = written.getvalue()
    last = scans[scans.rindex(b"\xff\xda") : -2]
    yield "scans.jpg", scans[:-2] + last * 1000 + b"\xff\xd9"
    written = io.BytesIO()
    Image.new("YCbCr", (64, 64), "white").save(written, "JPEG")
    small = written.getvalue()
    at = small.index(b"\xff\xc0")
    yield "sides.jpg", small[: at + 5] + struct.pack(">HH", 65_500, 65_500) + small[at + 9 :]
    yield "samples.jpg", small[: at + 11] + b"\xff" + small[at + 12 : at + 14] + b"\0" + small[at + 15 :]
    exif = b"Exif\0\0II*\0\x08\0\0\0" + struct.pack("<HHHII", 1, 34665, 4, 1, 8) + struct.pack("<I", 8)
    yield "exif of itself.jpg", small[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + small[2:]
    lossless = struct.pack("<BI", 0x2F, 16_383 | 16_383 << 14) + bytes(16)
    yield (
        "sides.webp",
        struct.pack("<4sI4s4sI", b"RIFF", 12 + len(lossless), b"WEBP", b"VP8L", len(lossless)) + lossless,
    )
    for name, more in (
        ("tiles", [(322, 2**31 - 16), (323, 2**31 - 16), (324, 8), (325, 2**31)]),
        ("strips", [(273, 8), (278, 1), (279, 2**32 - 1)]),
        ("samples", [(273, 8), (277, 65_535), (278, 1), (279, 8)]),
    ):
        tags = sorted([(256, 2**31 - 1), (257, 2**31 - 1), (258, 16), (259, 5), (262, 1), *more])
        entries = b"".join(struct.pack("<HHII", tag, 4, 2**30 if name == "strips" else 1, value) for tag, value in tags)
        yield f"{name}.tif", struct.pack("<2sHIH", b"II", 42, 8, len(tags)) + entries + bytes(4)


def _packages() -> Iterator[tuple[str, bytes]]:
    """Yield office files whose archive is the attack."""
    for suffix, good, part in (
        ("docx", docx("words"), "word/document.xml"),
        ("odt", open_document("text", "words"), "content.xml"),
        ("hwpx", hwpx(paragraph("words")), "Contents/section0.xml"),
    ):
        yield f"overlapping.{suffix}", _overlapping(part)
        outside = {f"{up}kopub-was-here": "x" for up in ("/tmp/", "../" * 12 + "tmp/", "..\\..\\", "C:\\")}
        made = io.BytesIO(joined(good, outside))
        with zipfile.ZipFile(made, "a") as file:
            link = zipfile.ZipInfo("word/media/i.png")
            link.external_attr = 0o120777 << 16
            file.writestr(link, "/etc/hostname")
        yield f"places.{suffix}", made.getvalue()
        yield f"entries.{suffix}", joined(good, dict.fromkeys((f"x/{at}" for at in range(60_000)), ""))
        nested = good
        for _ in range(30):
            nested = joined(good, {"word/embeddings/o.docx": nested, "Object 1/content.xml": nested})
        yield f"packages deep.{suffix}", nested


def _overlapping(part: str) -> bytes:
    """Return an archive with 3,000 names for the same 4 MB of packed zeros."""
    packed = zlib.compress(bytes(4 << 20), 9)[2:-4]
    sizes = struct.pack("<III", zlib.crc32(bytes(4 << 20)), len(packed), 4 << 20)
    content = b"PK\3\4" + struct.pack("<HHHHH", 20, 0, 8, 0, 0) + sizes + struct.pack("<HH", len(part), 0)
    content += part.encode() + packed
    listed = b""
    names = [part, *(f"x/{at}.xml" for at in range(3000))]
    for name in names:
        listed += b"PK\1\2" + struct.pack("<HHHHHH", 20, 20, 0, 8, 0, 0) + sizes
        listed += struct.pack("<HHHHHII", len(name), 0, 0, 0, 0, 0, 0) + name.encode()
    end = struct.pack("<HHHHIIH", 0, 0, len(names), len(names), len(listed), len(content), 0)
    return content + listed + b"PK\5\6" + end


def _relations(links: Sequence[tuple[str, str]]) -> str:
    """Return relationships e1, e2, ... to other places, from their kinds and targets."""
    each = "".join(
        f'<Relationship Id="e{at}" Type="{_LINKS}/{kind}" Target="{to}" TargetMode="External"/>'
        for at, (kind, to) in enumerate(links, 1)
    )
    return f'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{each}</Relationships>'


def _office_references(places: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    links = [
        (kind, f"{to}/secret.{suffix}")
        for to in places
        for kind, suffix in (("aFChunk", "html"), ("subDocument", "docx"), ("oleObject", "docx"), ("frame", "html"))
    ]
    parts = {"aFChunk": "<w:altChunk r:id='%s'/>", "subDocument": "<w:subDoc r:id='%s'/>", "frame": ""}
    ole = (
        "<w:p><w:r><w:object><o:OLEObject xmlns:o='urn:schemas-microsoft-com:office:office' Type='Link' "
        "ProgID='Word.Document' r:id='%s' UpdateMode='Always'/></w:object></w:r></w:p>"
    )
    body = "".join(parts.get(kind, ole).replace("%s", f"e{at}") for at, (kind, _) in enumerate(links, 1))
    for to in places:
        for code in (
            f'DDEAUTO soffice "{to}/secret.docx" x',
            f'DATABASE \\d "{to}/secret.xlsx"',
            f'RD "{to}/secret.docx"',
        ):
            body += f"<w:p><w:fldSimple w:instr='{code}'><w:r><w:t>x</w:t></w:r></w:fldSimple></w:p>"
    merge = _relations([("mailMergeSource", f"{to}/secret.xlsx") for to in places])
    source = (
        f'<w:settings xmlns:w="{_WORD}" xmlns:r="{_LINKS}"><w:updateFields w:val="true"/><w:mailMerge>'
        '<w:mainDocumentType w:val="formLetters"/><w:linkToQuery/><w:dataType w:val="native"/><w:dataSource r:id="e1"/>'
        "</w:mailMerge></w:settings>"
    )
    more = {
        "word/_rels/document.xml.rels": _relations(links),
        "word/settings.xml": source,
        "word/_rels/settings.xml.rels": merge,
    }
    yield "objects.docx", joined(docx("words", body=body), more)
    formulas = [
        f"={form}"
        for to in places
        for form in (
            f'IMAGE("{to}/secret.png")',
            f'HYPERLINK("{to}/secret.txt")',
            f"soffice|'{to}/secret.xlsx'!A1",
            f'FILTERXML(WEBSERVICE("{to}/secret.html"),"//p")',
            f"INDIRECT(\"'{to}/[secret.xlsx]S1'!A1\")",
        )
    ]
    cells = "".join(f'<row r="{at}"><c r="A{at}"><f>{form[1:]}</f></c></row>' for at, form in enumerate(formulas, 1))
    cells = cells.replace('"', "&quot;").replace("=&quot;", '="').replace("&quot;>", '">').replace("&quot; ", '" ')
    book = (
        f'<externalLink xmlns="{_SHEETS}" xmlns:r="{_LINKS}"><externalBook r:id="e1"><sheetNames><sheetName val="S1"/>'
        "</sheetNames></externalBook></externalLink>"
    )
    yield (
        "links.xlsx",
        joined(
            xlsx([["words"]]),
            {
                "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{_SHEETS}"><sheetData>{cells}</sheetData></worksheet>',
                "xl/externalLinks/externalLink1.xml": book,
                "xl/externalLinks/_rels/externalLink1.xml.rels": _relations(
                    [("externalLinkPath", f"{to}/secret.xlsx") for to in places]
                ),
                "xl/connections.xml": f'<connections xmlns="{_SHEETS}"><connection id="1" name="c" type="4" refreshOnLoad="1">'
                f'<webPr url="{places[3]}/secret.html" htmlTables="1"/></connection></connections>',
            },
        ),
    )
    slide = "".join(f'<p:pic><p:nvPicPr><p:cNvPr id="{at}" name="v"/><p:cNvPicPr/><p:nvPr><a:videoFile r:link="e{at}"/></p:nvPr></p:nvPicPr>'
        f'<p:blipFill><a:blip r:link="e{at}"/><a:stretch><a:fillRect/></a:stretch></p:blipFill><p:spPr><a:xfrm><a:off x="0" y="0"/>'
        '<a:ext cx="3600000" cy="3600000"/></a:xfrm><a:prstGeom prst="rect"/></p:spPr></p:pic>' for at in range(1, 5))  # fmt: skip
    made = pptx("words")
    with zipfile.ZipFile(io.BytesIO(made)) as file:
        xml = file.read("ppt/slides/slide1.xml").decode().replace("</p:spTree>", f"{slide}</p:spTree>")
    shown = _relations([("image", f"{to}/secret.png") for to in places])
    yield "media.pptx", joined(made, {"ppt/slides/slide1.xml": xml, "ppt/slides/_rels/slide1.xml.rels": shown})
    frame = '<draw:frame svg:width="9cm" svg:height="9cm">%s</draw:frame>'
    inside = "".join(
        frame % f'<draw:{kind} xlink:href="{to}/secret.{suffix}" xlink:actuate="onLoad" {_XLINK}/>'
        for to in places
        for kind, suffix in (("object", "docx"), ("object-ole", "xlsx"), ("plugin", "png"), ("floating-frame", "html"))
    )
    dde = "".join(
        f'<text:section text:name="d{at}"><office:dde-source office:dde-application="soffice" office:dde-topic="{to}/secret.docx" '
        'office:dde-item="x" office:automatic-update="true"/></text:section>'
        for at, to in enumerate(places)
    )
    yield "objects.odt", in_open_document("text", f"<text:p>{inside}</text:p>{dde}", {})
    told = "".join(
        f'<table:table-row><table:table-cell table:formula="of:={form}"/></table:table-row>'
        for to in places
        for form in (
            f"WEBSERVICE(&quot;{to}/secret.txt&quot;)",
            f"DDE(&quot;soffice&quot;;&quot;{to}/secret.xlsx&quot;;&quot;A1&quot;)",
            f"[&apos;{to}/secret.xlsx&apos;#$S1.A1]",
        )
    )
    yield "links.ods", in_open_document("spreadsheet", f'<table:table table:name="l">{told}</table:table>', {})
    rtf = "".join(
        f'{{\\object\\objautlink\\objupdate{{\\*\\objclass Word.Document}}{{\\*\\objalias {to}/secret.docx}}}}'
        f'{{\\field\\flddirty{{\\*\\fldinst DDEAUTO soffice "{to}/secret.docx" x}}{{\\fldrslt x}}}}'
        f'{{\\field{{\\*\\fldinst IMPORT "{to}/secret.png"}}{{\\fldrslt x}}}}{{\\*\\filetbl{{\\file\\fid0\\fvalidunix {to}/secret.txt}}}}'
        f'{{\\stylesheet{{\\*\\linkstyles {to}/secret.docx}}}}'
        for to in places
    )  # fmt: skip
    yield "objects.rtf", f"{{\\rtf1 words {rtf}}}".encode()
    outside = "".join(f'<!ENTITY o{at} SYSTEM "{to}/secret.txt">' for at, to in enumerate(places))
    told = "".join(f"&o{at};" for at in range(len(places)))
    for name, inner, head in (("entities", told, outside), ("laughs", "&l9;", _LAUGHS)):
        doctype = f"<!DOCTYPE d [{head}]>"
        for suffix, good, part in _xml_packages():
            with zipfile.ZipFile(io.BytesIO(good)) as file:
                xml = file.read(part).decode()
            at = xml.index("?>") + 2
            yield f"{name} in.{suffix}", joined(good, {part: xml[:at] + doctype + xml[at:].replace("words", inner, 1)})
    items = "".join(
        f'<opf:item id="image{at}" href="{to}/secret.png" media-type="image/png" isEmbeded="0"/>'
        for at, to in enumerate(places, 1)
    )
    made = hwpx(paragraph("words"))
    with zipfile.ZipFile(io.BytesIO(made)) as file:
        package = file.read("Contents/content.hpf").decode().replace("</opf:manifest>", f"{items}</opf:manifest>")
    yield "pictures elsewhere.hwpx", joined(made, {"Contents/content.hpf": package})


def _xml_packages() -> Iterator[tuple[str, bytes, str]]:
    yield "xlsx", xlsx([["words"]]), "xl/worksheets/sheet1.xml"
    yield "pptx", pptx("words"), "ppt/slides/slide1.xml"
    for kind, suffix in (("text", "odt"), ("spreadsheet", "ods"), ("presentation", "odp")):
        yield suffix, open_document(kind, "words"), "content.xml"
    yield "hwpx", hwpx(paragraph("words")), "Contents/section0.xml"


def _office_bombs() -> Iterator[tuple[str, bytes]]:
    groups = (f'<g id="u{at}">' + f'<use xlink:href="#u{at - 1}"/>' * 10 + "</g>" for at in range(1, 10))
    uses = "".join(groups)
    drawing = svg(f'<defs><rect id="u0" width="9" height="9"/>{uses}</defs><use xlink:href="#u9"/>')
    blur = svg(
        '<filter id="f" x="-9e9" y="-9e9" width="2e10" height="2e10"><feGaussianBlur stdDeviation="1e9"/></filter><rect width="9" height="9" filter="url(#f)"/>'
    )
    words = f"<?xml version='1.0'?><!DOCTYPE svg [{_LAUGHS}]>" + svg("<text>&l9;</text>")
    for name, drawn in (("uses", drawing), ("blur", blur), ("laughs of svg", words)):
        yield f"{name}.docx", with_picture("media/i.svg", {"word/media/i.svg": drawn}, "embed")
        frame = f'<draw:frame svg:width="9cm" svg:height="9cm"><draw:image xlink:href="Pictures/i.svg" {_XLINK}/></draw:frame>'
        yield f"{name}.odt", in_open_document("text", frame, {"Pictures/i.svg": drawn})
    types = "application/vnd.openxmlformats-officedocument.wordprocessingml.styles+xml"
    styles = "".join(
        f'<w:style w:type="paragraph" w:styleId="s{at}"><w:basedOn w:val="s{(at + 1) % 9}"/></w:style>'
        for at in range(9)
    )
    made = docx("words", body='<w:p><w:pPr><w:pStyle w:val="s0"/></w:pPr><w:r><w:t>x</w:t></w:r></w:p>')
    with zipfile.ZipFile(io.BytesIO(made)) as file:
        listed = file.read("[Content_Types].xml").decode()
    related = _relations([("styles", "styles.xml"), ("header", "document.xml")]).replace(' TargetMode="External"', "")
    yield (
        "styles of themselves.docx",
        joined(made, {
            "[Content_Types].xml": listed.replace("</Types>", f'<Override PartName="/word/styles.xml" ContentType="{types}"/></Types>'),
            "word/styles.xml": f'<w:styles xmlns:w="{_WORD}">{styles}</w:styles>',
            "word/_rels/document.xml.rels": related,
        }),
    )  # fmt: skip
    rows = "".join(
        f'<row r="{at}"><c r="A{at}" t="str"><f>{f"A{at - 1}&amp;A{at - 1}" if at > 1 else "REPT(&quot;x&quot;,9999)"}</f></c></row>'
        for at in range(1, 40)
    )
    yield (
        "doubling.xlsx",
        joined(
            xlsx([["x"]]),
            {"xl/worksheets/sheet1.xml": f'<worksheet xmlns="{_SHEETS}"><sheetData>{rows}</sheetData></worksheet>'},
        ),
    )
    doubled = "".join(
        f'<table:table-row><table:table-cell table:formula="of:={f"[.A{at - 1}]&amp;[.A{at - 1}]" if at > 1 else "REPT(&quot;x&quot;;9999)"}"/></table:table-row>'
        for at in range(1, 40)
    )
    yield "doubling.ods", in_open_document("spreadsheet", f'<table:table table:name="d">{doubled}</table:table>', {})
    merges = "".join(f'<mergeCell ref="A{at}:XFD1048576"/>' for at in range(1, 5000))
    yield (
        "merges.xlsx",
        joined(
            xlsx([["x"]]),
            {
                "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{_SHEETS}"><sheetData><row r="1"><c r="A1" t="inlineStr"><is><t>x</t></is></c></row></sheetData><mergeCells count="5000">{merges}</mergeCells></worksheet>'
            },
        ),
    )
    yield (
        "string numbers.xlsx",
        joined(
            xlsx([["x"]]),
            {
                "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{_SHEETS}"><sheetData><row r="1"><c r="A1" t="s"><v>4294967295</v></c><c r="B1" t="s"><v>-1</v></c></row></sheetData></worksheet>'
            },
        ),
    )
    spare = struct.pack("<I", 0xFFFFFFFF)
    for suffix in ("hwp", "doc", "xls", "ppt"):
        # A compound file whose table of sectors, directory and small sectors all follow themselves.
        head = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16) + struct.pack("<HHHHH", 62, 3, 0xFFFE, 9, 6) + bytes(6)
        head += struct.pack("<IIIIIIIII", 0, 1, 1, 0, 4096, 1, 1, 2**32 - 2, 0) + struct.pack("<I", 0) + spare * 108
        entry = (
            "Root Entry".encode("utf-16-le").ljust(64, b"\0")
            + struct.pack("<HBBIII", 22, 5, 1, 0, 0, 0)
            + bytes(36)
            + struct.pack("<IQ", 1, 2**40)
        )
        yield f"sectors of themselves.{suffix}", head[:512] + struct.pack("<II", 0, 1) + spare * 126 + entry * 4


def _texts(places: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    page = "".join(
        f'<meta http-equiv="refresh" content="0;url={to}/secret.html"><base href="{to}/"><link rel="import" href="{to}/secret.html">'
        f'<img srcset="{to}/secret.png 1x"><picture><source srcset="{to}/secret.png"></picture><embed src="{to}/secret.pdf">'
        f'<video poster="{to}/secret.png" src="{to}/secret.png"></video><input type="image" src="{to}/secret.png">'
        f'<table background="{to}/secret.png"><tr><td>x</table><style>li{{list-style:url({to}/secret.png)}}p:before{{content:url({to}/secret.png)}}</style>'
        f'<p>x<li>x<frameset><frame src="{to}/secret.html"></frameset><script src="{to}/secret.txt"></script>'
        for to in places
    )
    yield "elements.html", f"<body background='{places[0]}/secret.png'>{page}".encode()
    yield "elements deep.html", b"<div><b><font>" * 100_000
    rules = "".join(f"{' '.join(['div'] * 50)}:not(.a{at}){{content:counter(c{at})}}" for at in range(3000))
    yield "rules.html", f"<style>{rules}</style>{'<div>' * 200}x".encode()
    shown = "\n\n".join(
        f"![x]({to}/secret.png) ![y][{at}] <img src='{to}/secret.png'>\n\n[{at}]: {to}/secret.png"
        for at, to in enumerate(places)
    )
    yield "pictures.md", shown.encode()
    yield (
        "deep.md",
        b"> " * 20_000 + b"x\n\n" + b"[" * 50_000 + b"x\n\n" + b"*a_" * 50_000 + b"\n\n" + b"![[](" * 20_000,
    )
    yield (
        "references.csv",
        "\n".join(f'"=WEBSERVICE(""{to}/secret.txt"")","=cmd|\'/C x\'!A0","{to}/secret.png"' for to in places).encode(),
    )
    yield "columns.csv", b"1," * 3_000_000
    yield "quotation.csv", b'a,"' + b"x\n" * 5_000_000
    yield "line.txt", b"x" * 20_000_000
    yield "marks.txt", ("\u202e" + "\u0301" * 100_000 + "\ufdfa" * 100_000).encode()


def _mails(places: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    head = b"From: a@b\r\nSubject: words\r\nMIME-Version: 1.0\r\n"
    outside = "".join(
        f'--b\r\nContent-Type: message/external-body; access-type={kind}; name="{to}/secret.txt"; url="{to}/secret.txt"\r\n\r\n'
        f"Content-Type: text/plain\r\n\r\n--b\r\nContent-Type: text/html\r\n\r\n<img src='{to}/secret.png'><iframe src='{to}/secret.html'></iframe>\r\n"
        f'--b\r\nContent-Type: image/png; name="{to}/secret.png"\r\nContent-Disposition: attachment; filename="{to}/secret.png"\r\n\r\n\r\n'
        for to in places
        for kind in ("local-file", "URL")
    )
    mixed = b"Content-Type: multipart/mixed; boundary=b\r\n\r\n"
    yield "elsewhere.eml", head + mixed + outside.encode() + b"--b--"
    parts = b"".join(b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (at, at) for at in range(3000))
    yield "parts deep.eml", head + parts + b"\r\nx"
    yield "mails deep.eml", head + b"Content-Type: message/rfc822\r\n\r\n" * 3000 + b"\r\nx"
    yield "boundaries.eml", head + mixed + b"--b\r\n" * 300_000
    attached = b"--b\r\nContent-Type: text/html\r\nContent-Disposition: attachment; filename=a.html\r\n\r\n<p>x\r\n"
    yield "attachments.eml", head + mixed + attached * 2000 + b"--b--"
    words = b"=?utf-8?B?" + b"7Iyi" * 20_000 + b"?= "
    yield "names.eml", b"Subject: " + words * 20 + b"\r\nTo: " + b"(" * 100_000 + b"<a@b>, " * 20_000 + b"\r\n\r\nx"
