"""The ledger: what was computed, by which run, at what cost."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from kopub.store import ledger
from kopub.store.append_log import AppendLog
from kopub.store.table_store import ShardStore


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ShardStore:
    return ShardStore(url=str(tmp_path) if request.param == "folder" else f"memory://{tmp_path.name}")


def made(run: str, *pages: str, seconds: float | None = 2.0, gpus: float = 1.0) -> pa.Table:
    return ledger.entries([(page, f"f-{page}") for page in pages], [seconds] * len(pages), gpus, run, "own")


def test_what_was_never_made_cost_nothing(store: ShardStore):
    assert ledger.read(store, "ocr_results", "shard_00").equals(ledger.LEDGER.empty_table())
    assert ledger.rates(store, ["ocr_results"]) == {}


def test_entries_are_added_and_the_newest_of_a_row_wins(store: ShardStore):
    ledger.append(store, "ocr_results", "shard_00", made("run-1", "a", "b"))
    ledger.append(store, "ocr_results", "shard_00", made("run-2", "b", seconds=5.0, gpus=2.0))
    ledger.append(store, "ocr_results", "shard_01", made("run-3", "c"))
    every = ledger.read(store, "ocr_results", "shard_00")
    assert list(zip(every["row_id"].to_pylist(), every["run_id"].to_pylist(), strict=True)) == [
        ("a", "run-1"),
        ("b", "run-1"),
        ("b", "run-2"),
    ]
    last = ledger.newest(every)
    assert last["run_id"].to_pylist() == ["run-1", "run-2"]
    assert last["gpu_seconds"].to_pylist() == [2.0, 10.0]
    assert ledger.sum_costs(every) == ledger.TimeCost(3, 9.0, 14.0)


def test_a_small_file_is_read_without_threads_that_need_python_when_it_ends(tmp_path: Path):
    """A thread that frees the bytes at interpreter exit aborted one `kopub status` in fifty."""
    store = ShardStore(url=str(tmp_path))
    ledger.append(store, "raw_pages", "shard_00", made("run-1", *(f"p_{at}" for at in range(100))))
    program = """
import os, sys
from kopub.store import ledger
from kopub.store.table_store import ShardStore

store, before = ShardStore(url=sys.argv[1]), len(os.listdir("/proc/self/task"))
rows = ledger.read(store, "raw_pages", "shard_00").num_rows
print(rows, len(os.listdir("/proc/self/task")) - before)
"""
    read = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert read.stdout == "100 0\n"


def test_many_parts_become_one_and_nothing_is_lost_or_doubled(store: ShardStore):
    for run in range(40):
        ledger.append(store, "ocr_results", "shard_00", made(f"run-{run}", "a"))
    assert ledger.read(store, "ocr_results", "shard_00")["run_id"].to_pylist() == [f"run-{run}" for run in range(40)]
    assert len(store.parts(".ledger", "ocr_results", "shard_00").names()) < 20


def test_a_merge_that_was_cut_off_counts_nothing_twice(store: ShardStore, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as killed:
        killed.setattr("kopub.store.append_log.AppendLog.remove", lambda *arguments: None)
        for run in range(20):
            ledger.append(store, "ocr_results", "shard_00", made(f"run-{run}", "a"))
    assert len(store.parts(".ledger", "ocr_results", "shard_00").names()) > 20
    assert ledger.read(store, "ocr_results", "shard_00").num_rows == 20


def test_a_merge_that_was_killed_before_it_was_written_loses_nothing(
    store: ShardStore, monkeypatch: pytest.MonkeyPatch
):
    append = AppendLog.append

    def killed(log: AppendLog, table: pa.Table, suffix: str = "") -> str:
        if suffix == "merged":
            raise KeyboardInterrupt
        return append(log, table, suffix)

    monkeypatch.setattr(AppendLog, "append", killed)
    for run in range(16):
        ledger.append(store, "ocr_results", "shard_00", made(f"run-{run}", "a"))
    with pytest.raises(KeyboardInterrupt):
        ledger.append(store, "ocr_results", "shard_00", made("run-16", "a"))
    assert ledger.read(store, "ocr_results", "shard_00").num_rows == 17


def test_an_unknown_time_is_no_time(store: ShardStore):
    ledger.append(store, "ocr_results", "shard_00", made("run-1", "a", seconds=None))
    (entry,) = ledger.read(store, "ocr_results", "shard_00").to_pylist()
    assert (entry["seconds"], entry["gpu_seconds"]) == (None, None)


def test_a_clock_that_was_set_back_loses_nothing(store: ShardStore, monkeypatch: pytest.MonkeyPatch):
    clock = iter(range(10**18, 0, -(10**15)))
    monkeypatch.setattr("time.time_ns", lambda: next(clock))
    for run in range(40):
        ledger.append(store, "ocr_results", "shard_00", made(f"run-{run}", "a"))
    assert ledger.read(store, "ocr_results", "shard_00")["run_id"].to_pylist() == [f"run-{run}" for run in range(40)]


def test_parts_that_are_merged_while_somebody_reads_are_read_again(store: ShardStore, monkeypatch: pytest.MonkeyPatch):
    for run in range(10):
        ledger.append(store, "ocr_results", "shard_00", made(f"run-{run}", "a"))
    before = AppendLog.names

    def names(parts: AppendLog) -> list[str]:
        found = before(parts)
        monkeypatch.setattr(AppendLog, "names", before)
        for run in range(10, 20):
            ledger.append(store, "ocr_results", "shard_00", made(f"run-{run}", "a"))
        return found

    monkeypatch.setattr(AppendLog, "names", names)
    assert ledger.read(store, "ocr_results", "shard_00").num_rows == 20


def test_rates_are_of_the_latest_shards_and_leave_out_unknown_times(store: ShardStore):
    for shard in range(50):
        ledger.append(store, "ocr_results", f"shard_{shard:02d}", made("old", "a", seconds=100.0))
    for shard in range(40):
        rows = pa.concat_tables([made("new", "a", seconds=3.0), made("new", "b", seconds=None)])
        ledger.append(store, "ocr_results", f"shard_{shard:02d}", rows)
    rate = ledger.rates(store, ["ocr_results", "raw_pages"])["ocr_results"]
    assert (rate.seconds_each, rate.gpu_seconds_each) == (3.0, 3.0)


@pytest.mark.parametrize(
    ("costs", "expected"), [([1.0, 3.0], [2.0, 6.0]), ([0.0, 0.0], [4.0, 4.0]), ([0.0, 1.0], [0.0, 8.0])]
)
def test_the_time_of_a_shard_is_shared_by_what_rows_cost(costs: list[float], expected: list[float]):
    assert ledger.shares(8.0, costs) == expected


def test_two_writers_that_merge_at_once_lose_and_double_nothing(store: ShardStore, monkeypatch: pytest.MonkeyPatch):
    for run in range(16):
        ledger.append(store, "ocr_results", "shard_00", made(f"run-{run}", "a"))
    append = AppendLog.append

    def slow(log: AppendLog, table: pa.Table, suffix: str = "") -> str:
        if suffix == "merged":
            monkeypatch.setattr(AppendLog, "append", append)
            ledger.append(store, "ocr_results", "shard_00", made("run-other", "a"))
        return append(log, table, suffix)

    monkeypatch.setattr(AppendLog, "append", slow)
    ledger.append(store, "ocr_results", "shard_00", made("run-16", "a"))
    runs = ledger.read(store, "ocr_results", "shard_00")["run_id"].to_pylist()
    assert sorted(runs) == sorted([*(f"run-{run}" for run in range(17)), "run-other"])


def test_rows_that_moved_to_another_shard_leave_the_last_run_as_it_was(store: ShardStore):
    ledger.append(store, "ocr_results", "shard_00", made("older-run", "a", "b", "c"))
    ledger.append(store, "raw_pages", "shard_00", made("newer-run", "a", "b"))
    ledger.carry(store, "ocr_results", "shard_00", "shard_01", [("b", "f-b"), ("c", "f-c")])
    shards = {"ocr_results": {"shard_00", "shard_01"}, "raw_pages": {"shard_00"}}
    found = ledger.last_run(store, shards)
    assert found is not None
    assert (found.run_id, found.rows) == ("newer-run", {"ocr_results": 0, "raw_pages": 2})
    del shards["raw_pages"]
    found = ledger.last_run(store, shards)
    assert found is not None
    assert (found.run_id, found.rows) == ("older-run", {"ocr_results": 3})
