"""Text as weighted character n-grams, the terms of a lexical vector. Pure; standard library only."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator

_SIZES = (2, 3)
_OPENINGS = (50, 100, 200, 400)
"""Characters from the start that count again: a page opens with its heading and says what it is about."""
_OPENING_WEIGHT = 0.5
"""Of the whole text's weight, for each opening."""
_WORD_START = " "
_STEM_WEIGHT = 2.0
"""Of an n-gram at the start of a word: Korean stems come first, what follows is mostly grammar."""

_SEPARATORS = re.compile(r"[\W_]+")
_ENDING = re.compile(
    r"(?:(?:합|됩|입|습|읍)?니(?:다|까)|하?십시오|하?세요|(?:인|한)가요|나요|까요|[어아해에예]요|(?<=[가-힣]{2})다)$"
)
"""Polite and questioning sentence endings: every sentence has one, whatever it is about."""


def weigh(text: str) -> dict[str, float]:
    """Character n-grams of `text` with their weights; empty when it holds neither letter nor digit.

    A term's weight is 1 + ln(count), doubled at the start of a word, over the text's L2 norm, in the
    whole text and in each of its openings. n-grams stay within a word and know where a word begins
    but not where it ends, since Korean words end in particles.
    """
    words = _SEPARATORS.sub(" ", unicodedata.normalize("NFKC", text).casefold()).split()
    stems = [stem for word in words if (stem := _ENDING.sub("", word))] or words
    whole = " ".join(stems)
    weights = _unit(whole)
    for length in _OPENINGS:
        if length < len(whole):
            for term, weight in _unit(whole[:length]).items():
                weights[term] = weights.get(term, 0.0) + _OPENING_WEIGHT * weight
    return weights


def _unit(text: str) -> dict[str, float]:
    weights = {
        term: (1 + math.log(count)) * (_STEM_WEIGHT if term[0] == _WORD_START else 1.0)
        for term, count in Counter(_ngrams(text)).items()
    }
    norm = math.sqrt(math.fsum(weight * weight for weight in weights.values()))
    return {term: weight / norm for term, weight in weights.items()}


def _ngrams(text: str) -> Iterator[str]:
    for word in text.split():
        marked = _WORD_START + word
        for size in _SIZES:
            for start in range(len(marked) - size + 1):
                yield marked[start : start + size]
