"""Office, OpenDocument and HTML files: their pieces, and their PDF made by LibreOffice."""

import re
import shutil
import zipfile
from pathlib import Path
from typing import IO

from kopub.errors import UndecodableImage, first_line, visible
from kopub.fingerprints import CodeVersion
from kopub.pages.documents import libreoffice, web_page
from kopub.pages.documents.archives import LOCKED, require_usable
from kopub.pages.documents.pieces import Piece
from kopub.pages.documents.sheet_pieces import read_sheets
from kopub.pages.documents.source_pieces import read_pieces

_WRITER = frozenset({".docx", ".odt", ".doc", ".rtf", ".html", ".htm"})
_HTML = frozenset({".html", ".htm"})
_CALC = frozenset({".xlsx", ".ods", ".xls"})
_IMPRESS = frozenset({".pptx", ".odp", ".ppt"})
SUFFIXES = _WRITER | _CALC | _IMPRESS
_OPEN_XML = frozenset({".docx", ".pptx", ".xlsx"})
_OPEN_DOCUMENT = frozenset({".odt", ".ods", ".odp"})

_FORMATS = {
    "writer": "DOC, DOCX, ODT, RTF and HTML",
    "calc": "XLS, XLSX and ODS",
    "impress": "PPT, PPTX and ODP",
}
PIECES = CodeVersion(
    "pages.office_pieces",
    {1: "the first release", 2: "titles have the levels of the file; running heads and feet, and notes are pieces"},
)
"""A new version converts office files again."""
_MOST_CELLS = 5_000_000
"""Most cells to the last row and column of a sheet, empty ones among them."""
_CELL = re.compile(rb"""<c\b[^>]{0,40}?\br=["']([A-Z]{1,3})([0-9]{1,7})["']""")
_LONGEST_CELL = 64
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def lacks(suffix: str) -> str | None:
    """Say what this machine lacks to convert files of a suffix, else None."""
    part, library = next(
        (name, library)
        for name, suffixes, library in (
            ("writer", _WRITER, "libswlo.so"),
            ("calc", _CALC, "libsclo.so"),
            ("impress", _IMPRESS, "libsdlo.so"),
        )
        if suffix in suffixes
    )
    program = libreoffice.program()
    if program is not None:
        folder = program.resolve().parent
        # A distribution may split LibreOffice into packages; other installations keep libraries elsewhere.
        if not (folder / "libsofficeapp.so").exists() or (folder / library).exists():
            return None
    formats = _FORMATS[part]
    return f"{formats} need LibreOffice: apt-get install libreoffice-{part} (macOS: brew install --cask libreoffice)"


def converter() -> str:
    """Return the converter's name and versions. Raises `SourceError` if it does not start."""
    return f"{libreoffice.version()}, print {libreoffice.PRINT.number}, pieces {PIECES.number}"


def program_paths() -> list[str]:
    """Return what of LibreOffice must be readable, wherever it is installed."""
    if (program := libreoffice.program()) is None:
        return []
    folder = program.resolve().parent
    return [str(program), *([str(folder.parent)] if folder.name == "program" else [])]


def convert(path: Path, pdf: Path) -> None:
    """Convert a document to PDF. Raises `UndecodableImage` if that is impossible.

    The document is copied beside the PDF under a plain name, so that it cannot include files beside it.
    """
    _require_usable(path)
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
        if suffix in _HTML:
            return read_pieces("page.html", web_page.printed(path.read_bytes()))
        copy = _copy(pdf, suffix) or path
        return read_pieces(f"document{copy.suffix.lower()}", copy.read_bytes())
    # Readers raise many kinds of exceptions for odd files, whose print has most of the text all the same.
    except Exception as error:
        raise UnreadablePieces(visible(first_line(error), 100)) from error


def _copy(pdf: Path, suffix: str) -> Path | None:
    """Return where LibreOffice writes a document of an older or another format as Open XML."""
    if suffix in _OPEN_XML | _CALC | _HTML:
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
            raise UndecodableImage(f"the file is damaged or no office document: it is no {suffix[1:].upper()}")
        with zipfile.ZipFile(path) as archive:
            _require_sound(archive)
            for name in archive.namelist():
                if name.startswith("xl/worksheets/"):
                    with archive.open(name) as sheet:
                        _require_small(sheet)
    except (UndecodableImage, OSError, MemoryError):
        raise
    # Parsers raise many kinds of exceptions for hostile bytes.
    except Exception as error:
        reason = visible(first_line(error), 100)
        raise UndecodableImage(f"the file is damaged or no office document: {reason}") from None


def _require_unlocked(path: Path) -> None:
    """Raise `UndecodableImage` for a compound file that is encrypted."""
    import olefile

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


def _require_sound(archive: zipfile.ZipFile) -> None:
    """Raise `UndecodableImage` if an archive is a bomb, is locked or declares entities."""
    require_usable(archive)
    for name in archive.namelist():
        if name.endswith((".xml", ".rels")):
            with archive.open(name) as part:
                if b"<!ENTITY" in part.read(4096).replace(b"\0", b""):
                    raise UndecodableImage("the file is damaged or no office document: its XML declares entities")


def _require_small(sheet: IO[bytes]) -> None:
    """Raise `UndecodableImage` for a sheet that LibreOffice would take hours to lay out."""
    rows = columns = 0
    rest = b""
    while chunk := sheet.read(1 << 20):
        for letters, number in _CELL.findall(rest + chunk):
            column = 0
            for letter in letters:
                column = column * 26 + letter - ord("A") + 1
            rows, columns = max(rows, int(number)), max(columns, column)
        rest = chunk[-_LONGEST_CELL:]
    if rows * columns > _MOST_CELLS:
        raise UndecodableImage(
            f"a sheet reaches to row {rows:,} and column {columns:,}: clear its last cells, or divide it"
        )
