"""Letters that no font has, for which Pango draws their numbers. Pure."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from statistics import median

from kopub.boxes import union
from kopub.pages.documents.text_layer import Word

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
    tallest = _TALLEST * median(word.box.height for word in words) if words else 0.0
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        lower = rest[-1] if rest else word
        above, below = word.box, lower.box
        # The lower line of a number is right below the upper one, between the same sides.
        off = _AWRY * above.height
        is_level = abs(above.x1 - below.x1) <= off and abs(above.x2 - below.x2) <= off
        is_near = abs(below.y1 - above.y2) <= off and below.y2 - above.y1 <= tallest
        are_lines = len(word.text) == len(lower.text) and all(map(_HALF.fullmatch, (word.text, lower.text)))
        if rest and is_level and is_near and are_lines:
            sign = chr(int(word.text + lower.text, 16))
            if unicodedata.category(sign) in _SYMBOLS:
                word = Word(sign, union([above, rest.pop().box]), word.marks)
        yield word
