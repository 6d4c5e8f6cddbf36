"""The languages of the platform: its texts for people, told from one catalogue."""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import yaml

from kopub.folders import DATA
from kopub.states import Reason

LANGUAGES = {"ko": "한국어", "en": "English"}
"""The languages, with their own names for themselves; each has a file of texts with the same keys."""
_DEFAULT = "en"
"""The language for a browser that accepts neither."""
_RANGE = re.compile(
    r"\s*(?P<name>[A-Za-z]{1,8})(?:-[A-Za-z0-9-]{1,20})?\s*(?:;\s*q\s*=\s*(?P<weight>[01](?:\.\d{0,3})?))?\s*"
)
_MOST_RANGES = 20
"""Most ranges of a header that are read."""
_SENTENCES = "sentences"
_SENTENCE_VALUES = ("reason", "finding", "remedy", "first", "then")
"""Names of values that are sentences."""
_HANGUL = re.compile("[가-힣]")
"""Letters of a sentence that was told in Korean before."""
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

    def sentence(self, says: str, whole: bool = False) -> tuple[str, str]:
        """Return an English sentence in this language, or as it is, and its language.

        Sentences and the platform's own words among its values are in this language, too. A `whole` one stays as it is
        if one of its sentences is unknown.
        """
        english = str.__str__(says), "en"
        if not self.sentences:
            return english
        if not isinstance(says, Reason) and says not in self.sentences:
            says = self._stored().get(says, says)
        code, values = (says.form, says.values) if isinstance(says, Reason) else (says, {})
        if (form := self.sentences.get(code)) is None:
            return english
        said: dict[str, Any] = {}
        unknown: list[str] = []
        for name, value in values.items():
            if name in _WORD_VALUES:
                said[name] = self.word(name, value)
            # A single word may be the name of a file.
            elif isinstance(value, Reason) or (isinstance(value, str) and (name in _SENTENCE_VALUES or " " in value)):
                said[name], language = self.sentence(str(value), whole)
                if name in _SENTENCE_VALUES and language == "en":
                    unknown.append(value)
            else:
                said[name] = value
        # A form without words of its own is in the language of its sentences. A single word is a name.
        if unknown and (form == code or (whole and any(" " in part and not _HANGUL.search(part) for part in unknown))):
            return english
        try:
            return form.format(**said), self.language
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
    file = DATA / "texts" / f"{language}.yaml"
    # The parser in C reads the catalogue ten times as fast, and each command reads it anew.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return Texts(language, yaml.load(file.read_text("utf-8"), loader))
