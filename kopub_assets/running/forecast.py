"""How long a run is likely to go on: from what rows cost before, and from what they take in this run. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_WEIGHT = 0.05
"""Share of a stage's rows that its own pace must have been measured on to count as much as the expected one."""
_LEAST_MEASURED = 1.0
"""Seconds of work below which the pace of this machine is not concluded from a stage."""


@dataclass(slots=True)
class Stage:
    """An asset of a run: by shard the rows that are likely to be computed, and those `planned` once it is known.

    A row is expected to take `seconds_each`; `measured` says that rows were computed here before, else the figure is
    that of another machine. `seconds_more` is what the asset takes besides its rows.
    """

    asset: str
    likely: Mapping[str, int]
    seconds_each: float
    measured: bool
    seconds_more: float = 0.0
    planned: dict[str, int] = field(default_factory=dict)
    published: set[str] = field(default_factory=set)
    done: int = 0
    began: float | None = None
    ended: float | None = None

    @property
    def shards(self) -> int:
        return len(self.likely)

    @property
    def rows(self) -> int:
        """Rows to be computed, by what is known now."""
        return sum({**self.likely, **self.planned}.values())

    def elapsed(self, now: float) -> float:
        """Seconds since it began, until it ended."""
        return 0.0 if self.began is None else (now if self.ended is None else self.ended) - self.began

    def rate(self, now: float) -> float | None:
        """Rows a second so far; None before the first."""
        seconds = self.elapsed(now)
        return self.done / seconds if self.done and seconds else None


class Forecast:
    """The stages of a run in the order they are made; times are those of one monotonic clock."""

    def __init__(self, stages: Iterable[Stage]) -> None:
        self.stages = {stage.asset: stage for stage in stages}

    def remaining(self, now: float) -> float:
        """Seconds until the run's end."""
        pace = self._pace(now)
        return sum(_remaining(stage, now, 1.0 if stage.measured else pace) for stage in self.stages.values())

    def share(self, now: float) -> float:
        """Share of the run's time that is over, from 0 to 1."""
        over = sum(stage.elapsed(now) for stage in self.stages.values())
        left = self.remaining(now)
        return over / (over + left) if over + left else 1.0

    def _pace(self, now: float) -> float:
        """How much longer rows take here than on the machine whose figures were expected."""
        expected = taken = 0.0
        for stage in self.stages.values():
            if stage.measured or not stage.done or stage.elapsed(now) < _LEAST_MEASURED:
                continue
            finished = stage.seconds_more if stage.ended is not None else 0.0
            expected += stage.done * stage.seconds_each + finished
            taken += stage.elapsed(now)
        return taken / expected if expected else 1.0


def _remaining(stage: Stage, now: float, pace: float) -> float:
    if stage.ended is not None:
        return 0.0
    each, more = stage.seconds_each * pace, stage.seconds_more * pace
    if stage.done:
        weight = _WEIGHT * stage.rows
        each = (stage.elapsed(now) + weight * each) / (stage.done + weight)
    return max(stage.rows - stage.done, 0) * each + more
