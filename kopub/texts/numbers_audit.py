"""Compares the numbers of a text layer with those that came out. Pure."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from kopub.states import Reason
from kopub.texts.text_quality import Doubt, ramp

_NUMBER = re.compile(r"[△▲±]?\d+(?:[.,]\d+)*|[△▲±○●◎□■☐☑]")
"""A number with its sign, or a sign that stands alone, as in the cells of a table."""
_FIGURES = re.compile(r"[△▲±○●◎□■☐☑\d]")
_NAMED = 5
"""Most numbers that a doubt names."""
_MANY = 3
"""Numbers from which the doubt is certain; one is doubted enough to be shown."""


@dataclass(slots=True)
class NumbersAudit:
    """The numbers that only one of two texts of the same regions has."""

    lost: Counter[str] = field(default_factory=Counter)
    invented: Counter[str] = field(default_factory=Counter)

    def add(self, printed: str, told: str) -> None:
        """Compare a region's layer with its text; numbers cut otherwise are equal."""
        a, b = (unicodedata.normalize("NFKC", text) for text in (printed, told))
        if Counter(_FIGURES.findall(a)) == Counter(_FIGURES.findall(b)):
            return
        own, other = Counter(_NUMBER.findall(a)), Counter(_NUMBER.findall(b))
        self.lost += own - other
        self.invented += other - own

    def add_lost(self, printed: str, told: str) -> None:
        """Add the numbers of a page's layer that came out nowhere on it."""
        a, b = (unicodedata.normalize("NFKC", text) for text in (printed, told))
        if Counter(_FIGURES.findall(a)) - Counter(_FIGURES.findall(b)):
            self.lost |= Counter(_NUMBER.findall(a)) - Counter(_NUMBER.findall(b))

    def doubts(self) -> Iterator[Doubt]:
        """Yield a doubt that names the numbers of each side."""
        if self.lost:
            form = "numbers or signs of the text layer of its PDF did not come out: {numbers}"
            yield Doubt("layer", _weight(self.lost), Reason(form, numbers=_named(self.lost)))
        if self.invented:
            form = "numbers or signs came out that the text layer of its PDF does not have: {numbers}"
            yield Doubt("layer", _weight(self.invented), Reason(form, numbers=_named(self.invented)))


def _weight(numbers: Counter[str]) -> float:
    return 0.5 + 0.5 * ramp(numbers.total(), 0, _MANY)


def _named(numbers: Counter[str]) -> str:
    named = ", ".join(list(numbers.elements())[:_NAMED])
    return f"{named}, …" if numbers.total() > _NAMED else named
