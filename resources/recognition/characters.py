"""Letters and their scripts, and runs of signs that are printed to fill a line. Pure."""

import re
import unicodedata
from functools import lru_cache

KOREAN = frozenset({"HANGUL", "LATIN", "GREEK"})
"""Scripts of Korean pages; Hanja beside Hangul is no surprise."""
_FILLER = re.compile(r"([^\w\s])(?:\s*\1){3,}")
"""Dot leaders and rules: one sign four times or more."""


@lru_cache(maxsize=65_536)
def script_of(char: str) -> str:
    """First word of a character's Unicode name, its script for a letter: HANGUL, LATIN, CJK, HIRAGANA, GREEK ..."""
    return unicodedata.name(unicodedata.normalize("NFKC", char)[0], "UNKNOWN").partition(" ")[0]


def without_fillers(text: str) -> str:
    """The text with one sign left of each dot leader and rule."""
    return _FILLER.sub(r"\1", text)


def letters(text: str) -> str:
    """The letters and digits of a text: blanks, punctuation and markup are matters of form."""
    return "".join(char for char in unicodedata.normalize("NFKC", text) if char.isalnum())
