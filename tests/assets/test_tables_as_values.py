"""Notebooks, and assets of others, read the table of a shard as a value."""

from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

from tests.support.harness import Platform
from tests.support.sources.corpora import pages

SHARDS = dg.StaticPartitionsDefinition(["shard_00", "shard_01"])


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    platform = Platform.of(tmp_path, [pages("a_1", "a_2"), pages("b_1")])
    platform.make("raw_pages")
    return platform


@dg.asset(partitions_def=SHARDS)
def pages_of_shard(context: dg.AssetExecutionContext, raw_pages: pa.Table) -> dg.MaterializeResult:
    return dg.MaterializeResult(metadata={"pages": raw_pages["page_id"].to_pylist()})


@dg.asset(ins={"raw_pages": dg.AssetIn(partition_mapping=dg.AllPartitionMapping())})
def pages_of_corpus(context: dg.AssetExecutionContext, raw_pages: pa.Table) -> dg.MaterializeResult:
    return dg.MaterializeResult(metadata={"pages": raw_pages["page_id"].to_pylist()})


@pytest.mark.parametrize(
    ("asset", "shard", "page_ids"),
    [("pages_of_shard", "shard_01", ["b_1"]), ("pages_of_corpus", None, ["a_1", "a_2", "b_1"])],
)
def test_an_asset_takes_a_table_as_a_parameter(
    platform: Platform, asset: str, shard: str | None, page_ids: list[str]
) -> None:
    own = dg.Definitions([pages_of_shard, pages_of_corpus])
    job = dg.Definitions.merge(platform.definitions, own).resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(asset_selection=[dg.AssetKey(asset)], partition_key=shard)
    (made,) = result.asset_materializations_for_node(asset)
    assert made.metadata["pages"].value == page_ids


def test_a_notebook_loads_the_table_of_a_shard(platform: Platform) -> None:
    table = platform.definitions.load_asset_value("raw_pages", partition_key="shard_00")
    assert isinstance(table, pa.Table)
    assert table["page_id"].to_pylist() == ["a_1", "a_2"]


def test_a_table_that_was_not_made_is_named(platform: Platform) -> None:
    with pytest.raises(dg.Failure, match="layout_regions of shard_00 has not been made yet"):
        platform.definitions.load_asset_value("layout_regions", partition_key="shard_00")
