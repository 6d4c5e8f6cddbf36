"""What is stale in a store, as the nightly sensor asks it again and again."""

import dagster as dg

from kopub_assets.graph import GRAPH, Graph
from kopub_assets.hf_release import HfRelease
from kopub_assets.upgrades.guards import GuardStanding, standings_of_guards
from kopub_assets.upgrades.stale_scan import Survey, survey
from resources.config.settings import Settings
from resources.store.footer_cache import FooterCache

RELEASE = HfRelease.table.name


class Staleness:
    """The store of `settings` held against them; footers that were read once are kept by this process."""

    def __init__(self, settings: Settings, graph: Graph = GRAPH) -> None:
        self._settings = settings
        self._graph = graph
        self._footers = FooterCache(settings.store)

    def scan(self) -> Survey:
        """The standing of every table now. Raises `KopubError`."""
        return survey(self._settings.resources, self._footers, self._graph)

    def scores_are_stale(self, instance: dg.DagsterInstance, scores: str) -> bool:
        """Whether something that `scores` measure was made after them; not for scores that nobody ever made."""
        keys = [dg.AssetKey(asset) for asset in (*self._graph.names, scores) if asset != RELEASE]
        last = {
            record.asset_entry.asset_key.path[-1]: record.asset_entry.last_materialization_storage_id
            for record in instance.get_asset_records(keys)
        }
        scored = last.pop(scores, None)
        return scored is not None and any(made > scored for made in last.values() if made is not None)

    def guards(self) -> list[GuardStanding]:
        """How the benchmarks that guard the corpus stand now. Raises `KopubError`."""
        return standings_of_guards(self._settings)
