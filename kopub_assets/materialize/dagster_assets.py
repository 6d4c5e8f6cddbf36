"""What the eight assets share on Dagster's side: options, columns, and a run over its shards."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import dagster as dg
import pyarrow as pa

from kopub_assets.command_line import canceled_when_stopped
from kopub_assets.materialize.checks import losses, unaccounted
from kopub_assets.materialize.costs import Account
from kopub_assets.materialize.loop import Made, Owed, Row, ShardJob
from kopub_assets.materialize.provenance import provenance
from kopub_assets.partitions import shards
from kopub_assets.recipes import PARENTS, made_with
from resources.config.settings import load_settings
from resources.engine import Engine
from resources.errors import GateClosed, KopubError
from resources.fingerprints import fingerprint
from resources.store.shard_store import ShardStore

OWNERS = ["team:documents"]
ACCOUNTED = "every_row_accounted_for"
NOTHING_LOST = "nothing_lost"
DATA_VERSION_TAG = "dagster/data_version"
"""Dagster's system tag for the data version of a materialization."""

Check = Callable[[Made], str | None]
Metadata = dict[str, Any]


def table_asset(
    name: str,
    group: str,
    schema: pa.Schema,
    code_version: str,
    check_specs: Sequence[dg.AssetCheckSpec],
    kinds: AbstractSet[str] = frozenset(),
    after: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """`dg.asset` for a Parquet table of the store, partitioned by shard, with its parents by name.

    `after` are assets to wait for in a run whose results do not decide a row.
    """
    return dg.asset(
        name=name,
        deps=[*PARENTS[name], *after],
        partitions_def=shards,
        backfill_policy=_backfill_policy(),
        group_name=group,
        kinds={"parquet", *kinds},
        owners=OWNERS,
        code_version=code_version,
        check_specs=check_specs,
        metadata={"dagster/column_schema": column_schema(schema)},
    )


def _backfill_policy() -> dg.BackfillPolicy:
    per_run = load_settings().shards_per_run
    return dg.BackfillPolicy.single_run() if per_run is None else dg.BackfillPolicy.multi_run(per_run)


def column_schema(schema: pa.Schema) -> dg.TableSchema:
    return dg.TableSchema(
        [
            dg.TableColumn(
                field.name,
                str(field.type),
                (field.metadata or {}).get(b"description", b"").decode(),
                dg.TableColumnConstraints(nullable=field.nullable),
            )
            for field in schema
        ]
    )


def blocking_check(name: str, asset: str, description: str) -> dg.AssetCheckSpec:
    return dg.AssetCheckSpec(name, asset=asset, blocking=True, description=description)


def accounting_checks(asset: str) -> list[dg.AssetCheckSpec]:
    """The two checks that every table has: counts reconcile (blocking), and nothing was lost (a warning)."""
    return [
        blocking_check(ACCOUNTED, asset, "in = ok + blank + failed + quarantined, every row exactly once."),
        dg.AssetCheckSpec(
            NOTHING_LOST,
            asset=asset,
            description="No row failed or is quarantined; names the ones that are, with their reasons.",
        ),
    ]


@dataclass(frozen=True, slots=True)
class Finished:
    """A shard whose table is published: the recipe it was made by, and what the UI shows of it."""

    recipe: str
    metadata: Metadata


class Problems:
    """What the checks of a step found, by check and shard."""

    def __init__(self, blocking: Iterable[str], warnings: Iterable[str] = ()) -> None:
        self._blocking = frozenset(blocking)
        self._found: dict[str, dict[str, str]] = {name: {} for name in (*self._blocking, *warnings)}

    def note(self, check: str, shard: str, problem: str | None) -> None:
        if problem:
            self._found[check][shard] = problem

    def stop_at(self, shard: str) -> None:
        """Raise `GateClosed` when a blocking check has a problem with the shard."""
        blocking = [found[shard] for check, found in self._found.items() if check in self._blocking and shard in found]
        if blocking:
            raise GateClosed("; ".join(blocking))

    def results(self) -> list[dg.AssetCheckResult]:
        return [
            dg.AssetCheckResult(
                passed=not shards,
                check_name=check,
                severity=dg.AssetCheckSeverity.ERROR if check in self._blocking else dg.AssetCheckSeverity.WARN,
                metadata=shards,
                description="; ".join(f"{shard}: {problem}" for shard, problem in shards.items()) or None,
            )
            for check, shards in self._found.items()
        ]


def over_shards(
    context: dg.AssetExecutionContext,
    problems: Problems,
    make: Callable[[str], Finished],
    at_end: Callable[[], object] = lambda: None,
) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    """Make the shards of a run one after the other: the same code for one, a range and a backfill.

    A shard whose `make` raises `KopubError` does not stop the others; the step fails in the end,
    after what was finished is recorded. `at_end` runs once, whatever became of the shards.
    """
    finished: dict[str, Finished] = {}
    failures: dict[str, str] = {}
    with canceled_when_stopped(context):
        for shard in context.partition_keys:
            try:
                finished[shard] = make(shard)
            except KopubError as error:
                failures[shard] = str(error)
        try:
            at_end()
        except KopubError as error:
            failures["in the end"] = str(error)
    if failures:
        yield from problems.results()
        for shard, made in finished.items():
            tags = {DATA_VERSION_TAG: made.recipe}
            context.log_event(dg.AssetMaterialization(context.asset_key, None, made.metadata, shard, tags))
        lines = [f"{shard}: {reason}" for shard, reason in failures.items()]
        raise dg.Failure("\n".join(lines), allow_retries=False)
    for shard, made in finished.items():
        context.add_asset_metadata(made.metadata, partition_key=shard)
    yield dg.MaterializeResult(check_results=problems.results(), data_version=_data_version(finished.values()))


@dataclass(frozen=True)
class ShardRun:
    """A run of an asset whose table has one row for each page or query.

    `owed` says what a shard must end up with, `make` makes the rows that are not there yet,
    `describe` adds to the metadata that the UI plots and shows. `blocking` names what is wrong with
    a made table, by check: a table with a blocking problem is not published, and the one before
    stays; `warnings` do the same and stop nothing. `engine` is what makes the rows, if any does;
    `cost` what it says the row of an id has just cost, in any unit; `source` the fingerprint of what is read of the
    corpus itself; `regions` counts those of a table by task, so that a plan need not read it.
    """

    context: dg.AssetExecutionContext
    store: ShardStore
    schema: pa.Schema
    own: str
    owed: Callable[[str], Iterable[Owed]]
    make: Callable[[str, Sequence[Owed]], Iterable[tuple[str, Row]]]
    describe: Callable[[pa.Table, str], Metadata]
    blocking: Mapping[str, Check] = field(default_factory=dict)
    id_column: str = "page_id"
    engine: Engine | None = None
    cost: Callable[[str], float] = lambda row_id: 1.0
    source: Callable[[str], str] | None = None
    regions: Callable[[pa.Table], Mapping[str, int]] | None = None
    warnings: Mapping[str, Check] = field(default_factory=dict)

    @cached_property
    def _engines(self) -> tuple[Engine, ...]:
        return () if self.engine is None else (self.engine,)

    @cached_property
    def _made_with(self) -> str:
        return made_with(self.context.asset_key.path[-1], *self._engines)

    def materialize(self) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
        problems = Problems([ACCOUNTED, *self.blocking], [NOTHING_LOST, *self.warnings])
        yield from over_shards(self.context, problems, partial(self._make_shard, problems))

    def _make_shard(self, problems: Problems, shard: str) -> Finished:
        asset = self.context.asset_key.path[-1]
        gpus = sum(engine.gpus for engine in self._engines)
        account = Account(self.store, asset, self.context.run.run_id, self.own, gpus)
        with self.store.exclusive(asset, shard):
            source = self.source(shard) if self.source else None
            stamp = provenance(self.store, asset, shard, self.own, self._made_with, source)
            job = ShardJob(
                store=self.store,
                asset=asset,
                shard=shard,
                id_column=self.id_column,
                schema=self.schema,
                owed=list(self.owed(shard)),
                make=partial(self.make, shard),
                cost=self.cost,
                account=partial(account.enter, shard),
                log=self.context.log.info,
            )
            made = job.run()
            for check, problem_with in {ACCOUNTED: unaccounted, **self.blocking, **self.warnings}.items():
                problems.note(check, shard, problem_with(made))
            problems.note(NOTHING_LOST, shard, losses(made.table, self.id_column))
            problems.stop_at(shard)
            regions = {"regions": json.dumps(self.regions(made.table))} if self.regions else {}
            job.publish(made, stamp.metadata(made.table) | regions)
        states = ", ".join(f"{count} {state}" for state, count in made.states.items() if count) or "no rows"
        self.context.log.info(
            f"{asset} {shard}: {made.computed} computed, {made.kept} kept, {made.work.seconds:.1f} s ({states})"
        )
        return Finished(stamp.recipe, self._metadata(made, shard) | account.metadata(made.work))

    def _metadata(self, made: Made, shard: str) -> Metadata:
        return {
            "dagster/row_count": made.table.num_rows,
            **made.states,
            "computed": made.computed,
            "kept": made.kept,
            "seconds": made.work.seconds,
            **self.describe(made.table, shard),
        }


def _data_version(finished: Iterable[Finished]) -> dg.DataVersion:
    """The recipe that a run's shards were made by; one event covers them all, so a mixture has a version of its own."""
    recipes = sorted({made.recipe for made in finished})
    return dg.DataVersion(recipes[0] if len(recipes) == 1 else fingerprint(recipes))
