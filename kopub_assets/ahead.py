"""Engines that start before the steps that need them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, cast

from kopub_assets.asset import ShardAsset
from kopub_assets.staleness import assets_to_make
from resources.engine import Engine
from resources.store.table_source import FooterCache

if TYPE_CHECKING:
    import dagster as dg

    from resources.config.settings import Resources

_PRIORITY_TAG = "dagster/priority"


class EnginePrefetcher:
    """Prepares the engines of later steps, and keeps what they hold.

    What comes next is prepared twice: at the beginning of each step, so that servers and models are up when their turn
    comes, and when a step has handed out its last row, so that the next one finds client processes up.
    """

    _current: "ClassVar[EnginePrefetcher | None]" = None
    """That of the run of this process: not every run that fails tells its end, before another one begins."""

    def __init__(
        self, run: str, waits_for: Mapping[str, Set[str]], names: Iterable[str], wanted: Sequence[ShardAsset]
    ) -> None:
        """Take the steps: `waits_for` has those before each, `names` the assets.

        `wanted` are those with rows to make, in the order they are executed: of two servers that do not fit side by
        side, the first one asked for is had.
        """
        self._run, self._waits_for, self._wanted = run, waits_for, wanted
        self._to_come = set(names)

    @classmethod
    def of(cls, context: "dg.AssetExecutionContext", graph: Sequence[type[ShardAsset]]) -> "EnginePrefetcher":
        """Return the prefetcher of the run of `context` in this process.

        `graph` has every asset after its parents. Raises `KopubError` where one of the steps cannot be made, whose turn
        would come after hours.
        """
        step, run = context.get_step_execution_context(), context.run.run_id
        if cls._current is None or cls._current._run != run:
            plan = step.plan_data.execution_plan
            order = [each.key for level in plan.get_steps_to_execute_by_level() for each in level]
            resources = step.scoped_resources_builder.resource_instance_dict
            # Other steps have resources that this process did not make.
            here = [each for each in graph if each.table.name in order and each.resource_keys() <= resources.keys()]
            assets = {asset.table.name: asset(cast("Resources", resources)) for asset in here}
            for asset in assets.values():
                asset.require_possible()
            wanted: list[str] = []
            if assets:
                footers = FooterCache(next(iter(assets.values())).store)
                wanted = assets_to_make(assets, tuple(context.partition_keys), footers)
            wanted.sort(key=lambda name: (-_urgency(assets[name], graph), order.index(name)))
            deps = plan.get_executable_step_deps()
            cls._current = cls(run, deps, assets, [assets[name] for name in wanted])
        return cls._current

    @contextmanager
    def during(self, asset: ShardAsset) -> Iterator[None]:
        """Prepare the step of `asset` and those after it.

        What no later step needs is released in the end. A step that fails takes along those that wait for it, and an
        interrupt takes all.
        """
        self.prepare(asset)
        needed = _engines_of([asset, *self._coming])
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
            still_needed = _engines_of(self._coming)
            for engine in needed:
                if not any(engine is other for other in still_needed):
                    engine.release()
            if not self._to_come and EnginePrefetcher._current is self:
                EnginePrefetcher._current = None

    def prepare(self, now: ShardAsset | None = None) -> None:
        """Prepare the engines of coming steps, `now` before the others.

        Where a step has several engines, the first one is prepared. Servers are asked for before anything else: a model
        may be imported here, which takes seconds.
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
        """Return the steps that wait for `name`, directly or not."""
        direct = {step for step, before in self._waits_for.items() if name in before}
        return direct.union(*map(self._after, direct))


def priority(asset: ShardAsset, graph: Sequence[type[ShardAsset]]) -> dict[str, str]:
    """Return the tag by which Dagster chooses among ready steps.

    `graph` has every asset after its parents.
    """
    return {_PRIORITY_TAG: str(_urgency(asset, graph))}


def _urgency(asset: ShardAsset, graph: Sequence[type[ShardAsset]]) -> int:
    """Return more for what waits for no server; then for what more assets wait for."""
    waiting = {type(asset)}
    for other in graph:
        if waiting.intersection(other.parents):
            waiting.add(other)
    needs_server = any(engine.needs_server for engine in asset.engines)
    return len(waiting) if needs_server else len(waiting) + len(graph)


def _engines_of(assets: Iterable[ShardAsset]) -> list[Engine]:
    """Return the engines of some assets, each once."""
    return list({id(engine): engine for asset in assets for engine in asset.engines}.values())
