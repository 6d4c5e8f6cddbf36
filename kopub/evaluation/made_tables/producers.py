"""Programs that print made tables as PDFs: Chromium, LibreOffice and reportlab."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from importlib.util import find_spec
from itertools import chain, product
from pathlib import Path
from types import MappingProxyType

from kopub.errors import SourceError
from kopub.evaluation.made_tables.content import Look, MadeCell, MadeTable, Sheet
from kopub.files import replace_bytes
from kopub.pages.documents import libreoffice

_SECONDS = 180
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_HEAD, _BAND, _RULE = "#d6e4f0", "#eef1f4", "#444444"
"""Colours of a heading, of every other row, and of rules."""


def print_sheets(producer: str, sheets: Sequence[Sheet], pdf: Path) -> None:
    """Print documents to a PDF, each from a new page.

    Raises `SourceError` if that is not possible.
    """
    with tempfile.TemporaryDirectory(prefix="kopub-tables-") as folder:
        output = Path(folder) / "made.pdf"
        PRODUCERS[producer](sheets, output)
        if not output.is_file():
            raise SourceError(f"{producer} made no PDF")
        replace_bytes(pdf, output.read_bytes())


def _by_chromium(sheets: Sequence[Sheet], pdf: Path) -> None:
    program = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if program is None:
        raise SourceError("Chromium is not installed")
    page = pdf.with_name("made.html")
    style = (
        "@page{size:A4;margin:18mm} body{font-family:'Noto Sans CJK KR','NanumGothic',sans-serif;font-size:10pt}"
        "section{break-before:page} section:first-child{break-before:auto} h1{font-size:14pt} tr{break-inside:avoid}"
        "table{border-collapse:collapse;margin-bottom:8mm} td,th{padding:1mm 2.5mm;white-space:nowrap;text-align:left;"
        "font-weight:normal} td.figure{text-align:right}"
        f".ruled td,.ruled th,.coloured th,.coloured td{{border:0.5pt solid {_RULE}}}"
        f".coloured th{{background:{_HEAD}}}"
        f".head{{border-top:1pt solid {_RULE};border-bottom:1pt solid {_RULE}}}"
        f".head thead{{border-bottom:0.5pt solid {_RULE}}}"
        f".bands tbody tr:nth-child(odd),.bands th{{background:{_BAND}}}"
        "*{-webkit-print-color-adjust:exact}"
    )
    parts = [f"<!doctype html><meta charset=utf-8><style>{style}</style>"]
    for sheet in sheets:
        parts.append(f"<section><h1>{sheet.title}</h1>")
        for lead, table in zip(sheet.leads, sheet.tables, strict=True):
            parts.append(f"<p>{lead}</p>{_html_table(table)}")
        parts.append("</section>")
    page.write_text("".join(parts), "utf-8")
    options = ["--headless", "--disable-gpu", "--no-pdf-header-footer", f"--user-data-dir={pdf.parent / 'browser'}"]
    # Chromium refuses to sandbox itself for root, as in a container.
    options += ["--no-sandbox"] if os.geteuid() == 0 else []
    command = [program, *options, f"--print-to-pdf={pdf}", page.as_uri()]
    try:
        subprocess.run(command, check=False, capture_output=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceError(f"Chromium does not print: {error}") from None


def _html_table(table: MadeTable) -> str:
    rows: list[str] = []
    for at, row in enumerate(table.rows):
        cells = ""
        for cell in row:
            tag, kind = ("th", "") if at < table.heads else ("td", " class=figure" if cell.figure else "")
            cells += f"<{tag}{kind} rowspan={cell.rows} colspan={cell.columns}>{escape(cell.text)}</{tag}>"
        rows.append(f"<tr>{cells}</tr>")
    head, body = "".join(rows[: table.heads]), "".join(rows[table.heads :])
    name = table.look.value.split()[0]
    return f"<table class={name} style='font-size:{table.points}pt'><thead>{head}</thead><tbody>{body}</tbody></table>"


def _by_libreoffice(sheets: Sequence[Sheet], pdf: Path) -> None:
    if libreoffice.program() is None:
        raise SourceError("LibreOffice is not installed")
    source = pdf.with_name("made.fodt")
    styles = [
        _paragraph_style("title", 14, "left", 'fo:break-before="page"'),
        _paragraph_style("lead", 10, "left", 'fo:margin-top="0.4cm"'),
    ]
    for points in range(8, 12):
        styles += [_paragraph_style(f"t{points}{side}", points, side) for side in ("left", "right")]
    for width in range(1, 30):
        styles.append(
            f'<style:style style:name="w{width}" style:family="table-column"><style:table-column-properties '
            f'style:rel-column-width="{width + 2}*"/></style:style>'
        )
    tint = {(Look.COLOURED_HEAD, "head"): _HEAD, (Look.BANDS, "head"): _BAND, (Look.BANDS, "odd"): _BAND}
    for look, part in product(Look, ("head", "top", "odd", "even", "last")):
        sides = ["border"] if look in (Look.RULED, Look.COLOURED_HEAD) else []
        if look is Look.HEAD_RULES:
            sides = {"head": ["border-top", "border-bottom"], "last": ["border-bottom"]}.get(part, [])
        borders = " ".join(f'fo:{side}="0.5pt solid {_RULE}"' for side in sides) or 'fo:border="none"'
        fill = f'fo:background-color="{tint[look, part]}"' if (look, part) in tint else ""
        styles.append(
            f'<style:style style:name="{look.name}{part}" style:family="table-cell">'
            f'<style:table-cell-properties fo:padding="0.08cm" {borders} {fill}/></style:style>'
        )
    body = "".join(chain.from_iterable(map(_odt_sheet, sheets)))
    source.write_text(
        f'<?xml version="1.0" encoding="UTF-8"?><office:document {_SPACES} office:version="1.3" '
        'office:mimetype="application/vnd.oasis.opendocument.text">'
        f"<office:automatic-styles>{''.join(styles)}</office:automatic-styles>"
        f"<office:body><office:text>{body}</office:text></office:body></office:document>",
        "utf-8",
    )
    libreoffice.print_pdf(source, pdf)


_SPACES = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{space}:1.0"'
    for name, space in (
        ("office", "office"),
        ("style", "style"),
        ("text", "text"),
        ("table", "table"),
        ("fo", "xsl-fo-compatible"),
    )
)


def _paragraph_style(name: str, points: int, side: str, more: str = "") -> str:
    font = f'fo:font-size="{points}pt"'
    fonts = 'fo:font-family="Noto Sans CJK KR" style:font-family-asian="Noto Sans CJK KR"'
    return (
        f'<style:style style:name="{name}" style:family="paragraph">'
        f'<style:paragraph-properties fo:text-align="{"start" if side == "left" else "end"}" {more}/>'
        f"<style:text-properties {font} {font.replace('fo:font-size', 'style:font-size-asian')} {fonts}/></style:style>"
    )


def _odt_sheet(sheet: Sheet) -> Iterator[str]:
    """Yield the title of a sheet, and its tables below their leads."""
    yield f'<text:p text:style-name="title">{sheet.title}</text:p>'
    for lead, table in zip(sheet.leads, sheet.tables, strict=True):
        yield f'<text:p text:style-name="lead">{lead}</text:p>'
        # A column is as wide as its longest cell that spans no other.
        widths = [1] * table.columns
        for _, column, cell in placed(table.rows):
            if cell.columns == 1:
                widths[column] = max(widths[column], len(cell.text))
        rows: list[str] = []
        for at, row in enumerate(table.rows):
            part = ("even", "odd")[at % 2]
            if at < table.heads:
                part = "head"
            elif table.look is Look.HEAD_RULES and at == len(table.rows) - 1:
                part = "last"
            cells = ""
            for cell in row:
                side = "right" if cell.figure else "left"
                spans = f'table:number-rows-spanned="{cell.rows}" table:number-columns-spanned="{cell.columns}"'
                text = f'<text:p text:style-name="t{table.points}{side}">{escape(cell.text)}</text:p>'
                cells += (
                    f'<table:table-cell table:style-name="{table.look.name}{part}" {spans}>{text}</table:table-cell>'
                )
                cells += "<table:covered-table-cell/>" * (cell.columns - 1)
            rows.append(f"<table:table-row>{cells}</table:table-row>")
        head = f"<table:table-header-rows>{''.join(rows[: table.heads])}</table:table-header-rows>"
        columns = "".join(f'<table:table-column table:style-name="w{width}"/>' for width in widths)
        yield f"<table:table>{columns}{head}{''.join(rows[table.heads :])}</table:table>"


def _by_reportlab(sheets: Sequence[Sheet], pdf: Path) -> None:
    if find_spec("reportlab") is None:
        raise SourceError("reportlab is not installed: `pip install 'kopub[eval]'`")
    from reportlab.lib.styles import ParagraphStyle
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.cidfonts import UnicodeCIDFont
    from reportlab.platypus import PageBreak, Paragraph, SimpleDocTemplate, Spacer, Table, TableStyle

    pdfmetrics.registerFont(UnicodeCIDFont(_FONT))
    title, lead = (ParagraphStyle("", fontName=_FONT, fontSize=size, leading=1.5 * size) for size in (14, 10))
    story = []
    for sheet in sheets:
        story += [PageBreak()] if story else []
        story.append(Paragraph(sheet.title, title))
        for text, table in zip(sheet.leads, sheet.tables, strict=True):
            last, end = len(table.rows) - 1, table.columns - 1
            grid: list[list[str]] = [[""] * table.columns for _ in table.rows]
            commands: list[tuple] = [("FONT", (0, 0), (-1, -1), _FONT, table.points)]
            commands.append(("LEFTPADDING", (0, 0), (-1, -1), 8))
            for row, column, cell in placed(table.rows):
                grid[row][column] = cell.text
                if cell.rows > 1 or cell.columns > 1:
                    commands.append(("SPAN", (column, row), (column + cell.columns - 1, row + cell.rows - 1)))
                if cell.figure:
                    commands.append(("ALIGN", (column, row), (column, row), "RIGHT"))
            head = (0, 0), (-1, table.heads - 1)
            match table.look:
                case Look.RULED | Look.COLOURED_HEAD:
                    commands.append(("GRID", (0, 0), (-1, -1), 0.5, _RULE))
                case Look.HEAD_RULES:
                    commands.append(("LINEABOVE", (0, 0), (-1, 0), 1, _RULE))
                    commands.append(("LINEBELOW", (0, last), (-1, last), 1, _RULE))
                    commands.append(("LINEBELOW", (0, table.heads - 1), (-1, table.heads - 1), 0.5, _RULE))
                case Look.BANDS:
                    commands += [("BACKGROUND", (0, row), (end, row), _BAND) for row in range(0, last + 1, 2)]
            if table.look is Look.COLOURED_HEAD:
                commands.append(("BACKGROUND", *head, _HEAD))
            story += [Spacer(1, 10), Paragraph(text, lead), Spacer(1, 6)]
            story.append(Table(grid, style=TableStyle(commands), repeatRows=table.heads, hAlign="LEFT"))
    SimpleDocTemplate(str(pdf), invariant=1).build(story)


_FONT = "HYGothic-Medium"
"""A Korean font that every PDF viewer replaces: reportlab cannot embed the usual free ones."""


def placed(rows: Sequence[Sequence[MadeCell]]) -> Iterator[tuple[int, int, MadeCell]]:
    """Yield each cell with its row and column in the grid."""
    covered: set[tuple[int, int]] = set()
    for row, cells in enumerate(rows):
        column = 0
        for cell in cells:
            while (row, column) in covered:
                column += 1
            for down in range(row, row + cell.rows):
                covered.update((down, over) for over in range(column, column + cell.columns))
            yield row, column, cell
            column += cell.columns


PRODUCERS: Mapping[str, Callable[[Sequence[Sheet], Path], None]] = MappingProxyType(
    {"chromium": _by_chromium, "libreoffice": _by_libreoffice, "reportlab": _by_reportlab}
)
"""The programs by name; each prints documents to a path, or raises `SourceError`."""
