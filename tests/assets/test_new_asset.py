"""The example of docs/extend.md works as printed: one module and its registration add an asset."""

import importlib.util
from pathlib import Path

import dagster as dg

from kopub.states import State
from kopub.store.table_source import FooterCache
from kopub.tables.asset import RowTable
from kopub.tables.graph import GRAPH, Graph
from kopub.tables.plan import survey
from tests.support.harness import Platform
from tests.support.sources.corpora import pages

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "asset" / "page_languages.py"


def example() -> type[RowTable]:
    spec = importlib.util.spec_from_file_location("page_languages", EXAMPLE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PageLanguages


def test_it_is_made_checked_planned_and_kept_like_every_other(tmp_path: Path):
    platform = Platform.of(tmp_path, [pages("a_1", "a_2"), pages("b_1")])
    platform.graph = Graph((*GRAPH.assets, example()))
    result = platform.run(last="shard_01")
    assert result.success
    assert {row["script"] for row in platform.rows("page_languages").values()} == {"LATIN"}
    assert platform.states("page_languages", "shard_01") == {"b_1": State.OK}
    found = result.get_asset_check_evaluations()
    checks = {check.check_name for check in found if check.asset_key == dg.AssetKey("page_languages")}
    assert checks == {"every_row_accounted_for", "nothing_lost"}
    scan = survey(platform.resources(), FooterCache(platform.store), platform.graph)
    assert {str(standing) for standing in scan.standings["page_languages"].values()} == {"current"}
    again = platform.run("page_languages", last="shard_01")
    made = again.asset_materializations_for_node("page_languages")
    assert [event.metadata["computed"].value for event in made] == [0, 0]


def test_platforms_of_other_graphs_and_partitions_live_side_by_side(tmp_path: Path):
    one = Platform.of(tmp_path / "one", [pages("a_1")])
    many = Platform.of(tmp_path / "many", [pages(f"{letter}_1") for letter in "abcde"])
    many.graph = Graph((*GRAPH.assets, example()))
    assert many.run("raw_pages", first="shard_04").success
    assert one.run("raw_pages").success
    assert many.states("raw_pages", "shard_04") == {"e_1": State.OK}
    assert len(one.assets) + 1 == len(many.assets)
