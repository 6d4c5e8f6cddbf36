"""What takes long before a first row is begun at a step's beginning: servers and models of the steps that follow."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import dagster as dg
from dagster._core.storage.tags import PRIORITY_TAG

from kopub_assets.materialize.asset import ShardAsset
from kopub_assets.materialize.metadata.provenance import recipe_of
from kopub_assets.materialize.row_table import RowTable
from resources.errors import KopubError
from resources.states import State
from resources.store.footer_cache import Entry, FooterCache
from resources.store.shard_store import ShardStore

_looked: dict[str, list[str]] = {}
"""Assets with rows to make, by the run of this process: a run looks once."""


def prepare_engines(context: dg.AssetExecutionContext, graph: Sequence[type[ShardAsset]]) -> None:
    """Prepare the engines of the step of `context`, and of those after it in this process, that have rows to make.

    `graph` has every asset after its parents. The steps come in the order they are executed: of two servers that do
    not fit side by side, the first one asked for is had.
    """
    step, run = context.get_step_execution_context(), context.run.run_id
    plan = [each.key for level in step.plan_data.execution_plan.get_steps_to_execute_by_level() for each in level]
    ahead = set(plan[plan.index(step.step.key) :])
    assets = _declared(graph, step.scoped_resources_builder.resource_instance_dict, ahead)
    if run not in _looked:
        _looked.clear()
        _looked[run] = with_rows_to_make(assets, tuple(context.partition_keys))

    def turn(name: str) -> tuple[int, int]:
        return -_urgency(assets[name], graph), plan.index(name)

    for name in sorted(assets.keys() & _looked[run], key=turn):
        for engine in assets[name].engines:
            engine.prepare()


def priority(asset: ShardAsset, graph: Sequence[type[ShardAsset]]) -> dict[str, str]:
    """The tag by which Dagster chooses among steps that are ready. `graph` has every asset after its parents."""
    return {PRIORITY_TAG: str(_urgency(asset, graph))}


def _urgency(asset: ShardAsset, graph: Sequence[type[ShardAsset]]) -> int:
    """Higher for what waits for no server; then for what more assets wait for."""
    waiting = {type(asset)}
    for other in graph:
        if waiting.intersection(other.parents):
            waiting.add(other)
    needs_server = any(engine.needs_server for engine in asset.engines)
    return len(waiting) if needs_server else len(waiting) + len(graph)


def with_rows_to_make(assets: Mapping[str, ShardAsset], shards: Sequence[str]) -> list[str]:
    """Those of `assets` with an engine that have rows to make in one of `shards`, as far as footers tell.

    They do where there is no table, one of another recipe, or one with failed rows, and where a parent among `assets`
    does.
    """

    store: ShardStore | None = next((asset.store for asset in assets.values()), None)
    if store is None:
        return []
    footers = FooterCache(store)

    @cache
    def tables(name: str) -> Mapping[str, Entry]:
        return footers.tables(name)

    @cache
    def has_rows(name: str, shard: str) -> bool:
        asset = assets[name]
        parents = (parent.table.name for parent in asset.reads)
        above = any(has_rows(parent, shard) for parent in parents if parent in assets)
        return above or _has_rows_to_make(asset, shard, tables)

    return [name for name, asset in assets.items() if asset.engines and any(has_rows(name, shard) for shard in shards)]


def _has_rows_to_make(asset: ShardAsset, shard: str, tables: Callable[[str], Mapping[str, Entry]]) -> bool:
    """Whether a table is missing, of another recipe, or has failed rows; not where its parents cannot be read."""
    try:
        parents = {parent.table.name: tables(parent.table.name).get(shard) for parent in asset.reads}
        contents = {name: parent.content for name, parent in parents.items() if parent is not None}
        if len(contents) < len(parents):
            return False  # the step says it
        known = tables(asset.name).get(shard)
        if known is None:
            return bool(asset.reads) or not asset.engines or _has_rows(asset, shard)
        recipe = recipe_of(asset.own_recipe, {**asset.beside_parents(shard), **contents})
    except KopubError:
        return False  # the step says it
    return known.recipe != recipe or bool(known.states.get(State.FAILED))


def _has_rows(asset: ShardAsset, shard: str) -> bool:
    """Whether a table that an engine makes of the corpus itself would have any: a corpus may have no queries."""
    return isinstance(asset, RowTable) and any(True for _ in asset.rows(shard))


def _declared(
    graph: Sequence[type[ShardAsset]], resources: Mapping[str, Any], steps: set[str]
) -> dict[str, ShardAsset]:
    """The assets of these steps whose resources are those of this process."""
    found = (asset for asset in graph if asset.table.name in steps and asset.resource_keys() <= resources.keys())
    return {asset.table.name: asset(resources) for asset in found}
