"""Dagster's graph is the one in graph.json; `pytest tests/assets --write-graph` updates that file."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from kopub_assets.definitions import definitions_of
from tests.support.harness import Platform
from tests.support.sources.corpora import pages

AGREED = Path(__file__).with_name("graph.json")


def described(assets: list[dg.AssetsDefinition | dg.AssetSpec]) -> dict[str, Any]:
    """Return everything about the assets that users of the UI or the tables rely on."""
    shown = {
        spec.key.to_user_string(): {"off": (spec.description or "").partition("\n")[0], "kinds": sorted(spec.kinds)}
        for spec in assets
        if isinstance(spec, dg.AssetSpec)
    }
    return shown | {
        asset.key.to_user_string(): {
            "deps": sorted(dep.asset_key.to_user_string() for dep in asset.get_asset_spec().deps),
            "group": asset.get_asset_spec().group_name,
            "kinds": sorted(asset.get_asset_spec().kinds),
            "partitioned": asset.partitions_def is not None,
            "checks": {spec.name: "blocking" if spec.blocking else "warning" for spec in asset.check_specs},
            "resources": sorted(asset.required_resource_keys - {"io_manager"}),
            "config": sorted(getattr(asset.op.config_schema.config_type, "fields", {}) or ()),
            "columns": [f"{column.name}: {column.type}" for column in _columns(asset)],
        }
        for asset in assets
        if isinstance(asset, dg.AssetsDefinition)
    }


def _columns(asset: dg.AssetsDefinition) -> list[dg.TableColumn]:
    return asset.get_asset_spec().metadata["dagster/column_schema"].columns


@pytest.mark.parametrize("days", [None, 7.0])
def test_a_release_is_overdue_where_the_profile_says_when(tmp_path: Path, days: float | None):
    platform = Platform.of(tmp_path, [pages("a_1")])
    upgrades = platform.settings.upgrades.model_copy(update={"fresh_within_days": days})
    definitions = definitions_of(replace(platform.settings, upgrades=upgrades))
    overdue = {spec.key.path[-1] for spec in definitions.resolve_all_asset_specs() if spec.freshness_policy}
    assert overdue == (set() if days is None else {"hf_release", "retrieval_scores"})


def test_the_graph_is_as_agreed(tmp_path: Path, request: pytest.FixtureRequest):
    now = described(Platform.of(tmp_path, [pages("a_1")]).assets)
    if request.config.getoption("--write-graph"):
        AGREED.write_text(json.dumps(now, indent=1) + "\n")
    assert now == json.loads(AGREED.read_text()), (
        "if the change is meant: pytest tests/assets/test_graph.py --write-graph"
    )
