"""HWP 5 and HWPX, the formats of Korean offices: their pieces, and their PDF.

The PDF is made by hwp-ingest and rsvg-convert. hwp-ingest was measured against rhwp-python on 35 HWP files:
docs/documents.md has the figures.
"""

import zipfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import olefile

from kopub.errors import UndecodableImage, first_line, is_of_machine, visible, without_paths
from kopub.fingerprints import CodeVersion
from kopub.pages.documents import hwp5, hwpx
from kopub.pages.documents.hwp_pieces import pieces_of
from kopub.pages.documents.pieces import Piece
from kopub.states import phrase, with_remedy

SUFFIXES = frozenset({".hwp", ".hwpx"})
RENDERER = "rsvg-convert"
"""The librsvg program with which hwp-ingest draws the pages; it finds fonts as other programs do."""

_HWP3 = b"HWP Document File V3"
PIECES = CodeVersion(
    "pages.hwp_pieces",
    {
        1: "the first release",
        2: "rows of a table are on the pages of most of their letters",
        3: "a row that a page cuts keeps its cells, and a table in a cell is on its own page",
        4: "a short number takes no part of a longer one",
    },
)
"""A new version converts HWP documents again."""


def lacks() -> str | None:
    """Say what this machine lacks to convert HWP documents, else None."""
    if find_spec("hwp_ingest") is None:
        return with_remedy("HWP needs the package hwp-ingest", "pip install hwp-ingest")
    if which(RENDERER):
        return None
    remedy = "apt-get install librsvg2-bin fonts-noto-cjk (macOS: brew install librsvg)"
    return with_remedy(phrase("HWP needs {program}", RENDERER), remedy)


def converter() -> str:
    """Return the name of the program that makes the PDF, and the versions."""
    return f"hwp-ingest {version('hwp-ingest')}, pieces {PIECES.number}"


def convert(path: Path, pdf: Path) -> None:
    """Convert a document to PDF, with its changes accepted. Raises `UndecodableImage` if that is impossible."""
    import hwp_ingest

    content = path.read_bytes()
    if zipfile.is_zipfile(path):
        content = hwpx.accept_changes(content)
    try:
        pdf.write_bytes(hwp_ingest.to_pdf_bytes(content))
    except hwp_ingest.HwpIngestError as error:
        reason = visible(without_paths(first_line(error)), 200)
        raise UndecodableImage("the HWP document cannot be drawn: {error}", error=reason) from None


def pieces(path: Path) -> list[Piece]:
    """Return the pieces of a document, in order.

    Raises a one-line `UndecodableImage` for a file that is locked, damaged or too large.
    """
    with path.open("rb") as file:
        start = file.read(len(_HWP3))
    try:
        if start == _HWP3:
            raise UndecodableImage("it is of HWP 3 or older: save it as HWPX or PDF")
        if olefile.isOleFile(str(path)):
            with olefile.OleFileIO(str(path)) as opened:
                return list(pieces_of(list(hwp5.paragraphs(opened))))
        with zipfile.ZipFile(path) as archive:
            return list(pieces_of(list(hwpx.paragraphs(archive))))
    # Parsers raise many kinds of exceptions for hostile bytes.
    except Exception as error:
        if isinstance(error, UndecodableImage) or is_of_machine(error):
            raise
        reason = visible(first_line(error), 100)
        raise UndecodableImage("the file is damaged or no HWP document: {error}", error=reason) from None
