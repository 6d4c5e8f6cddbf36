"""Places the lines of a region's text in its box. Pure.

They are to be selected over a picture, and probably stand there.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from resources.documents.joins import columns

_LINE = 1.6
"""Height of a line of print in sizes of its type."""
_MOST = 300
"""Lines of a box: no print has more."""


@dataclass(frozen=True, slots=True)
class PlacedLine:
    """A line of text and its box: (x1, y1, x2, y2).

    The unit is that of the box that it was placed in.
    """

    text: str
    box: tuple[float, float, float, float]


def placed_lines(text: str, box: tuple[float, float, float, float]) -> list[PlacedLine]:
    """Return the lines of a text from its box's top to bottom.

    They are as wide as their letters make them. The lines are those of the text; one that the reader gave whole is
    wrapped as the shape of the box allows. No word is cut in two.
    """
    given = [" ".join(line.split()) for line in text.split("\n") if line.strip()]
    if not given:
        return []
    x1, y1, x2, y2 = box
    width, height = max(x2 - x1, 1.0), max(y2 - y1, 1.0)
    # Of `count` lines a type is height / (_LINE * count) high and, a column being half of that, so many columns fit.
    fit = 2 * _LINE * width / height
    count = max(len(given), math.isqrt(int(sum(map(columns, given)) / fit)), 1)
    lines = [part for line in given for part in _wrapped(line, fit * count)]
    while len(lines) > count and count < _MOST:
        count += 1
        lines = [part for line in given for part in _wrapped(line, fit * count)]
    longest, step = max(map(columns, lines)), height / len(lines)
    return [
        PlacedLine(line, (x1, y1 + at * step, x1 + width * columns(line) / max(longest, 1), y1 + (at + 1) * step))
        for at, line in enumerate(lines)
    ]


def _wrapped(line: str, most: float) -> Iterator[str]:
    """Yield a line in parts of at most so many columns.

    A longer word is a part.
    """
    words, length = [], 0
    for word in line.split(" "):
        wide = columns(word)
        if words and length + 1 + wide > most:
            yield " ".join(words)
            words, length = [], 0
        length += wide + bool(words)
        words.append(word)
    yield " ".join(words)
