"""Error rates, edit distances, and scores that ignore the order of a text. Pure.

Every text is composed (NFC) first: Hangul that a file holds as single jamo is the same text.
"""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rapidfuzz.distance import Indel, Levenshtein


@dataclass(frozen=True, slots=True)
class Errors:
    """Edits that turn what was read into the known answer, and the length of that (characters, jamo or words)."""

    count: int
    size: int

    @property
    def rate(self) -> float:
        """Errors by length, above 1 where far too much was read.

        Of an empty answer: 0 for nothing read, else 1.
        """
        return self.count / self.size if self.size else float(self.count > 0)


def composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def without_blanks(text: str) -> str:
    """Return the text in NFC without any white space."""
    return "".join(composed(text).split())


def single_blanks(text: str) -> str:
    """Return the text in NFC with single blanks, and none around it."""
    return " ".join(composed(text).split())


def jamo(text: str) -> str:
    """Return the text as jamo (NFD), with every run of white space as one blank."""
    return unicodedata.normalize("NFD", single_blanks(text))


def character_errors(gold: str, text: str) -> Errors:
    """Count errors over characters without blanks, which OCR of Korean often puts elsewhere."""
    return _errors(without_blanks(gold), without_blanks(text))


def spaced_errors(gold: str, text: str) -> Errors:
    """Count errors over characters, with runs of blanks as one."""
    return _errors(single_blanks(gold), single_blanks(text))


def jamo_errors(gold: str, text: str) -> Errors:
    """Count errors over jamo, with runs of blanks as one.

    A syllable of which one letter is wrong is one error of two or three.
    """
    return _errors(jamo(gold), jamo(text))


def word_errors(gold: str, text: str) -> Errors:
    """Count errors over words between blanks.

    It says little about Korean, whose words carry particles.
    """
    return _errors(composed(gold).split(), composed(text).split())


def _errors(gold: Sequence[str], text: Sequence[str]) -> Errors:
    return Errors(Levenshtein.distance(gold, text), len(gold))


def pooled(errors: Sequence[Errors]) -> float:
    """Return the errors of all texts by their whole length, so long texts count more."""
    return Errors(sum(each.count for each in errors), sum(each.size for each in errors)).rate


def edit(gold: Sequence[object], text: Sequence[object]) -> float:
    """Return the edit distance by the length of the longer, 0 for two empty ones."""
    return Levenshtein.normalized_distance(gold, text)


def nid(gold: str, text: str) -> float:
    """Return the normalized Indel similarity: 1 for two empty texts, 0 where one is."""
    return Indel.normalized_similarity(gold, text)


def bag_f1(gold: str, text: str) -> float:
    """Return the F1 of the multisets of characters without blanks, whatever their order."""
    wanted, read = Counter(without_blanks(gold)), Counter(without_blanks(text))
    if not wanted and not read:
        return 1.0
    return 2 * sum((wanted & read).values()) / (sum(wanted.values()) + sum(read.values()))


def similarity(answer: str, text: str) -> float:
    """Return 1 - edit distance by the longer, in lower case, without blanks around."""
    answer, text = (composed(each).strip().lower() for each in (answer, text))
    return 1 - edit(answer, text)
