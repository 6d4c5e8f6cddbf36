"""The glue to Dagster: the assets as Dagster definitions, and runs over shards."""

import inspect
import platform
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from copy import copy
from dataclasses import replace
from functools import cache, partial
from typing import Any, ClassVar, cast

import dagster as dg
import pyarrow as pa
from pydantic import ValidationError, create_model

from kopub.config.choices import ReadingRoom
from kopub.config.profile import section_of
from kopub.config.settings import Resources
from kopub.config.wording import first_problem
from kopub.engine import PROFILE_ONLY, Resource
from kopub.errors import ClosedGate, KopubError, StorageAway, counted
from kopub.fingerprints import fingerprint
from kopub.store import run_records
from kopub.tables.ahead import EnginePrefetcher, RunSteps, priority
from kopub.tables.asset import Metadata, PublishedShard, RowTable, RunContext, ShardAsset
from kopub.tables.checks import Check, Problems
from kopub.tables.metadata import Link, Markdown, Moment
from kopub.tables.progress import watcher
from kopub_assets.running.execution import at_terminal, canceled_when_stopped
from kopub_assets.running.watched_launcher import MACHINE_TAG

# `backfill_policy` has been in beta for years and is what a range in one run needs.
warnings.filterwarnings("ignore", category=dg.BetaWarning)
OWNERS = ["team:documents"]
GROUP = "corpus"
"""The one group of all assets: with several, Dagster's graph opens with its boxes closed."""
DATA_VERSION_TAG = "dagster/data_version"
"""Dagster's system tag for the data version of a materialization."""
_LOOKED_BACK = 20
"""Number of an asset's latest runs, including killed ones, that are searched for the last result of a check."""


def dagster_asset(
    asset: type[ShardAsset],
    declared: ShardAsset,
    partitions: dg.PartitionsDefinition[str],
    shards_per_run: int | None,
    graph: Sequence[type[ShardAsset]],
    scores: Collection[str],
    room: ReadingRoom,
) -> dg.AssetsDefinition:
    """Return `asset` of `graph` as a Dagster asset.

    `declared` is an instance with the resources of the settings. `scores` are the score assets that this platform has,
    because not every corpus has known answers. Each shard links to its pages in the reading `room`.
    """

    def materialize(context: dg.AssetExecutionContext, config: Any = None) -> Iterator[Any]:
        given = {key: getattr(context.resources, key) for key in asset.resource_keys()}
        # Only the resources that the asset needs are in it.
        resources = cast("Resources", given)
        try:
            made, ahead = asset(resources), EnginePrefetcher.of(_steps_of(context), graph, partial(_run_ahead, context))
        except KopubError as error:
            raise dg.Failure(str(error), allow_retries=False) from None
        with ahead.during(made):
            yield from over_shards(context, made, config, room, ahead)

    parameters = [
        inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=dg.AssetExecutionContext)
    ]
    if (config := launchpad_config(asset.config)) is not None:
        parameters.append(inspect.Parameter("config", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=config))
    # Dagster reads from the signature whether an asset takes a config, and of which type.
    materialize.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    materialize.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    name = asset.table.name
    return dg.asset(
        name=name,
        description=inspect.getdoc(asset),
        deps=[*(parent.table.name for parent in declared.reads), *(name for name in asset.after if name in scores)],
        partitions_def=partitions,
        backfill_policy=_backfill_policy(shards_per_run),
        group_name=GROUP,
        kinds={"parquet", *asset.kinds, *_engine_kind(declared)},
        owners=OWNERS,
        op_tags=priority(declared, graph),
        code_version=declared.recipe_hash,
        check_specs=[spec_of(check, name) for check in asset.checks],
        metadata={
            "dagster/column_schema": column_schema(declared.schema),
            **_code(asset),
            "tables": dg.MetadataValue.path(declared.store.location(name)),
        },
        required_resource_keys=asset.resource_keys(),
    )(materialize)


def _engine_kind(declared: ShardAsset) -> set[str]:
    """Return the engine behind the rows, for the asset's node.

    A release has none: it is known by its destination.
    """
    has_engine = isinstance(declared, RowTable) and declared.engine
    return {declared.engine.code_version.bare_name} if has_engine else set()


def _code(asset: type[ShardAsset]) -> dict[str, dg.CodeReferencesMetadataValue]:
    """Return the asset's code reference for the UI; empty if typed into a session."""
    try:
        file, line = _declared_at(asset)
    except (OSError, TypeError):
        return {}
    here = dg.LocalFileCodeReference(file_path=file, line_number=line, label=asset.__name__)
    return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[here])}


@cache
def _declared_at(asset: type[ShardAsset]) -> tuple[str, int]:
    """Return file and line; cached, because Python parses the module to find them."""
    return inspect.getfile(asset), inspect.getsourcelines(asset)[1]


def shown_off(asset: type[ShardAsset], why: str) -> dg.AssetSpec:
    """Return `asset` as Dagster shows it if the settings switch it off.

    It cannot run, and nothing waits for it. It has no parents, because selecting everything downstream of a parent
    would otherwise include it, and Dagster refuses to make it.
    """
    left_out = "*Materialize all* leaves it out, and a backfill started through the API must not name it."
    description = f"Off: {why}.\n\n{left_out}\n\n{inspect.getdoc(asset)}"
    return dg.AssetSpec(asset.table.name, description=description, group_name=GROUP, kinds={"off"}, owners=OWNERS)


def _backfill_policy(shards_per_run: int | None) -> dg.BackfillPolicy:
    return dg.BackfillPolicy.single_run() if shards_per_run is None else dg.BackfillPolicy.multi_run(shards_per_run)


def column_schema(schema: pa.Schema) -> dg.TableSchema:
    """Return the columns of a table with their descriptions, as the UI shows them."""
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


def over_shards(
    context: dg.AssetExecutionContext, asset: ShardAsset, config: Any, room: ReadingRoom, ahead: EnginePrefetcher
) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult | dg.AssetMaterialization]:
    """Make the shards of a run: a single shard, a range or a backfill.

    A shard is reported to Dagster as soon as its table is published, and stays recorded if the run is killed later.
    Dagster reports all shards of the run once more at the end of the step.

    A shard that ends in a `KopubError` does not stop the others, unless the storage is away; the step fails at the
    end, after the finished shards are recorded.
    """
    if at_terminal() and MACHINE_TAG not in context.run.tags:
        # Dagster's own commands do not record the machine; `kopub run` already has.
        context.instance.add_run_tags(context.run.run_id, {MACHINE_TAG: platform.node()})

    def warn(message: str) -> None:
        context.log.warning(message)
        watcher().warned(asset.name, message)

    run = replace(
        _run_of(context, asset, context.log.info, warn, ahead.problems(asset)),
        config=config,
        inputs_exhausted=partial(ahead.hand_over, asset),
    )
    finished: dict[str, PublishedShard] = {}
    failures: dict[str, KopubError] = {}
    try:
        require_tested(asset, run)
    except KopubError as error:
        raise dg.Failure(str(error), allow_retries=False) from None
    with canceled_when_stopped(context), closing(ahead.outcomes(asset, run)) as outcomes:
        for shard, outcome in outcomes:
            if isinstance(outcome, PublishedShard):
                outcome.metadata.update(_places(asset, shard, room))
                finished[shard] = outcome
                if outcome.metadata["computed"] and len(finished) < len(run.shards):
                    yield _materialization(context, shard, outcome)
            else:
                failures[shard] = outcome
                if isinstance(outcome, StorageAway):
                    break  # every other shard would wait as long for the storage, and fail in the same way
        failures |= _finish(asset, run, finished, failures)
    watcher().ended(asset.name)
    # One line covers all of them, because an event costs more than checking a small shard.
    if kept := sum(not made.metadata["computed"] for made in finished.values()):
        context.log.info(f"{asset.name}: nothing to compute in {counted(kept, 'shard')}")
    if failures:
        yield from results_of(run.problems)
        for shard, made in finished.items():
            yield _materialization(context, shard, made)
        lines = [f"{shard}: {reason}" for shard, reason in failures.items()]
        raise dg.Failure("\n".join(lines), allow_retries=False)
    for shard, made in finished.items():
        context.add_asset_metadata(shown(made.metadata), partition_key=shard)
    yield dg.MaterializeResult(check_results=results_of(run.problems), data_version=_data_version(finished.values()))


def _steps_of(context: dg.AssetExecutionContext) -> RunSteps:
    """Return the steps of the run.

    Dagster has no public API for the plan, nor for the resources that are made.
    """
    step = context.get_step_execution_context()
    plan = step.plan_data.execution_plan
    return RunSteps(
        context.run.run_id,
        [planned.key for level in plan.get_steps_to_execute_by_level() for planned in level],
        plan.get_executable_step_deps(),
        cast("Resources", step.scoped_resources_builder.resource_instance_dict),
        tuple(context.partition_keys),
        {step.step.key, *cast("Mapping[str, object]", context.run.run_config.get("ops", {}))},
    )


def _run_ahead(context: dg.AssetExecutionContext, asset: ShardAsset) -> RunContext | None:
    """Return the run of shards made ahead; None if their step will refuse."""

    def ignore(line: str) -> None:
        """Drop the line, because the step logs it."""

    run = _run_of(context, asset, ignore, ignore)
    try:
        require_tested(asset, run)
    except KopubError:
        return None
    return run


def _run_of(
    context: dg.AssetExecutionContext,
    asset: ShardAsset,
    log: Callable[[str], None],
    warn: Callable[[str], None],
    problems: Problems | None = None,
) -> RunContext:
    """Return the run of an asset; `problems` are by default those of its last run."""
    if problems is None:
        before = problems_before(context.instance, asset.name, asset.checks, asset.corpus.manifest.keys)
        problems = Problems(asset.checks, before)
    shards = tuple(context.partition_keys)
    return RunContext(context.run.run_id, shards, problems, log, warn, tags=context.run.tags)


def _finish(
    asset: ShardAsset, run: RunContext, finished: Mapping[str, PublishedShard], failures: Mapping[str, KopubError]
) -> dict[str, KopubError]:
    """End the run of an asset, unless its storage is away; return what failed."""
    if any(isinstance(failure, StorageAway) for failure in failures.values()):
        return {}
    try:
        asset.finish(run, finished)
    except KopubError as error:
        return {"in the end": error}
    return {}


def _places(asset: ShardAsset, shard: str, room: ReadingRoom) -> Metadata:
    """Return where a shard's table is stored, and where its pages are shown."""
    places: Metadata = {"table": dg.MetadataValue.path(asset.store.location(asset.name, shard))}
    address = room.of_shard(shard)
    return places if address is None else {**places, "reading_room": dg.MetadataValue.url(address)}


def _materialization(context: dg.AssetExecutionContext, shard: str, made: PublishedShard) -> dg.AssetMaterialization:
    tags = {DATA_VERSION_TAG: made.recipe}
    return dg.AssetMaterialization(context.asset_key, None, shown(made.metadata), shard, tags)


def shown(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata as the UI shows it.

    Fractions get four significant digits, records become a table, and markdown and links are rendered.
    """
    return {name: _shown(value) for name, value in metadata.items()}


def _shown(value: Any) -> Any:
    match value:
        case Moment():
            return dg.MetadataValue.timestamp(float(value))
        case float():
            return float(f"{value:.4g}")
        case list():
            return dg.MetadataValue.table([dg.TableRecord(record) for record in value])
        case Markdown():
            return dg.MetadataValue.md(value)
        case Link():
            return dg.MetadataValue.url(value)
        case _:
            return value


def _data_version(finished: Iterable[PublishedShard]) -> dg.DataVersion:
    """Return the recipe by which a run's shards were made.

    One event covers them all, so a mixture of recipes gets a version of its own.
    """
    recipes = sorted({made.recipe for made in finished})
    return dg.DataVersion(recipes[0] if len(recipes) == 1 else fingerprint(recipes))


def spec_of(check: Check, asset: str) -> dg.AssetCheckSpec:
    """Return a check in the form in which an asset declares it."""
    return dg.AssetCheckSpec(check.name, asset=asset, blocking=check.blocking, description=check.description)


def results_of(problems: Problems) -> list[dg.AssetCheckResult]:
    """Return what the checks found.

    An error stops the assets downstream in this run; all other problems are warnings.
    """
    return [
        dg.AssetCheckResult(
            passed=found.passed,
            check_name=found.check,
            severity=dg.AssetCheckSeverity.ERROR if found.stops else dg.AssetCheckSeverity.WARN,
            metadata=found.metadata,
            description=found.says,
        )
        for found in problems.results()
    ]


def problems_before(
    instance: dg.DagsterInstance, asset: str, checks: Iterable[Check], shards: Sequence[str]
) -> dict[str, dict[str, str]]:
    """Return what the last run's checks found, by check and present shard."""
    found: dict[str, dict[str, str]] = {}
    for check in checks:
        key = dg.AssetCheckKey(dg.AssetKey(asset), check.name)
        history = instance.event_log_storage.get_asset_check_execution_history(key, limit=_LOOKED_BACK)
        # A run that has just begun or was killed has a record without an evaluation.
        evaluations = (record.event.asset_check_evaluation for record in history if record.event)
        last = next((evaluation for evaluation in evaluations if evaluation), None)
        values = {name: value.value for name, value in last.metadata.items() if name in shards} if last else {}
        found[check.name] = {shard: value for shard, value in values.items() if isinstance(value, str)}
    return found


def require_tested(asset: ShardAsset, run: RunContext) -> None:
    """Raise `ClosedGate` if the engine failed its last self-test.

    Only a test of the engine's present recipe counts, and an override with a reason opens the gate. An untested engine
    may run; before a GPU engine makes its first table, the log says how to test it.
    """
    if asset.engine is None:
        return
    result = run_records.find(asset.corpus.folder, asset.engine.recipe())
    gates = asset.resources["gates"]
    if result is None:
        can_be = asset.engine_section in run_records.TESTED
        if can_be and asset.gpus and not asset.store.published(asset.name):
            run.log(
                f"{asset.name}: its engine was never tested on this machine: `kopub doctor` tests it on the samples"
            )
        return
    if result.passed:
        return
    reason = gates.self_test_override.strip()
    if not reason:
        raise ClosedGate(
            f"the {result.section} engine {result.engine} {result}; fix it and run `kopub doctor` again, or give "
            "gates.self_test_override a reason to run it anyway"
        )
    run.warn(f"{asset.name}: its self-test {result}; it runs anyway, because: {reason}")


class _RunResource(dg.ConfigurableResource[Any]):
    """The factory of a run's resource, from the settings and the run's own fields."""

    section: ClassVar[str]
    configured: ClassVar[Resource]

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Resource]:
        made = type(self.configured)
        set_here = type(self).model_fields
        values = {name: getattr(self if name in set_here else self.configured, name) for name in made.model_fields}
        try:
            resource = made(**values)
        except ValidationError as error:
            says = first_problem(error, section_of(made), self.section)
            raise dg.Failure(says, allow_retries=False) from None
        try:
            yield resource
        finally:
            resource.teardown()


class NoValues(dg.IOManager):
    """An IO manager that passes nothing between steps, because the store holds the tables.

    Dagster's default could be given a folder in the Launchpad, and its in-memory one prevents retries of failed runs.
    """

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        raise dg.DagsterInvariantViolationError(f"{context.step_key} returned a value; the store holds the tables")

    def load_input(self, context: dg.InputContext) -> Any:
        raise dg.DagsterInvariantViolationError(f"{context.name} has no value; the store holds the tables")


def launchable(resources: Mapping[str, Any]) -> dict[str, Any]:
    """Return the resources in the form that Dagster takes.

    Values that are not resources, such as the profile's name, are passed unchanged. Each setting becomes the default of
    its own field, so that a run that sets one field leaves the others alone. A field that is `ProfileOnly` or holds a
    resource can be set only in the profile.
    """
    return {name: _launchable(name, each) if isinstance(each, Resource) else each for name, each in resources.items()}


def _launchable(name: str, resource: Resource) -> _RunResource:
    made = type(resource)
    fields: dict[str, Any] = {}
    for key, declared in made.model_fields.items():
        value = getattr(resource, key)
        if not isinstance(value, Resource) and PROFILE_ONLY not in declared.metadata:
            field = copy(declared)
            field.default, field.default_factory = value, None
            # The resource reports a wrong value in one line; Dagster would add a stack trace.
            field.metadata = []
            fields[key] = (declared.annotation, field)
    launched = create_model(
        made.__name__, __base__=_RunResource, __module__=made.__module__, __doc__=made.__doc__, **fields
    )
    launched.section, launched.configured = name, resource
    return cast("type[_RunResource]", launched)()


def launchpad_config(asked: type[Resource] | None) -> type[dg.Config] | None:
    """Return an asset's Launchpad options as a Dagster config."""
    if asked is None:
        return None
    fields: dict[str, Any] = {name: (field.annotation, field) for name, field in asked.model_fields.items()}
    return create_model(
        asked.__name__, __base__=dg.Config, __module__=asked.__module__, __doc__=asked.__doc__, **fields
    )
