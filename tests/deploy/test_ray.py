"""The instance of `deploy/ray` on a real Ray cluster, one of whose nodes is killed."""

import os
import sys
from collections import Counter
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterRunStatus as Status
from dagster._core.execution.backfill import BulkActionStatus

from kopub.config.settings import ROOT
from kopub.pages.indexing import index
from kopub.release.verify import verify
from kopub.store.schemas import OCR_RESULTS
from kopub.store.table_store import ShardStore
from tests.doubles.engines import Diary
from tests.doubles.s3 import S3Double
from tests.support.dagster.dagster_daemon import Daemon, with_status
from tests.support.dagster.ray_platform import (
    GO,
    READ_FIRST,
    RELEASE,
    ask_for_tables,
    backfill_of,
    definitions_at,
    platform_of,
    two_small_nodes,
)
from tests.support.installed import NO_POSTGRES, imported
from tests.support.servers import postgres
from tests.support.servers.buckets import bucket
from tests.support.servers.ray_cluster import Cluster, cluster
from tests.support.sources.corpora import pages, query, write_corpus

pytestmark = [
    pytest.mark.slow,
    pytest.mark.services,
    pytest.mark.skipif(postgres.programs() is None, reason=NO_POSTGRES),
]

SHARDS = [f"shard_{number:02d}" for number in range(3)]
PAGES = 6
LOGS = "logs"


@pytest.mark.timeout(900)
def test_a_node_that_dies_costs_what_it_had_in_flight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    imported("dagster_ray")
    home = tmp_path / "home"
    corpus = [pages(*(f"{shard}_{page}" for page in range(PAGES))) for shard in SHARDS]
    index(str(write_corpus(tmp_path / "source", corpus, [query("q1", "무엇인가?", "shard_00_1")])), home)
    # Ray finds `dagster` by the PATH.
    path = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}

    with S3Double() as s3, bucket(s3.environment, LOGS), postgres.postgres() as variables:
        shared = {**s3.environment, **variables, **path, "KOPUB_HOME": str(home), "DAGSTER_LOGS_BUCKET": LOGS}
        with cluster({**os.environ, **shared}) as ray:
            shared["RAY_DASHBOARD_URL"] = ray.url
            daemon = Daemon(tmp_path, "ray", "tests.support.dagster.ray_platform", shared, two_small_nodes)
            for name, value in {**shared, "DAGSTER_HOME": str(daemon.home)}.items():
                monkeypatch.setenv(name, value)
            with dg.DagsterInstance.get() as instance:
                try:
                    kept, in_flight = _make_all(daemon, ray, instance, home)
                finally:
                    daemon.kill()
        assert any(LOGS in path for method, path in s3.asked if method == "PUT")

    store, times = ShardStore(url=str(home / "store")), Counter(Diary(str(home / "recognition.diary")).pages)
    assert kept
    assert {page for page, read in times.items() if read > 1} <= in_flight
    for shard in SHARDS:
        assert store.footer("corpus_text_embeddings", shard)[0] == PAGES
    assert platform_of(home).run(RELEASE, SHARDS[0], SHARDS[-1]).success
    assert list(verify(home / "release")) == []


def _make_all(daemon: Daemon, ray: Cluster, instance: dg.DagsterInstance, home: Path) -> tuple[set[str], set[str]]:
    """Make all tables and kill a node; return its shard's journalled and lost pages."""
    diary, store = Diary(str(home / "recognition.diary")), ShardStore(url=str(home / "store"))

    def journalled(shard: str) -> set[str]:
        return set(store.journal("ocr_results", shard, OCR_RESULTS).rows()["page_id"].to_pylist())

    victim, _ = ray.add_node(), ray.add_node()
    ask_for_tables(instance, definitions_at(home), SHARDS)
    daemon.start()
    # Both nodes are in the middle of a shard.
    daemon.until(lambda: len(diary.pages) == 2 * READ_FIRST)
    ray.kill(victim)
    before = diary.pages
    (failed,) = daemon.until(lambda: with_status(instance, Status.FAILURE))
    lost = failed.tags["dagster/asset_partition_range_start"]
    kept = journalled(lost)
    # One of the two runs waits for a GPU until another node joins.
    daemon.until(lambda: with_status(instance, Status.STARTING))
    ray.add_node()
    (home / GO).touch()
    daemon.until(lambda: backfill_of(instance).status is not BulkActionStatus.REQUESTED, seconds=400)
    assert backfill_of(instance).status is BulkActionStatus.COMPLETED_SUCCESS
    made = with_status(instance, Status.SUCCESS)
    assert len(made) == len(SHARDS)
    assert [run.run_id for run in with_status(instance, Status.FAILURE)] == [failed.run_id]
    assert failed.run_id in {run.parent_run_id for run in made}
    return kept, {page for page in before if page.startswith(lost)} - kept
