"""Office, OpenDocument and HTML files: their text, and their PDF made by LibreOffice."""

import posixpath
import re
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from kopub.errors import UndecodableImage, first_line, visible
from kopub.pages.documents import libreoffice, web_page
from kopub.pages.documents.hwp import LOCKED, require_usable, xml_events, xml_paragraphs

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
_MOST_CELLS = 5_000_000
"""Most cells to the last row and column of a sheet, empty ones among them."""
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
    return f"{libreoffice.version()}, print {libreoffice.PRINT.number}"


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
    suffix = path.suffix.lower()
    source = pdf.with_name(f"source{suffix}")
    if suffix in _HTML:
        source.write_bytes(web_page.with_references(path.read_bytes()))
        # As a web page, HTML would lose its first line.
        libreoffice.print_pdf(source, pdf, "HTML (StarWriter)")
    else:
        shutil.copyfile(path, source)
        libreoffice.print_pdf(source, pdf)


def paragraphs(path: Path) -> list[str]:
    """Return the text that a document prints, by paragraph.

    DOC, XLS, PPT and RTF give none. Headers and footers are left out, because it depends on the pages which of
    them are printed. Raises a one-line `UndecodableImage` for a file that is locked, damaged or too large.
    """
    suffix = path.suffix.lower()
    with path.open("rb") as file:
        start = file.read(len(_OLE))
    try:
        if start == _OLE:
            _require_unlocked(path)
        if suffix in _HTML:
            return list(web_page.paragraphs(path.read_bytes()))
        if suffix not in _OPEN_XML | _OPEN_DOCUMENT:
            return []
        if start == _OLE:
            raise UndecodableImage(f"the file is damaged or no office document: it is no {suffix[1:].upper()}")
        with zipfile.ZipFile(path) as archive:
            _require_sound(archive)
            if suffix == ".docx":
                return list(_in_docx(archive))
            if suffix == ".pptx":
                return list(_in_pptx(archive))
            return list(_in_xlsx(archive) if suffix == ".xlsx" else _in_open_document(archive))
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


def _in_docx(archive: zipfile.ZipFile) -> Iterator[str]:
    """Yield the paragraphs of a DOCX: text, then notes, without deleted or hidden text."""
    # The content of a text box is stored twice, the second time (`Fallback`) for programs from before 2010.
    unprinted = frozenset({"Fallback", "del", "moveFrom", "comment"})
    for name in ("word/document.xml", "word/footnotes.xml", "word/endnotes.xml"):
        if name in archive.namelist() or name == "word/document.xml":
            with archive.open(name) as xml:
                yield from xml_paragraphs(xml, "p", "t", unprinted, "vanish")


def _in_pptx(archive: zipfile.ZipFile) -> Iterator[str]:
    """Yield the paragraphs of the slides that are not hidden, in order."""
    slides = [name for name, _ in _parts(archive, "ppt/presentation.xml", "sldId")]
    if not slides:
        raise UndecodableImage("the file is damaged or no office document: it has no slides")
    for name in slides:
        with archive.open(name) as xml:
            hidden = re.search(rb"<p:sld\b[^>]*\bshow=\"(0|false)\"", xml.read(4096))
        if not hidden:
            with archive.open(name) as xml:
                yield from xml_paragraphs(xml, "p", "t", frozenset({"Fallback"}))


def _parts(archive: zipfile.ZipFile, listed_in: str, element: str) -> Iterator[tuple[str, str]]:
    """Yield the parts that hold slides or sheets, in order, each with its state."""
    names = set(archive.namelist())
    folder, _, name = listed_in.rpartition("/")
    links = f"{folder}/_rels/{name}.rels"
    if not {listed_in, links} <= names:
        return
    with archive.open(links) as xml:
        targets = {
            link.get("Id"): posixpath.join(folder, link.get("Target")) for link in _elements(xml, "Relationship")
        }
    with archive.open(listed_in) as xml:
        for each in _elements(xml, element):
            link = next((value for key, value in each.attrib.items() if key.endswith("}id")), None)
            part = posixpath.normpath(targets.get(link, "")).lstrip("/")
            if part in names:
                yield part, each.get("state", "visible")


def _in_xlsx(archive: zipfile.ZipFile) -> Iterator[str]:
    """Yield the texts in visible sheets' cells, without numbers, which print in many formats."""
    shared: list[str] = []
    if "xl/sharedStrings.xml" in archive.namelist():
        with archive.open("xl/sharedStrings.xml") as xml:
            shared = ["".join(_texts(each)) for each in _elements(xml, "si")]
    for name, state in _parts(archive, "xl/workbook.xml", "sheet"):
        if state != "visible":
            continue
        with archive.open(name) as xml:
            yield from _in_sheet(xml, shared)


def _in_sheet(xml: IO[bytes], shared: Sequence[str]) -> Iterator[str]:
    """Yield the texts in a sheet's cells, without those in hidden rows and columns.

    Raises `UndecodableImage` for a sheet so large that LibreOffice would take hours to lay it out.
    """
    hidden: list[range] = []
    rows = columns = 0
    for event, element, name in xml_events(xml):
        if event == "start" or name not in ("col", "row"):
            continue
        is_hidden = element.get("hidden") in {"1", "true"}
        if name == "col":
            if is_hidden:
                hidden.append(range(int(element.get("min")), int(element.get("max")) + 1))
            continue
        column, rows = 0, int(element.get("r") or rows + 1)
        for cell in () if is_hidden else element.iterchildren("{*}c"):
            column = _column(cell.get("r", "")) or column + 1
            value = cell.find("{*}v")
            columns = max(columns, column)
            if rows * columns > _MOST_CELLS:
                raise UndecodableImage(
                    f"a sheet reaches to row {rows:,} and column {columns:,}: clear its last cells, or divide it"
                )
            if any(column in columns for columns in hidden):
                continue
            if cell.get("t") == "s" and value is not None:
                yield shared[int(value.text)]
            elif cell.get("t") == "inlineStr":
                yield "".join(_texts(cell))
        element.clear(keep_tail=True)


def _column(place: str) -> int:
    """Return the number of a column, from 1, or 0 without a place."""
    number = 0
    for letter in place.rstrip("0123456789"):
        number = number * 26 + ord(letter) - ord("A") + 1
    return number


def _texts(element: Any) -> Iterator[str]:
    """Yield the texts of a cell, without the readings of Chinese characters."""
    for each in element.iter("{*}t"):
        if not each.getparent().tag.endswith("}rPh"):
            yield each.text or ""


def _in_open_document(archive: zipfile.ZipFile) -> Iterator[str]:
    """Yield an OpenDocument's paragraphs and headings, without comments and deletions."""
    unprinted = frozenset({"annotation", "tracked-changes", "notes", "hidden-text", "hidden-paragraph"})
    hidden, not_printed = _HiddenParts(), list[Any]()
    with archive.open("content.xml") as xml:
        for event, element, name in xml_events(xml):
            if event == "start":
                if hidden.hide(element, name) or name in unprinted:
                    not_printed.append(element)
                continue
            if name in {"p", "h"} and not not_printed:
                yield "".join(element.itertext())
            is_unprinted = bool(not_printed) and not_printed[-1] is element
            if name in {"p", "h"} or is_unprinted:
                # Its text must not be read again, or at all, as part of the enclosing element.
                element.clear(keep_tail=True)
            if is_unprinted:
                not_printed.pop()
            if name == "table":
                hidden.leave()


@dataclass
class _OpenTable:
    """The hidden columns of an open table, and counts of columns and cells so far."""

    hidden: list[range] = field(default_factory=list)
    columns: int = 0
    cells: int = 0


_STYLED_BY = {
    "table": "table-properties",
    "page": "drawing-page-properties",
    **dict.fromkeys(("p", "h", "span"), "text-properties"),
}
"""The part of a style that may hide an element of an OpenDocument."""
_IN_TABLES = frozenset({"table-column", "table-row", "table-cell", "covered-table-cell"})


class _HiddenParts:
    """The sheets, rows, columns, slides, shapes, sections and texts of an OpenDocument that are hidden."""

    def __init__(self) -> None:
        self._styles: set[tuple[str, str | None]] = set()
        self._open: list[_OpenTable] = []

    def hide(self, element: Any, name: str) -> bool:
        """Return whether an element that begins is hidden."""
        said = {key.rpartition("}")[2]: value for key, value in element.attrib.items()}
        if name in _STYLED_BY.values():
            if said.get("display") in {"false", "none"} or said.get("visibility") == "hidden":
                style = element.getparent().attrib
                self._styles.update((name, value) for key, value in style.items() if key.endswith("}name"))
            return False
        if name == "table":
            self._open.append(_OpenTable())
        if said.get("display") == "none" or (_STYLED_BY.get(name, ""), said.get("style-name")) in self._styles:
            return True
        if not self._open or name not in _IN_TABLES:
            return False
        table, is_hidden = self._open[-1], said.get("visibility") in {"collapse", "filter"}
        repeated = int(said.get("number-columns-repeated", 1))
        if name == "table-row":
            table.cells = 0
            return is_hidden
        if name == "table-column":
            if is_hidden:
                table.hidden.append(range(table.columns, table.columns + repeated))
            table.columns += repeated
            return False
        column = table.cells
        table.cells += repeated
        return any(column in columns for columns in table.hidden)

    def leave(self) -> None:
        """End the innermost table."""
        self._open.pop()


def _elements(xml: IO[bytes], wanted: str) -> Iterator[Any]:
    for event, element, name in xml_events(xml):
        if event == "end" and name == wanted:
            yield element
            element.clear(keep_tail=True)
