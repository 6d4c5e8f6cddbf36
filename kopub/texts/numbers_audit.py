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

    def add(self, printed: str, answer: str) -> None:
        """Compare a region's layer with its text; numbers cut otherwise are equal."""
        printed, answer = unicodedata.normalize("NFKC", printed), unicodedata.normalize("NFKC", answer)
        if Counter(_FIGURES.findall(printed)) == Counter(_FIGURES.findall(answer)):
            return
        in_print, in_answer = Counter(_NUMBER.findall(printed)), Counter(_NUMBER.findall(answer))
        self.lost += in_print - in_answer
        self.invented += in_answer - in_print

    def add_lost(self, printed: str, answer: str) -> None:
        """Add the numbers of a page's layer that came out nowhere on it."""
        printed, answer = unicodedata.normalize("NFKC", printed), unicodedata.normalize("NFKC", answer)
        if Counter(_FIGURES.findall(printed)) - Counter(_FIGURES.findall(answer)):
            self.lost |= Counter(_NUMBER.findall(printed)) - Counter(_NUMBER.findall(answer))

    def doubts(self) -> Iterator[Doubt]:
        """Yield a doubt that names the numbers of each side."""
        for form, numbers in (
            ("numbers or signs of the text layer of its PDF did not come out: {numbers}", self.lost),
            ("numbers or signs came out that the text layer of its PDF does not have: {numbers}", self.invented),
        ):
            if numbers:
                named = ", ".join(list(numbers.elements())[:_NAMED])
                says = Reason(form, numbers=f"{named}, …" if numbers.total() > _NAMED else named)
                yield Doubt("layer", 0.5 + 0.5 * ramp(numbers.total(), 0, _MANY), says)
