"""Dagster's UI shows partition states, shard figures, previews and locations."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from kopub.layout.regions import Layout
from kopub.pages.page import Page
from kopub.tables.metadata import first_markdown
from kopub.tables.rows import Progress
from kopub_assets.reporting import shown
from tests.doubles.engines import OneRegionLayout
from tests.support.harness import Platform
from tests.support.sources.corpora import pages

LAYOUT = "layout_regions"


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    return Platform.of(tmp_path, [pages("a_1", "a_2"), pages("b_1")])


def last_told(result: dg.ExecuteInProcessResult, asset: str) -> dict[str, dict[str, Any]]:
    events = result.asset_materializations_for_node(asset)
    return {str(each.partition): {name: value.value for name, value in each.metadata.items()} for each in events}


def test_a_shard_is_green_as_soon_as_its_table_is_published(platform: Platform, monkeypatch: pytest.MonkeyPatch):
    green: dict[str, set[str]] = {}
    detect = OneRegionLayout.detect

    def looked(engine: OneRegionLayout, given: Iterable[Page]) -> Iterator[Layout]:
        for layout in detect(engine, given):
            green[layout.page_id] = platform.instance.get_materialized_partitions(dg.AssetKey(LAYOUT))
            yield layout

    monkeypatch.setattr(OneRegionLayout, "detect", looked)
    result = platform.run(f"raw_pages,{LAYOUT}", last="shard_01")
    assert green == {"a_1": set(), "a_2": set(), "b_1": {"shard_00"}}
    early = result.asset_materializations_for_node(LAYOUT)[0]
    recipe = platform.store.metadata(LAYOUT, "shard_00")["recipe"]
    assert (early.partition, (early.tags or {})["dagster/data_version"]) == ("shard_00", recipe)


def test_a_run_that_made_nothing_plots_no_speed(platform: Platform):
    speeds = {"seconds", "rows_per_second", "seconds_per_row"}
    first = last_told(platform.run(f"raw_pages,{LAYOUT}", last="shard_01"), LAYOUT)
    again = last_told(platform.run(f"raw_pages,{LAYOUT}", last="shard_01"), LAYOUT)
    assert {shard: (told["computed"], speeds & told.keys()) for shard, told in first.items()} == {
        "shard_00": (2, speeds),
        "shard_01": (1, speeds),
    }
    assert {shard: (told["computed"], speeds & told.keys()) for shard, told in again.items()} == {
        "shard_00": (0, set()),
        "shard_01": (0, set()),
    }


def test_a_table_that_says_more_of_itself_is_not_written_again(platform: Platform):
    """An earlier version may have written such a table."""
    platform.run("raw_pages")
    store = platform.store
    table, metadata = store.read("raw_pages", "shard_00"), store.metadata("raw_pages", "shard_00")
    store.write("raw_pages", "shard_00", table, {**metadata, "figures": "{}"})
    platform.run("raw_pages")
    assert store.metadata("raw_pages", "shard_00")["figures"] == "{}"


def test_a_table_says_where_it_lies_and_an_asset_where_it_is_written(platform: Platform):
    told = last_told(platform.run("raw_pages"), "raw_pages")["shard_00"]
    assert Path(told["table"]) == platform.home / "store" / "raw_pages" / "shard_00.parquet"
    assert Path(told["table"]).is_file()
    graph = platform.definitions.resolve_asset_graph()
    (code,) = graph.get(dg.AssetKey("raw_pages")).metadata["dagster/code_references"].code_references
    assert "class RawPages" in Path(code.file_path).read_text().splitlines()[code.line_number - 1]


def test_the_wait_for_a_model_is_no_time_of_a_row():
    lines: list[str] = []
    progress = Progress("layout shard_00", 1000, lines.append, iter((0.0, 11.0, 16.0, 21.0)).__next__)
    for _ in range(3):
        progress.step()
    assert lines == ["layout shard_00: 1/1000", "layout shard_00: 3/1000, 5.00 s each, 4985 s to go"]


def test_figures_have_the_digits_that_count():
    assert shown({"rate": 12.345678, "share": 0.00012345678, "rows": 12345678, "name": "a"}) == {
        "rate": 12.35,
        "share": 0.0001235,
        "rows": 12345678,
        "name": "a",
    }


def test_a_preview_is_rendered_without_pictures_and_within_bounds():
    table = pa.table(
        {"page_id": ["a", "b"], "markdown": ["", "# 제목\n\n![image](b_1.jpg)\n\n" + "\n\n".join(["글" * 400] * 9)]}
    )
    text = first_markdown(table, "markdown")
    assert text.startswith("```\nb\n```\n\n# 제목\n\n*(image)*\n\n글")
    assert text.count("글") == 1200
    assert text.endswith("...")
    long = first_markdown(pa.table({"page_id": ["a"], "markdown": ["긴" * 5000]}), "markdown")
    assert long.count("긴") == 1500


def test_everything_is_a_job(platform: Platform):
    job = platform.definitions.resolve_job_def("everything")
    made = {key.to_user_string() for key in job.asset_layer.executable_asset_keys}
    assets = [asset for asset in platform.assets if isinstance(asset, dg.AssetsDefinition)]
    assert made == {asset.key.to_user_string() for asset in assets}
    # A backfill of assets puts the scores in a run of their own, and Dagster waits half a minute between runs.
    assert job.backfill_policy == dg.BackfillPolicy.single_run()
