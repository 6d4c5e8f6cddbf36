"""Rows of a table that is being made: what each is made from, and what making them took."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from resources.fingerprints import fingerprint
from resources.states import LOST, MADE, State, count_states

_PROGRESS_SECONDS = 10.0

Row = dict[str, Any]
Key = tuple[str, str]
"""Id and fingerprint: of two rows with the same key only one needs to be made."""


@dataclass(frozen=True)
class RowSpec:
    """One row that a shard must end up with.

    `made_from` is everything its columns depend on, as JSON values. `known` are the columns that need no
    engine. `given` is handed to the asset's `make` as it is. `settled` are the remaining columns of a row whose
    end is known beforehand, as for a page that a parent quarantined. `partial` is the reason why the row is
    `partial` when it is made: its parent lacks something.
    """

    id: str
    made_from: Sequence[Any]
    known: Row
    given: Any = None
    settled: Row | None = None
    partial: str | None = None

    @classmethod
    def after(cls, parent: Row, made_from: Sequence[Any], known: Row, given: Any = None) -> "RowSpec":
        """A row whose parent's row is `parent`: that is lost or blank, so is this one, for the same reason."""
        state = parent["state"]
        settled = None if state in MADE else {"state": state, "reason": parent["reason"]}
        partial = parent["reason"] if state == State.PARTIAL else None
        return cls(known["page_id"], made_from, known, given, settled, partial)

    @property
    def key(self) -> Key:
        return self.id, self.fingerprint

    @cached_property
    def fingerprint(self) -> str:
        """Equal fingerprints, equal rows: a row that was settled and one that was made never share one."""
        return fingerprint([*self.made_from, self.settled, *([self.partial] if self.partial else [])])

    def row(self, columns: Row) -> Row:
        """All columns of the row, of those that `make` gave."""
        if self.partial is not None and columns["state"] == State.OK:
            columns = {**columns, "state": State.PARTIAL, "reason": self.partial}
        return {**self.known, **columns, "fingerprint": self.fingerprint}


@dataclass(frozen=True, slots=True)
class Work:
    """What a shard took: every row that was made, with what its engine says it cost, and the time of all.

    `found` were finished by a run that was killed and are of unknown cost. `figures` are what was counted for rows
    that were made.
    """

    made: Mapping[Key, float]
    found: Sequence[Key]
    seconds: float
    figures: Mapping[Key, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MadeShard:
    """A shard's finished table, the one it replaces, and what it took."""

    table: pa.Table
    id_column: str
    specs: Sequence[RowSpec]
    previous: pa.Table
    work: Work

    @property
    def computed(self) -> int:
        return len(self.work.made)

    @property
    def kept(self) -> int:
        return len(self.specs) - self.computed

    @property
    def states(self) -> dict[str, int]:
        return count_states(self.table["state"].to_pylist())

    @property
    def lost(self) -> int:
        """Rows that ended with nothing although there was something to make."""
        return sum(self.states[state] for state in LOST)


class Progress:
    """One line every few seconds while a shard is being made."""

    def __init__(
        self, what: str, total: int, log: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._what, self._total, self._log, self._clock = what, total, log, clock
        self._done = 0
        self._first = 0.0
        self._reported = clock()

    def step(self) -> None:
        """Count one row as done."""
        self._done += 1
        now = self._clock()
        if self._done == 1:
            self._first = now
        if now - self._reported >= _PROGRESS_SECONDS:
            self._reported = now
            self._log(f"{self._what}: {self._done}/{self._total}{self._pace(now)}")

    def _pace(self, now: float) -> str:
        """What a row takes, and those to come; the first one may have waited for a model, so it does not count."""
        if now == self._first:
            return ""
        each = (now - self._first) / (self._done - 1)
        return f", {each:.2f} s each, {each * (self._total - self._done):.0f} s to go"
