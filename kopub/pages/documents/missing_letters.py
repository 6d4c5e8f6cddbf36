"""Letters that no font has, for which Pango draws their numbers. Pure."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from statistics import median

from kopub.pages.documents.text_layer import Box, Word

_HALF = re.compile("[0-9A-F]{2,3}")
"""One of the two lines of a number."""
_SYMBOLS = frozenset({"So", "Sm", "Sk", "Co", "Po", "Ps", "Pe"})
"""Categories of the letters that fonts lack most: signs and private ones."""
_TALLEST = 1.4
"""Height of a number's two lines, in heights of a word."""
_AWRY = 0.25
"""Distance by which the two lines may be out of place, in heights of a line."""


def with_missing_letters(words: Sequence[Word]) -> Iterator[Word]:
    """Yield the words, with signs in place of the small numbers printed for them."""
    tallest = _TALLEST * median(word.box[3] - word.box[1] for word in words) if words else 0.0
    held = list(reversed(words))
    while held:
        word = held.pop()
        below = held[-1] if held else None
        if below is not None and _are_halves(word, below, tallest):
            sign = chr(int(word.text + below.text, 16))
            if unicodedata.category(sign) in _SYMBOLS:
                word = Word(sign, _around(word.box, held.pop().box), word.marks)
        yield word


def _are_halves(upper: Word, lower: Word, tallest: float) -> bool:
    if len(upper.text) != len(lower.text) or not (_HALF.fullmatch(upper.text) and _HALF.fullmatch(lower.text)):
        return False
    off = _AWRY * (upper.box[3] - upper.box[1])
    sides = abs(upper.box[0] - lower.box[0]) <= off and abs(upper.box[2] - lower.box[2]) <= off
    return sides and abs(lower.box[1] - upper.box[3]) <= off and lower.box[3] - upper.box[1] <= tallest


def _around(one: Box, other: Box) -> Box:
    return min(one[0], other[0]), min(one[1], other[1]), max(one[2], other[2]), max(one[3], other[3])
