"""Assets whose table has one row for each page or query: keep what is unchanged, make the rest, count every row."""

import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from kopub_assets.materialize.asset import Finished, Metadata, Run, ShardAsset
from kopub_assets.materialize.checks import ACCOUNTED, NOTHING_LOST, Check, unaccounted
from kopub_assets.materialize.costs import Account
from kopub_assets.materialize.rows import Key, MadeShard, Progress, Row, RowSpec, Work
from resources.errors import EngineError
from resources.fingerprints import canonical_json
from resources.states import FINAL, State
from resources.store.journal import Journal
from resources.store.row_reuse import known_rows

RETRY_PARTIAL_TAG = "kopub/retry_partial"
"""Run tag that asks for another try of partial rows, as the field does; for backfills."""


class RetryPartial(dg.Config):
    """Whether a run also makes rows again that are `partial`."""

    retry_partial: bool = Field(default=False, description="Read the lost regions of partial pages again.")


class RowTable(ShardAsset):
    """A `ShardAsset` whose rows are made one by one and journalled, so that a killed run costs what was in flight."""

    checks: ClassVar[tuple[Check, ...]] = (ACCOUNTED, NOTHING_LOST)

    @abstractmethod
    def rows(self, shard: str) -> Iterable[RowSpec]:
        """The rows that the shard must end up with, in their order. Raises `StoreError`, `SourceError`."""

    @abstractmethod
    def make(self, shard: str, todo: Sequence[RowSpec]) -> Iterable[tuple[str, Row]]:
        """Yield (id, columns) once for each row of `todo`, in any order. Raises `EngineError`, `SourceError`."""

    def describe(self, shard: str, table: pa.Table) -> Metadata:
        """What the UI plots and shows of the table besides counts and costs."""
        return {}

    def problems(self, made: MadeShard) -> Mapping[str, str | None]:
        """What is wrong with a made table, by check, besides what every table is checked for."""
        return {}

    def cost(self, row_id: str) -> float:
        """What the row of an id has just cost, in any unit."""
        return 1.0

    def regions_by_task(self, table: pa.Table) -> Mapping[str, int] | None:
        """How many regions the table holds, so that a plan need not read it; None where it holds none."""
        return None

    def make_shard(self, shard: str, run: Run) -> Finished:
        account = Account(self.store, self.name, run.run_id, self.own_recipe, self.gpus)
        gpu_figures = run.gpu.window()
        with self.store.exclusive(self.name, shard):
            stamp = self.provenance(shard)
            made = self._made(shard, run, account)
            found = {ACCOUNTED.name: unaccounted(made), **self.problems(made)}
            for check, problem in found.items():
                run.problems.note(check, shard, problem)
            run.problems.stop_at(shard)
            regions = self.regions_by_task(made.table)
            counted = {} if regions is None else {"regions": canonical_json(regions)}
            self.store.update(self.name, shard, made.table, stamp.metadata(made.table) | counted)
            self.store.journal(self.name, shard, self.schema).clear()
        states = ", ".join(f"{count} {state}" for state, count in made.states.items() if count) or "no rows"
        run.log(
            f"{self.name} {shard}: {made.computed} computed, {made.kept} kept, {made.work.seconds:.1f} s ({states})"
        )
        counts = {
            "dagster/row_count": made.table.num_rows,
            **made.states,
            "computed": made.computed,
            "kept": made.kept,
            "seconds": made.work.seconds,
        }
        figures = account.metadata(made.work) | gpu_figures()
        return Finished(stamp.recipe, counts | self.describe(shard, made.table) | figures)

    def finish(self, run: Run, finished: Mapping[str, Finished]) -> None:
        """`nothing_lost` speaks for every shard of the corpus, made in this run or before."""
        run.problems.count_losses(self.store, self.name, self.table.key, self.corpus.manifest.keys)

    def unfinished(self, specs: Sequence[RowSpec], *known: pa.Table, retry_partial: bool = False) -> list[RowSpec]:
        """The rows of `specs` that no `known` table holds finished; `failed` rows are tried again."""
        final = [state for state in FINAL if not (retry_partial and state is State.PARTIAL)]
        finished: set[Key] = set()
        for table in known:
            # A filter copies what it keeps: the keys, not the vectors and pictures beside them.
            keys = table.select([self.table.key, "fingerprint", "state"])
            finished |= set(self._keys(keys.filter(pc.field("state").isin(final))))
        return [spec for spec in specs if spec.key not in finished]

    def _made(self, shard: str, run: Run, account: Account) -> MadeShard:
        """The table, journalled as it is made and not yet published."""
        started = time.monotonic()
        retry = run.has_tag(RETRY_PARTIAL_TAG) or getattr(run.config, "retry_partial", False)
        specs, previous = list(self.rows(shard)), self._published(shard)
        journal = self.store.journal(self.name, shard, self.schema)
        before = journal.rows()
        todo = self.unfinished(specs, previous, before, retry_partial=retry)
        reverted = self._from_versions(shard, todo)
        todo = self.unfinished(todo, reverted, retry_partial=retry)
        made: dict[Key, float] = {}
        try:
            if todo:
                self._compute(shard, todo, journal, made, run)
        finally:
            work = Work(made, list(self._keys(before)), time.monotonic() - started)
            account.enter(shard, work)
        now = journal.rows().slice(before.num_rows)
        table = self._assembled(specs, pa.concat_tables([previous, before, reverted, now]))
        return MadeShard(table, self.table.key, specs, previous, work)

    def _published(self, shard: str) -> pa.Table:
        """The published table; empty where there is none, or one of another schema."""
        if self.store.has(self.name, shard):
            published = self.store.read(self.name, shard)
            if published.schema.equals(self.schema):
                return published.replace_schema_metadata(None)
        return self.schema.empty_table()

    def _from_versions(self, shard: str, todo: Sequence[RowSpec]) -> pa.Table:
        """The rows of `todo` that a replaced table still holds, as when an upgrade is taken back."""
        wanted = [spec.key for spec in todo]
        return known_rows(self.store, self.name, shard, self.schema, self.table.key, wanted)

    def _compute(self, shard: str, todo: Sequence[RowSpec], journal: Journal, made: dict[Key, float], run: Run) -> None:
        unanswered = {spec.id: spec for spec in todo}
        progress = Progress(f"{self.name} {shard}", len(todo), run.log)
        try:
            for row_id, columns in self._answers(shard, todo):
                spec = unanswered.pop(row_id, None)
                if spec is None:
                    raise EngineError(f"the engine answered twice, or unasked, for {row_id!r}; this is a bug in it")
                journal.add(spec.row(columns))
                # A row that was settled beforehand took no engine.
                made[spec.key] = self.cost(row_id) if spec.settled is None else 0.0
                progress.step()
            for spec in unanswered.values():
                journal.add(spec.row({"state": State.FAILED, "reason": "the engine ended without an answer"}))
                made[spec.key] = 0.0
        finally:
            journal.flush()

    def _answers(self, shard: str, todo: Sequence[RowSpec]) -> Iterator[tuple[str, Row]]:
        yield from ((spec.id, spec.settled) for spec in todo if spec.settled is not None)
        unsettled = [spec for spec in todo if spec.settled is None]
        if unsettled:
            yield from self.make(shard, unsettled)

    def _assembled(self, specs: Sequence[RowSpec], known: pa.Table) -> pa.Table:
        """The newest of the `known` rows, which come oldest first, for every one of `specs`, in their order.

        The known columns are written anew: a kept row may have moved within its shard.
        """
        newest = {key: position for position, key in enumerate(self._keys(known))}
        found = [spec for spec in specs if spec.key in newest]
        table = known.take(pa.array([newest[spec.key] for spec in found], pa.int64())).combine_chunks()
        for name in found[0].known if found else ():
            column = self.schema.get_field_index(name)
            values = pa.array([spec.known[name] for spec in found], self.schema.field(column).type)
            table = table.set_column(column, self.schema.field(column), values)
        return table

    def _keys(self, rows: pa.Table) -> Iterator[Key]:
        return zip(rows[self.table.key].to_pylist(), rows["fingerprint"].to_pylist(), strict=True)
