"""Nightly upgrades: each stale shard is made again once a night.

The store says what is stale, as in `kopub plan`, and Dagster's conditions say when. The conditions look at a tick by
attributes of its context, most of which Dagster does not declare public. What it does not export at all is imported in
`private.py`, and in `kopub/cli/commands/ui.py` (workspace, code server, daemon).
"""

import os
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import dagster as dg

from kopub.config.choices import Upgrades
from kopub.config.settings import Settings, written_settings
from kopub.evaluation.reading_scores import HISTORY as READING_HISTORY
from kopub.fingerprints import fingerprint
from kopub.pages.manifest import Manifest
from kopub.search.metrics import HISTORY as RETRIEVAL_HISTORY
from kopub.store.corpus_tables import BENCHMARKS, OCR_SCORES, TABLES
from kopub.store.corpus_tables import SCORES as RETRIEVAL_SCORES
from kopub.store.table_source import CorpusCheck, FooterCache
from kopub.tables.evaluations import GuardStanding, standings_of_guards
from kopub.tables.graph import Graph
from kopub.tables.hf_release import HfRelease
from kopub.tables.plan import Survey, sources_of, survey
from kopub.tables.search_sink import SearchSink

AC = dg.AutomationCondition
MODEL_UPGRADES = "model_upgrades"
RELEASE = HfRelease.table.name
_GIVEN_AWAY = (RELEASE, SearchSink.table.name)
"""What is made of finished tables, and holds nothing up."""
SCORES = {RETRIEVAL_SCORES.name: RETRIEVAL_HISTORY, OCR_SCORES.name: READING_HISTORY}
T = TypeVar("T")
_READ = (TABLES.regions.name, TABLES.readings.name, TABLES.texts.name)


def with_upgrades(
    assets: Sequence[dg.AssetsDefinition | dg.AssetSpec], settings: Settings, graph: Graph
) -> dg.Definitions:
    """Return `assets` with the conditions and the sensor of nightly upgrades."""
    # Custom conditions are evaluated in the process of their code, which Dagster calls beta at every load.
    warnings.filterwarnings("ignore", category=dg.BetaWarning, message=".*(use_user_code_server|include_sources)")
    upgrades = settings.upgrades
    sensor = dg.AutomationConditionSensorDefinition(
        MODEL_UPGRADES,
        target="*",
        use_user_code_server=True,
        default_status=dg.DefaultSensorStatus.RUNNING if upgrades.enabled else dg.DefaultSensorStatus.STOPPED,
        minimum_interval_seconds=60,
        description=f"Makes stale tables again, as after a new model, prompt or source, {upgrades}.",
    )
    ticks = _Ticks(settings, graph)

    # Nightly, unless requested or made by hand since. A sensor without memory, because it is new or its daemon was
    # killed, behaves as at the beginning of a night: requesting failed work twice is better than missing a night.
    begins = AC.cron_tick_passed(upgrades.cron, upgrades.timezone) | AC.initial_evaluation()
    tonight = begins.since(AC.newly_requested() | AC.newly_updated())
    idle = ~AC.in_progress() & ~AC.any_deps_in_progress()

    def conditioned(spec: dg.AssetSpec) -> dg.AssetSpec:
        name, days, freshness = spec.key.path[-1], upgrades.fresh_within_days, None
        if name in (RELEASE, *SCORES):
            if days is not None:
                freshness = dg.FreshnessPolicy.time_window(fail_window=timedelta(days=days))
            # They follow the night's work even if it took until morning, since they need no GPU.
            condition = tonight & OutdatedCondition(ticks) & OthersDoneCondition(ticks) & idle
        else:
            waits = AC.any_deps_match(OutdatedCondition(ticks) & ~AC.will_be_requested())
            condition = tonight & NightCondition(upgrades) & OutdatedCondition(ticks) & idle & ~waits
        if name in _READ:
            # Assets that decide a text wait for the benchmarks: minutes show what hours would have made worse.
            condition &= BenchmarksPassCondition(ticks)
        return spec.replace_attributes(automation_condition=condition, freshness_policy=freshness)

    active: list[dg.AssetsDefinition] = []
    off: list[dg.AssetSpec] = []
    for asset in assets:
        if isinstance(asset, dg.AssetSpec):
            off.append(asset)
        else:
            active.append(asset)
    return dg.Definitions([*dg.map_asset_specs(conditioned, active), *off], sensors=[sensor])


class _Ticks:
    """The tables and scores of a store as a tick sees them.

    All conditions of a tick see the same. This process keeps the footers that it has read.
    """

    def __init__(self, settings: Settings, graph: Graph) -> None:
        self._settings, self._graph = settings, graph
        self._footers = FooterCache(settings.store)
        self._of_tick: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()

    def scan(self, context: Any) -> Survey:
        """Return the standing of every table. Raises `KopubError`."""
        return self._once(context, "scan", lambda: survey(self._settings.resources, self._footers, self._graph))

    def guards(self, context: Any) -> list[GuardStanding]:
        """Return the standing of the benchmarks that guard the corpus. Raises `KopubError`."""
        return self._once(context, "guards", lambda: standings_of_guards(self._settings))

    def scores_are_stale(self, context: Any, scores: str) -> bool:
        """Return whether a table is newer than the `scores` that measure it.

        False without scores, and where this corpus is not measured by them.
        """
        return self._once(context, scores, lambda: self._are_stale(context, scores))

    def _are_stale(self, context: Any, scores: str) -> bool:
        view = context.asset_graph_view
        if not view.asset_graph.has(dg.AssetKey(scores)):
            return False
        keys = [dg.AssetKey(asset) for asset in (*self._graph.names, scores) if asset not in _GIVEN_AWAY]
        scored, made = None, 0
        for record in view.instance.get_asset_records(keys):
            event = record.asset_entry.last_materialization_storage_id
            if record.asset_entry.asset_key.path[-1] == scores:
                scored = event
            else:
                made = max(made, event or 0)
        if scored is not None:
            return made > scored
        # Dagster's history may be younger than the store.
        store, keys_now = self._settings.store, self._settings.corpus.manifest.keys
        check = CorpusCheck(store, sources_of(self._settings.resources, self._graph))
        return not SCORES[scores].is_of_tables_now(store, keys_now, check.look(self.scan(context).tables))

    def _once(self, context: Any, what: str, look: Callable[[], T]) -> T:
        """Return what `look` returned at its first call in this tick."""
        answers = self._of_tick.setdefault(context.asset_graph_view, {})
        if what not in answers:
            answers[what] = look()
        return answers[what]


class _Condition(dg.AutomationCondition[Any]):
    """True for a part of an asset's partitions, or for an asset without partitions."""

    title: str

    @property
    def name(self) -> str:
        return self.title

    def true_for(self, context: Any) -> Iterable[str] | bool:
        """Return partition keys, or whether it holds for the whole asset."""
        raise NotImplementedError

    def evaluate(self, context: Any) -> dg.AutomationResult[Any]:
        holds = self.true_for(context)
        if isinstance(holds, bool):
            subset = context.candidate_subset if holds else context.get_empty_subset()
        else:
            view, partitions = context.asset_graph_view, context.asset_graph.get(context.key).partitions_def
            subset = view.get_subset_from_partition_keys(context.key, partitions, set(holds))
            subset = subset.compute_intersection(context.candidate_subset)
        return dg.AutomationResult(context, true_subset=subset)


class _OfTheStore(_Condition):
    """A condition that depends on the store."""

    def __init__(self, ticks: _Ticks) -> None:
        super().__init__()
        self.ticks = ticks


class OutdatedCondition(_OfTheStore):
    """The table, or one upstream of it, would come out differently now."""

    title = "outdated"

    def true_for(self, context: Any) -> Iterable[str] | bool:
        asset = context.key.path[-1]
        if asset in SCORES:
            return self.ticks.scores_are_stale(context, asset)
        if asset == BENCHMARKS:
            return not all(guard.is_current for guard in self.ticks.guards(context))
        return self.ticks.scan(context).outdated.get(asset, set())


class OthersDoneCondition(_OfTheStore):
    """No shard of the corpus waits for an upgrade.

    A dataset that mixes two models is not released.
    """

    title = "everything_else_is_done"

    def true_for(self, context: Any) -> bool:
        waiting = any(shards for asset, shards in self.ticks.scan(context).outdated.items() if asset not in _GIVEN_AWAY)
        scored = not any(self.ticks.scores_are_stale(context, scores) for scores in SCORES)
        return not waiting and (context.key.path[-1] in SCORES or scored)


class BenchmarksPassCondition(_OfTheStore):
    """This profile was evaluated on the gates' benchmarks, and none is worse."""

    title = "benchmarks_pass"

    def true_for(self, context: Any) -> bool:
        return all(guard.is_current and not guard.closed for guard in self.ticks.guards(context))


class NightCondition(_Condition):
    """It is night: work may be started now."""

    def __init__(self, upgrades: Upgrades) -> None:
        super().__init__()
        self.upgrades, self.title = upgrades, f"is_night({upgrades})"

    def true_for(self, context: Any) -> bool:
        return self.upgrades.is_night(context.evaluation_time)


PROFILE_WATCH = "profile_watch"
_LOOK_SECONDS = 30
"""Seconds between two looks at the files."""
_LOAD_SECONDS = 300
"""Seconds for the definitions to load."""


def profile_watch(settings: Settings, load: Callable[[], Any]) -> dg.SensorDefinition:
    """Return the sensor that reloads the definitions when profile or index change.

    `load` raises if the present files cannot be loaded; the old definitions then stay.
    """
    loaded = _settings_fingerprint(settings)

    @dg.sensor(
        name=PROFILE_WATCH,
        minimum_interval_seconds=_LOOK_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Reloads the definitions when the profile, the model pins or the index changes.",
    )
    def watch(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        if _settings_fingerprint(settings) == loaded:
            return dg.SkipReason("The profile and the index have not changed.")
        load()
        # Only an origin with a code server, which other processes query, has a client.
        if connect := getattr(context.code_location_origin, "create_client", None):
            # Loading the definitions ends the process of this tick, so the tick cannot wait for them.
            threading.Thread(target=connect().reload_code, args=(_LOAD_SECONDS,), daemon=True).start()
        return dg.SkipReason("The profile or the index changed: the definitions are being reloaded.")

    return watch


def _settings_fingerprint(settings: Settings) -> str:
    """Return a fingerprint of the files behind `settings` now.

    Raises `ConfigError` and `SourceError`.
    """
    return fingerprint([written_settings(os.environ), Manifest.load(settings.corpus.place).to_json()])
