"""The requests, URLs and languages of the reading room."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlencode

import yaml

import kopub
from kopub.states import Reason

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
_SENTENCES = "sentences"
_SENTENCE_VALUES = ("reason", "first", "then")
_WORD_VALUES = ("label", "by", "state")
"""Names of values that are words of the platform, as in `label.table`."""
StoredReasons = Mapping[str, Reason]


class Texts:
    """The texts of one language; those with a count have variants by plural form.

    `stored` gives the reasons that tables hold as English sentences, by what they say.
    """

    def __init__(self, language: str, texts: Mapping[str, Any], stored: Callable[[], StoredReasons] = dict) -> None:
        self.language = language
        self.forms = {key: text for key, text in texts.items() if key != _SENTENCES}
        self.sentences: Mapping[str, str] = texts.get(_SENTENCES, {})
        self._texts, self._stored = texts, stored

    def with_stored(self, stored: Callable[[], StoredReasons]) -> "Texts":
        """Return these texts, which know the reasons in tables."""
        return Texts(self.language, self._texts, stored)

    def __call__(self, key: str, **values: Any) -> str:
        """Return the text of `key` with its values; `count` selects the form. Raises `KeyError`."""
        text = self.forms[key]
        if isinstance(text, Mapping):
            text = text["one" if values["count"] == 1 and "one" in text else "other"]
        return text.format(**values)

    def word(self, kind: str, name: object) -> str:
        """Return the word for a platform name, such as a state, else the name."""
        return self.forms.get(f"{kind}.{name}", str(name))

    def sentence(self, says: str) -> tuple[str, str]:
        """Return an English sentence in this language, or as it is, and its language.

        Sentences and the platform's own words among its values are in this language, too.
        """
        english = str.__str__(says), "en"
        if not self.sentences:
            return english
        if not isinstance(says, Reason) and says not in self.sentences:
            says = self._stored().get(says, says)
        code, values = (says.form, says.values) if isinstance(says, Reason) else (says, {})
        if (form := self.sentences.get(code)) is None:
            return english
        said = {name: self.sentence(value) if isinstance(value, str) else (value, "") for name, value in values.items()}
        # A form without words of its own is in the language of its sentences.
        if form == code and any(said[name][1] == "en" for name in _SENTENCE_VALUES if name in said):
            return english
        words = {name: self.word(name, values[name]) for name in _WORD_VALUES if name in values}
        try:
            return form.format(**{name: value for name, (value, _) in said.items()} | words), self.language
        except (LookupError, TypeError, ValueError):  # of a release whose form had other values
            return english

    def reason(self, says: str) -> tuple[str, str]:
        """Return the reason why a page is incomplete and its language, without the table's name."""
        if isinstance(says, Reason) and "asset" in says.values:
            says = says.values.get("reason", "")
        return self.sentence(says)


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
