"""Locks allow one writer of a table on object storage, whatever happens to the others."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kopub.errors import BusyTable, LockLost, StoreError
from kopub.store import faults
from kopub.store import locks as object_locks
from kopub.store.locks import ObjectLock
from kopub.store.objects import Objects
from kopub.store.table_store import TableStore
from tests.doubles.s3 import CUT, S3Double

LIVES = 1.5
LONG = 60.0
"""Lifetime of a lock that must not expire while a loaded machine delays its holder."""
TABLE = pa.table({"page_id": ["a"]})


@pytest.fixture
def url(s3_root: str, s3: S3Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield a new store's URL, with leases and retries of about a second."""
    monkeypatch.setattr(object_locks, "LEASE_TTL_S", LIVES)
    monkeypatch.setattr(faults, "RETRY_TIMEOUT_S", 1.0)
    s3.asked.clear()
    yield f"{s3_root}/{tmp_path.name}"
    s3.before = s3.after = lambda method, path: None


def lock(url: str, lives: float | None = None) -> ObjectLock:
    """Return a lock that shares no state with others, as in another process."""
    objects, root = Objects.at(url)
    return ObjectLock(objects, f"{root}/.locks/ocr_results.shard_00", "ocr_results of shard_00", lives)


def silent(held: ObjectLock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the heartbeat of a holder, as if its process were suspended."""
    held._released.set()
    held._heart.join()


def names(url: str) -> list[str]:
    objects, root = Objects.at(url)
    return [path.removeprefix(f"{root}/") for path in objects.below(root)]


def test_of_twelve_that_come_at_once_one_has_the_lock(url: str):
    locks = [lock(url, LONG) for _ in range(12)]
    together = threading.Barrier(12)

    def acquire(each: ObjectLock) -> bool:
        together.wait()
        try:
            each.acquire(wait=False)
        except BusyTable:
            return False
        return True

    with ThreadPoolExecutor(12) as pool:
        got = list(pool.map(acquire, locks))
    assert sum(got) == 1
    for each, mine in zip(locks, got, strict=True):
        if mine:
            each.confirm()
            each.release()
    assert names(url) == []


def test_the_lock_costs_two_requests_where_nobody_else_wants_it(url: str, s3: S3Double):
    for _ in range(2):
        s3.asked.clear()
        held = lock(url, LONG)
        held.acquire(wait=True)
        held.release()
    assert [method for method, _ in s3.asked] == ["PUT", "DELETE"]


def test_who_comes_second_has_it_when_the_first_is_done_and_not_before(url: str):
    first, second, entered = lock(url), lock(url), threading.Event()
    first.acquire(wait=True)
    waiting = threading.Thread(target=lambda: (second.acquire(wait=True), entered.set()))
    waiting.start()
    assert not entered.wait(2 * LIVES), "a holder that shows signs of life was pushed aside"
    first.confirm()
    first.release()
    waiting.join()
    second.confirm()
    second.release()
    assert names(url) == []


def test_of_waiters_one_takes_over_from_a_silent_holder_who_has_lost_it(url: str, monkeypatch: pytest.MonkeyPatch):
    gone, waiters, got = lock(url), [lock(url) for _ in range(4)], list[ObjectLock]()
    gone.acquire(wait=True)
    silent(gone, monkeypatch)

    def wait(each: ObjectLock) -> None:
        each.acquire(wait=True)
        got.append(each)
        each.confirm()
        time.sleep(0.1)
        assert got[-1] is each, "two had it at once"
        each.release()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(wait, waiters))
    assert len(got) == 4
    with pytest.raises(LockLost, match=r"^ocr_results of shard_00 was not published: this run was stopped"):
        gone.confirm()
    gone.release()
    assert names(url) == []


def test_a_waiter_that_was_late_takes_over_from_nobody(url: str, monkeypatch: pytest.MonkeyPatch):
    gone, new, late = lock(url, LONG), lock(url, LONG), lock(url, LONG)
    gone.acquire(wait=True)
    holder = gone._read(gone._holder_path)
    assert holder is not None
    with monkeypatch.context() as first:
        first.setattr(Objects, "create", lambda *_: False)
        assert not late._take_over(holder), "another waiter was first"
    gone.confirm()
    gone.release()
    new.acquire(wait=True)
    assert not late._take_over(holder), "the holder is another one by now"
    new.confirm()
    new.release()


def test_a_thread_is_refused_what_another_of_its_process_makes(tmp_path: Path):
    store = TableStore(str(tmp_path))
    made = "ocr_results", "shard_00"
    with store.exclusive(*made), pytest.raises(BusyTable), store.exclusive(*made, wait=False):
        pass


@pytest.mark.slow
def test_who_died_while_it_took_over_is_taken_over_from(url: str, monkeypatch: pytest.MonkeyPatch):
    gone, dying, last = lock(url), lock(url), lock(url)
    gone.acquire(wait=True)
    silent(gone, monkeypatch)
    put = Objects.put

    def dies(self: Objects, path: str, content: bytes, patience: float | None = None) -> None:
        raise StoreError("killed here")

    monkeypatch.setattr(Objects, "put", dies)
    with pytest.raises(StoreError, match="killed here"):
        dying.acquire(wait=True)
    monkeypatch.setattr(Objects, "put", put)
    last.acquire(wait=True)
    last.confirm()
    last.release()
    assert names(url) == []


def test_clocks_that_differ_and_are_set_change_nothing(url: str, monkeypatch: pytest.MonkeyPatch):
    ahead = iter(range(10**9, 10**12, 10**6))
    monkeypatch.setattr("time.time", lambda: float(next(ahead)))
    monkeypatch.setattr("time.time_ns", lambda: next(ahead) * 10**9)
    held, other = lock(url, LONG), lock(url, LONG)
    held.acquire(wait=True)
    with pytest.raises(BusyTable):
        other.acquire(wait=False)
    held.confirm()
    held.release()


def test_a_writer_that_lost_its_lock_writes_no_table_no_journal_no_ledger_and_no_version(
    url: str, monkeypatch: pytest.MonkeyPatch
):
    store = TableStore(url)
    store.write("ocr_results", "shard_00", TABLE, {"recipe": "before"})
    with store.exclusive("ocr_results", "shard_00"):
        journal = store.journal("ocr_results", "shard_00", TABLE.schema)
        journal.add({"page_id": "a"})
        before = [name for name in names(url) if not name.startswith(".locks")]
        held = store._lock("ocr_results", "shard_00")
        assert isinstance(held, ObjectLock)
        silent(held, monkeypatch)
        time.sleep(LIVES)
        for write in (
            lambda: store.write("ocr_results", "shard_00", TABLE, {"recipe": "now"}),
            lambda: (journal.add({"page_id": "b"}), journal.flush()),
            lambda: store.parts(".ledger", "ocr_results", "shard_00").append(TABLE),
            journal.clear,
        ):
            with pytest.raises(LockLost):
                write()
    assert [name for name in names(url) if not name.startswith(".locks")] == before
    assert store.metadata("ocr_results", "shard_00") == {"recipe": "before"}


@pytest.mark.parametrize("log", [".journal", ".ledger"])
def test_what_was_being_written_when_the_lock_was_lost_is_taken_back(
    log: str, url: str, s3: S3Double, monkeypatch: pytest.MonkeyPatch
):
    store = TableStore(url)
    with store.exclusive("ocr_results", "shard_00"):
        held = store._lock("ocr_results", "shard_00")
        assert isinstance(held, ObjectLock)
        silent(held, monkeypatch)
        held._self = held._self.model_copy(update={"lives": LONG})

        def stop(method: str, path: str) -> None:
            if method == "PUT" and f"/{log}/" in path:
                held._beaten -= LONG

        s3.before = stop
        with pytest.raises(LockLost):
            store.parts(log, "ocr_results", "shard_00").append(TABLE)
    assert [name for name in names(url) if not name.startswith(".locks")] == []


def test_who_was_taken_over_from_unawares_finds_it_out_before_it_publishes(url: str, monkeypatch: pytest.MonkeyPatch):
    store, other = TableStore(url), lock(url)
    with store.exclusive("ocr_results", "shard_00"):
        held = store._lock("ocr_results", "shard_00")
        assert isinstance(held, ObjectLock)
        silent(held, monkeypatch)
        other.acquire(wait=True)
        # The holder's clock stood still with it, so it does not know that it is late.
        monkeypatch.setattr(held, "_is_late", lambda: False)
        with pytest.raises(LockLost):
            store.write("ocr_results", "shard_00", TABLE, {})
    assert not store.has("ocr_results", "shard_00")
    other.confirm()
    other.release()


THEIRS, MINE = pa.table({"page_id": ["theirs"]}), pa.table({"page_id": ["mine"]})


def write_stopped(
    url: str, s3: S3Double, shard: str, step: int, replaces: bool, monkeypatch: pytest.MonkeyPatch
) -> tuple[bool, str]:
    """Write `MINE` under a lock that another writer takes over at request `step`, and publishes `THEIRS`.

    Returns whether the writing has so many requests, and what it said.
    """
    store, other, objects = TableStore(url), TableStore(url), Objects.at(url)[0]
    monkeypatch.setattr(other, "_lock", lambda *_: None)
    said = ""
    with store.exclusive("ocr_results", shard):
        held = store._lock("ocr_results", shard)
        assert isinstance(held, ObjectLock)
        silent(held, monkeypatch)
        # Its clock stood still with it, as on a machine that was paused.
        monkeypatch.setattr(held, "_is_late", lambda: False)
        journal = store.journal("ocr_results", shard, MINE.schema)
        journal.add({"page_id": "mine"})
        begun, taken = len(s3.asked), lock(url)._self.content()

        def take_over(method: str, path: str) -> None:
            if len(s3.asked) == begun + step + 1:
                s3.before = lambda method, path: None
                objects.put(held._holder_path, taken)
                other.write("ocr_results", shard, THEIRS, {"recipe": "theirs"})

        s3.before = take_over
        try:
            store.write("ocr_results", shard, MINE, {"recipe": "mine"}, replaces)
        except LockLost as error:
            said = str(error)
        reached = len(s3.asked) > begun + step
        s3.before = lambda method, path: None
        assert journal.rows().equals(MINE)
    return reached, said


@pytest.mark.parametrize("old", [None, TABLE], ids=["first", "next"])
def test_a_writer_that_is_stopped_at_any_request_replaces_no_table_of_who_took_over(
    old: pa.Table | None, url: str, s3: S3Double, monkeypatch: pytest.MonkeyPatch
):
    store, lost = TableStore(url), 0
    for step in range(100):
        shard = f"shard_{step}"
        if old is not None:
            store.write("ocr_results", shard, old, {"recipe": "before"})
        reached, said = write_stopped(url, s3, shard, step, old is not None, monkeypatch)
        if not reached:
            break
        assert store.read("ocr_results", shard).equals(THEIRS), f"at request {step}, the other's table was replaced"
        if said:
            assert said.startswith(f"ocr_results of {shard} was not published: this run was stopped")
            lost += 1
        else:
            # It had published before it was stopped, so the other one replaced its table.
            assert "mine" in {version.recipe for version in store.versions("ocr_results", shard)}
    assert lost >= (2 if old is None else 3)


@pytest.mark.slow
def test_a_table_too_large_for_one_part_is_replaced_on_the_same_condition(url: str, s3: S3Double):
    objects, root = Objects.at(url)
    path, large = f"{root}/ocr_results/shard_00.parquet", bytes(101 * 2**20)
    objects.put(path, b"old")
    mark = objects.mark(path)
    objects.put(path, b"another's")
    s3.asked.clear()
    assert not objects.replace(path, large, mark)
    assert not objects.replace(path, large, None)
    assert objects.get(path) == b"another's"
    assert objects.replace(path, large, objects.mark(path))
    assert not [path for _, path in s3.asked if "upload" in path], "Ceph forgets the condition of an upload in parts"


def test_a_replacement_whose_answer_was_lost_on_the_way_is_no_lost_lock(url: str, s3: S3Double):
    store = TableStore(url)
    store.write("ocr_results", "shard_00", pa.table({"page_id": ["b"]}), {"recipe": "before"})
    with store.exclusive("ocr_results", "shard_00"):
        once = iter([CUT])
        s3.after = lambda method, path: next(once, None) if method == "PUT" and "ocr_results/" in path else None
        store.write("ocr_results", "shard_00", TABLE, {"recipe": "now"})
    assert next(once, None) is None
    assert store.read("ocr_results", "shard_00").equals(TABLE)


def test_a_lock_whose_answer_was_lost_on_the_way_is_had(url: str, s3: S3Double):
    once = iter([CUT])
    s3.after = lambda method, path: next(once, None) if method == "PUT" else None
    held = lock(url, LONG)
    held.acquire(wait=False)
    assert next(once, None) is None
    held.confirm()
    held.release()


@pytest.mark.parametrize("forgets", ["mode", "IfMatch"])
def test_a_storage_that_writes_over_what_is_there_is_refused(url: str, monkeypatch: pytest.MonkeyPatch, forgets: str):
    objects = Objects.at(url)[0]
    write = objects.fs.pipe_file

    def forgetful(path: str, content: bytes, **how: Any) -> None:
        how.pop(forgets, None)
        write(path, content, **how)

    monkeypatch.setattr(objects.fs, "pipe_file", forgetful)
    monkeypatch.setattr(object_locks, "_tested", set())
    with pytest.raises(StoreError, match=r"two runs could make the same table: use a storage that refuses that$"):
        lock(url).acquire(wait=True)
    assert names(url) == []
