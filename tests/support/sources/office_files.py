"""Office files as bytes, with only the parts that programs need."""

import io
import zipfile
from collections.abc import Sequence

_HEAD = '<?xml version="1.0" encoding="UTF-8"?>'
_TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
_LINKS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_FORMATS = "application/vnd.openxmlformats-officedocument"
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_SHEETS = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_SLIDES = "http://schemas.openxmlformats.org/presentationml/2006/main"
_DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main"


def archive(parts: dict[str, str | bytes]) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in parts.items():
            file.writestr(name, content)
    return written.getvalue()


def _links(links: Sequence[tuple[str, str]]) -> str:
    """Return the relationships r1, r2, ... of a part, from their kinds and targets."""
    each = "".join(
        f'<Relationship Id="r{at}" Type="{_LINKS}/{kind}" Target="{to}"/>' for at, (kind, to) in enumerate(links, 1)
    )
    return f'{_HEAD}<Relationships xmlns="{_PACKAGE}">{each}</Relationships>'


def _open_xml(main: str, parts: dict[str, tuple[str, str]], links: Sequence[tuple[str, str]] = ()) -> bytes:
    """Return a package of `parts` (content type, XML) by name, with the main part's `links`."""
    types = "".join(f'<Override PartName="/{name}" ContentType="{kind}"/>' for name, (kind, _) in parts.items())
    rels = '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    folder, _, name = main.rpartition("/")
    return archive(
        {
            "[Content_Types].xml": f'{_HEAD}<Types xmlns="{_TYPES}">{rels}{types}</Types>',
            "_rels/.rels": _links([("officeDocument", main)]),
            f"{folder}/_rels/{name}.rels": _links(links),
            **{name: _HEAD + xml for name, (_, xml) in parts.items()},
        }
    )


def docx(*texts: str, head: str = "", body: str = "") -> bytes:
    """Return a Word file of paragraphs and `body` XML, with `head` before the root element."""
    lines = "".join(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in texts)
    xml = f'{head}<w:document xmlns:w="{_WORD}" xmlns:r="{_LINKS}"><w:body>{lines}{body}</w:body></w:document>'
    return _open_xml(
        "word/document.xml", {"word/document.xml": (f"{_FORMATS}.wordprocessingml.document.main+xml", xml)}
    )


def xlsx(
    sheets: Sequence[Sequence[str]],
    hidden: int | None = None,
    order: Sequence[int] = (),
    columns: str = "",
    formats: Sequence[str] = (),
) -> bytes:
    """Return an Excel file whose sheets have a row for each text.

    A row has a cell for each part of its text between tabs. The sheet with the index `hidden` is not shown. `order` has
    the sheets' numbers, from 1, as the workbook lists them. `columns` is XML about the columns of every sheet.
    `formats` are the columns' number formats; a cell that is a number there is stored as one.
    """
    kind = f"{_FORMATS}.spreadsheetml"
    parts, names = {}, []
    for number, texts in enumerate(sheets, 1):
        rows = "".join(
            f'<row r="{at}">'
            + "".join(
                _cell(f"{_letters(column)}{at}", cell, column + 1 if column < len(formats) else 0)
                for column, cell in enumerate(text.split("\t"))
            )
            + "</row>"
            for at, text in enumerate(texts, 1)
        )
        xml = f'<worksheet xmlns="{_SHEETS}">{columns}<sheetData>{rows}</sheetData></worksheet>'
        parts[f"xl/worksheets/sheet{number}.xml"] = (f"{kind}.worksheet+xml", xml)
        state = ' state="hidden"' if number - 1 == hidden else ""
        names.append(f'<sheet name="S{number}" sheetId="{number}"{state} r:id="r{number}"/>')
    links = [("worksheet", f"worksheets/sheet{number}.xml") for number in range(1, len(sheets) + 1)]
    if formats:
        parts["xl/styles.xml"] = (f"{kind}.styles+xml", _styles(formats))
        links.append(("styles", "styles.xml"))
    listed = "".join(names[at - 1] for at in order or range(1, len(names) + 1))
    book = f'<workbook xmlns="{_SHEETS}" xmlns:r="{_LINKS}"><sheets>{listed}</sheets></workbook>'
    return _open_xml("xl/workbook.xml", {"xl/workbook.xml": (f"{kind}.sheet.main+xml", book), **parts}, links)


def _cell(place: str, text: str, style: int) -> str:
    if style and text.replace(".", "", 1).isdecimal():
        return f'<c r="{place}" s="{style}"><v>{text}</v></c>'
    return f'<c r="{place}" t="inlineStr"><is><t>{text}</t></is></c>'


def _styles(formats: Sequence[str]) -> str:
    """Return a cell style for each number format, after the default one."""
    numbers = "".join(f'<numFmt numFmtId="{at}" formatCode="{code}"/>' for at, code in enumerate(formats, 164))
    cells = "".join(f'<xf numFmtId="{at}" applyNumberFormat="1"/>' for at, _ in enumerate(formats, 164))
    return (
        f'<styleSheet xmlns="{_SHEETS}"><numFmts>{numbers}</numFmts><fonts><font/></fonts><fills><fill/></fills>'
        f"<borders><border/></borders><cellStyleXfs><xf/></cellStyleXfs><cellXfs><xf/>{cells}</cellXfs></styleSheet>"
    )


def _letters(column: int) -> str:
    return chr(65 + column) if column < 26 else f"{_letters(column // 26 - 1)}{chr(65 + column % 26)}"


def pptx(*slides: str, order: Sequence[int] = ()) -> bytes:
    """Return a PowerPoint file of text box slides, shown in the `order` of their numbers."""
    kind = f"{_FORMATS}.presentationml"
    names = f'xmlns:p="{_SLIDES}" xmlns:a="{_DRAWING}" xmlns:r="{_LINKS}"'
    parts = {}
    for number, text in enumerate(slides, 1):
        box = (
            '<p:nvGrpSpPr><p:cNvPr id="1" name=""/><p:cNvGrpSpPr/><p:nvPr/></p:nvGrpSpPr><p:grpSpPr/>'
            '<p:sp><p:nvSpPr><p:cNvPr id="2" name="t"/><p:cNvSpPr txBox="1"/><p:nvPr/></p:nvSpPr><p:spPr><a:xfrm>'
            '<a:off x="500000" y="500000"/><a:ext cx="6000000" cy="1000000"/></a:xfrm>'
            '<a:prstGeom prst="rect"><a:avLst/></a:prstGeom></p:spPr>'
            f"<p:txBody><a:bodyPr/><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:txBody></p:sp>"
        )
        xml = f"<p:sld {names}><p:cSld><p:spTree>{box}</p:spTree></p:cSld></p:sld>"
        parts[f"ppt/slides/slide{number}.xml"] = (f"{kind}.slide+xml", xml)
    ids = "".join(f'<p:sldId id="{255 + number}" r:id="r{number}"/>' for number in order or range(1, len(slides) + 1))
    size = '<p:sldSz cx="9144000" cy="6858000"/><p:notesSz cx="6858000" cy="9144000"/>'
    show = f"<p:presentation {names}><p:sldIdLst>{ids}</p:sldIdLst>{size}</p:presentation>"
    links = [("slide", f"slides/slide{number}.xml") for number in range(1, len(slides) + 1)]
    return _open_xml(
        "ppt/presentation.xml", {"ppt/presentation.xml": (f"{kind}.presentation.main+xml", show), **parts}, links
    )


def open_document(kind: str, *texts: str, manifest: str = "", scripts: str = "") -> bytes:
    """Return an ODT, ODS or ODP with a paragraph, cell or slide for each text."""
    spaces = "".join(
        f' xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{long}:1.0"'
        for name, long in (
            ("office", "office"),
            ("text", "text"),
            ("table", "table"),
            ("draw", "drawing"),
            ("svg", "svg-compatible"),
            ("script", "script"),
            ("style", "style"),
        )
    )
    lines = [f"<text:p>{text}</text:p>" for text in texts]
    if kind == "spreadsheet":
        cells = (f'<table:table-cell office:value-type="string">{line}</table:table-cell>' for line in lines)
        rows = "".join(f"<table:table-row>{cell}</table:table-row>" for cell in cells)
        body = f'<table:table table:name="S">{rows}</table:table>'
    elif kind == "presentation":
        place = 'svg:x="1cm" svg:y="1cm" svg:width="20cm" svg:height="3cm"'
        boxes = (f"<draw:frame {place}><draw:text-box>{line}</draw:text-box></draw:frame>" for line in lines)
        body = "".join(f'<draw:page draw:name="p{at}">{box}</draw:page>' for at, box in enumerate(boxes))
    else:
        body = "".join(lines)
    content = (
        f'{_HEAD}<office:document-content{spaces} office:version="1.2">{scripts}'
        f"<office:body><office:{kind}>{body}</office:{kind}></office:body></office:document-content>"
    )
    media = f"application/vnd.oasis.opendocument.{kind}"
    entries = "".join(
        f'<m:file-entry m:full-path="{path}" m:media-type="{type}"/>'
        for path, type in (("/", media), ("content.xml", "text/xml"))
    )
    listed = (
        f'<m:manifest xmlns:m="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0">{entries}{manifest}</m:manifest>'
    )
    return archive({"mimetype": media, "content.xml": content, "META-INF/manifest.xml": _HEAD + listed})
