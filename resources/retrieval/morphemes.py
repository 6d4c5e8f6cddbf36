"""Korean text as the words that carry its meaning. The morphological model is part of the package."""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, cast

from resources.code_version import CodeVersion

if TYPE_CHECKING:
    from kiwipiepy import Kiwi, Token

VERSION = CodeVersion("retrieval.morphemes", {1: "the first release"})
_CONTENT = re.compile(r"N[NR]|V[VA]|XR|MM|MAG|S[LHN]|W_")
"""Nouns, numerals, verbs, adjectives, roots, modifiers, Latin, hanja, numbers, addresses: no particles, no endings."""


def tokens(texts: Iterable[str]) -> Iterator[list[str]]:
    """The content morphemes of each text, in order, case-folded."""
    composed = (unicodedata.normalize("NFKC", text) for text in texts)
    for morphemes in cast("Iterator[list[Token]]", _kiwi().tokenize(composed)):
        yield [token.form.casefold() for token in morphemes if _CONTENT.match(token.tag)]


def tokenizer() -> dict[str, str]:
    """What decides the tokens besides this module's code."""
    return {package: version(package) for package in ("kiwipiepy", "kiwipiepy_model")}


@cache
def _kiwi() -> "Kiwi":
    """Takes about a second and 600 MB."""
    from kiwipiepy import Kiwi

    return Kiwi()
