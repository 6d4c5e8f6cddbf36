"""The resource that prepares the engines of a run, and releases them at its end."""

from collections.abc import Iterator
from typing import cast

import dagster as dg

from kopub.config.settings import Resources
from kopub.pages.corpus import Corpus
from kopub.store.table_source import FooterCache
from kopub.tables.asset import ShardAsset
from kopub.tables.engines import RunEngines
from kopub.tables.graph import Graph
from kopub.tables.plan import Survey, survey

ENGINES = "engines"
"""Name of the resource among those of an asset."""


def run_engines(graph: Graph, scan: Survey | None = None) -> dg.ResourceDefinition:
    """Return the resource with the engines of all assets of `graph`, one for every run.

    `scan` says what is stale, if that was just asked for the same shards; otherwise the first step asks.
    """
    keys = {key for asset in graph.assets for key in asset.resource_keys()}

    @dg.resource(required_resource_keys=keys, description="What the steps of a run know of each other's engines.")
    def engines(context: dg.InitResourceContext) -> Iterator[RunEngines]:
        run = context.run
        assert run is not None, "only a run has steps"
        # The graph's assets ask for exactly these.
        resources = cast("Resources", {key: getattr(context.resources, key) for key in keys})
        # A run that is not limited to some assets names none.
        selected = {key.path[-1] for key in run.asset_selection or ()}
        assets: dict[str, ShardAsset] = {}
        for name, asset in graph.declared(resources).items():
            is_selected = not selected or name in selected
            if is_selected and (run.step_keys_to_execute is None or name in run.step_keys_to_execute):
                assets[name] = asset
        running = RunEngines(
            assets,
            shards_of(run, resources["corpus"]),
            lambda: scan or survey(resources, FooterCache(resources["store"]), graph, unreadable={}, damage=set()),
            graph.assets,
        )
        try:
            yield running
        finally:
            running.end()

    return engines


def range_tags(first: str, last: str) -> dict[str, str]:
    """Return the tags of a run over the shards from `first` to `last`."""
    return {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}


def shards_of(run: dg.DagsterRun, corpus: Corpus) -> list[str]:
    """Return the shards that a run was asked for and the corpus has."""
    keys = list(corpus.manifest.keys)
    first, last = (run.tags.get(tag, run.tags.get("dagster/partition", "")) for tag in range_tags("", ""))
    return keys[keys.index(first) : keys.index(last) + 1] if first in keys and last in keys else []
