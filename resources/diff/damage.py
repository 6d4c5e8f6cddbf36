"""How much of a text is another: what an upgrade may have broken. Pure."""

import re
from collections import Counter
from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein

NUMBER = 10
"""A number that is another weighs as much as so many letters: a reader sees a misspelt word, but not a wrong sum."""

_PIECE = 10_000
"""Characters compared at once. The time grows with the square: a million take a second in pieces."""
_NUMBER = re.compile(r"\d+(?:[.,:/-]\d+)*")


@dataclass(frozen=True, slots=True)
class Damage:
    """What it takes to turn the old text into the new one.

    `lost`, `changed` and `added` are characters: deletions, substitutions and insertions of a shortest
    edit script (Levenshtein 1966), runs of white space counting as one blank. `numbers` counts the
    numbers that only one of the two has, the larger side.
    """

    lost: int = 0
    changed: int = 0
    added: int = 0
    numbers: int = 0

    @property
    def score(self) -> int:
        """Characters lost, changed or added, and `NUMBER` for every number."""
        return self.lost + self.changed + self.added + NUMBER * self.numbers


def damage(old: str, new: str) -> Damage:
    """Texts over 10,000 characters are compared in pieces that begin at the same share of each: an upper bound."""
    old, new = (" ".join(text.split()) for text in (old, new))
    if old == new:
        return Damage()
    pieces = -(-max(len(old), len(new)) // _PIECE)
    lost = changed = added = 0
    for at in range(pieces):
        before, after = (text[len(text) * at // pieces : len(text) * (at + 1) // pieces] for text in (old, new))
        kinds = Counter(edit.tag for edit in Levenshtein.editops(before, after))
        lost, changed, added = lost + kinds["delete"], changed + kinds["replace"], added + kinds["insert"]
    had, has = (Counter(_NUMBER.findall(text)) for text in (old, new))
    return Damage(lost, changed, added, max((had - has).total(), (has - had).total()))
