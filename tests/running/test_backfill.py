"""A backfill over all shards, launched and run the way the UI does it: webserver, daemon, runs of their own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from resources.config.settings import ROOT
from resources.pages.indexing import index
from resources.store.shard_store import ShardStore
from tests.support.dagster.dagster_home import make_dagster_home
from tests.support.harness import STANDARD
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
_CLIENT = httpx.Client(timeout=60)
"""One for all questions: each would read the certificates anew."""
PATIENCE = 240.0
"""Seconds: the backfill daemon looks for work every 30 s, and a run starts a process of its own."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    shards = [pages("a_1"), pages("b_1", "b_2"), pages("c_1")]
    index(str(write_corpus(tmp_path / "source", shards, [query("q1", "무엇인가?", "b_1")])), tmp_path / "home")
    make_dagster_home(tmp_path / "dagster")
    return tmp_path / "home"


@pytest.fixture
def ui(home: Path, tmp_path: Path) -> Iterator[str]:
    """The address of a `dagster dev` of its own."""
    environment = os.environ | {"KOPUB_HOME": str(home), "DAGSTER_HOME": str(tmp_path / "dagster")}
    port = _free_port()
    command = [str(Path(sys.executable).parent / "dagster"), "dev", "-w", "workspace.yaml", "-p", str(port)]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            url = f"http://127.0.0.1:{port}/graphql"
            _until(lambda: _answers(url), tmp_path / "log")
            yield url
        finally:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


@pytest.mark.timeout(600)
def test_a_backfill_over_all_shards(ui: str, home: Path, tmp_path: Path):
    keys = [{"path": [asset]} for asset in (*STANDARD, "retrieval_scores")]
    launched = _ask(ui, LAUNCH, names=SHARDS, keys=keys)["launchPartitionBackfill"]
    assert launched["__typename"] == "LaunchBackfillSuccess", launched

    def status() -> dict[str, Any]:
        return _ask(ui, STATUS, id=launched["backfillId"])["partitionBackfillOrError"]

    _until(lambda: status()["status"].startswith("COMPLETED") or status()["error"], tmp_path / "log")
    assert status() == {"status": "COMPLETED_SUCCESS", "error": None}
    store = ShardStore(url=str(home / "store"))
    for shard, count in zip(SHARDS, (1, 2, 1), strict=True):
        assert store.rows("corpus_text_embeddings", shard) == count
        assert store.has("hf_release", shard)
    # The one asset without partitions is made once, of all shards, between the vectors and the release.
    scores = store.read("retrieval_scores", "all").to_pylist()
    assert {row["queries"] for row in scores} == {1}
    runs = _ask(ui, RUNS, id=launched["backfillId"])["runsOrError"]["results"]
    ordered = sorted(runs, key=lambda run: run["startTime"])
    assert [_assets(run) for run in ordered[-2:]] == [{"retrieval_scores"}, {"hf_release"}]


def _ask(url: str, text: str, **variables: Any) -> dict[str, Any]:
    answer = _CLIENT.post(url, json={"query": text, "variables": variables}).json()
    assert "errors" not in answer, answer["errors"]
    return answer["data"]


def _assets(run: dict[str, Any]) -> set[str]:
    return {key["path"][-1] for key in run["assetSelection"]}


def _answers(url: str) -> bool:
    try:
        repositories = "{ repositoriesOrError { ... on RepositoryConnection { nodes { name } } } }"
        return bool(_ask(url, repositories)["repositoriesOrError"].get("nodes"))
    except httpx.TransportError:
        return False


def _until(condition: Any, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        # The daemon looks every 30 s: to ask more often only costs the webserver.
        time.sleep(2)


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
