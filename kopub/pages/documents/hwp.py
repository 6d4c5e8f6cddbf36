"""HWP 5 and HWPX, the formats of Korean offices: text and PDF.

The PDF is made by hwp-ingest and rsvg-convert. hwp-ingest was measured against rhwp-python on 35 HWP files:
docs/documents.md has the figures.
"""

import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import IO, Any

from kopub.errors import UndecodableImage, first_line, visible
from kopub.pages.documents.extents import require_small

SUFFIXES = frozenset({".hwp", ".hwpx"})
RENDERER = "rsvg-convert"
"""The librsvg program with which hwp-ingest draws the pages; it finds fonts as other programs do."""

MOST_UNPACKED = 1 << 29
"""Most bytes to which a document may unpack."""
MOST_FILES = 20_000
"""Most files that an archive may hold."""
_MOST_TEXT = 1 << 26
"""Most bytes of sections that are read, enough for more than 10,000 printed pages."""
_HWP3 = b"HWP Document File V3"
_HEADER_SIZE = 40
_COMPRESSED, _PASSWORD, _DISTRIBUTION, _DRM = 1, 2, 4, 16
"""Bits of the properties of an HWP file."""
_PARA_TEXT, _CTRL_HEADER = 67, 71
"""Tags of the records that hold a paragraph's text and an object's kind."""
_HIDDEN_COMMENT = b"tmct"
"""The kind of an unprinted comment, as stored: `tcmt` in reverse byte order."""
_ONE_UNIT = frozenset({0, 10, 13, *range(24, 32)})
"""Control characters of one UTF-16 unit; all others below a blank take eight units."""
_OBJECTS = frozenset({11, 12, 15, 16, 17, 18, 21, 22, 23})
"""Control characters in place of an object that has its own text."""
_BLANK, _LINE = 32, 10
_LONG = 0xFFF
"""The size in the header of a record whose true size follows."""
_SECTION = re.compile(r"(?:.*/)?section(\d+)\.xml", re.IGNORECASE)
_UNPRINTED = frozenset({"hiddenComment", "deleteBegin", "memo"})
LOCKED = "it wants a password: save it without one"
_MANIFEST = "META-INF/manifest.xml"


def lacks() -> str | None:
    """Say what this machine lacks to convert HWP documents, else None."""
    if find_spec("hwp_ingest") is None:
        return "HWP needs the package hwp-ingest: pip install hwp-ingest"
    if which(RENDERER):
        return None
    return f"HWP needs {RENDERER}: apt-get install librsvg2-bin fonts-noto-cjk (macOS: brew install librsvg)"


def converter() -> str:
    """Return the name and version of the program that makes the PDF."""
    return f"hwp-ingest {version('hwp-ingest')}"


def convert(path: Path, pdf: Path) -> None:
    """Convert a document to PDF. Raises `UndecodableImage` if that is impossible."""
    import hwp_ingest

    try:
        pdf.write_bytes(hwp_ingest.to_pdf_bytes(path.read_bytes()))
    except hwp_ingest.HwpIngestError as error:
        raise UndecodableImage(f"the HWP document cannot be drawn: {visible(first_line(error), 200)}") from None


def paragraphs(path: Path) -> list[str]:
    """Return a document's text by paragraph, including tables, notes, headers and boxes.

    Raises a one-line `UndecodableImage` for a file that is locked, damaged or too large.
    """
    import olefile

    with path.open("rb") as file:
        start = file.read(len(_HWP3))
    try:
        if start == _HWP3:
            raise UndecodableImage("it is of HWP 3 or older: save it as HWPX or PDF")
        if olefile.isOleFile(str(path)):
            with olefile.OleFileIO(str(path)) as opened:
                return list(_in_hwp5(opened))
        with zipfile.ZipFile(path) as archive:
            return list(_in_hwpx(archive))
    except (UndecodableImage, OSError, MemoryError):
        raise
    # Parsers raise many kinds of exceptions for hostile bytes.
    except Exception as error:
        reason = visible(first_line(error), 100)
        raise UndecodableImage(f"the file is damaged or no HWP document: {reason}") from None


def _in_hwp5(file: Any) -> Iterator[str]:
    """Yield the paragraphs of an HWP 5 file: a compound file with streams of records."""
    header = _stream(file, ["FileHeader"])
    if len(header) < _HEADER_SIZE or not header.startswith(b"HWP Document File"):
        raise UndecodableImage("the file is damaged or no HWP document: it has no header")
    (flags,) = struct.unpack_from("<I", header, 36)
    if flags & _PASSWORD:
        raise UndecodableImage(LOCKED)
    if flags & _DISTRIBUTION:
        raise UndecodableImage("it is a document for distribution (배포용 문서): ask its author for an open copy")
    if flags & _DRM:
        raise UndecodableImage("it is locked by DRM: save it without")
    names = [name for name in file.listdir() if len(name) == 2 and name[0] == "BodyText"]
    if not names:
        raise UndecodableImage("the file is damaged or no HWP document: it has no text")
    left = _MOST_TEXT
    for name in sorted(names, key=lambda each: (len(each[1]), each[1])):
        section = _stream(file, name)
        if flags & _COMPRESSED:
            section = zlib.decompressobj(-zlib.MAX_WBITS).decompress(section, left + 1)
        left -= len(section)
        if left < 0:
            raise _too_large()
        yield from _of_records(section)


def _stream(file: Any, name: list[str]) -> bytes:
    with file.openstream(name) as stream:
        return stream.read(_MOST_TEXT)


def _of_records(section: bytes) -> Iterator[str]:
    """Yield the text of a section's paragraphs, without unprinted comments."""
    at, hidden = 0, None
    while at + 4 <= len(section):
        (head,) = struct.unpack_from("<I", section, at)
        at += 4
        tag, level, size = head & 0x3FF, head >> 10 & 0x3FF, head >> 20
        if size == _LONG:
            if at + 4 > len(section):
                return
            (size,) = struct.unpack_from("<I", section, at)
            at += 4
        content = section[at : at + size]
        at += size
        if hidden is not None and level <= hidden:
            hidden = None
        if tag == _CTRL_HEADER and hidden is None and content.startswith(_HIDDEN_COMMENT):
            hidden = level
        if tag == _PARA_TEXT and hidden is None:
            yield from _text(content).split("\n")


def _text(content: bytes) -> str:
    """Return a paragraph's letters, with a newline for each object such as a table."""
    units = struct.unpack(f"<{len(content) // 2}H", content[: len(content) // 2 * 2])
    letters = bytearray()
    at = 0
    while at < len(units):
        unit = units[at]
        at += 1 if unit in _ONE_UNIT or unit >= 32 else 8
        letters += struct.pack("<H", unit if unit >= 32 else _LINE if unit in _OBJECTS else _BLANK)
    return letters.decode("utf-16-le", errors="replace")


def _in_hwpx(archive: zipfile.ZipFile) -> Iterator[str]:
    """Yield the paragraphs of an HWPX file, which is an archive of XML."""
    require_usable(archive)
    require_small(archive)
    names = set(archive.namelist())
    sections = sorted((int(found[1]), name) for name in names if (found := _SECTION.fullmatch(name)))
    if not sections:
        raise UndecodableImage("the file is damaged or no HWP document: it has no text")
    if sum(archive.getinfo(name).file_size for _, name in sections) > _MOST_TEXT:
        raise _too_large()
    for _, name in sections:
        with archive.open(name) as xml:
            yield from _xml_paragraphs(xml)


def require_usable(archive: zipfile.ZipFile) -> None:
    """Raise `UndecodableImage` if an archive is locked or unpacks to too much."""
    entries = archive.infolist()
    if len(entries) > MOST_FILES or sum(entry.file_size for entry in entries) > MOST_UNPACKED:
        raise _too_large()
    if _MANIFEST in archive.namelist() and b"encryption-data" in archive.read(_MANIFEST):
        raise UndecodableImage(LOCKED)


def _xml_events(xml: IO[bytes]) -> Iterator[tuple[str, Any, str]]:
    """Yield an XML file's events, elements and bare names, without resolving or fetching."""
    from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

    options: dict[str, Any] = {"resolve_entities": False, "no_network": True, "load_dtd": False, "huge_tree": False}
    for event, element in etree.iterparse(xml, events=("start", "end"), **options):
        if isinstance(element.tag, str):
            yield event, element, element.tag.rpartition("}")[2]


def _xml_paragraphs(xml: IO[bytes]) -> Iterator[str]:
    """Yield the text of a section, paragraph by paragraph.

    A paragraph is split where another is nested in it. Unprinted elements are left out.
    """
    open_paragraphs: list[list[str]] = []
    skipped = 0
    for event, element, name in _xml_events(xml):
        if name in _UNPRINTED:
            skipped += 1 if event == "start" else -1
        elif event == "start" and name == "p":
            for around in open_paragraphs[-1:]:
                around.append("\n")
            open_paragraphs.append([])
        elif event == "end" and name == "t" and not skipped and open_paragraphs:
            open_paragraphs[-1].append("".join(element.itertext()))
        elif event == "end" and name == "p" and open_paragraphs:
            yield from "".join(open_paragraphs.pop()).split("\n")
            # Its text has been read, so the element is freed.
            element.clear(keep_tail=True)


def _too_large() -> UndecodableImage:
    return UndecodableImage(
        f"it unpacks to more than a document holds (text {_MOST_TEXT >> 20} MB, all {MOST_UNPACKED >> 20} MB)"
    )
