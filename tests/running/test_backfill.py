"""A backfill over all shards, launched through the web server and run by the daemon."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kopub.pages.indexing import index
from kopub.store.table_store import ShardStore
from tests.support.dagster.dagster_home import make_dagster_home
from tests.support.dagster.services import quick_services
from tests.support.dagster.ui import Ui
from tests.support.harness import STANDARD
from tests.support.processes import forked
from tests.support.sources.corpora import pages, query, write_corpus

pytestmark = [pytest.mark.slow, pytest.mark.services]

SHARDS = ["shard_00", "shard_01", "shard_02"]
LAUNCH = """
mutation($names: [String!], $keys: [AssetKeyInput!]) {
  launchPartitionBackfill(backfillParams: {partitionNames: $names, assetSelection: $keys}) {
    __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message }
  }
}
"""
STATUS = """
query($id: String!) { partitionBackfillOrError(backfillId: $id) {
  ... on PartitionBackfill { status error { message } }
} }
"""
RUNS = """
query($id: String!) { runsOrError(filter: {tags: [{key: "dagster/backfill", value: $id}]}) {
  ... on Runs { results { startTime assetSelection { path } } }
} }
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    shards = [pages("a_1"), pages("b_1", "b_2"), pages("c_1")]
    index(str(write_corpus(tmp_path / "source", shards, [query("q1", "무엇인가?", "b_1")])), tmp_path / "home")
    return tmp_path / "home"


@pytest.fixture
def ui(home: Path, tmp_path: Path) -> Iterator[Ui]:
    make_dagster_home(tmp_path / "dagster")
    environment = forked.inherited() | {"KOPUB_HOME": str(home), "DAGSTER_HOME": str(tmp_path / "dagster")}
    with quick_services(tmp_path, environment) as (ui, _):
        yield ui


@pytest.mark.timeout(600)
def test_a_backfill_over_all_shards(ui: Ui, home: Path):
    keys = [{"path": [asset]} for asset in (*STANDARD, "passage_embeddings", "retrieval_scores")]
    launched = ui.ask(LAUNCH, names=SHARDS, keys=keys)["launchPartitionBackfill"]
    assert launched["__typename"] == "LaunchBackfillSuccess", launched

    def status() -> dict[str, Any]:
        return ui.ask(STATUS, id=launched["backfillId"])["partitionBackfillOrError"]

    ui.until(lambda: status()["status"].startswith("COMPLETED") or status()["error"])
    assert status() == {"status": "COMPLETED_SUCCESS", "error": None}
    store = ShardStore(url=str(home / "store"))
    for shard, count in zip(SHARDS, (1, 2, 1), strict=True):
        assert store.footer("corpus_text_embeddings", shard)[0] == count
        assert store.has("hf_release", shard)
    # The one asset without partitions is made once, from all shards, between the vectors and the release.
    scores = store.read("retrieval_scores", "all").to_pylist()
    assert {row["queries"] for row in scores} == {1}
    runs = ui.ask(RUNS, id=launched["backfillId"])["runsOrError"]["results"]
    ordered = sorted(runs, key=lambda run: run["startTime"])
    assert [_assets(run) for run in ordered[-2:]] == [{"retrieval_scores"}, {"hf_release"}]


@pytest.mark.timeout(600)
def test_a_bad_shard_costs_a_backfill_only_itself(ui: Ui, home: Path, tmp_path: Path):
    file = tmp_path / "source" / "corpus" / "data-1.arrow"
    file.write_bytes(file.read_bytes().replace(b"b_1", b"b_9"))
    keys = [{"path": [asset]} for asset in ("raw_pages", "layout_regions", "ocr_results", "parsed_texts")]
    launched = ui.ask(LAUNCH, names=SHARDS, keys=keys)["launchPartitionBackfill"]

    def status() -> str:
        return ui.ask(STATUS, id=launched["backfillId"])["partitionBackfillOrError"]["status"]

    ui.until(lambda: status().startswith("COMPLETED"))
    assert status() == "COMPLETED_FAILED"
    store = ShardStore(url=str(home / "store"))
    for asset in ("raw_pages", "parsed_texts"):
        assert sorted(store.published(asset)) == ["shard_00", "shard_02"], asset


def _assets(run: dict[str, Any]) -> set[str]:
    return {key["path"][-1] for key in run["assetSelection"]}
