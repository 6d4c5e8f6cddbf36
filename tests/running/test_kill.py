"""A run that is killed at any moment loses only what was in flight."""

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kopub.release.files import part_path
from kopub.store.schemas import OCR_RESULTS
from tests.support.harness import STANDARD, Platform
from tests.support.processes import kill_child
from tests.support.processes.forked import CONTEXT
from tests.support.sources.corpora import pages, query

pytestmark = [pytest.mark.slow, pytest.mark.services]

KILLS = 20
SHARDS = ("shard_00", "shard_01")


@pytest.mark.timeout(600)
def test_killed_at_twenty_random_moments_nothing_is_lost_doubled_or_redone(tmp_path: Path):
    ids = [[f"{shard}_{page}" for page in range(kill_child.PAGES)] for shard in "ab"]
    queries = [query("q1", "무엇인가?", "a_1")]
    platform = Platform.of(tmp_path / "killed", [pages(*shard) for shard in ids], queries)
    untouched = Platform.of(tmp_path / "untouched", [pages(*shard) for shard in ids], queries)

    # The fork server imports the platform, whose time is no part of a run.
    warm_up = CONTEXT.Process(target=time.monotonic)
    warm_up.start()
    warm_up.join()
    started = time.monotonic()
    _run_to_the_end(untouched)
    whole = time.monotonic() - started

    moments = random.Random(20)
    finished: set[str] = set()
    redone: set[str] = set()
    for _ in range(KILLS):
        already = len(platform.diary("recognition").pages)
        child = CONTEXT.Process(target=kill_child.build, args=(str(platform.home),))
        child.start()
        child.join(moments.uniform(0, whole))
        if child.pid and child.is_alive():
            os.kill(child.pid, signal.SIGKILL)
        child.join()
        redone |= finished & set(platform.diary("recognition").pages[already:])
        finished |= _finished(platform)

    _run_to_the_end(platform)
    assert not redone
    read = Counter(platform.diary("recognition").pages)
    assert set(read) == {page for shard in ids for page in shard}
    assert max(read.values()) <= 1 + KILLS
    for asset in STANDARD:
        for shard in SHARDS:
            assert _content(platform, asset, shard).equals(_content(untouched, asset, shard)), f"{asset} {shard}"


def _content(platform: Platform, asset: str, shard: str) -> pa.Table:
    """Return a table without the row of the lineage file, which names the runs."""
    table = platform.store.read(asset, shard)
    return table.filter(pc.field("path") != part_path("lineage", shard)) if asset == "hf_release" else table


def _run_to_the_end(platform: Platform) -> None:
    child = CONTEXT.Process(target=kill_child.build, args=(str(platform.home),))
    child.start()
    child.join()
    assert child.exitcode == 0


def _finished(platform: Platform) -> set[str]:
    """Return the pages whose reading is on disk, in the table or in the journal."""
    found: set[str] = set()
    for shard in SHARDS:
        if platform.store.has("ocr_results", shard):
            found |= set(platform.store.read("ocr_results", shard)["page_id"].to_pylist())
        found |= set(platform.store.journal("ocr_results", shard, OCR_RESULTS).rows()["page_id"].to_pylist())
    return found
