"""The definitions that Dagster loads."""

import os
import sys
from contextlib import suppress
from functools import lru_cache, partial

import click
import dagster as dg

from kopub.config.settings import Settings, load_settings, read_settings
from kopub.corrections.gold import has_known_answers
from kopub.errors import KopubError, StoreError, visible
from kopub.store.faults import require_reachable
from kopub.tables.evaluations import require_read_well
from kopub.tables.graph import GRAPH, Graph
from kopub.tables.plan import Survey
from kopub_assets.running import execution
from kopub_assets.running.engines import run_engines
from kopub_assets.running.execution import failed_runs
from kopub_assets.scores import benchmark_scores, ocr_scores, retrieval_scores
from kopub_assets.sensors import profile_watch, with_upgrades
from kopub_assets.shard_assets import dagster_asset, shown_off
from resources.profile import dagster_resources
from resources.storage import shard_tables


@dg.definitions
def definitions() -> dg.Definitions:
    """Return the assets, resources and sensors of the profile.

    Raises an error that Dagster shows as one line, without a stack, for a mistake that a person can correct.
    """
    try:
        return _loaded(load_settings())
    except KopubError as error:
        line = visible(str(error))
        if execution.at_terminal():
            raise click.ClickException(line) from None
        # Dagster would also show the stack; hiding it is safe, because this process only loads these definitions.
        sys.tracebacklimit = 0
        raise KopubError(line) from None


@lru_cache(maxsize=1)
def _loaded(settings: Settings) -> dg.Definitions:
    """Return the definitions, which are made once per process.

    Dagster's commands load them six times or more, and a changed profile starts another process.
    """
    if execution.at_terminal():
        require_reachable(settings.store.url)
    loaded = definitions_of(settings)
    watch = profile_watch(settings, lambda: definitions_of(read_settings(os.environ)))
    return dg.Definitions.merge(loaded, dg.Definitions(sensors=[watch]))


def definitions_of(settings: Settings, graph: Graph = GRAPH, scan: Survey | None = None) -> dg.Definitions:
    """Return the assets, resources and sensors of a platform.

    `scan` says what is stale, if that was just asked. Raises `ConfigError` and `SourceError`, one line each.
    """
    everything = dg.define_asset_job(
        "everything", dg.AssetSelection.all(), description="Every table of a shard, and the scores of the corpus."
    )
    resources = {**dagster_resources(settings.resources), "io_manager": shard_tables}
    common = dg.Definitions(resources=resources, executor=execution.EXECUTOR, jobs=[everything], sensors=[failed_runs])
    return dg.Definitions.merge(with_upgrades(build_assets(settings, graph, scan), settings, graph), common)


def build_assets(
    settings: Settings, graph: Graph, scan: Survey | None = None
) -> list[dg.AssetsDefinition | dg.AssetSpec]:
    """Return the assets of `graph` and the scores, partitioned by shard.

    The shards are those of the corpus in `settings`. Assets that the profile turns off are shown, but cannot be made.
    `scan` is passed on to `run_engines`. There are reading scores if pages have known answers, and benchmark scores if
    the gates name benchmarks. Raises `ConfigError` and `SourceError`, with a one-line message, for what cannot be
    loaded.
    """
    partitions = dg.StaticPartitionsDefinition(settings.corpus.manifest.keys)
    active = graph.on(settings.resources)
    declared = active.declared(settings.resources)
    scores = [retrieval_scores(settings)]
    # A store that is unavailable for now should not prevent loading; a run reports the problem.
    with suppress(StoreError):
        if has_known_answers(settings.corpus, settings.store):
            scores.append(ocr_scores())
    if settings.gates.benchmarks:
        scores.append(benchmark_scores(settings))
    score_names = {asset.key.path[-1] for asset in scores}
    engines = run_engines(active, scan)
    shards: list[dg.AssetsDefinition] = []
    for name, asset in active.by_name.items():
        shards.append(
            dagster_asset(
                asset,
                declared[name],
                partitions,
                settings.shards_per_run,
                active.assets,
                engines,
                score_names,
                settings.reading_room,
                partial(require_read_well, settings),
            )
        )
    off = [shown_off(graph.by_name[name], why) for name, why in graph.off(settings.resources).items()]
    return [*shards, *scores, *off]
