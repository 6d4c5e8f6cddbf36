"""Office, OpenDocument, HTML and plain files: their pieces, and their PDF made by LibreOffice."""

import codecs
import shutil
import zipfile
from pathlib import Path

import olefile

from kopub import confinement
from kopub.errors import UndecodableImage, first_line, is_of_machine, visible
from kopub.fingerprints import CodeVersion
from kopub.pages.documents import libreoffice, plain, web_page
from kopub.pages.documents.archives import LOCKED, require_usable
from kopub.pages.documents.extents import require_small
from kopub.pages.documents.pieces import Piece
from kopub.pages.documents.references import without_references
from kopub.pages.documents.sheet_pieces import read_sheets
from kopub.pages.documents.source_pieces import read_pieces
from kopub.states import phrase, with_remedy

_HTML = frozenset({".html", ".htm"})
_WRITER = frozenset({".docx", ".odt", ".doc", ".rtf", ".eml"}) | _HTML | plain.TEXTS
_CALC = frozenset({".xlsx", ".ods", ".xls"}) | plain.TABLES
_IMPRESS = frozenset({".pptx", ".odp", ".ppt"})
SUFFIXES = _WRITER | _CALC | _IMPRESS
_OPEN_XML = frozenset({".docx", ".pptx", ".xlsx"})
_OPEN_DOCUMENT = frozenset({".odt", ".ods", ".odp"})

_FORMATS = {
    "writer": "DOC, DOCX, ODT, RTF, HTML, TXT, Markdown, EML",
    "calc": "XLS, XLSX, ODS, CSV",
    "impress": "PPT, PPTX, ODP",
}
PIECES = CodeVersion(
    "pages.office_pieces",
    {
        1: "the first release",
        2: "titles have the levels of the file, heads, feet and notes are pieces, and cells of several lines keep "
        "their sheet",
        3: "rows of a table are on the pages of most of their letters",
        4: "a row that a page cuts keeps its cells, a table in a cell is on its own page, and the charset of a web "
        "page is not guessed a second time",
        5: "a short number takes no part of a longer one",
        6: "the cells of a sheet are on its own pages, and the head and foot of a web page are printed once",
    },
)
"""A new version converts office files again."""
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def lacks(suffix: str) -> str | None:
    """Say what this machine lacks to convert files of a suffix, else None."""
    part, library = "impress", "libsdlo.so"
    if suffix in _WRITER:
        part, library = "writer", "libswlo.so"
    elif suffix in _CALC:
        part, library = "calc", "libsclo.so"
    program = libreoffice.program()
    if program is not None:
        folder = program.resolve().parent
        # A distribution may split LibreOffice into packages; other installations keep libraries elsewhere.
        if not (folder / "libsofficeapp.so").exists() or (folder / library).exists():
            return None
    remedy = phrase("apt-get install libreoffice-{package} (macOS: brew install --cask libreoffice)", part)
    return with_remedy(phrase("{formats} need LibreOffice", _FORMATS[part]), remedy)


def converter() -> str:
    """Return the converter's name and versions. Raises `SourceError` if it does not start."""
    confined = "" if confinement.why_open() is None else ", without references"
    return f"{libreoffice.version()}, print {libreoffice.PRINT.number}, pieces {PIECES.number}{confined}"


def convert(path: Path, pdf: Path) -> None:
    """Convert a document to PDF. Raises `UndecodableImage` if that is impossible.

    The document is copied beside the PDF under a plain name, so that it cannot include files beside it.
    """
    _require_usable(path)
    if path.suffix.lower() in plain.TABLES:
        source = pdf.with_name("source.fods")
        source.write_bytes(plain.spreadsheet(path.suffix.lower(), path.read_bytes()))
        libreoffice.print_pdf(source, pdf)
        return
    if path.suffix.lower() in plain.TEXTS:
        page = _web_page(path)
        path = pdf.with_name("text.html")
        path.write_bytes(page)
    # Where the kernel does not keep LibreOffice from other files and hosts, nothing may refer to them.
    if confinement.why_open() is not None:
        path = without_references(path, pdf.parent)
    suffix = path.suffix.lower()
    source = pdf.with_name(f"source{suffix}")
    if suffix in _HTML:
        source.write_bytes(web_page.shown(path.read_bytes()))
        # As a web page, HTML would lose its first line.
        libreoffice.print_pdf(source, pdf, "HTML (StarWriter)")
    else:
        shutil.copyfile(path, source)
        libreoffice.print_pdf(source, pdf, copy=_copy(pdf, suffix))


class UnreadablePieces(Exception):
    """The error that a document's print says what the document itself cannot be asked."""


def pieces(path: Path, pdf: Path) -> list[Piece]:
    """Return the pieces of a converted document. Raises `UnreadablePieces`."""
    suffix = path.suffix.lower()
    try:
        if suffix in _CALC:
            return read_sheets(libreoffice.cells_of(pdf))
        if suffix in _HTML | plain.TEXTS:
            # The mark tells docling the charset, which it would guess.
            return read_pieces("page.html", codecs.BOM_UTF8 + web_page.printed(_web_page(path)))
        copy = _copy(pdf, suffix) or path
        return read_pieces(f"document{copy.suffix.lower()}", copy.read_bytes())
    except MemoryError:
        raise
    # Readers raise many kinds of exceptions for odd files, whose print has most of the text all the same.
    except Exception as error:
        raise UnreadablePieces(visible(first_line(error), 100)) from error


def _web_page(path: Path) -> bytes:
    suffix = path.suffix.lower()
    return path.read_bytes() if suffix in _HTML else plain.web_page(suffix, path.read_bytes())


def _copy(pdf: Path, suffix: str) -> Path | None:
    """Return where LibreOffice writes a document of an older or another format as Open XML."""
    if suffix in _OPEN_XML | _CALC | _HTML | plain.TEXTS:
        return None
    return pdf.with_name("copy.pptx" if suffix in _IMPRESS else "copy.docx")


def _require_usable(path: Path) -> None:
    """Raise a one-line `UndecodableImage` for a file that is locked, damaged or too large."""
    suffix = path.suffix.lower()
    with path.open("rb") as file:
        start = file.read(len(_OLE))
    try:
        if start == _OLE:
            _require_unlocked(path)
        if suffix not in _OPEN_XML | _OPEN_DOCUMENT:
            return
        if start == _OLE:
            form = "the file is damaged or no office document: {error}"
            raise UndecodableImage(form, error=f"it is no {suffix[1:].upper()}")
        with zipfile.ZipFile(path) as archive:
            require_usable(archive)
            require_small(archive)
    # Parsers raise many kinds of exceptions for hostile bytes.
    except Exception as error:
        if isinstance(error, UndecodableImage) or is_of_machine(error):
            raise
        reason = visible(first_line(error), 100)
        raise UndecodableImage("the file is damaged or no office document: {error}", error=reason) from None


def _require_unlocked(path: Path) -> None:
    """Raise `UndecodableImage` for a compound file that is encrypted or lacks its workbook."""
    with olefile.OleFileIO(str(path)) as file:
        if file.exists("EncryptedPackage") or file.exists("EncryptedSummary"):
            raise UndecodableImage(LOCKED)
        if file.exists("WordDocument"):
            flags = file.openstream("WordDocument").read(12)[10:12]
            if flags and flags[-1] & 1:  # fEncrypted of the FibBase
                raise UndecodableImage(LOCKED)
        if file.exists("Workbook"):
            stream = file.openstream("Workbook").read(1 << 14)
            at = 0
            while at + 4 <= len(stream):
                record, size = (int.from_bytes(stream[at + shift : at + shift + 2], "little") for shift in (0, 2))
                if record == 0x2F:  # FilePass is among the first records
                    raise UndecodableImage(LOCKED)
                at += 4 + size
        elif path.suffix.lower() == ".xls" and not file.exists("Book"):
            raise UndecodableImage("the file is damaged or no office document: {error}", error="it has no workbook")
