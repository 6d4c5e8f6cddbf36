"""The Dagster assets of a platform: any number of them side by side in one process."""

import dagster as dg

from kopub_assets.graph import GRAPH, Graph
from kopub_assets.materialize.dagster_assets import dagster_asset, shown_off
from kopub_assets.scores.benchmark_scores import benchmark_scores
from kopub_assets.scores.ocr_scores import ocr_scores
from kopub_assets.scores.retrieval_scores import retrieval_scores
from resources.config.settings import Settings


def build_assets(settings: Settings, graph: Graph = GRAPH) -> list[dg.AssetsDefinition | dg.AssetSpec]:
    """The assets of `graph`, partitioned by the shards of the corpus that `settings` names, and the scores.

    An asset that the profile wants nothing of is shown, and cannot be made. Reading scores are there where pages have
    known answers, and those of benchmarks where the gates name some. Raises `ConfigError` and `SourceError`, one line
    each, for what cannot be loaded.
    """
    partitions = dg.StaticPartitionsDefinition(settings.corpus.manifest.keys)
    wanted = graph.on(settings.resources)
    declared = wanted.declared(settings.resources)
    scores = [retrieval_scores(settings)]
    if settings.corpus.gold is not None:
        scores.append(ocr_scores())
    if settings.gates.benchmarks:
        scores.append(benchmark_scores(settings, build_assets))
    there = {asset.key.path[-1] for asset in scores}
    shards = [
        dagster_asset(
            asset, declared[name], partitions, settings.shards_per_run, wanted.assets, there, settings.reading_room
        )
        for name, asset in wanted.by_name.items()
    ]
    shown = [shown_off(graph.by_name[name], why) for name, why in graph.off(settings.resources).items()]
    return [*shards, *scores, *shown]
