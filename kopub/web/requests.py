"""The requests and URLs of the reading room."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlencode

import kopub
from kopub.language import LANGUAGES, StoredReasons, Texts, language_of, texts

if TYPE_CHECKING:
    from starlette.requests import Request

THEMES = ("system", "light", "dark")
CHOICES: Mapping[str, Collection[str]] = {"language": LANGUAGES, "theme": THEMES}
"""What a person may choose; the browser keeps the choice in a cookie."""
LONGEST_QUERY = 2000
"""Most characters of a question, because some servers and browsers refuse longer URLs."""
_LONGEST = 4096
"""Most characters of any other value."""
_MOST = 10**7
_DIGITS = 7


def cookie_of(choice: str) -> str:
    """Return the name of the cookie that keeps a choice.

    It contains the project's name, because browsers send a cookie to the servers on all ports of a machine.
    """
    return f"kopub_{choice}"


@dataclass(frozen=True)
class ViewRequest:
    """The request to a view: the URL's values, the language, and links."""

    values: Mapping[str, str]
    t: Texts
    to: "Addresses"
    sources: Mapping[str, str] = field(default_factory=dict)
    """The name of the source by shard; empty if the corpus has only one source."""
    here: str = "/"
    """The URL itself, for coming back."""
    theme: str = THEMES[0]

    @classmethod
    def of(
        cls, request: "Request", to: "Addresses", sources: Mapping[str, str], stored: Callable[[], StoredReasons]
    ) -> Self:
        """Return the view request of a browser, with its language and colours.

        A person's choice takes precedence over the browser's.
        """
        chosen = {name: request.cookies.get(cookie_of(name), "") for name in CHOICES}
        language = chosen["language"] if chosen["language"] in LANGUAGES else ""
        t = texts(language or language_of(request.headers.get("accept-language", ""))).with_stored(stored)
        theme = chosen["theme"] if chosen["theme"] in THEMES else THEMES[0]
        here = f"{request.url.path}?{request.url.query}".removesuffix("?") if request.method == "GET" else "/"
        return cls(request.query_params, t, to, sources, here if len(here) <= _LONGEST else "/", theme)

    def text(self, name: str) -> str:
        return self.values.get(name, "")[:_LONGEST]

    def number(self, name: str, least: int = 1) -> int:
        """Return a whole number of at least `least`, which is the default."""
        text = self.values.get(name, "")
        # Python refuses to parse a number with thousands of digits.
        return max(least, min(int(text[:_DIGITS]), _MOST)) if text.isdecimal() else least

    def flag(self, name: str) -> bool:
        return self.values.get(name, "") == "1"


@dataclass(frozen=True)
class ViewResponse:
    """The answer of a view: a template, its values and a status."""

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True)
class PartLinks:
    """The pager of a list: the part's number from 1, the last, and neighbours' URLs."""

    at: int
    last: int
    previous: str | None
    next: str | None


def part(count: int, size: int, request: ViewRequest, address: Any) -> tuple[slice, PartLinks]:
    """Return the slice of a list that the value `part` selects, and its pager.

    The list has `count` items; `address(part=…)` returns the URL of another part.
    """
    last = max(1, -(-count // size))
    at = min(request.number("part"), last)
    before = address(part=at - 1) if at > 1 else None
    after = address(part=at + 1) if at < last else None
    return slice((at - 1) * size, at * size), PartLinks(at, last, before, after)


STATIC = "/static"


class Addresses:
    """The URLs of everything that the room shows.

    `versions` are the hashes of the static files by name; `place` is the URL folder of a room inside another one.
    """

    def __init__(self, versions: Mapping[str, str], place: str = "") -> None:
        self._versions, self._place = versions, place
        # Addresses that are made of their values alone.
        self.home = partial(self._address, "/")
        self.documents = partial(self._address, "/documents")
        self.figures = partial(self._address, "/figures")
        self.search = partial(self._address, "/search")
        self.evaluation = partial(self._address, "/evaluation")
        self.versions = partial(self._address, "/versions")
        self.display = partial(self._address, "/display")

    def document(self, document: kopub.Document, **request: object) -> str:
        """Return the URL of a document.

        It has the first page's id if the document's own is too long.
        """
        named = {"id": document.id} if len(document.id) <= _LONGEST else {"of": document.pages[0].id}
        return self._address("/document", **named, **request)

    def page(self, page_id: str, **request: object) -> str:
        """Return the URL of a page.

        `request` has the view of it, and the way that a person came.
        """
        return self._address("/page", id=page_id, **request)

    def pages(self, kind: str = "", **request: object) -> str:
        """Return the URL of a list of pages to look at."""
        return self._address("/pages", kind=kind, **request)

    def picture(self, page_id: str, size: str, stamp: str | None = None) -> str:
        """Return the URL of a page's picture.

        If it contains the page's stamp, a browser may cache the picture forever.
        """
        return self._address("/picture", id=page_id, size=size, of=(stamp or "")[:16])

    def figure(self, page_id: str, region: int) -> str:
        """Return the URL of a region that is cut out of its page."""
        return self._address("/figure", id=page_id, region=region)

    def file(self, kind: str, of: kopub.Page | kopub.Document) -> str:
        """Return the URL of a page or document as a file of some kind.

        The URL of a document has its first page's id.
        """
        return self._address(f"/{kind}", **({"id": of.id} if isinstance(of, kopub.Page) else {"of": of.pages[0].id}))

    def static(self, name: str) -> str:
        return self._address(f"{STATIC}/{name}", of=self._versions[name])

    def _address(self, path: str, /, **request: object) -> str:
        values = {name: value for name, value in request.items() if value not in ("", None)}
        # An id from a hostile file may contain half of a surrogate pair, which cannot be encoded.
        return f"{self._place}{path}?{urlencode(values, errors='replace')}" if values else f"{self._place}{path}"
