"""Downloads of a page or a whole document."""

import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from PIL import Image

import kopub
from kopub.documents.searchable_pdf import PdfPicture, placed_lines, searchable_pdf
from kopub.documents.spreadsheets import CSV_START, tables_workbook
from kopub.documents.stream import file_names
from kopub.errors import KopubError
from kopub.web.elements import MOST
from kopub.web.pictures import NoPicture, picture_stamp
from kopub.web.requests import ViewRequest
from kopub.web.room import Room
from kopub.web.views.document import document_of
from kopub.web.views.page import page_of

if TYPE_CHECKING:
    from kopub.documents.tables import DataTable


class _NoTables(Exception):
    """The page or document has no tables."""


@dataclass(frozen=True, slots=True)
class DownloadKind:
    """A kind of download: suffix, media type, maker, and page limit."""

    suffix: str
    media_type: str
    made: Callable[[Room, kopub.Page | kopub.Document], bytes]
    most: int = 2000


def _pdf(room: Room, of: kopub.Page | kopub.Document) -> bytes:
    pages = [of] if isinstance(of, kopub.Page) else of.pages
    return searchable_pdf(of.id, (_pictured(room, page) for page in pages))


def _pictured(room: Room, page: kopub.Page) -> PdfPicture:
    """Return a page for a PDF, without its picture if that is unreadable."""
    size = page.width or 1000, page.height or 1414
    lines = [line for region in page.regions for line in placed_lines(region.text[:MOST], region.box)]
    try:
        jpeg = room.pictures.page(picture_stamp(page), lambda: page.upright_bytes, "large").data
    except NoPicture:
        return PdfPicture(None, (0, 0), size, lines)
    return PdfPicture(jpeg, Image.open(io.BytesIO(jpeg)).size, size, lines)


def _csv(room: Room, of: kopub.Page | kopub.Document) -> bytes:
    """Return a ZIP file with a CSV of each table."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for table in _tables(of):
            archive.writestr(f"{table.number}.csv", CSV_START + table.to_csv().encode("utf-8", "replace"))
    return file.getvalue()


def _tables(of: kopub.Page | kopub.Document) -> "Sequence[DataTable]":
    """Return the tables of a page or document. Raises `_NoTables`."""
    if isinstance(of, kopub.Page):
        at = of.document.pages.ids.index(of.id)
        of = kopub.Document(of.document.id, of.document.pages[at : at + 1])
    if tables := of.tables:
        return tables
    raise _NoTables


DOWNLOADS: Mapping[str, DownloadKind] = {
    "markdown": DownloadKind(
        ".md",
        "text/markdown; charset=utf-8",
        lambda _, of: (of.markdown if isinstance(of, kopub.Page) else of.to_markdown()).encode("utf-8", "replace"),
    ),
    "json": DownloadKind(
        ".json",
        "application/json",
        lambda _, of: json.dumps(of.to_dict(), ensure_ascii=False, indent=1).encode("utf-8", "replace"),
    ),
    "pdf": DownloadKind(".pdf", "application/pdf", _pdf, 200),
    "xlsx": DownloadKind(
        ".xlsx",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        lambda _, of: tables_workbook(_tables(of)),
    ),
    "csv": DownloadKind(".csv.zip", "application/zip", _csv),
}


def download(room: Room, request: ViewRequest, kind: DownloadKind) -> tuple[bytes, dict[str, str]]:
    """Return the file of a page or document, and the header with its name.

    Raises `KopubError`.
    """
    of = page_of(room, request) if "id" in request.values else document_of(room.now.corpus, request)
    if isinstance(of, kopub.Document) and len(of) > kind.most:
        raise KopubError(request.t("download.too_long", count=len(of), most=kind.most))
    (name,) = file_names([of.id])
    try:
        content = kind.made(room, of)
    except _NoTables:
        raise KopubError(request.t("download.no_tables")) from None
    return content, {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name + kind.suffix, safe='')}"}
