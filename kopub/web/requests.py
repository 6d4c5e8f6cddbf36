"""The requests, URLs and languages of the reading room."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlencode

import yaml

import kopub

if TYPE_CHECKING:
    from starlette.requests import Request

LANGUAGES = {"ko": "한국어", "en": "English"}
"""The languages, with their own names for themselves; each has a file of texts with the same keys."""
THEMES = ("system", "light", "dark")
CHOICES: Mapping[str, Collection[str]] = {"language": LANGUAGES, "theme": THEMES}
"""What a person may choose; the browser keeps the choice in a cookie."""
_DEFAULT = "en"
"""The language for a browser that accepts neither."""
_RANGE = re.compile(
    r"\s*(?P<name>[A-Za-z]{1,8})(?:-[A-Za-z0-9-]{1,20})?\s*(?:;\s*q\s*=\s*(?P<weight>[01](?:\.\d{0,3})?))?\s*"
)
_MOST_RANGES = 20
"""Most ranges of a header that are read."""
_TABLE = re.compile("[a-z]+(_[a-z]+)+")
_SENTENCES = "sentences"
_HOLE = re.compile(r"\{(\w*)\}")
_NUMBER = r"\d[\d,]*(?:\.\d+)?"


class Texts:
    """The texts of one language; those with a count have variants by plural form."""

    def __init__(self, language: str, texts: Mapping[str, Any]) -> None:
        self.language = language
        sentences: Mapping[str, str] = texts.get(_SENTENCES, {})
        self._sentences = [(_form(english), told) for english, told in sentences.items()]
        self._texts = {key: text for key, text in texts.items() if key != _SENTENCES}

    def __call__(self, key: str, **values: Any) -> str:
        """Return the text of `key` with its values; `count` selects the form. Raises `KeyError`."""
        text = self._texts[key]
        if isinstance(text, Mapping):
            text = text["one" if values["count"] == 1 and "one" in text else "other"]
        return text.format(**values)

    def word(self, kind: str, name: object) -> str:
        """Return the word for a platform name, such as a state, else the name."""
        return self._texts.get(f"{kind}.{name}", str(name))

    def sentence(self, said: str) -> tuple[str, str]:
        """Return a table's English sentence and its language, translated if known."""
        for form, told in self._sentences:
            if found := form.fullmatch(said):
                return self._filled(told, found), self.language
        return said, "en"

    def reason(self, said: str) -> tuple[str, str]:
        """Return the reason why a page is incomplete and its language, without the table's name."""
        table, _, rest = said.partition(": ")
        return self._reason(rest if _TABLE.fullmatch(table) else said)

    def _reason(self, said: str) -> tuple[str, str]:
        if len(several := said.split("; ")) > 1:
            each = [self._reason(one) for one in several]
            if all(language == self.language for _, language in each):
                return "; ".join(told for told, _ in each), self.language
        parts = said.split(": ")
        for at in range(len(parts)):
            told, language = self.sentence(": ".join(parts[at:]))
            if language != "en":
                return ": ".join([*parts[:at], told]), language
        return said, "en"

    def _filled(self, told: str, found: re.Match[str]) -> str:
        """Return a translated sentence with the values of the English one.

        Reasons and the platform's own words among the values are translated, too.
        """
        values = found.groupdict()
        numbers = [value for name, value in values.items() if name.startswith("_")]
        for name in values.keys() & {"label", "by"}:
            values[name] = self.word(name, values[name])
        if "reason" in values:
            values["reason"] = self._reason(values["reason"])[0]
        return told.format(*numbers, **values)

    @property
    def forms(self) -> Mapping[str, Any]:
        """All texts by key."""
        return self._texts


def _form(english: str) -> re.Pattern[str]:
    """Return a pattern for an English sentence with `{}` for numbers, `{name}` for texts."""
    texts = _HOLE.split(english)
    form = re.escape(texts[0])
    for at in range(1, len(texts), 2):
        hole = f"(?P<{texts[at]}>.*)" if texts[at] else f"(?P<_{at}>{_NUMBER})"
        form += hole + re.escape(texts[at + 1])
    return re.compile(form, re.DOTALL)


def language_of(accepted: str) -> str:
    """Return the language that a browser prefers, given its header Accept-Language."""
    liked: dict[str, float] = {}
    for part in accepted.split(",")[:_MOST_RANGES]:
        found = _RANGE.fullmatch(part)
        if found and found["name"].lower() in LANGUAGES:
            liked.setdefault(found["name"].lower(), float(found["weight"] or 1))
    best = max(liked, key=lambda name: liked[name], default=_DEFAULT)
    return best if liked.get(best) else _DEFAULT


@cache
def texts(language: str) -> Texts:
    """Return the texts of one of `LANGUAGES`."""
    file = files("kopub.web").joinpath("texts", f"{language}.yaml")
    return Texts(language, yaml.safe_load(file.read_text("utf-8")))


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
    def of(cls, request: "Request", to: "Addresses", sources: Mapping[str, str]) -> Self:
        """Return the view request of a browser, with its language and colours.

        A person's choice takes precedence over the browser's.
        """
        chosen = {name: request.cookies.get(cookie_of(name), "") for name in CHOICES}
        language = chosen["language"] if chosen["language"] in LANGUAGES else ""
        t = texts(language or language_of(request.headers.get("accept-language", "")))
        theme = chosen["theme"] if chosen["theme"] in THEMES else THEMES[0]
        here = f"{request.url.path}?{request.url.query}".removesuffix("?") if request.method == "GET" else "/"
        return cls(request.query_params, t, to, sources, here if len(here) <= _LONGEST else "/", theme)

    def text(self, name: str) -> str:
        return self.values.get(name, "")[:_LONGEST]

    def number(self, name: str, least: int = 1) -> int:
        """Return a whole number of at least `least`, which is the default."""
        given = self.values.get(name, "")
        # Python refuses to parse a number with thousands of digits.
        return max(least, min(int(given[:_DIGITS]), _MOST)) if given.isdecimal() else least

    def flag(self, name: str) -> bool:
        return self.values.get(name, "") == "1"


@dataclass(frozen=True)
class ViewResponse:
    """The answer of a view: a template, its values and a status."""

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True)
class Pager:
    """The pager of a list: the part's number from 1, the last, and neighbours' URLs."""

    at: int
    last: int
    previous: str | None
    next: str | None


def part(count: int, size: int, request: ViewRequest, address: Any) -> tuple[slice, Pager]:
    """Return the slice of a list that the value `part` selects, and its pager.

    The list has `count` items; `address(part=…)` returns the URL of another part.
    """
    last = max(1, -(-count // size))
    at = min(request.number("part"), last)
    before = address(part=at - 1) if at > 1 else None
    after = address(part=at + 1) if at < last else None
    return slice((at - 1) * size, at * size), Pager(at, last, before, after)


STATIC = "/static"


class Addresses:
    """The URLs of everything that the room shows.

    `versions` are the hashes of the static files by name; `place` is the URL folder of a room inside another one.
    """

    def __init__(self, versions: Mapping[str, str], place: str = "") -> None:
        self._versions, self._place = versions, place

    def home(self) -> str:
        return self._address("/", {})

    def documents(self, **request: object) -> str:
        return self._address("/documents", request)

    def document(self, document: kopub.Document, **request: object) -> str:
        """Return the URL of a document.

        It has the first page's id if the document's own is too long.
        """
        named = {"id": document.id} if len(document.id) <= _LONGEST else {"of": document.pages[0].id}
        return self._address("/document", {**named, **request})

    def page(self, page_id: str, **request: object) -> str:
        """Return the URL of a page.

        `request` has the view of it, and the way that a person came.
        """
        return self._address("/page", {"id": page_id, **request})

    def pages(self, kind: str = "", **request: object) -> str:
        """Return the URL of a list of pages to look at."""
        return self._address("/pages", {"kind": kind, **request})

    def figures(self, **request: object) -> str:
        return self._address("/figures", request)

    def search(self, **request: object) -> str:
        return self._address("/search", request)

    def evaluation(self) -> str:
        return self._address("/evaluation", {})

    def versions(self, **request: object) -> str:
        return self._address("/versions", request)

    def picture(self, page_id: str, size: str, stamp: str | None = None) -> str:
        """Return the URL of a page's picture.

        If it contains the page's stamp, a browser may cache the picture forever.
        """
        return self._address("/picture", {"id": page_id, "size": size, "of": (stamp or "")[:16]})

    def figure(self, page_id: str, region: int) -> str:
        """Return the URL of a region that is cut out of its page."""
        return self._address("/figure", {"id": page_id, "region": region})

    def file(self, kind: str, of: kopub.Page | kopub.Document) -> str:
        """Return the URL of a page or document as a file of some kind.

        The URL of a document has its first page's id.
        """
        return self._address(f"/{kind}", {"id": of.id} if isinstance(of, kopub.Page) else {"of": of.pages[0].id})

    def display(self) -> str:
        """Return the URL to which the choice of language and colours is sent."""
        return self._address("/display", {})

    def static(self, name: str) -> str:
        return self._address(f"{STATIC}/{name}", {"of": self._versions[name]})

    def _address(self, path: str, request: Mapping[str, object]) -> str:
        given = {name: value for name, value in request.items() if value not in ("", None)}
        # An id from a hostile file may contain half of a surrogate pair, which cannot be encoded.
        return f"{self._place}{path}?{urlencode(given, errors='replace')}" if given else f"{self._place}{path}"
