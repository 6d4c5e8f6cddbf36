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
_NUMBER = re.compile(r"\d+")
_SENTENCES = "sentences"


class Texts:
    """What is said in one language. A text that counts has one for each form of the plural."""

    def __init__(self, language: str, texts: Mapping[str, Any]) -> None:
        self.language = language
        self._sentences: Mapping[str, str] = texts.get(_SENTENCES, {})
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
        known = self._sentences.get(_NUMBER.sub("{}", said))
        return (said, "en") if known is None else (known.format(*_NUMBER.findall(said)), self.language)

    def reason(self, said: str) -> tuple[str, str]:
        """Why a page is not whole: without the table that says so, its end as `sentence` has it."""
        table, _, rest = said.partition(": ")
        parts = (rest if _TABLE.fullmatch(table) else said).split(": ")
        for at in range(len(parts)):
            told, language = self.sentence(": ".join(parts[at:]))
            if language != "en":
                return ": ".join([*parts[:at], told]), language
        return ": ".join(parts), "en"

    @property
    def forms(self) -> Mapping[str, Any]:
        """Every text by its key."""
        return self._texts


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
