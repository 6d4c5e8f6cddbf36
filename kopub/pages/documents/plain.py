"""Texts, markdown and delimited tables as HTML or OpenDocument, for LibreOffice to print."""

import csv
import io
import re
from html import escape

from bs4.dammit import EncodingDetector
from markdown_it import MarkdownIt

from kopub.errors import UndecodableImage

TEXTS = frozenset({".txt", ".md", ".markdown"})
TABLES = frozenset({".csv", ".tsv"})
SUFFIXES = TEXTS | TABLES
_DELIMITERS = {".csv": ",;\t|", ".tsv": "\t"}
_SNIFFED = 65_536
_MOST_CELLS = 500_000
"""Most cells of a table: LibreOffice prints about as many in the time that a document has."""
_WIDEST = 1_024
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_GAP = re.compile(r"^[ \t]+|[ \t]{2,}", re.MULTILINE)


def decoded(content: bytes) -> str:
    """Return a file's text by its byte order mark, as UTF-8 or CP949.

    Raises `UndecodableImage` for bytes that are no text.
    """
    bare, marked = EncodingDetector.strip_byte_order_mark(content)
    for encoding in [marked] if marked else ["utf-8", "cp949"]:
        try:
            text = bare.decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            return _CONTROLS.sub("", text.replace("\f", "\n\n"))
    raise UndecodableImage("the file is no text in UTF-8, UTF-16 or CP949: save it as UTF-8")


def web_page(suffix: str, content: bytes) -> bytes:
    """Return a text or markdown as HTML in UTF-8. Its own tags are text."""
    if suffix == ".txt":
        body = paragraphs(decoded(content))
    else:
        markdown = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
        body = markdown.render(decoded(content))
    return f'<html><head><meta charset="utf-8"></head><body>{body}</body></html>'.encode()


def paragraphs(text: str) -> str:
    """Return a text as HTML, with its lines, columns and paragraphs."""
    spaced = _GAP.sub(lambda gap: "\xa0" * len(gap[0].expandtabs(8)), text)
    blocks = (block.strip("\r\n") for block in re.split(r"(?:\r?\n|\r)[ \t\xa0]*(?:\r?\n|\r)+", spaced))
    return "".join(f"<p>{'<br>'.join(escape(block).splitlines())}</p>" for block in blocks if block.strip())


def spreadsheet(suffix: str, content: bytes) -> bytes:
    """Return a delimited table as flat OpenDocument; its cells are texts as written.

    Raises `UndecodableImage` for a file that is no table of this kind.
    """
    text = decoded(content)
    try:
        dialect = csv.Sniffer().sniff(text[:_SNIFFED], _DELIMITERS[suffix])
    except csv.Error:
        dialect = csv.excel_tab if suffix == ".tsv" else csv.excel
    rows, cells = list[str](), 0
    # Whether quotes are doubled may show further below, and apostrophes are letters.
    reader = csv.reader(io.StringIO(text, newline=""), dialect, quotechar='"', doublequote=True, strict=True)
    try:
        for row in reader:
            cells += len(row)
            if cells > _MOST_CELLS or len(row) > _WIDEST:
                form = "the table has more than {cells:,} cells, or than {row:,} in a row"
                raise UndecodableImage(form, cells=_MOST_CELLS, row=_WIDEST)
            content_of_row = ""
            for text_of_cell in row:
                lines = "".join(f"<text:p>{escape(line)}</text:p>" for line in text_of_cell.splitlines())
                content_of_row += f'<table:table-cell office:value-type="string">{lines}</table:table-cell>'
            rows.append(f"<table:table-row>{content_of_row}</table:table-row>")
    except csv.Error as error:
        form = "the file is no table of delimited values: {error} (line {line})"
        raise UndecodableImage(form, error=str(error), line=reader.line_num) from None
    return _SPREADSHEET.format("".join(rows)).encode()


_NAMES = "urn:oasis:names:tc:opendocument:xmlns"
_SPREADSHEET = (
    '<?xml version="1.0" encoding="UTF-8"?><office:document office:version="1.3" '
    'office:mimetype="application/vnd.oasis.opendocument.spreadsheet" '
    + " ".join(f'xmlns:{name}="{_NAMES}:{name}:1.0"' for name in ("office", "style", "table", "text"))
    # Otherwise Calc prints its own head and foot.
    + '><office:automatic-styles><style:page-layout style:name="page"/></office:automatic-styles>'
    '<office:master-styles><style:master-page style:name="Default" style:page-layout-name="page">'
    '<style:header style:display="false"/><style:footer style:display="false"/>'
    "</style:master-page></office:master-styles><office:body><office:spreadsheet>"
    '<table:table table:name="1">{}</table:table>'
    "</office:spreadsheet></office:body></office:document>"
)
