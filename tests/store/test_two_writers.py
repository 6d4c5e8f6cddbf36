"""Two runs of a shard on object storage: one makes it, and pages are read once."""

import os
import signal
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kopub.errors import BusyTable
from kopub.store import ledger
from kopub.store.locks import ObjectLock
from kopub.store.objects import Objects
from tests.support.harness import Platform
from tests.support.processes import two_writers
from tests.support.processes.forked import CONTEXT
from tests.support.servers.ceph import lacking
from tests.support.sources.corpora import pages
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.services]

on_ceph = pytest.mark.skipif(bool(lacking()), reason="apt-get install ceph-mon ceph-osd radosgw ceph-common")
IDS = ("a_1", "a_2", "a_3")
SOON = 120.0


def test_of_twelve_creates_at_once_one_wins(url: str):
    objects, root = Objects.at(url)
    for number in range(3):
        locks = [ObjectLock(objects, f"{root}/.locks/ocr_results.{number}", "it") for _ in range(12)]
        together = threading.Barrier(12)

        def acquire(each: ObjectLock, together: threading.Barrier = together) -> bool:
            together.wait()
            try:
                each.acquire(wait=False)
            except BusyTable:
                return False
            return True

        with ThreadPoolExecutor(12) as pool:
            got = list(pool.map(acquire, locks))
        assert sum(got) == 1
        locks[got.index(True)].release()


# The double is everywhere and starts at once; all other tests here are on a real Ceph where there is one.
@pytest.mark.parametrize(
    ("server", "rounds"),
    [pytest.param("double", 3, marks=pytest.mark.smoke), pytest.param("ceph", 6, marks=on_ceph)],
    indirect=["server"],
)
def test_two_runs_of_a_shard_read_its_pages_once_in_every_round(
    url: str, server: dict[str, str], rounds: int, tmp_path: Path
):
    home = Platform.of(tmp_path / "home", [pages(*IDS)]).home
    together = CONTEXT.Barrier(2)
    arguments = (server, str(home), url, rounds, together)
    writers = [CONTEXT.Process(target=two_writers.make_rounds, args=arguments) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(SOON)
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert Counter(Platform(home).diary("recognition").pages) == dict.fromkeys(IDS, rounds)
    for number in range(rounds):
        store = two_writers.OnObjects(home, url=f"{url}/{number}").store
        for asset in two_writers.ASSETS:
            entered = ledger.read(store, asset, "shard_00")
            assert sorted(entered["row_id"].to_pylist()) == list(IDS)
            assert store.versions(asset, "shard_00") == []
        objects, root = Objects.at(store.url)
        assert objects.below(f"{root}/.locks") == []


@pytest.mark.parametrize("step", ["mark", "_read", "replace"])
def test_a_writer_that_is_stopped_while_it_publishes_leaves_the_table_of_who_took_over(
    url: str, server: dict[str, str], tmp_path: Path, step: str
):
    home = Platform.of(tmp_path / "home", [pages(*IDS)]).home
    if step == "mark":
        # Only a table that replaces another asks for the mark of that one.
        older = CONTEXT.Process(target=two_writers.make, args=(server, str(home), url, 0.0, "", "read before"))
        older.start()
        older.join(SOON)
    stopped, other = (
        CONTEXT.Process(target=two_writers.make, args=(server, str(home), url, 0.0, stop)) for stop in (step, "")
    )
    stopped.start()
    assert stopped.pid is not None
    until(lambda: Path(f"/proc/{stopped.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T", SOON)
    try:
        other.start()
        other.join(SOON)
        store = two_writers.OnObjects(home, url=url).store
        made = store.published("ocr_results")
        assert made.keys() == {"shard_00"}
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    stopped.join(SOON)
    said = Path(f"{home}.{stopped.pid}").read_text()
    assert "ocr_results of shard_00 was not published: this run was stopped" in said
    assert store.published("ocr_results") == made
    assert not Path(f"{home}.{other.pid}").exists()


def test_a_holder_that_is_stopped_for_too_long_and_goes_on_publishes_nothing(
    url: str, server: dict[str, str], tmp_path: Path
):
    home = Platform.of(tmp_path / "home", [pages(*IDS)]).home
    read = Platform(home).diary("recognition")
    stopped, other = (
        CONTEXT.Process(target=two_writers.make, args=(server, str(home), url, seconds)) for seconds in (1.0, 0.0)
    )
    stopped.start()
    until(lambda: read.pages, SOON)
    assert stopped.pid is not None
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        other.start()
        other.join(SOON)
        store = two_writers.OnObjects(home, url=url).store
        made, entered = store.published("ocr_results"), ledger.read(store, "ocr_results", "shard_00")
        assert made.keys() == {"shard_00"}
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    stopped.join(SOON)
    assert (
        "ocr_results of shard_00 was not published: this run was stopped" in Path(f"{home}.{stopped.pid}").read_text()
    )
    assert not Path(f"{home}.{other.pid}").exists()
    assert store.published("ocr_results") == made
    assert ledger.read(store, "ocr_results", "shard_00").equals(entered)
    assert store.journal("ocr_results", "shard_00", store.arrow_schema("ocr_results", "shard_00")).rows().num_rows == 0
