"""One shard of a table, from the list of its rows to the published table."""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

import pyarrow as pa

from kopub.errors import KopubError
from kopub.fingerprints import canonical_json
from kopub.states import State
from kopub.store.earlier_rows import known_rows
from kopub.store.table_source import FooterCache
from kopub.store.table_store import JOURNAL
from kopub.tables.asset import Metadata, PublishedShard, RowTable, RunContext, ShardAsset, retries_partial, unasked
from kopub.tables.checks import ACCOUNTED, unaccounted
from kopub.tables.metadata import Account, Moment
from kopub.tables.progress import watcher
from kopub.tables.provenance import StoredProvenance
from kopub.tables.rows import Key, Progress, RowResult, RowSpec, ShardResult, Work, assemble, keys, tried_again


class ShardWork:
    """One shard of a table, from the list of its rows to publication.

    The caller holds the table's lock, and keeps `seconds` and `figures`: what the rows for the engine, `todo`, took.
    """

    def __init__(self, asset: RowTable, shard: str, run: RunContext) -> None:
        """Find out which rows must be made. Raises `StoreError`, `SourceError`."""
        self.shard = shard
        self.seconds = 0.0
        self.figures: dict[str, float | str] = {}
        self.summary = ""
        """One line about the published table; empty if nothing was computed."""
        self._asset, self._run = asset, run
        self._account = Account(asset.store, asset.name, run.run_id, asset.recipe_hash, asset.gpus)
        self._gpu_figures = run.gpu.window()
        # The parents are fetched once, so that the stamp describes the very rows that are read.
        with asset.store.fetched_once():
            self._stamp = asset.provenance(shard)
            self._specs = list(asset.rows(shard))
        retry = retries_partial(run)
        self._stored = asset.store.find_sound(asset.name, shard, run.warn)
        """The published table and its metadata; None if it is missing or damaged. Nobody else replaces it while this
        run holds the lock."""
        if self._stored is not None:
            asset.require_not_newer(shard, self._stored[1].get("made_with", ""))
        schema = self._asset.schema
        if self._stored is not None and self._stored[0].schema.equals(schema):
            self._previous = self._stored[0].replace_schema_metadata(None)
        else:
            self._previous = schema.empty_table()
        self._journal = asset.store.journal(asset.name, shard, asset.schema)
        self._before = self._journal.rows()
        todo = asset.unfinished(self._specs, self._previous, self._before, retry_partial=retry)
        self._elsewhere = schema.empty_table()
        if self._stored is not None:
            # A replaced table may still hold rows of these keys, as when an upgrade is undone.
            keys_left = [spec.key for spec in todo]
            self._elsewhere = known_rows(asset.store, asset.name, shard, schema, asset.table.key, keys_left)
        todo = asset.unfinished(todo, self._elsewhere, retry_partial=retry)
        if keys_left := [spec.key for spec in todo if spec.predetermined is None]:
            moved = asset.moved_rows.find(shard, keys_left)
            todo = asset.unfinished(todo, moved, retry_partial=retry)
            self._elsewhere = pa.concat_tables([self._elsewhere, moved])
        self.todo = [spec for spec in todo if spec.predetermined is None]
        self.ids = frozenset(spec.id for spec in self.todo)
        self._unanswered = {spec.id: spec for spec in todo}
        self._costs: dict[Key, float] = {}
        self._figures: dict[Key, Mapping[str, float]] = {}

    def take_predetermined(self) -> None:
        """Take the rows whose outcome is known beforehand. Raises `StoreError`."""
        self._progress = Progress(f"{self._asset.name} {self.shard}", len(self._unanswered), self._run.log)
        watcher().planned(self._asset.name, self.shard, len(self._unanswered))
        for spec in list(self._unanswered.values()):
            if spec.predetermined is not None:
                self.take(RowResult(spec.id, spec.predetermined, cost=0.0), {})

    def take(self, result: RowResult, figures: Mapping[str, float]) -> None:
        """Keep a row, for which the engine counted `figures`.

        Raises `StoreError`, and `EngineError` if nobody asked for the row.
        """
        spec, state = self._unanswered.pop(result.id, None), State(result.columns["state"])
        if spec is None:
            raise unasked(result.id)
        self._journal.add(spec.row(result.columns))
        self._costs[spec.key] = result.cost
        if spec.predetermined is None:
            ended = {} if state is State.OK else {f"rows_{state}": 1}
            self._figures[spec.key] = {**figures, **result.figures, **ended}
        self._progress.step()
        watcher().computed(self._asset.name, self.shard, state)

    def keep_up(self) -> None:
        """Write the rows that wait for the journal, if a flush is due. Raises `StoreError`."""
        self._journal.flush_due()

    def fail_unanswered(self) -> None:
        """Record the rows that the engine did not answer as failed. Raises `StoreError`."""
        while self._unanswered:
            _, spec = self._unanswered.popitem()
            self._journal.add(spec.row({"state": State.FAILED, "reason": "the engine ended without an answer"}))
            self._costs[spec.key] = 0.0
            watcher().computed(self._asset.name, self.shard, State.FAILED)

    def record(self) -> None:
        """Write the rows made so far to the journal and the ledger. Raises `StoreError`."""
        try:
            self._journal.flush()
        finally:
            self._account.enter(self.shard, self._work, first=self._stored is None)

    def publish(self) -> PublishedShard:
        """Check and publish the table. Raises `ClosedGate`, `StoreError`."""
        asset, shard, run = self._asset, self.shard, self._run
        now = self._journal.rows().slice(self._before.num_rows)
        rows = pa.concat_tables([self._previous, self._before, self._elsewhere, now])
        # Parquet and Arrow name list items differently; the cast makes equal rows equal files.
        table = assemble(self._specs, rows, asset.table.key, asset.parts).cast(asset.schema)
        result = ShardResult(table, asset.table.key, self._specs, self._previous)
        problems = {ACCOUNTED.name: unaccounted(result), **asset.problems(result)}
        for check, problem in problems.items():
            run.problems.note(check, shard, problem)
        run.problems.stop_at(shard)
        regions = asset.regions_by_task(table)
        task_counts = {} if regions is None else {"regions": canonical_json(regions)}
        again = len(tried_again(table, asset.table.key, asset.parts))
        metadata = self._stamp.metadata(table) | task_counts | ({"partial_again": str(again)} if again else {})
        # Further metadata, as a table of an earlier version may carry, is no reason to write the table again.
        if self._stored is None or not metadata.items() <= self._stored[1].items() or not self._stored[0].equals(table):
            asset.store.write(asset.name, shard, table, metadata, replaces=self._stored is not None)
        self._journal.clear()
        states, computed = result.states, len(self._costs)
        kept = len(self._specs) - computed
        shown: Metadata = {
            "dagster/row_count": table.num_rows,
            **states,
            "computed": computed,
            "kept": kept,
            **asset.describe(shard, table),
        }
        # A plot would show the speed of no rows as zero.
        if computed:
            ended = ", ".join(f"{count} {state}" for state, count in states.items() if count)
            self.summary = f"{asset.name} {shard}: {computed} computed, {kept} kept, {self.seconds:.1f} s ({ended})"
            gpu = self._gpu_figures()
            shown |= {"published": Moment(time.time()), "seconds": self.seconds, **self.figures}
            shown |= {**self._account.metadata(self._work), **gpu}
        return PublishedShard(self._stamp.recipe, shown)

    @property
    def _work(self) -> Work:
        return Work(self._costs, list(keys(self._before, self._asset.table.key)), self.seconds, self._figures)


@dataclass(eq=False)
class PlannedShard:
    """A shard whose table `lock` holds, and whose rows a thread plans."""

    name: str
    lock: ExitStack
    plan: "Future[ShardWork]"

    def give_up(self) -> None:
        """Keep the finished rows for the next run, and release the lock."""
        with self.lock, suppress(KopubError):
            self.plan.result().record()


@dataclass(eq=False)
class OpenShard(PlannedShard):
    """A shard whose rows the engine is given; `asked` are still unanswered."""

    work: ShardWork
    asked: dict[str, RowSpec] = field(default_factory=dict)
    inputs_exhausted: bool = False
    failure: KopubError | None = None
    figures: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def complete(self) -> bool:
        return self.inputs_exhausted and not self.asked

    def publish(self) -> PublishedShard:
        """Publish the table and release its lock. Raises `KopubError`."""
        with self.lock:
            try:
                self.work.fail_unanswered()
            finally:
                self.work.record()
            return self.work.publish()


def current_shards(asset: ShardAsset, run: RunContext) -> Iterator[tuple[str, PublishedShard]]:
    """Yield the shards with nothing to make, if the store is object storage.

    All footers are read once for all shards, because locking each table and reading its parents takes a dozen
    requests. On a disk that costs nothing.
    """
    if asset.store.local:
        return
    footers = FooterCache(asset.store)
    own = footers.tables(asset.name)
    shards = [shard for shard in run.shards if shard in own]
    if not shards:
        return
    parents = {name: footers.tables(name) for name in asset.tables_read}
    begun = {name.partition("/")[0] for name in asset.store.parts(JOURNAL, asset.name).names()}
    for shard in shards:
        above = {name: tables[shard] for name, tables in parents.items() if shard in tables}
        if shard in begun or len(above) < len(parents):
            continue
        try:
            stamp = asset.provenance_of(shard, {name: StoredProvenance.of(footer) for name, footer in above.items()})
            published = asset.keep(shard, run, stamp) if own[shard].recipe == stamp.recipe else None
        except KopubError:
            continue  # making the shard reports the error
        if published is not None:
            watcher().planned(asset.name, shard, 0)
            yield shard, published
