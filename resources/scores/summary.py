"""How a corpus stands, in words: its pages by state, and its scores against the run before. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from resources.printable import counted
from resources.states import State


def pages_by_state(states: Mapping[str, int], unfinished: int = 0, doubtful: int = 0) -> str:
    """`57 pages: 54 ok, 1 partial, 2 quarantined; 3 need review`; each page is counted in one state.

    `unfinished` pages lack a table, or have one that is stale. `doubtful` ones have a text that looks wrong.
    """
    counts = [(state.value, states.get(state, 0)) for state in State] + [("unfinished", unfinished)]
    listed = ", ".join(f"{count:,} {name}" for name, count in counts if count)
    review = f"; {doubtful:,} {'needs' if doubtful == 1 else 'need'} review" if doubtful else ""
    return f"{counted(sum(count for _, count in counts), 'page')}: {listed or 'none'}{review}"


@dataclass(frozen=True, slots=True)
class ScoreChange:
    """A score now and before, and what became of it; both None where there is no run to compare it with.

    `worse` is a significant drop. What chance may have changed is `same`.
    """

    name: str
    now: float
    before: float | None
    verdict: str | None

    @classmethod
    def of(cls, name: str, row: Mapping[str, Any], lower_is_better: bool) -> Self:
        """Of a row of a table of scores."""
        low, high = row["change_low"], row["change_high"]
        if row["previous"] is None or low is None or high is None:
            return cls(name, row["value"], None, None)
        better = high < 0 if lower_is_better else low > 0
        return cls(name, row["value"], row["previous"], "worse" if row["dropped"] else "better" if better else "same")

    def __str__(self) -> str:
        if self.verdict in (None, "same"):
            return f"{self.name} {self.now:.3f}{' (same)' if self.verdict else ''}"
        return f"{self.name} {self.before:.3f} to {self.now:.3f} ({self.verdict})"


def change_lines(reading: Sequence[ScoreChange], finding: Sequence[ScoreChange]) -> Iterator[str]:
    """`reading: cer 0.043 to 0.384 (worse), facts 0.811 (same)`, and the same of finding, where it was measured."""
    for subject, changes in (("reading", reading), ("finding", finding)):
        if changes:
            yield f"{subject}: {', '.join(map(str, changes))}"
