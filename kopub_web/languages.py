"""The languages of the reading room: which one a browser asks for, and what is said in it."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

LANGUAGES = ("ko", "en")
"""Each has a file of texts with the same keys."""
_DEFAULT = "en"
"""For a browser that asks for neither."""
_RANGE = re.compile(
    r"\s*(?P<name>[A-Za-z]{1,8})(?:-[A-Za-z0-9-]{1,20})?\s*(?:;\s*q\s*=\s*(?P<weight>[01](?:\.\d{0,3})?))?\s*"
)
_MOST_RANGES = 20
"""Of a header that are looked at."""
_TABLE = re.compile("[a-z]+(_[a-z]+)+")
_SENTENCES = "sentences"
_HOLE = re.compile(r"\{(\w*)\}")
_NUMBER = r"\d[\d,]*(?:\.\d+)?"


class Texts:
    """What is said in one language. A text that counts has one for each form of the plural."""

    def __init__(self, language: str, texts: Mapping[str, Any]) -> None:
        self.language = language
        sentences: Mapping[str, str] = texts.get(_SENTENCES, {})
        self._sentences = [(_form(english), told) for english, told in sentences.items()]
        self._texts = {key: text for key, text in texts.items() if key != _SENTENCES}

    def __call__(self, key: str, **values: Any) -> str:
        """The text of `key` with its values; `count` chooses the form. Raises `KeyError`."""
        text = self._texts[key]
        if isinstance(text, Mapping):
            text = text["one" if values["count"] == 1 and "one" in text else "other"]
        return text.format(**values)

    def word(self, kind: str, name: object) -> str:
        """The word for a name that the platform has, such as that of a state or a label; the name itself otherwise."""
        return self._texts.get(f"{kind}.{name}", str(name))

    def sentence(self, said: str) -> tuple[str, str]:
        """What a table says in English, in this language where it is known, and the language that it is in."""
        for form, told in self._sentences:
            if found := form.fullmatch(said):
                return self._filled(told, found), self.language
        return said, "en"

    def reason(self, said: str) -> tuple[str, str]:
        """Why a page is not whole: without the table that says so, its parts or its end as `sentence` has them."""
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
        """A sentence with the values of the English one, of which reasons and our own words are in this language."""
        values = found.groupdict()
        numbers = [value for name, value in values.items() if name.startswith("_")]
        for name in values.keys() & {"label", "by"}:
            values[name] = self.word(name, values[name])
        if "reason" in values:
            values["reason"] = self._reason(values["reason"])[0]
        return told.format(*numbers, **values)

    @property
    def forms(self) -> Mapping[str, Any]:
        """Every text by its key."""
        return self._texts


def _form(english: str) -> re.Pattern[str]:
    """What fits an English sentence: a number where it has `{}`, any text where it has a name between them."""
    texts = _HOLE.split(english)
    form = re.escape(texts[0])
    for at in range(1, len(texts), 2):
        hole = f"(?P<{texts[at]}>.*)" if texts[at] else f"(?P<_{at}>{_NUMBER})"
        form += hole + re.escape(texts[at + 1])
    return re.compile(form, re.DOTALL)


def language_of(accepted: str) -> str:
    """The language that a browser likes best, by its header Accept-Language."""
    liked: dict[str, float] = {}
    for part in accepted.split(",")[:_MOST_RANGES]:
        found = _RANGE.fullmatch(part)
        if found and found["name"].lower() in LANGUAGES:
            liked.setdefault(found["name"].lower(), float(found["weight"] or 1))
    best = max(liked, key=lambda name: liked[name], default=_DEFAULT)
    return best if liked.get(best) else _DEFAULT


@cache
def texts(language: str) -> Texts:
    """The texts of one of `LANGUAGES`."""
    import yaml

    file = files("kopub_web").joinpath("texts", f"{language}.yaml")
    return Texts(language, yaml.safe_load(file.read_text("utf-8")))
