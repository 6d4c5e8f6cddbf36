"""The progress of a run in this process, and its forecast."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from kopub.states import LOST, State


class Watcher(Protocol):
    """A listener called from the threads that make shards; a call must be short."""

    def began(self, asset: str) -> None:
        """Note that an asset's first shard is about to be made."""

    def planned(self, asset: str, shard: str, rows: int) -> None:
        """Note how many rows of a shard are to be computed, once known."""

    def computed(self, asset: str, shard: str, state: State = State.OK) -> None:
        """Note that one more row of a shard has ended in `state`."""

    def published(self, asset: str, shard: str) -> None:
        """Note that a shard's table is in place."""

    def judged(self, closed: Sequence[str], unjudged: Sequence[str]) -> None:
        """Note which gates a release in place does not pass, and what none can judge."""

    def warned(self, asset: str, message: str) -> None:
        """Note a message that a person should see while the run goes on."""

    def ended(self, asset: str) -> None:
        """Note that all shards of an asset are done."""


class _Nobody(Watcher):
    """The watcher in use when nobody watches."""


NOBODY = _Nobody()
"""The watcher for a run within a run, whose assets nobody expects."""
_watching: list[Watcher] = []
"""The watchers, kept per process rather than per context, because shards are made in threads."""


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Tell `watcher` what the runs of this process do, until the context ends."""
    _watching.append(watcher)
    try:
        yield
    finally:
        _watching.remove(watcher)


def watcher() -> Watcher:
    """Return the watcher of the runs of this process."""
    return _watching[-1] if _watching else NOBODY


_WEIGHT, _MOST = 0.2, 20.0
"""Share of a stage's work, and the most work, after which its measured pace counts as much as the expected one. The
first pages of a document are often unlike the others."""
_EXPECTED = 1.0
"""Seconds of watched work on other rows that count as much as what was expected of this machine."""
_CARRIED = 0.75
"""Exponent by which the pace of other rows carries over to rows not yet seen: most of the pace is the machine's."""


@dataclass(slots=True)
class Stage:
    """An asset of a run, with the rows to compute by shard.

    The rows are estimates in `likely`, and in `planned` once they are known. A row is expected to take `seconds_each`,
    times the weight of its shard if `weights` has one. `measured` means that rows were computed here before; otherwise
    the figure is another machine's. `seconds_more` is the asset's time besides its rows, and `seconds_to_start` the
    time its model server takes before the first one. `done` rows have ended, by state in `ends`. Work is the rows, each
    times its weight; `watched` is the work after the first row, which also waits for models and libraries to load.

    A run of many shards is made in several parts, and a stage begins and ends in each. Times exclude the gaps between.
    """

    asset: str
    likely: Mapping[str, int]
    seconds_each: float
    measured: bool
    seconds_more: float = 0.0
    seconds_to_start: float = 0.0
    weights: Mapping[str, float] = field(default_factory=dict)
    planned: dict[str, int] = field(default_factory=dict)
    published: set[str] = field(default_factory=set)
    done: int = 0
    ends: Counter[State] = field(default_factory=Counter)
    worked: float = 0.0
    watched: float = 0.0
    first: float | None = None
    last: float | None = None
    began: float | None = None
    ended: float | None = None

    @property
    def shards(self) -> int:
        return len(self.likely)

    @property
    def lost(self) -> int:
        """Number of rows that failed or are quarantined."""
        return sum(self.ends[state] for state in LOST)

    @property
    def rows(self) -> int:
        """Number of rows to be computed, as far as is known now."""
        return sum({**self.likely, **self.planned}.values())

    @property
    def work(self) -> float:
        """The sum of all `rows`, each times the weight of its shard."""
        return sum(rows * self._weight(shard) for shard, rows in {**self.likely, **self.planned}.items())

    @property
    def work_to_come(self) -> float:
        if self.ended is None:
            return max(self.work - self.worked, 0.0) if self.done < self.rows else 0.0
        # Between two parts, every planned shard has been made or has failed.
        return sum(rows * self._weight(shard) for shard, rows in self.likely.items() if shard not in self.planned)

    def begin(self, now: float) -> None:
        """Start work, for the first time or in another part of the run."""
        if self.ended is None:
            self.began = now
            return
        pause = now - self.ended
        self.began, self.first, self.last = (
            None if time is None else time + pause for time in (self.began, self.first, self.last)
        )
        self.ended = None

    def count(self, shard: str, now: float, state: State = State.OK) -> None:
        """Count one row of a shard as computed."""
        self.done += 1
        self.ends[state] += 1
        self.worked += self._weight(shard)
        if self.first is None:
            self.first = now
        else:
            self.watched += self._weight(shard)
        self.last = now

    def watching(self, now: float) -> float:
        """Return the seconds that the `watched` work took."""
        if self.first is None or self.last is None:
            return 0.0
        return (now if self.ended is None and self.work_to_come else self.last) - self.first

    def elapsed(self, now: float) -> float:
        """Return the seconds from its beginning until now or its end."""
        return 0.0 if self.began is None else (now if self.ended is None else self.ended) - self.began

    def rate(self, now: float) -> float | None:
        """Return the rows per second so far, or None before the first."""
        seconds = self.elapsed(now)
        return self.done / seconds if self.done and seconds else None

    def _weight(self, shard: str) -> float:
        return self.weights.get(shard, 1.0)


class Forecast:
    """The stages of a run in order, on one monotonic clock."""

    def __init__(self, stages: Iterable[Stage]) -> None:
        self.stages = {stage.asset: stage for stage in stages}

    def remaining(self, now: float) -> float:
        """Return the seconds until the run's end."""
        # Rows still to come are expected to take as much longer as those before them, damped.
        expected = actual = _EXPECTED
        for stage in self.stages.values():
            if not stage.measured:
                expected += stage.watched * stage.seconds_each
                actual += stage.watching(now)
        pace = (actual / expected) ** _CARRIED
        remaining = 0.0
        for stage in self.stages.values():
            if to_come := stage.work_to_come:
                supposed = min(_WEIGHT * stage.work, _MOST)
                expected = supposed * stage.seconds_each * (1.0 if stage.measured else pace)
                seconds_each = (stage.watching(now) + expected) / (stage.watched + supposed)
                to_start = max(stage.seconds_to_start - stage.elapsed(now), 0.0) if stage.first is None else 0.0
                remaining += to_start + to_come * seconds_each + stage.seconds_more
            elif stage.ended is None:
                # All rows are made, and the asset's time besides them runs since the last one.
                since = stage.began if stage.last is None else stage.last
                remaining += stage.seconds_more if since is None else max(stage.seconds_more - (now - since), 0.0)
        return remaining

    @property
    def seconds_to_start(self) -> float:
        """The seconds until the engines of all stages with rows are ready, started in turn."""
        return sum(stage.seconds_to_start for stage in self.stages.values() if stage.rows)

    def share(self, now: float) -> float:
        """Return the share of the run's time that is over, from 0 to 1."""
        over = sum(stage.elapsed(now) for stage in self.stages.values())
        remaining = self.remaining(now)
        return over / (over + remaining) if over + remaining else 1.0
