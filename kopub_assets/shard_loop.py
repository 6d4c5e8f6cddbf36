"""The loop every page asset shares: keep what is unchanged, make the rest, account for every row."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from resources.errors import EngineError
from resources.shards import Journal, ShardStore
from resources.states import FINAL, State, count_states

_PROGRESS_SECONDS = 10.0

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Owed:
    """One row that a shard must end up with.

    `known` are the columns that need no engine. `fingerprint` stands for everything the row is
    made from: equal fingerprints, equal rows. `settled` are the remaining columns where the row's
    end is known beforehand, as for a page that was quarantined by a parent.
    """

    id: str
    fingerprint: str
    known: Row
    settled: Row | None = None


@dataclass(frozen=True, slots=True)
class Made:
    """A shard's finished table, what it took, and what stands against its being right."""

    table: pa.Table
    id_column: str
    owed: Sequence[Owed]
    previous: pa.Table | None
    recipe: str
    computed: int
    kept: int
    seconds: float

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
    recipe: str
    owed: Sequence[Owed]
    make: Callable[[Sequence[Owed]], Iterable[tuple[str, Row]]]
    log: Callable[[str], None] = field(default=lambda line: None)

    def run(self) -> Made:
        """Make the table, journalling as it goes; it is not published yet."""
        started = time.monotonic()
        journal = self.store.journal(self.asset, self.shard, self.schema)
        finished = self._finished(journal)
        todo = [owed for owed in self.owed if finished.get(owed.id) != owed.fingerprint]
        if todo:
            self._compute(todo, journal)
        return Made(
            table=self._assemble(journal),
            id_column=self.id_column,
            owed=self.owed,
            previous=self._previous(),
            recipe=self.recipe,
            computed=len(todo),
            kept=len(self.owed) - len(todo),
            seconds=time.monotonic() - started,
        )

    def publish(self, made: Made) -> None:
        """Replace the published table where it differs, and forget the journal."""
        self.store.update(self.asset, self.shard, made.table, {"recipe": self.recipe})
        self.store.journal(self.asset, self.shard, self.schema).clear()

    def _previous(self) -> pa.Table | None:
        """The table that is published now; one of another schema tells nothing about this one."""
        if not self.store.has(self.asset, self.shard):
            return None
        published = self.store.read(self.asset, self.shard)
        return published.replace_schema_metadata(None) if published.schema.equals(self.schema) else None

    def _known(self, journal: Journal) -> pa.Table:
        """Published and journalled rows, newest last."""
        published = self._previous()
        return pa.concat_tables([journal.rows()] if published is None else [published, journal.rows()])

    def _finished(self, journal: Journal) -> dict[str, str]:
        """Fingerprint by id of the rows that need no second look; `failed` rows are tried again."""
        known = self._known(journal)
        final = known.filter(pc.field("state").isin(FINAL))
        return dict(zip(final[self.id_column].to_pylist(), final["fingerprint"].to_pylist(), strict=True))

    def _compute(self, todo: Sequence[Owed], journal: Journal) -> None:
        unanswered = {owed.id: owed for owed in todo}
        progress = _Progress(f"{self.asset} {self.shard}", len(todo), self.log)
        try:
            for row_id, columns in self._answers(todo):
                owed = unanswered.pop(row_id, None)
                if owed is None:
                    raise EngineError(f"the engine answered twice, or unasked, for {row_id!r}; this is a bug in it")
                journal.add(_row(owed, columns))
                progress.step()
            for owed in unanswered.values():
                journal.add(_row(owed, {"state": State.FAILED, "reason": "the engine ended without an answer"}))
        finally:
            journal.flush()

    def _answers(self, todo: Sequence[Owed]) -> Iterator[tuple[str, Row]]:
        yield from ((owed.id, owed.settled) for owed in todo if owed.settled is not None)
        unsettled = [owed for owed in todo if owed.settled is None]
        if unsettled:
            yield from self.make(unsettled)

    def _assemble(self, journal: Journal) -> pa.Table:
        """The newest row of every (id, fingerprint) that is owed, in the order of the pages.

        The known columns are written anew: a kept row may have moved within its shard.
        """
        known = self._known(journal)
        newest = {
            key: position
            for position, key in enumerate(
                zip(known[self.id_column].to_pylist(), known["fingerprint"].to_pylist(), strict=True)
            )
        }
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
