"""The assets of shards as Dagster definitions, and their runs over shards."""

import inspect
import platform
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import cache
from typing import Any, cast

import dagster as dg

from kopub.config.choices import ReadingRoom
from kopub.config.settings import Resources
from kopub.engine import Resource
from kopub.errors import KopubError, StorageAway, counted
from kopub.fingerprints import fingerprint
from kopub.store.corpus_tables import BENCHMARKS, RELEASED_FILES
from kopub.tables.asset import PublishedShard, RunContext, ShardAsset
from kopub.tables.checks import Problems
from kopub.tables.engines import RunEngines, require_tested, urgency
from kopub.tables.metadata import gpu_watch
from kopub.tables.progress import watcher
from kopub.tables.shard_loop import make_shards
from kopub_assets.private import output_in_part
from kopub_assets.reporting import column_schema, problems_before, results_of, shown
from kopub_assets.running.engines import ENGINES
from kopub_assets.running.execution import at_terminal, canceled_when_stopped
from kopub_assets.running.watched_launcher import MACHINE_TAG

# `backfill_policy` has been in beta for years and is what a range in one run needs.
warnings.filterwarnings("ignore", category=dg.BetaWarning)
OWNERS = ["team:documents"]
GROUP = "corpus"
"""The one group of all assets: with several, Dagster's graph opens with its boxes closed."""
DATA_VERSION_TAG = "dagster/data_version"
"""Dagster's system tag for the data version of a materialization."""


def dagster_asset(
    asset: type[ShardAsset],
    declared: ShardAsset,
    partitions: dg.PartitionsDefinition[str],
    shards_per_run: int | None,
    graph: Sequence[type[ShardAsset]],
    engines: dg.ResourceDefinition,
    scores: Collection[str],
    room: ReadingRoom,
    require_read_well: Callable[[], None],
) -> dg.AssetsDefinition:
    """Return `asset` of `graph` as a Dagster asset.

    `declared` is an instance with the resources of the settings, and all assets share `engines`. `scores` are the score
    assets that this platform has, because not every corpus has known answers. Each shard links to its pages in the
    reading `room`. The reading engines make nothing if `require_read_well` raises `ClosedGate`.
    """

    def materialize(context: dg.AssetExecutionContext):
        return over_shards(context, asset, room, require_read_well)

    name, kinds = asset.table.name, {"parquet", *asset.kinds}
    # A release is known by its destination, not by the engine that writes it.
    if declared.engine and asset.table is not RELEASED_FILES:
        kinds.add(declared.engine.code_version.bare_name)
    return dg.asset(
        name=name,
        description=inspect.getdoc(asset),
        deps=[*declared.tables_read, *(name for name in asset.after if name in scores)],
        partitions_def=partitions,
        backfill_policy=dg.BackfillPolicy(max_partitions_per_run=shards_per_run),
        group_name=GROUP,
        kinds=kinds,
        owners=OWNERS,
        # By this tag Dagster chooses among ready steps.
        op_tags={"dagster/priority": str(urgency(declared, graph))},
        code_version=declared.recipe_hash,
        check_specs=[
            dg.AssetCheckSpec(check.name, asset=name, blocking=check.blocking, description=check.description)
            for check in asset.checks
        ],
        metadata={
            "dagster/column_schema": column_schema(declared.schema),
            **_code(asset),
            "tables": dg.MetadataValue.path(declared.store.location(name)),
        },
        config_schema=config_schema(asset.config) if asset.config else None,
        required_resource_keys=asset.resource_keys(),
        resource_defs={ENGINES: engines},
        # A step whose shards are not all made reports them itself; see `over_shards`.
        output_required=False,
    )(materialize)


def config_schema(options: type[Resource]) -> dict[str, dg.Field]:
    """Return the run options of an asset as the Launchpad offers them."""
    return {
        name: dg.Field(field.annotation, default_value=field.default, description=field.description)
        for name, field in options.model_fields.items()
    }


@cache
def _code(asset: type[ShardAsset]) -> dict[str, dg.CodeReferencesMetadataValue]:
    """Return the asset's code reference for the UI; empty if typed into a session.

    It is cached, because Python parses the module to find the line.
    """
    try:
        file, line = inspect.getfile(asset), inspect.getsourcelines(asset)[1]
    except (OSError, TypeError):
        return {}
    here = dg.LocalFileCodeReference(file_path=file, line_number=line, label=asset.__name__)
    return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[here])}


def shown_off(asset: type[ShardAsset], why: str) -> dg.AssetSpec:
    """Return `asset` as Dagster shows it if the settings switch it off.

    It cannot run, and nothing waits for it. It has no parents, because selecting everything downstream of a parent
    would otherwise include it, and Dagster refuses to make it.
    """
    left_out = "*Materialize all* leaves it out, and a backfill started through the API must not name it."
    description = f"Off: {why}.\n\n{left_out}\n\n{inspect.getdoc(asset)}"
    return dg.AssetSpec(asset.table.name, description=description, group_name=GROUP, kinds={"off"}, owners=OWNERS)


def over_shards(
    context: dg.AssetExecutionContext,
    asset_type: type[ShardAsset],
    room: ReadingRoom,
    require_read_well: Callable[[], None],
) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult | dg.AssetMaterialization | dg.DagsterEvent]:
    """Make the shards of a run: a single shard, a range or a backfill.

    A shard is reported to Dagster as soon as its table is published, and stays recorded if the run is killed later.
    Dagster reports all shards of the run once more at the end of the step.

    A shard that ends in a `KopubError` does not stop the others, unless the storage is away. The step fails at the end,
    after the finished shards are recorded and handed to the steps after it, which leave out the failed ones.
    """
    # Only the resources that the asset needs are in it.
    asset = asset_type(cast("Resources", {key: getattr(context.resources, key) for key in asset_type.resource_keys()}))
    engines: RunEngines = getattr(context.resources, ENGINES)

    run = _begin_run(context, asset, engines, require_read_well)
    finished: dict[str, PublishedShard] = {}
    failures: dict[str, KopubError] = {}
    with ExitStack() as step:
        step.enter_context(engines.during(asset))
        step.enter_context(canceled_when_stopped(context))
        gpu = step.enter_context(gpu_watch(asset.engines, run.warn))
        watcher().began(asset.name)
        run = replace(engines.run_of(asset, run), gpu=gpu)
        for shard, outcome in step.enter_context(closing(make_shards(asset, run))):
            if isinstance(outcome, PublishedShard):
                watcher().published(asset.name, shard)
                engines.published(asset, shard)
                outcome.metadata["table"] = dg.MetadataValue.path(asset.store.location(asset.name, shard))
                if (address := room.of_shard(shard)) is not None:
                    outcome.metadata["reading_room"] = dg.MetadataValue.url(address)
                if run.calls.seconds_before_step and outcome.metadata["computed"]:
                    # How long before its step the engine was given the rows it made.
                    outcome.metadata["seconds_before_step"] = run.calls.seconds_before_step
                finished[shard] = outcome
                if outcome.metadata["computed"] and len(finished) < len(run.shards):
                    yield _materialization(context, shard, outcome)
            else:
                failures[shard] = outcome
                if isinstance(outcome, StorageAway):
                    break  # every other shard would wait as long for the storage, and fail in the same way
        if not any(isinstance(failure, StorageAway) for failure in failures.values()):
            try:
                asset.finish(run, finished)
            except KopubError as error:
                failures["in the end"] = error
        watcher().ended(asset.name)
        # One line covers all of them, because an event costs more than checking a small shard.
        if unchanged := sum(not table.metadata["computed"] for table in finished.values()):
            context.log.info(f"{asset.name}: nothing to compute in {counted(unchanged, 'shard')}")
        if failures or engines.left_out(asset):
            yield from results_of(run.problems)
            yield from _report_in_part(context, asset, finished, failures, engines)
            return
    for shard, table in finished.items():
        context.add_asset_metadata(shown(table.metadata), partition_key=shard)
    # One event covers all shards, so a mixture of recipes gets a version of its own.
    recipes = sorted({table.recipe for table in finished.values()})
    version = dg.DataVersion(recipes[0] if len(recipes) == 1 else fingerprint(recipes))
    yield dg.MaterializeResult(check_results=results_of(run.problems), data_version=version)


def _begin_run(
    context: dg.AssetExecutionContext,
    asset: ShardAsset,
    engines: RunEngines,
    require_read_well: Callable[[], None],
) -> RunContext:
    """Return the run of an asset. Raises `dg.Failure` if a gate is closed."""
    if at_terminal() and MACHINE_TAG not in context.run.tags:
        # Dagster's own commands do not record the machine; `kopub run` already has.
        context.instance.add_run_tags(context.run.run_id, {MACHINE_TAG: platform.node()})

    def warn(message: str) -> None:
        context.log.warning(message)
        watcher().warned(asset.name, message)

    before = problems_before(context.instance, asset.name, asset.checks, asset.corpus.manifest.keys)
    run = RunContext(
        context.run.run_id,
        tuple(context.partition_keys),
        Problems(asset.checks, before),
        context.log.info,
        warn,
        config=asset.config and asset.config(**context.op_execution_context.op_config),
        tags=context.run.tags,
    )
    try:
        engines.begin()
        # A release is made although a gate is closed: it says so, and is not published.
        if BENCHMARKS in asset.after and asset.table is not RELEASED_FILES and engines.has_rows_to_make(asset):
            require_read_well()
        require_tested(asset, run)
    except KopubError as error:
        raise dg.Failure(str(error), allow_retries=False) from None
    return run


def _report_in_part(
    context: dg.AssetExecutionContext,
    asset: ShardAsset,
    finished: Mapping[str, PublishedShard],
    failures: Mapping[str, KopubError],
    engines: RunEngines,
) -> Iterator[dg.AssetMaterialization | dg.DagsterEvent]:
    """Report the finished shards, let the next steps begin, and raise the `failures`.

    No later step begins if the storage is away, or if the step failed as a whole and not in some of its shards.
    Dagster's `MaterializeResult` would report every shard of the run as made.
    """
    left_out = engines.left_out(asset)
    for shard, table in finished.items():
        yield _materialization(context, shard, table)
    away = any(isinstance(failure, StorageAway) for failure in failures.values())
    if finished and not away and failures.keys() <= set(context.partition_keys):
        engines.leave_out(asset, left_out | failures.keys())
        yield output_in_part(context)
    if failures:
        lines = [f"{shard}: {reason}" for shard, reason in failures.items()]
        raise dg.Failure("\n".join(lines), allow_retries=False)
    context.log.warning(f"{asset.name}: left out, because an earlier step failed: {', '.join(sorted(left_out))}")


def _materialization(context: dg.AssetExecutionContext, shard: str, table: PublishedShard) -> dg.AssetMaterialization:
    tags = {DATA_VERSION_TAG: table.recipe}
    return dg.AssetMaterialization(context.asset_key, None, shown(table.metadata), shard, tags)
