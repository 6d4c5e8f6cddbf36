"""Measure a backfill on Ray with nodes killed repeatedly: time, and pages read twice.

    python -m benchmarks.ray_kills [--shards 10] [--pages 6] [--kills 3] [--seconds 2] [--shards-a-run 1]

Needs the extras `ray`, `s3` and `postgres`, and PostgreSQL's programs. A head and two nodes, each with one nominal GPU,
are processes on this machine; tables are on moto. A node is killed with all its processes while both make shards, and
is replaced by another; a run that is only starting is abandoned after 15 minutes, which is not measured here. Each page
takes `--seconds` to read, by an engine without work.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import dagster as dg
from dagster import DagsterRunStatus as Status
from dagster._core.execution.backfill import BulkActionStatus

from kopub.config.settings import ROOT
from kopub.layout.regions import Region
from kopub.pages.indexing import index
from kopub.pages.manifest import shard_key
from kopub.pages.page import Page
from kopub.recognition.regions import PageReading
from kopub.release.verify import verify
from kopub.store.table_store import ShardStore
from kopub_assets.definitions import definitions_of
from tests.doubles.engines import Diary, SlowReader
from tests.doubles.s3 import S3Double
from tests.support.dagster.dagster_daemon import Daemon, with_status
from tests.support.dagster.ray_platform import RELEASE, ask_for_tables, backfill_of, two_small_nodes
from tests.support.harness import Platform
from tests.support.servers import postgres
from tests.support.servers.buckets import bucket
from tests.support.servers.ray_cluster import Cluster, cluster
from tests.support.sources.corpora import pages, query, write_corpus

LOGS = "logs"
SECONDS, SHARDS_A_RUN = "KOPUB_RAY_KILLS_SECONDS", "KOPUB_RAY_KILLS_SHARDS_A_RUN"


class PatientReader(SlowReader):
    """A reader that takes some time for each page, and records it."""

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        return super().read(self._slowly(pages))

    def _slowly(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[tuple[Page, Sequence[Region]]]:
        for page in pages:
            time.sleep(float(os.environ.get(SECONDS, "0")))
            yield page


def platform_of(home: Path) -> Platform:
    platform = Platform(home)
    platform.engines["recognition"] = PatientReader(diary=str(home / "recognition.diary"), prompt="read")
    return platform


def definitions_at(home: Path) -> dg.Definitions:
    return definitions_of(replace(platform_of(home).settings, shards_per_run=int(os.environ.get(SHARDS_A_RUN, "1"))))


@dg.definitions
def defs() -> dg.Definitions:
    """Return the definitions that Ray's nodes load, given their environment variables."""
    return definitions_at(Path(os.environ["KOPUB_HOME"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("shards", 10), ("pages", 6), ("kills", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--shards-a-run", type=int, default=1)
    asked = parser.parse_args()
    keys = [shard_key(number) for number in range(asked.shards)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        home = folder / "home"
        corpus = [pages(*(f"{key}_{page}" for page in range(asked.pages))) for key in keys]
        index(str(write_corpus(folder / "source", corpus, [query("q1", "무엇인가?", f"{keys[0]}_1")])), home)
        # Ray starts `dagster` by name, so it must be in PATH.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        shared = {"PATH": path, "PYTHONPATH": str(ROOT), "KOPUB_HOME": str(home), "DAGSTER_LOGS_BUCKET": LOGS}
        shared |= {SECONDS: str(asked.seconds), SHARDS_A_RUN: str(asked.shards_a_run)}
        with S3Double() as s3, bucket(s3.environment, LOGS), postgres.postgres() as variables:
            shared |= {**s3.environment, **variables}
            with cluster({**os.environ, **shared}) as ray:
                shared["RAY_DASHBOARD_URL"] = ray.url
                daemon = Daemon(folder, "ray", "benchmarks.ray_kills", shared, two_small_nodes)
                environment = {**shared, "DAGSTER_HOME": str(daemon.home)}
                with patch.dict(os.environ, environment), dg.DagsterInstance.get() as instance:
                    try:
                        _make_all(daemon, ray, instance, home, keys, asked.kills)
                    finally:
                        daemon.kill()
        read = Counter(Diary(str(home / "recognition.diary")).pages)
        store = ShardStore(url=str(home / "store"))
        rows = sum(store.footer("corpus_text_embeddings", key)[0] for key in keys)
        twice = sum(times - 1 for times in read.values())
        _say(f"{rows} of {asked.shards * asked.pages} rows in the last table; {twice} pages were read again")
        assert platform_of(home).run(RELEASE, keys[0], keys[-1]).success
        _say(f"the release has {len(list(verify(home / 'release')))} problems")


def _make_all(
    daemon: Daemon, ray: Cluster, instance: dg.DagsterInstance, home: Path, keys: Sequence[str], kills: int
) -> None:
    diary = Diary(str(home / "recognition.diary"))
    nodes = [ray.add_node(), ray.add_node()]
    ask_for_tables(instance, definitions_at(home), keys)
    began = time.monotonic()
    daemon.start()
    for kill in range(kills):
        seen = len(diary.pages)
        daemon.until(
            lambda seen=seen: len(diary.pages) > seen + 2 and len(with_status(instance, Status.STARTED)) == 2,
            seconds=400,
        )
        failed = len(with_status(instance, Status.FAILURE))
        ray.kill(nodes.pop(0))
        killed = time.monotonic()
        _say(f"{killed - began:.0f} s: node {kill + 1} is killed, {len(diary.pages)} pages were read")
        nodes.append(ray.add_node())
        daemon.until(lambda failed=failed: len(with_status(instance, Status.FAILURE)) > failed, seconds=400)
        _say(f"{time.monotonic() - began:.0f} s: noticed, {time.monotonic() - killed:.0f} s later")
    daemon.until(lambda: backfill_of(instance).status is not BulkActionStatus.REQUESTED, seconds=1200)
    made, failed = (len(with_status(instance, status)) for status in (Status.SUCCESS, Status.FAILURE))
    status = backfill_of(instance).status
    _say(f"{time.monotonic() - began:.0f} s: the backfill is {status.value}, {made} runs were made and {failed} failed")


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
