"""A shard that fails costs itself: the other shards are made to the end of the run."""

import io
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.storage.partition_status_cache import AssetPartitionStatus
from rich.console import Console

from kopub.cli.commands.run import run_assets
from kopub.errors import KopubError
from tests.support.dagster.dagster_home import make_dagster_home
from tests.support.harness import STANDARD, Platform, failure
from tests.support.sources.corpora import pages, query

SHARDS = ["shard_00", "shard_01", "shard_02"]
GOOD = {"shard_00", "shard_02"}
OF_PAGES = [asset for asset in STANDARD if asset != "query_embeddings"]


def change(home: Path) -> None:
    """Flip a bit in the file of the second shard; doing so twice mends it."""
    file = home / "source" / "corpus" / "data-1.arrow"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    """Return a platform of three shards, the second of which changed since it was indexed."""
    platform = Platform.of(tmp_path, [pages("a_1"), pages("b_1"), pages("c_1")], [query("q1", "무엇인가?", "a_1")])
    change(tmp_path)
    return platform


def test_the_other_shards_are_made_to_the_end_and_the_run_fails(platform: Platform):
    result = platform.run(first="shard_00", last="shard_02")
    assert [event.step_key for event in result.all_events if event.is_step_failure] == ["raw_pages"]
    assert failure(result).startswith("shard_01: ")
    assert result.dagster_run.status is dg.DagsterRunStatus.FAILURE
    partitions = dg.StaticPartitionsDefinition(SHARDS)
    for asset in OF_PAGES:
        status = platform.instance.get_status_by_partition(dg.AssetKey(asset), SHARDS, partitions) or {}
        assert {shard for shard in SHARDS if status[shard] is AssetPartitionStatus.MATERIALIZED} == GOOD, asset
        assert status["shard_01"] is AssetPartitionStatus.FAILED, asset
        assert set(platform.store.published(asset)) == GOOD, asset
    assert not [event for event in result.all_events if event.is_step_skipped]


def test_a_shard_that_is_not_made_again_takes_no_older_tables_with_it(platform: Platform, tmp_path: Path):
    """A changed file must not be described by its old tables as if nothing had happened."""
    change(tmp_path)
    assert platform.run(first="shard_00", last="shard_02").success
    change(tmp_path)
    result = platform.run(first="shard_00", last="shard_02")
    assert not result.success
    made = {
        (event.materialization.asset_key.path[-1], event.partition)
        for event in result.all_events
        if event.is_step_materialization
    }
    assert {shard for asset, shard in made if asset in OF_PAGES} == GOOD


def test_kopub_run_makes_the_others_names_the_failed_one_and_fails(
    platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DAGSTER_HOME", str(make_dagster_home(tmp_path / "dagster")))
    said = io.StringIO()
    with pytest.raises(KopubError, match="1 failure;"):
        run_assets(platform.settings, [], "", Console(file=said, width=1000))
    (line,) = [line for line in said.getvalue().splitlines() if "changed since it was indexed" in line]
    assert line.startswith("raw_pages: shard_01: ")
    assert "3 pages: 2 ok, 1 unfinished" in said.getvalue()
    for asset in OF_PAGES:
        assert set(platform.store.published(asset)) == GOOD, asset
