"""What takes long before a first row is begun ahead: servers, models and client processes of the steps that follow."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from functools import cache
from typing import Any

import dagster as dg

from kopub_assets.materialize.asset import ShardAsset
from kopub_assets.materialize.metadata.provenance import recipe_of
from kopub_assets.materialize.row_table import RowTable
from resources.engine import Engine
from resources.errors import KopubError
from resources.states import State
from resources.store.footer_cache import Entry, FooterCache
from resources.store.shard_store import ShardStore

_PRIORITY_TAG = "dagster/priority"
_runs: "dict[str, StepsAhead]" = {}
"""By the run's id: a step may execute a run of its own, and not every run that fails tells its end."""
_MOST_RUNS = 8
"""Runs of this process that are remembered: those within steps of one another, and a few whose end nobody told."""


class StepsAhead:
    """The steps of a run that have not begun: their engines are prepared, and keep what they hold for them.

    What comes next is begun twice: at the beginning of each step, so that servers and models are up when their turn
    comes, and when a step has handed out its last row, so that the next one finds client processes up.
    """

    def __init__(
        self, run: str, waits_for: Mapping[str, Set[str]], names: Iterable[str], wanted: Sequence[ShardAsset]
    ) -> None:
        """`waits_for` has every step and those before it, `names` the assets among them.

        `wanted` are those with rows to make, in the order they are executed: of two servers that do not fit side by
        side, the first one asked for is had.
        """
        self._run, self._waits_for, self._wanted = run, waits_for, wanted
        self._to_come = set(names)

    @classmethod
    def of(cls, context: dg.AssetExecutionContext, graph: Sequence[type[ShardAsset]]) -> "StepsAhead":
        """Those of the run of `context` in this process. `graph` has every asset after its parents.

        Raises `KopubError` where one of them cannot be made, whose turn would come after hours.
        """
        step, run = context.get_step_execution_context(), context.run.run_id
        if run not in _runs:
            plan = step.plan_data.execution_plan
            order = [each.key for level in plan.get_steps_to_execute_by_level() for each in level]
            assets = _declared(graph, step.scoped_resources_builder.resource_instance_dict, set(order))
            for asset in assets.values():
                asset.require_possible()
            wanted = with_rows_to_make(assets, tuple(context.partition_keys))
            wanted.sort(key=lambda name: (-_urgency(assets[name], graph), order.index(name)))
            while len(_runs) >= _MOST_RUNS:
                del _runs[next(iter(_runs))]
            _runs[run] = cls(run, plan.get_executable_step_deps(), assets, [assets[name] for name in wanted])
        return _runs[run]

    @contextmanager
    def during(self, asset: ShardAsset) -> Iterator[None]:
        """The step of `asset`: it and what follows are prepared, and in the end what no later step needs is released.

        A step that fails takes along those that wait for it, and an interrupt takes all.
        """
        self.prepare(asset)
        needed = _different([asset, *self._coming])
        self._to_come.discard(asset.name)
        try:
            yield
        except Exception:
            self._to_come -= self._after(asset.name)
            raise
        except BaseException:
            self._to_come.clear()
            raise
        finally:
            still_needed = _different(self._coming)
            for engine in needed:
                if not any(engine is other for other in still_needed):
                    engine.release()
            if not self._to_come:
                _runs.pop(self._run, None)

    def prepare(self, now: ShardAsset | None = None) -> None:
        """Begin what the steps ahead need, `now` before the others; an engine that several need, for the first.

        Servers are asked for before anything else: a model may be imported here, which takes seconds.
        """
        prepared: list[Engine] = []

        def turn(asset: ShardAsset) -> tuple[bool, bool]:
            return not any(engine.needs_server for engine in asset.engines), now is None or asset.name != now.name

        for asset in sorted(self._coming, key=turn):
            if not any(engine is other for engine in asset.engines for other in prepared):
                asset.prepare()
                prepared += asset.engines

    @property
    def _coming(self) -> list[ShardAsset]:
        return [asset for asset in self._wanted if asset.name in self._to_come]

    def _after(self, name: str) -> set[str]:
        """The steps that wait for `name`, directly or not."""
        direct = {step for step, before in self._waits_for.items() if name in before}
        return direct.union(*map(self._after, direct))


def _different(assets: Iterable[ShardAsset]) -> list[Engine]:
    """Their engines, each once."""
    return list({id(engine): engine for asset in assets for engine in asset.engines}.values())


def priority(asset: ShardAsset, graph: Sequence[type[ShardAsset]]) -> dict[str, str]:
    """The tag by which Dagster chooses among steps that are ready. `graph` has every asset after its parents."""
    return {_PRIORITY_TAG: str(_urgency(asset, graph))}


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
