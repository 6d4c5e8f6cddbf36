"""HWPX documents (zipped XML) and HWP 5 documents (compound files of records), written by hand."""

import io
import struct
import zipfile
import zlib
from collections.abc import Sequence
from html import escape

_NAMES = " ".join(
    f'xmlns:{short}="http://www.hancom.co.kr/hwpml/2011/{name}"'
    for short, name in (("hp", "paragraph"), ("hs", "section"), ("hh", "head"), ("hc", "core"))
)
_XML = '<?xml version="1.0" encoding="UTF-8"?>'
_PACKAGE = (
    f'{_XML}<opf:package xmlns:opf="http://www.idpf.org/2007/opf/"><opf:manifest>'
    '<opf:item id="header" href="Contents/header.xml" media-type="application/xml"/>'
    '<opf:item id="section0" href="Contents/section0.xml" media-type="application/xml"/>{items}'
    '</opf:manifest><opf:spine><opf:itemref idref="header"/><opf:itemref idref="section0"/></opf:spine></opf:package>'
)
_PAGE = (
    '<hp:secPr><hp:pagePr landscape="WIDELY" width="59528" height="84188">'
    '<hp:margin header="4252" footer="4252" gutter="0" left="8504" right="8504" top="5668" bottom="4252"/>'
    "</hp:pagePr></hp:secPr>"
)
_PLACE = (
    '<hp:sz width="{width}" widthRelTo="ABSOLUTE" height="{height}" heightRelTo="ABSOLUTE" protect="0"/>'
    '<hp:pos treatAsChar="1" affectLSpacing="0" flowWithText="1" allowOverlap="0" holdAnchorAndSO="0" '
    'vertRelTo="PARA" horzRelTo="COLUMN" vertAlign="TOP" horzAlign="LEFT" vertOffset="0" horzOffset="0"/>'
    '<hp:outMargin left="283" right="283" top="283" bottom="283"/>'
)
_WIDTH, _ROW = 42000, 1400


def run(inside: str) -> str:
    return f'<hp:run charPrIDRef="0">{inside}</hp:run>'


def paragraph(text: str = "", inside: str = "", breaks: str = "") -> str:
    """Return a paragraph of text and object XML, after a `column` or `page` break."""
    said = f"<hp:t>{escape(text)}</hp:t>" if text else ""
    new = f' {breaks}Break="1"' if breaks else ""
    return f'<hp:p id="0" paraPrIDRef="0" styleIDRef="0"{new}>{run(said + inside)}</hp:p>'


def _sub_list(content: str) -> str:
    return (
        '<hp:subList id="" textDirection="HORIZONTAL" lineWrap="BREAK" vertAlign="TOP" linkListIDRef="0" '
        f'linkListNextIDRef="0" textWidth="0" textHeight="0" hasTextRef="0" hasNumRef="0">{content}</hp:subList>'
    )


def table(
    rows: Sequence[Sequence[str]],
    spans: dict[tuple[int, int], tuple[int, int]] | None = None,
    inside: dict[tuple[int, int], str] | None = None,
    caption: str = "",
    whole: int = _WIDTH,
) -> str:
    """Return the XML of a table, an object of a paragraph.

    `spans` are the numbers of rows and columns of merged cells by their place; those that they cover are left out.
    `inside` is the XML of objects in cells.
    """
    width = whole // len(rows[0])
    spans, inside = spans or {}, inside or {}
    covered = {
        (row + down, column + across)
        for (row, column), (height, wide) in spans.items()
        for down in range(height)
        for across in range(wide)
        if down or across
    }

    def cell(row: int, column: int, text: str) -> str:
        height, wide = spans.get((row, column), (1, 1))
        return (
            '<hp:tc name="" header="0" hasMargin="0" borderFillIDRef="1">'
            f"{_sub_list(paragraph(text, inside.get((row, column), '')))}"
            f'<hp:cellAddr colAddr="{column}" rowAddr="{row}"/><hp:cellSpan colSpan="{wide}" rowSpan="{height}"/>'
            f'<hp:cellSz width="{width * wide}" height="{_ROW * height}"/>'
            '<hp:cellMargin left="141" right="141" top="141" bottom="141"/></hp:tc>'
        )

    cells = "".join(
        "<hp:tr>"
        + "".join(cell(row, column, text) for column, text in enumerate(texts) if (row, column) not in covered)
        + "</hp:tr>"
        for row, texts in enumerate(rows)
    )
    said = f'<hp:caption side="TOP" fullSz="0" width="8504" gap="850" lastWidth="{_WIDTH}">{{}}</hp:caption>'
    named = said.format(_sub_list(paragraph(caption))) if caption else ""
    place = _PLACE.format(width=whole, height=_ROW * len(rows))
    return (
        f'<hp:tbl id="1" zOrder="0" numberingType="TABLE" textWrap="TOP_AND_BOTTOM" textFlow="BOTH_SIDES" lock="0" '
        f'pageBreak="CELL" repeatHeader="1" rowCnt="{len(rows)}" colCnt="{len(rows[0])}" cellSpacing="0" '
        f'borderFillIDRef="1" noAdjust="0">{place}{named}<hp:inMargin left="141" right="141" top="141" bottom="141"/>'
        f"{cells}</hp:tbl>"
    )


def note(text: str, kind: str = "footNote", number: int = 1) -> str:
    return f'<hp:ctrl><hp:{kind} number="{number}" instId="1">{_sub_list(paragraph(text))}</hp:{kind}></hp:ctrl>'


def head(text: str, kind: str = "header") -> str:
    return f'<hp:ctrl><hp:{kind} id="1" applyPageType="BOTH">{_sub_list(paragraph(text))}</hp:{kind}></hp:ctrl>'


def equation(script: str) -> str:
    """Return an equation in Hancom's language, an object of a paragraph."""
    return (
        '<hp:equation id="3" zOrder="0" numberingType="EQUATION" textWrap="TOP_AND_BOTTOM" textFlow="BOTH_SIDES" '
        'lock="0" version="Equation Version 60" baseLine="65" textColor="#000000" baseUnit="1000" lineMode="CHAR" '
        f'font="HYhwpEQ">{_PLACE.format(width=4000, height=2000)}<hp:script>{escape(script)}</hp:script></hp:equation>'
    )


def deleted(text: str) -> str:
    """Return the XML of text that a tracked change has deleted."""
    begin, end = '<hp:deleteBegin Id="1" TcId="1"/>', '<hp:deleteEnd Id="1" TcId="1" paraend="0"/>'
    return f"<hp:t>{begin}{escape(text)}{end}</hp:t>"


def columns(count: int) -> str:
    return (
        f'<hp:ctrl><hp:colPr id="" type="NEWSPAPER" layout="LEFT" colCount="{count}" sameSz="1" sameGap="1134"/>'
        "</hp:ctrl>"
    )


def hidden(text: str) -> str:
    """Return a comment, which is not printed."""
    return f"<hp:ctrl><hp:hiddenComment>{_sub_list(paragraph(text))}</hp:hiddenComment></hp:ctrl>"


def picture(item: str = "image1") -> str:
    corners = "".join(
        f'<hc:pt{at} x="{x}" y="{y}"/>' for at, (x, y) in enumerate([(0, 0), (9000, 0), (9000, 6000), (0, 6000)])
    )
    return (
        '<hp:pic id="2" zOrder="0" numberingType="PICTURE" textWrap="TOP_AND_BOTTOM" textFlow="BOTH_SIDES" lock="0" '
        'href="" groupLevel="0" instid="2" reverse="0"><hp:offset x="0" y="0"/><hp:orgSz width="9000" height="6000"/>'
        '<hp:curSz width="9000" height="6000"/><hp:flip horizontal="0" vertical="0"/>'
        f'<hp:imgRect>{corners}</hp:imgRect><hp:imgClip left="0" right="9000" top="0" bottom="6000"/>'
        f'<hc:img binaryItemIDRef="{item}" bright="0" contrast="0" effect="REAL_PIC" alpha="0"/>'
        f"{_PLACE.format(width=9000, height=6000)}</hp:pic>"
    )


def _header(face: str) -> str:
    languages = ("HANGUL", "LATIN", "HANJA", "JAPANESE", "OTHER", "SYMBOL", "USER")
    faces = "".join(
        f'<hh:fontface lang="{language}" fontCnt="1"><hh:font id="0" face="{face}" type="TTF" isEmbedded="0"/>'
        "</hh:fontface>"
        for language in languages
    )
    each = " ".join(f'{language.lower()}="{{0}}"' for language in languages)
    sides = "".join(
        f'<hh:{side} type="SOLID" width="0.12 mm" color="#000000"/>'
        for side in ("leftBorder", "rightBorder", "topBorder", "bottomBorder")
    )
    return (
        f'{_XML}<hh:head {_NAMES} version="1.4" secCnt="1"><hh:refList>'
        f'<hh:fontfaces itemCnt="7">{faces}</hh:fontfaces>'
        f'<hh:borderFills itemCnt="1"><hh:borderFill id="1">{sides}</hh:borderFill></hh:borderFills>'
        '<hh:charProperties itemCnt="1"><hh:charPr id="0" height="1000" textColor="#000000">'
        f"<hh:fontRef {each.format(0)}/><hh:ratio {each.format(100)}/><hh:relSz {each.format(100)}/>"
        "</hh:charPr></hh:charProperties>"
        '<hh:paraProperties itemCnt="1"><hh:paraPr id="0"><hh:lineSpacing type="PERCENT" value="160"/></hh:paraPr>'
        "</hh:paraProperties></hh:refList></hh:head>"
    )


def hwpx(*content: str, face: str = "맑은 고딕", files: dict[str, bytes] | None = None, first: str = "") -> bytes:
    """Return a document of paragraphs; `first` is XML such as columns before them."""
    files = files or {}
    items = "".join(
        f'<opf:item id="{name.rpartition("/")[2].partition(".")[0]}" href="{name}" media-type="image/png" '
        'isEmbeded="1"/>'
        for name in files
        if name.startswith("BinData/")
    )
    start = f'<hp:p id="0" paraPrIDRef="0" styleIDRef="0">{run(_PAGE + first)}</hp:p>'
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("mimetype", "application/hwp+zip")
        file.writestr("Contents/content.hpf", _PACKAGE.format(items=items))
        file.writestr("Contents/header.xml", _header(face))
        file.writestr("Contents/section0.xml", f"{_XML}<hs:sec {_NAMES}>{start}{''.join(content)}</hs:sec>")
        for name, data in files.items():
            file.writestr(name, data)
    return archive.getvalue()


def _record(tag: int, level: int, content: bytes) -> bytes:
    size = min(len(content), 0xFFF)
    longer = struct.pack("<I", len(content)) if size == 0xFFF else b""
    return struct.pack("<I", tag | level << 10 | size << 20) + longer + content


def _hwp_paragraph(text: str, level: int, begin: bytes = b"", mask: int = 0, is_last: bool = True) -> bytes:
    """Return the records of a paragraph; `begin` are control characters before the text, named by `mask`."""
    letters = begin + (text + "\r").encode("utf-16-le")
    head = struct.pack("<IIHBBHHHI", is_last << 31 | len(letters) // 2, mask, 0, 0, 0, 1, 0, 0, 0)
    shapes = _record(68, level + 1, struct.pack("<II", 0, 0))
    return _record(66, level, head) + _record(67, level + 1, letters) + shapes


def hwp_table(rows: Sequence[Sequence[str]], spans: dict[tuple[int, int], tuple[int, int]] | None = None) -> bytes:
    """Return the records of a table; `spans` are as those of `table`."""
    spans = spans or {}
    covered = {
        (row + down, column + across)
        for (row, column), (height, wide) in spans.items()
        for down in range(height)
        for across in range(wide)
        if down or across
    }
    width, cells = _WIDTH // len(rows[0]), b""
    counts = [sum((row, column) not in covered for column in range(len(texts))) for row, texts in enumerate(rows)]
    for row, texts in enumerate(rows):
        for column, text in enumerate(texts):
            if (row, column) in covered:
                continue
            height, wide = spans.get((row, column), (1, 1))
            place = struct.pack("<4H", column, row, wide, height)
            size = struct.pack("<II4HH", width * wide, _ROW * height, *[141] * 4, 1)
            cells += _record(72, 2, struct.pack("<HHI", 1, 0, 0) + place + size) + _hwp_paragraph(text, 2)
    control = struct.pack("<4sIiiIIi4HI", b" lbt", 0x082A2211, 0, 0, _WIDTH, _ROW * len(rows), 0, *[283] * 4, 1)
    grid = struct.pack("<IHHH4H", 4, len(rows), len(rows[0]), 0, *[141] * 4)
    grid += struct.pack(f"<{len(rows)}HHH", *counts, 1, 0)
    return _record(71, 1, control + struct.pack("<iH", 0, 0)) + _record(77, 2, grid) + cells


def hwp(*paragraphs: str | bytes, flags: int = 1) -> bytes:
    """Return an HWP 5 file of paragraphs and the records of tables.

    `flags` are 1 compressed, 2 password, 4 for distribution.
    """
    section = b""
    for at, text in enumerate(paragraphs):
        # The first paragraph holds the section's own object, an extended control character of eight units.
        begin, mask = (b"", 0) if at else (struct.pack("<H4s8sH", 2, b"dces", bytes(8), 2), 4)
        if isinstance(text, bytes):
            begin, mask = begin + struct.pack("<H4s8sH", 11, b" lbt", bytes(8), 11), mask | 1 << 11
        said = "" if isinstance(text, bytes) else text
        section += _hwp_paragraph(said, 0, begin, mask, is_last=at == len(paragraphs) - 1)
        section += text if isinstance(text, bytes) else b""
        if not at:
            section += _record(71, 1, b"dces" + bytes(26))
            section += _record(73, 2, struct.pack("<10I", 59528, 84188, 8504, 8504, 5668, 4252, 4252, 4252, 0, 0))
    name = "맑은 고딕".encode("utf-16-le")
    face = b"\0" + struct.pack("<H", len(name) // 2) + name
    counts = struct.pack("<18I", 0, *[1] * 7, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0)
    shape = struct.pack(
        "<7H7B7b7B7biIbbIIII", *[0] * 7, *[100] * 7, *[0] * 7, *[100] * 7, *[0] * 7, 1000, 0, 0, 0, 0, 0, 0, 0
    )
    info = _record(16, 0, struct.pack("<7H3I", 1, 1, 1, 1, 1, 1, 1, 0, 0, 0)) + _record(17, 0, counts)
    info += _record(19, 1, face) * 7 + _record(21, 1, shape)
    info += _record(25, 1, struct.pack("<I5iiHHHhhhhIII", 0, 0, 0, 0, 0, 0, 160, 0, 0, 0, 0, 0, 0, 0, 0, 0, 160))
    header = b"HWP Document File".ljust(32, b"\0") + struct.pack("<II", 0x05000300, flags)
    packed = [_deflated(each) if flags & 1 else each for each in (info, section)]
    return compound({"FileHeader": header.ljust(256, b"\0"), "DocInfo": packed[0]}, {"Section0": packed[1]})


def _deflated(data: bytes) -> bytes:
    squeezed = zlib.compressobj(wbits=-15)
    return squeezed.compress(data) + squeezed.flush()


def compound(streams: dict[str, bytes], body: dict[str, bytes]) -> bytes:
    """Return a compound file (OLE) of streams and a storage `BodyText` with more streams.

    Streams below 4,096 bytes are in the mini stream, as the format requires.
    """
    end, free, sector, mini = 0xFFFFFFFE, 0xFFFFFFFF, 512, 64
    entries = [(name, data, 2) for name, data in streams.items()]
    first_of_body = len(entries) + 2
    entries += [("BodyText", b"", 1), *((name, data, 2) for name, data in body.items())]
    small, mini_fat, chunks, starts = b"", [], [], []

    def chain(fat: list[int], count: int) -> int:
        start = len(fat)
        fat += [start + at + 1 for at in range(count - 1)] + ([end] if count else [])
        return start if count else end

    fat: list[int] = []
    for _, data, kind in entries:
        if kind == 1:
            starts.append(0)
        elif len(data) < 4096:
            starts.append(chain(mini_fat, -(-len(data) // mini)))
            small += data.ljust(-(-len(data) // mini) * mini, b"\0")
        else:
            count = -(-len(data) // sector)
            starts.append(chain(fat, count))
            chunks.append(data.ljust(count * sector, b"\0"))
    small_start = chain(fat, -(-len(small) // sector))
    chunks.append(small.ljust(-(-len(small) // sector) * sector, b"\0"))
    mini_bytes = b"".join(struct.pack("<I", each) for each in mini_fat)
    mini_count = -(-len(mini_bytes) // sector)
    mini_start = chain(fat, mini_count)
    chunks.append(mini_bytes.ljust(mini_count * sector, b"\xff"))
    top = len(streams) + 1

    def entry(name: str, kind: int, left: int, right: int, child: int, start: int, size: int) -> bytes:
        spelt = (name + "\0").encode("utf-16-le") if name else b""
        return (
            spelt.ljust(64, b"\0")
            + struct.pack("<HBB3I", len(spelt), kind, 1, left, right, child)
            + bytes(16 + 4 + 16)
            + struct.pack("<IQ", start, size)
        )

    # Siblings form a chain to the right in the order of the format, which has shorter names first.
    order = sorted(range(1, top + 1), key=lambda at: (len(entries[at - 1][0]), entries[at - 1][0].upper()))
    right = dict(zip(order, [*order[1:], free], strict=True))
    right |= {at: at + 1 if at < len(entries) else free for at in range(first_of_body, len(entries) + 1)}
    directory = entry("Root Entry", 5, free, free, order[0], small_start, len(small))
    for at, ((name, data, kind), start) in enumerate(zip(entries, starts, strict=True), 1):
        child = first_of_body if kind == 1 else free
        directory += entry(name, kind, free, right[at], child, start, len(data))
    count = -(-len(directory) // sector)
    directory_start = chain(fat, count)
    directory = directory.ljust(count * sector, b"\0")
    chunks.append(directory)
    fat_count = 1
    while fat_count * (sector // 4) < len(fat) + fat_count:
        fat_count += 1
    fat_start = len(fat)
    fat += [0xFFFFFFFD] * fat_count
    table_of_sectors = b"".join(struct.pack("<I", each) for each in fat).ljust(fat_count * sector, b"\xff")
    header = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16) + struct.pack("<HHHHH", 0x3E, 3, 0xFFFE, 9, 6) + bytes(6)
    header += struct.pack("<9I", 0, fat_count, directory_start, 0, 4096, mini_start, mini_count, end, 0)
    places = [fat_start + at for at in range(fat_count)]
    header += b"".join(struct.pack("<I", each) for each in places).ljust(436, b"\xff")
    return header + b"".join(chunks) + table_of_sectors
