"""Upgrades at night: the stale shards are found and made again, each at most once a night.

The store says what is stale, as in `kopub plan`, and Dagster's conditions say when. All that leans on
Dagster's internals is here.
"""

import warnings
from collections.abc import Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import dagster as dg

from kopub_assets.upgrades.stale_scan import Survey
from kopub_assets.upgrades.staleness import NAME, RELEASE, SCORES, look, scores_outdated
from resources.config.upgrade_window import Upgrades

AC = dg.AutomationCondition

_surveys: WeakKeyDictionary[Any, Survey] = WeakKeyDictionary()


def upgraded(assets: Sequence[dg.AssetsDefinition], upgrades: Upgrades) -> dg.Definitions:
    """`assets`, with the conditions and the sensor that bring their stale shards up to date."""
    # Conditions of one's own are evaluated where their code is, which Dagster calls beta whenever it is loaded.
    warnings.filterwarnings("ignore", category=dg.BetaWarning, message=".*(use_user_code_server|include_sources)")
    sensor = dg.AutomationConditionSensorDefinition(
        NAME,
        target="*",
        use_user_code_server=True,
        default_status=dg.DefaultSensorStatus.RUNNING if upgrades.enabled else dg.DefaultSensorStatus.STOPPED,
        minimum_interval_seconds=60,
        description=f"Makes what a new model, prompt or source makes stale again, {upgrades}.",
    )
    conditioned = dg.map_asset_specs(
        lambda spec: spec.replace_attributes(automation_condition=_condition(spec.key.path[-1], upgrades)), assets
    )
    return dg.Definitions(conditioned, sensors=[sensor])


def _condition(asset: str, upgrades: Upgrades) -> dg.AutomationCondition[Any]:
    """Once a night: a shard that was requested, or made by hand, since the night began has had its turn.

    A sensor that remembers nothing, because it is new or its daemon was killed, begins as with a new
    night: asking twice for what failed is better than letting a night go by.
    """
    begins = AC.cron_tick_passed(upgrades.cron, upgrades.timezone) | AC.initial_evaluation()
    tonight = begins.since(AC.newly_requested() | AC.newly_updated())
    idle = ~AC.in_progress() & ~AC.any_deps_in_progress()
    if asset in (RELEASE, SCORES):
        # They follow whatever the night has made, also when that took until morning: they need no GPU.
        return tonight & Outdated() & EverythingElseIsDone() & idle
    waits = AC.any_deps_match(Outdated() & ~AC.will_be_requested())
    return tonight & IsNight(upgrades) & Outdated() & idle & ~waits


class _Condition(dg.AutomationCondition[Any]):
    """True for a part of an asset's partitions, or for an asset without partitions."""

    def true_for(self, context: Any) -> Iterable[str] | bool:
        """Partition keys, or all or none of the asset."""
        raise NotImplementedError

    def evaluate(self, context: Any) -> dg.AutomationResult[Any]:
        found = self.true_for(context)
        if isinstance(found, bool):
            subset = context.candidate_subset if found else context.get_empty_subset()
        else:
            view, partitions = context.asset_graph_view, context.asset_graph.get(context.key).partitions_def
            subset = view.get_subset_from_partition_keys(context.key, partitions, set(found))
            subset = subset.compute_intersection(context.candidate_subset)
        return dg.AutomationResult(context, true_subset=subset)


class Outdated(_Condition):
    """The table would come out otherwise now, or something above it would."""

    @property
    def name(self) -> str:
        return "outdated"

    def true_for(self, context: Any) -> Iterable[str] | bool:
        asset = context.key.path[-1]
        if asset == SCORES:
            return scores_outdated(context.asset_graph_view.instance)
        return _surveyed(context).outdated.get(asset, set())


class EverythingElseIsDone(_Condition):
    """No shard of the corpus waits for an upgrade: a dataset of two models at once is not released."""

    @property
    def name(self) -> str:
        return "everything_else_is_done"

    def true_for(self, context: Any) -> bool:
        waiting = any(shards for asset, shards in _surveyed(context).outdated.items() if asset != RELEASE)
        return not waiting and (
            context.key.path[-1] == SCORES or not scores_outdated(context.asset_graph_view.instance)
        )


class IsNight(_Condition):
    """Work may be started now."""

    def __init__(self, upgrades: Upgrades) -> None:
        super().__init__()
        self.upgrades = upgrades

    @property
    def name(self) -> str:
        return f"is_night({self.upgrades})"

    def true_for(self, context: Any) -> bool:
        return self.upgrades.is_night(context.evaluation_time)


def _surveyed(context: Any) -> Survey:
    """One look at the store for each tick: all conditions of it see the same."""
    view = context.asset_graph_view
    if view not in _surveys:
        _surveys[view] = look()
    return _surveys[view]
