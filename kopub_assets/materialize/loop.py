"""The loop every page asset shares: keep what is unchanged, make the rest, account for every row."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from resources.errors import EngineError
from resources.fingerprints import fingerprint
from resources.states import FINAL, State, count_states
from resources.store.journal import Journal
from resources.store.row_reuse import known_rows
from resources.store.shard_store import ShardStore

_PROGRESS_SECONDS = 10.0

Row = dict[str, Any]


@dataclass(frozen=True)
class Owed:
    """One row that a shard must end up with.

    `made_from` is everything its columns depend on, as JSON values, and `known` the columns that
    need no engine. `given` is handed to `make` as it is. `settled` are the remaining columns where
    the row's end is known beforehand, as for a page that was quarantined by a parent.
    """

    id: str
    made_from: Sequence[Any]
    known: Row
    given: Any = None
    settled: Row | None = None

    @cached_property
    def fingerprint(self) -> str:
        """Equal fingerprints, equal rows: a row that was settled and one that was made never share one."""
        return fingerprint([*self.made_from, self.settled])


Key = tuple[str, str]
"""Id and fingerprint: of two rows with the same key only one needs to be made."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a shard took: every row that was made, with what its engine says it cost, and the time of all.

    `found` were finished by a run that was killed and are of unknown cost.
    """

    made: Mapping[Key, float]
    found: Sequence[Key]
    seconds: float


@dataclass(frozen=True, slots=True)
class Made:
    """A shard's finished table, what it took, and what stands against its being right."""

    table: pa.Table
    id_column: str
    owed: Sequence[Owed]
    previous: pa.Table
    work: Work

    @property
    def computed(self) -> int:
        return len(self.work.made)

    @property
    def kept(self) -> int:
        return len(self.owed) - self.computed

    @property
    def states(self) -> dict[str, int]:
        return count_states(self.table["state"].to_pylist())


@dataclass(frozen=True)
class ShardJob:
    """How one asset makes one shard.

    `make` is given what is to be computed and yields (id, columns) once for each, in any order.
    """

    store: ShardStore
    asset: str
    shard: str
    id_column: str
    schema: pa.Schema
    owed: Sequence[Owed]
    make: Callable[[Sequence[Owed]], Iterable[tuple[str, Row]]]
    cost: Callable[[str], float] = field(default=lambda row_id: 1.0)
    account: Callable[[Work], None] = field(default=lambda work: None)
    log: Callable[[str], None] = field(default=lambda line: None)

    def run(self) -> Made:
        """Make the table, journalling as it goes; it is not published yet."""
        started = time.monotonic()
        previous = self._previous()
        journal = self.store.journal(self.asset, self.shard, self.schema)
        found = list(self._keys(journal.rows()))
        todo = self._unfinished(self.owed, pa.concat_tables([previous, journal.rows()]))
        reverted = self._reverted(todo)
        todo = self._unfinished(todo, reverted)
        made: dict[Key, float] = {}
        try:
            if todo:
                self._compute(todo, journal, made)
        finally:
            work = Work(made, found, time.monotonic() - started)
            self.account(work)
        return Made(
            table=self._assemble(pa.concat_tables([previous, journal.rows(), reverted])),
            id_column=self.id_column,
            owed=self.owed,
            previous=previous,
            work=work,
        )

    def publish(self, made: Made, metadata: Mapping[str, str]) -> None:
        """Replace the published table where it differs, and forget the journal."""
        self.store.update(self.asset, self.shard, made.table, metadata)
        self.store.journal(self.asset, self.shard, self.schema).clear()

    def _previous(self) -> pa.Table:
        """The table that is published now; none, or one of another schema, tells nothing about this one."""
        if self.store.has(self.asset, self.shard):
            published = self.store.read(self.asset, self.shard)
            if published.schema.equals(self.schema):
                return published.replace_schema_metadata(None)
        return self.schema.empty_table()

    def _reverted(self, todo: Sequence[Owed]) -> pa.Table:
        """What of `todo` a table of before holds, as when an upgrade is taken back."""
        wanted = [(owed.id, owed.fingerprint) for owed in todo]
        return known_rows(self.store, self.asset, self.shard, self.schema, self.id_column, wanted)

    def _keys(self, rows: pa.Table) -> Iterator[Key]:
        return zip(rows[self.id_column].to_pylist(), rows["fingerprint"].to_pylist(), strict=True)

    def _unfinished(self, owed: Sequence[Owed], known: pa.Table) -> list[Owed]:
        """What of `owed` needs a look; `failed` rows are tried again.

        What an upgrade that was given up had made stays beside what it was to replace.
        """
        # A filter copies what it keeps: the keys, not the vectors and pictures beside them.
        keys = known.select([self.id_column, "fingerprint", "state"])
        finished = set(self._keys(keys.filter(pc.field("state").isin(FINAL))))
        return [row for row in owed if (row.id, row.fingerprint) not in finished]

    def _compute(self, todo: Sequence[Owed], journal: Journal, made: dict[Key, float]) -> None:
        unanswered = {owed.id: owed for owed in todo}
        progress = _Progress(f"{self.asset} {self.shard}", len(todo), self.log)
        try:
            for row_id, columns in self._answers(todo):
                owed = unanswered.pop(row_id, None)
                if owed is None:
                    raise EngineError(f"the engine answered twice, or unasked, for {row_id!r}; this is a bug in it")
                journal.add(_row(owed, columns))
                # A row that was settled beforehand took no engine.
                made[owed.id, owed.fingerprint] = self.cost(row_id) if owed.settled is None else 0.0
                progress.step()
            for owed in unanswered.values():
                journal.add(_row(owed, {"state": State.FAILED, "reason": "the engine ended without an answer"}))
                made[owed.id, owed.fingerprint] = 0.0
        finally:
            journal.flush()

    def _answers(self, todo: Sequence[Owed]) -> Iterator[tuple[str, Row]]:
        yield from ((owed.id, owed.settled) for owed in todo if owed.settled is not None)
        unsettled = [owed for owed in todo if owed.settled is None]
        if unsettled:
            yield from self.make(unsettled)

    def _assemble(self, known: pa.Table) -> pa.Table:
        """The newest of the `known` rows for every one that is owed, in the order of the pages.

        The known columns are written anew: a kept row may have moved within its shard.
        """
        newest = {key: position for position, key in enumerate(self._keys(known))}
        found = [owed for owed in self.owed if (owed.id, owed.fingerprint) in newest]
        positions = [newest[owed.id, owed.fingerprint] for owed in found]
        table = known.take(pa.array(positions, pa.int64())).combine_chunks()
        for name in found[0].known if found else ():
            column = self.schema.get_field_index(name)
            values = pa.array([owed.known[name] for owed in found], self.schema.field(column).type)
            table = table.set_column(column, self.schema.field(column), values)
        return table


def _row(owed: Owed, columns: Row) -> Row:
    return {**owed.known, **columns, "fingerprint": owed.fingerprint}


class _Progress:
    """One line every few seconds while a shard is being made."""

    def __init__(self, what: str, total: int, log: Callable[[str], None]) -> None:
        self._what, self._total, self._log = what, total, log
        self._done = 0
        self._started = self._reported = time.monotonic()

    def step(self) -> None:
        self._done += 1
        now = time.monotonic()
        if now - self._reported >= _PROGRESS_SECONDS:
            self._reported = now
            each = (now - self._started) / self._done
            remaining = each * (self._total - self._done)
            self._log(f"{self._what}: {self._done}/{self._total}, {each:.2f} s each, {remaining:.0f} s to go")
