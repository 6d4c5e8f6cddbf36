"""Assets whose table has one row for each page or query: keep what is unchanged, make the rest, count every row."""

import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import pyarrow as pa
from pydantic import Field

from kopub_assets.materialize.asset import Finished, Metadata, Run, ShardAsset
from kopub_assets.materialize.checks import ACCOUNTED, NOTHING_LOST, Check, unaccounted
from kopub_assets.materialize.metadata.costs import Account
from kopub_assets.materialize.metadata.provenance import Provenance
from kopub_assets.materialize.rows import Key, MadeShard, Progress, Row, RowSpec, Work, assembled, keys, unfinished
from kopub_assets.running.progress import watcher
from resources.errors import DamagedTable, EngineError
from resources.fingerprints import canonical_json
from resources.resource import Resource
from resources.states import State
from resources.store.page_rows import known_rows

RETRY_PARTIAL_TAG = "kopub/retry_partial"
"""Run tag that asks for another try of partial rows, as the field does; for backfills."""


class RetryPartial(Resource):
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

    def row_figures(self, row_id: str) -> Mapping[str, float]:
        """What was counted for the row of an id that has just been made, besides what its engine counted."""
        return {}

    def figures(self) -> Mapping[str, float | str]:
        """What the UI plots of the rows that were just made."""
        return {}

    def regions_by_task(self, table: pa.Table) -> Mapping[str, int] | None:
        """How many regions the table holds, so that a plan need not read it; None where it holds none."""
        return None

    def make_shard(self, shard: str, run: Run) -> Finished:
        with self.store.exclusive(self.name, shard):
            started = time.monotonic()
            work = ShardWork(self, shard, run)
            try:
                work.settle()
                if work.todo:
                    for row_id, columns in self.make(shard, work.todo):
                        work.take(row_id, columns)
                    work.figures.update(self.figures())
                work.fail_unanswered()
            finally:
                work.seconds = time.monotonic() - started
                work.record()
            finished = work.publish()
        if work.summary:
            run.log(work.summary)
        return finished

    def keep(self, shard: str, run: Run, stamp: Provenance) -> Finished | None:
        stored = self.store.find(self.name, shard)
        if stored is None or not stored[0].schema.equals(self.schema):
            return None
        table = stored[0].replace_schema_metadata(None)
        retried = {State.FAILED, *([State.PARTIAL] if _retries_partial(run) else [])}
        if retried & set(table["state"].to_pylist()) or not stamp.metadata(table).items() <= stored[1].items():
            return None
        # What is read of the corpus itself is proved to be there as it was; parents' tables say what they are.
        if not self.reads and self.unfinished(list(self.rows(shard)), table):
            return None
        made = MadeShard(table, self.table.key, (), table, Work({}, (), 0.0))
        found = {ACCOUNTED.name: None, **self.problems(made)}
        for check, problem in found.items():
            run.problems.note(check, shard, problem)
        run.problems.stop_at(shard)
        counts = {"dagster/row_count": table.num_rows, **made.states, "computed": 0, "kept": table.num_rows}
        return Finished(stamp.recipe, counts | self.describe(shard, table))

    def finish(self, run: Run, finished: Mapping[str, Finished]) -> None:
        """`nothing_lost` speaks for every shard of the corpus, made in this run or before."""
        run.problems.count_losses(self.store, self.name, self.table.key, self.corpus.manifest.keys)

    def unfinished(self, specs: Sequence[RowSpec], *known: pa.Table, retry_partial: bool = False) -> list[RowSpec]:
        """The rows of `specs` that no `known` table holds finished; `failed` rows are tried again."""
        return unfinished(specs, known, self.table.key, retry_partial)


class ShardWork:
    """One shard of a table, from the list of its rows to the published table. Its maker holds the table's lock.

    `todo` are the rows for the engine. `seconds` and `figures` are what they took, of which the maker keeps account.
    """

    def __init__(self, asset: RowTable, shard: str, run: Run) -> None:
        """Find out what there is to do. Raises `StoreError`, `SourceError`."""
        self.shard = shard
        self.seconds = 0.0
        self.figures: dict[str, float | str] = {}
        self.summary = ""
        """One line on the published table; none where nothing was computed."""
        self._asset, self._run = asset, run
        self._gpu_figures = run.gpu.window()
        # One look at the parents: the stamp is of the rows that are read.
        with asset.store.fetched_once():
            self._stamp = asset.provenance(shard)
            self._specs = list(asset.rows(shard))
        retry = _retries_partial(run)
        self._stored = self._sound_table()
        """The published table with its metadata. Nobody else replaces it while this run has its lock."""
        if self._stored is not None:
            asset.require_not_newer(shard, self._stored[1].get("made_with", ""))
        self._previous = self._published()
        self._journal = asset.store.journal(asset.name, shard, asset.schema)
        self._before = self._journal.rows()
        todo = asset.unfinished(self._specs, self._previous, self._before, retry_partial=retry)
        self._reverted = self._from_versions(todo)
        todo = asset.unfinished(todo, self._reverted, retry_partial=retry)
        self.todo = [spec for spec in todo if spec.settled is None]
        self.ids = frozenset(spec.id for spec in self.todo)
        self._unanswered = {spec.id: spec for spec in todo}
        self._made: dict[Key, float] = {}
        self._figures: dict[Key, Mapping[str, float]] = {}

    def _sound_table(self) -> tuple[pa.Table, dict[str, str]] | None:
        """The published table with its metadata; None where there is none, or a damaged one. Raises `StoreError`."""
        try:
            return self._asset.store.find(self._asset.name, self.shard)
        except DamagedTable as error:
            self._run.warn(f"{str(error).partition(';')[0]}: it is made again")
            return None

    def settle(self) -> None:
        """Begin with the rows whose end is known beforehand. Raises `StoreError`."""
        self._progress = Progress(f"{self._asset.name} {self.shard}", len(self._unanswered), self._run.log)
        watcher().planned(self._asset.name, self.shard, len(self._unanswered))
        for spec in [spec for spec in self._unanswered.values() if spec.settled is not None]:
            assert spec.settled is not None
            self.take(spec.id, spec.settled)

    def take(self, row_id: str, columns: Row, figures: Mapping[str, float] | None = None) -> None:
        """Keep the row of an id, for which the engine counted `figures`.

        Raises `StoreError`, and `EngineError` when nobody asked for it.
        """
        spec = self._unanswered.pop(row_id, None)
        if spec is None:
            raise unasked(row_id)
        self._journal.add(spec.row(columns))
        # A row that was settled beforehand took no engine.
        self._made[spec.key] = self._asset.cost(row_id) if spec.settled is None else 0.0
        if spec.settled is None:
            state = State(columns["state"])
            ended = {} if state is State.OK else {f"rows_{state}": 1}
            self._figures[spec.key] = {**(figures or {}), **self._asset.row_figures(row_id), **ended}
        self._progress.step()
        watcher().computed(self._asset.name, self.shard, State(columns["state"]))

    def keep_up(self) -> None:
        """Write the rows that wait to be journalled, where it is time. Raises `StoreError`."""
        self._journal.flush_due()

    def fail_unanswered(self) -> None:
        """Take the rows that the engine left out as failed. Raises `StoreError`."""
        while self._unanswered:
            _, spec = self._unanswered.popitem()
            self._journal.add(spec.row({"state": State.FAILED, "reason": "the engine ended without an answer"}))
            self._made[spec.key] = 0.0
            watcher().computed(self._asset.name, self.shard, State.FAILED)

    def record(self) -> None:
        """Write what was made so far to the journal and the ledger. Raises `StoreError`."""
        try:
            self._journal.flush()
        finally:
            self._account.enter(self.shard, self._work, first=self._stored is None)

    def publish(self) -> Finished:
        """Check and publish the table. Raises `GateClosed`, `StoreError`."""
        asset, shard, run = self._asset, self.shard, self._run
        now = self._journal.rows().slice(self._before.num_rows)
        known = pa.concat_tables([self._previous, self._before, self._reverted, now])
        table = assembled(self._specs, known, asset.table.key)
        made = MadeShard(table, asset.table.key, self._specs, self._previous, self._work)
        found = {ACCOUNTED.name: unaccounted(made), **asset.problems(made)}
        for check, problem in found.items():
            run.problems.note(check, shard, problem)
        run.problems.stop_at(shard)
        regions = asset.regions_by_task(table)
        counted = {} if regions is None else {"regions": canonical_json(regions)}
        metadata = self._stamp.metadata(table) | counted
        # What else a table says of itself, as one of an earlier version may, is no reason to write it again.
        if (
            self._stored is None
            or not metadata.items() <= self._stored[1].items()
            or not _equal(self._stored[0], table)
        ):
            asset.store.write(asset.name, shard, table, metadata, replaces=self._stored is not None)
        self._journal.clear()
        if made.computed:
            states = ", ".join(f"{count} {state}" for state, count in made.states.items() if count)
            self.summary = (
                f"{asset.name} {shard}: {made.computed} computed, {made.kept} kept, {self.seconds:.1f} s ({states})"
            )
        counts = {
            "dagster/row_count": table.num_rows,
            **made.states,
            "computed": made.computed,
            "kept": made.kept,
        }
        return Finished(self._stamp.recipe, counts | asset.describe(shard, table) | self._took(made))

    def _took(self, made: MadeShard) -> Metadata:
        """What the rows of this run took; nothing where it made none, since a plot would show it as their speed."""
        if not made.computed:
            return {}
        gpu = self._gpu_figures()
        return {"seconds": self.seconds, **self.figures, **self._account.metadata(made.work), **gpu}

    @property
    def _account(self) -> Account:
        asset = self._asset
        return Account(asset.store, asset.name, self._run.run_id, asset.own_recipe, asset.gpus)

    @property
    def _work(self) -> Work:
        return Work(self._made, list(keys(self._before, self._asset.table.key)), self.seconds, self._figures)

    def _published(self) -> pa.Table:
        """The published table; empty where there is none, or one of another schema."""
        schema = self._asset.schema
        if self._stored is not None and self._stored[0].schema.equals(schema):
            return self._stored[0].replace_schema_metadata(None)
        return schema.empty_table()

    def _from_versions(self, todo: Sequence[RowSpec]) -> pa.Table:
        """The rows of `todo` that a replaced table still holds, as when an upgrade is taken back."""
        if self._stored is None:
            return self._asset.schema.empty_table()
        asset, wanted = self._asset, [spec.key for spec in todo]
        return known_rows(asset.store, asset.name, self.shard, asset.schema, asset.table.key, wanted)


def _retries_partial(run: Run) -> bool:
    return run.has_tag(RETRY_PARTIAL_TAG) or getattr(run.config, "retry_partial", False)


def _equal(one: pa.Table, other: pa.Table) -> bool:
    """Whether two tables have the same columns and rows, whatever their metadata."""
    return one.schema.equals(other.schema) and one.equals(other)


def unasked(row_id: str) -> EngineError:
    """For a result that nobody waits for."""
    return EngineError(f"the engine answered twice, or unasked, for {row_id!r}; this is a bug in it")
