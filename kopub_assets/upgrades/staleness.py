"""What is outdated, for the sensor and the schedule alike."""

import dagster as dg

from kopub_assets.recipes import PARENTS
from kopub_assets.upgrades.stale_scan import Survey, survey
from resources.config.settings import load_settings
from resources.store.footer_cache import Catalogue

NAME = "model_upgrades"
RELEASE = "hf_release"
SCORES = "retrieval_scores"
"""Not partitioned: it is made anew between an upgrade and the release."""

_catalogues: dict[str, Catalogue] = {}


def look() -> Survey:
    """The store held against the settings, now. Raises `KopubError`."""
    settings = load_settings()
    # Kept by this process, so that only tables that were written since are looked into.
    return survey(settings.resources, _catalogues.setdefault(settings.store.url, Catalogue(settings.store)))


def scores_outdated(instance: dg.DagsterInstance) -> bool:
    """Whether something that the scores measure was made after them. Scores that nobody ever made are left alone."""
    keys = [dg.AssetKey(asset) for asset in (*PARENTS, SCORES) if asset != RELEASE]
    last = {
        record.asset_entry.asset_key.path[-1]: record.asset_entry.last_materialization_storage_id
        for record in instance.get_asset_records(keys)
    }
    scored = last.pop(SCORES, None)
    return scored is not None and any(made > scored for made in last.values() if made is not None)
