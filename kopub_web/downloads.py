"""Files of a page or a whole document for people to take away."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import quote

import kopub
from kopub_web.requests import ViewRequest
from kopub_web.room import Room
from kopub_web.views.document import document_of
from kopub_web.views.page import page_of
from resources.errors import KopubError

_MOST_PAGES = 2000
"""Pages of a file: a larger document is better exported into a folder."""


@dataclass(frozen=True, slots=True)
class DownloadKind:
    """A kind of file: its suffix, its media type, and what makes it of a page or a document."""

    suffix: str
    media_type: str
    made: Callable[[kopub.Page | kopub.Document], bytes]


def _markdown(of: kopub.Page | kopub.Document) -> bytes:
    text = of.markdown if isinstance(of, kopub.Page) else of.to_markdown()
    return text.encode("utf-8", "replace")


def _json(of: kopub.Page | kopub.Document) -> bytes:
    return json.dumps(of.to_dict(), ensure_ascii=False, indent=1).encode("utf-8", "replace")


DOWNLOADS: Mapping[str, DownloadKind] = {
    "markdown": DownloadKind(".md", "text/markdown; charset=utf-8", _markdown),
    "json": DownloadKind(".json", "application/json", _json),
}


def download(room: Room, request: ViewRequest, kind: DownloadKind) -> tuple[bytes, dict[str, str]]:
    """Return the file of the page or document of an address, and the header that names it. Raises `KopubError`."""
    from resources.documents.stream import file_names

    of = page_of(room, request) if "id" in request.values else document_of(room.now.corpus, request)
    if isinstance(of, kopub.Document) and len(of) > _MOST_PAGES:
        raise KopubError(request.t("download.too_long", count=len(of), most=_MOST_PAGES))
    (name,) = file_names([of.id])
    return kind.made(of), {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name + kind.suffix, safe='')}"}
