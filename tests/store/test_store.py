"""The store keeps the old table or the new and reports errors in one line."""

import errno
import multiprocessing
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kopub.errors import DamagedTable, StoreError
from kopub.files import write_new
from kopub.store.objects import Objects
from kopub.store.table_store import ShardStore
from tests.doubles.full_disk import FullDisk

SCHEMA = pa.schema([pa.field("page_id", pa.string()), pa.field("n", pa.int32())])


def table(n: int, rows: int = 3) -> pa.Table:
    return pa.Table.from_pylist([{"page_id": f"p{i}", "n": n} for i in range(rows)], SCHEMA)


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ShardStore:
    return ShardStore(url=str(tmp_path / "store") if request.param == "file" else f"memory://{tmp_path.name}")


def test_a_table_comes_back_with_its_metadata(store: ShardStore):
    store.write("ocr_results", "shard_00", table(1), {"recipe": "abc"})
    assert store.read("ocr_results", "shard_00").equals(table(1))
    assert store.read("ocr_results", "shard_00", ["n"]).column_names == ["n"]
    assert store.metadata("ocr_results", "shard_00") == {"recipe": "abc"}
    assert store.footer("ocr_results", "shard_00")[0] == 3


def test_a_table_that_was_never_made_is_named(store: ShardStore):
    assert not store.has("ocr_results", "shard_00")
    with pytest.raises(StoreError, match="ocr_results of shard_00 has not been made yet: `kopub run` makes it"):
        store.read("ocr_results", "shard_00")


def test_a_damaged_table_is_named(tmp_path: Path):
    store = ShardStore(url=str(tmp_path))
    store.write("ocr_results", "shard_00", table(1), {})
    path = tmp_path / "ocr_results" / "shard_00.parquet"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(StoreError, match=r"shard_00.parquet is damaged .*; materialize ocr_results to make it again"):
        store.read("ocr_results", "shard_00")


@pytest.mark.parametrize(
    "columns", [None, pytest.param(["page_id", "n"], marks=pytest.mark.slow)], ids=["whole", "columns"]
)
def test_no_flipped_bit_of_a_table_comes_back_as_content(tmp_path: Path, columns: list[str] | None):
    store = ShardStore(url=str(tmp_path))
    says = {"recipe": "abc", "content": "d" * 16}
    store.write("ocr_results", "shard_00", table(1, 50), says)
    path = tmp_path / "ocr_results" / "shard_00.parquet"
    whole = path.read_bytes()
    damaged = 0
    for at in range(4, len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        with suppress(DamagedTable):
            # A table without metadata is made again.
            assert store.metadata("ocr_results", "shard_00") in (says, {}), at
        with suppress(DamagedTable):
            stored = store.read("ocr_results", "shard_00", columns)
            # A flip in the footer may be harmless, or give a column another name or type.
            assert not stored.schema.equals(SCHEMA) or stored.equals(table(1, 50)), at
            continue
        damaged += 1
    assert damaged > 0.3 * len(whole)


def test_whoever_makes_a_table_and_whoever_reads_it_agree_on_a_flipped_bit(tmp_path: Path):
    """A table that its own asset keeps must not be refused by the next asset."""
    store = ShardStore(url=str(tmp_path))
    store.write("ocr_results", "shard_00", table(1, 5), {"recipe": "abc", "content": "d" * 16})
    path = tmp_path / "ocr_results" / "shard_00.parquet"
    whole = path.read_bytes()
    sound = 0
    for at in range(len(whole) // 3, len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        try:
            found = store.find("ocr_results", "shard_00")
        except DamagedTable:
            continue
        assert found is not None
        assert found[1] == store.metadata("ocr_results", "shard_00") == store.footer("ocr_results", "shard_00")[1]
        sound += 1
    assert sound


def test_a_table_that_somebody_edited_is_damaged(tmp_path: Path):
    store = ShardStore(url=str(tmp_path))
    store.write("ocr_results", "shard_00", table(1), {"recipe": "abc"})
    path = tmp_path / "ocr_results" / "shard_00.parquet"
    kept = pq.read_table(path)
    pq.write_table(table(2).replace_schema_metadata(kept.schema.metadata), path)
    with pytest.raises(DamagedTable, match="its rows were changed after they were written"):
        store.read("ocr_results", "shard_00")


def test_the_journal_outlives_its_writer_and_is_forgotten_when_asked(store: ShardStore):
    journal = store.journal("ocr_results", "shard_00", SCHEMA)
    journal.add({"page_id": "p0", "n": 1})
    journal.add({"page_id": "p1", "n": 2})
    journal.flush()
    again = store.journal("ocr_results", "shard_00", SCHEMA)
    assert again.rows()["page_id"].to_pylist() == ["p0", "p1"]
    other = pa.schema([pa.field("page_id", pa.string())])
    assert store.journal("ocr_results", "shard_00", other).rows().num_rows == 0
    again.clear()
    assert again.rows().num_rows == 0


def test_the_first_row_is_journalled_at_once(store: ShardStore):
    store.journal("ocr_results", "shard_00", SCHEMA).add({"page_id": "p0", "n": 1})
    assert store.journal("ocr_results", "shard_00", SCHEMA).rows().num_rows == 1


def test_a_damaged_part_of_the_journal_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    store = ShardStore(url=str(tmp_path))
    journal = store.journal("ocr_results", "shard_00", SCHEMA)
    for page in ("p0", "p1"):
        journal.add({"page_id": page, "n": 1})
        journal.flush()
    first, _ = sorted((tmp_path / ".journal" / "ocr_results" / "shard_00").iterdir())
    first.write_bytes(first.read_bytes()[:-10])
    assert store.journal("ocr_results", "shard_00", SCHEMA).rows()["page_id"].to_pylist() == ["p1"]
    assert f"{first} is damaged" in caplog.text
    assert first.with_name(f"{first.name}.damaged").exists()
    caplog.clear()
    assert store.journal("ocr_results", "shard_00", SCHEMA).rows().num_rows == 1
    assert not caplog.text


@pytest.mark.parametrize("folder", ["a[1]", "a?", "a*"])
def test_a_damaged_part_is_set_aside_by_its_very_name(tmp_path: Path, folder: str):
    """fsspec takes these names for patterns, and would move another store's files."""
    stores = [ShardStore(url=f"memory://{tmp_path.name}/{each}") for each in (folder, "ab")]
    for store in stores:
        store.parts(".journal").add("1.parquet", table(1))
    objects, root = Objects.at(stores[0].url)
    objects.put(f"{root}/.journal/1.parquet", b"damaged")
    assert [store.parts(".journal").read() for store in stores] == [[], [table(1)]]
    assert objects.below(root) == [f"{root}/.journal/1.parquet.damaged"]


def test_a_part_that_is_listed_and_not_there_is_named(tmp_path: Path):
    folder = tmp_path / ".journal" / "ocr_results" / "shard_00"
    folder.mkdir(parents=True)
    (folder / "1.parquet").symlink_to(tmp_path / "nowhere")
    with pytest.raises(StoreError, match=r"shard_00 lists a file that cannot be opened .*: delete it$"):
        ShardStore(url=str(tmp_path)).journal("ocr_results", "shard_00", SCHEMA).rows()


def test_a_journal_is_forgotten_with_what_a_killed_writer_left(tmp_path: Path):
    journal = ShardStore(url=str(tmp_path)).journal("ocr_results", "shard_00", SCHEMA)
    journal.add({"page_id": "p0", "n": 1})
    (tmp_path / ".journal" / "ocr_results" / "shard_00" / ".1.parquet.tmp").touch()
    journal.clear()
    assert not list((tmp_path / ".journal").rglob("*shard_00*"))


def _write_for_ever(url: str) -> None:
    store = ShardStore(url=url)
    n = 0
    while True:
        n += 1
        store.write("ocr_results", "shard_00", table(n, 20_000), {"recipe": str(n)})


def test_a_killed_writer_leaves_a_whole_table(tmp_path: Path):
    store = ShardStore(url=str(tmp_path))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["kopub.store.table_store"])
    for _ in range(3):
        writer = context.Process(target=_write_for_ever, args=(str(tmp_path),))
        writer.start()
        before = store.metadata("ocr_results", "shard_00") if store.has("ocr_results", "shard_00") else {}
        while not store.has("ocr_results", "shard_00") or store.metadata("ocr_results", "shard_00") == before:
            assert writer.is_alive()
        os.kill(writer.pid or 0, signal.SIGKILL)
        writer.join()
        found = store.read("ocr_results", "shard_00")
        assert found.equals(table(int(store.metadata("ocr_results", "shard_00")["recipe"]), 20_000))


def test_a_full_disk_is_one_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(FullDisk, "no_room_for", "ocr_results")
    store = ShardStore(url="fulldisk://store")
    with pytest.raises(StoreError, match=r"^the disk is full: .* free some space and run again$"):
        store.write("ocr_results", "shard_00", table(1), {})


def test_a_failed_write_leaves_the_old_table_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = ShardStore(url=str(tmp_path))
    store.write("ocr_results", "shard_00", table(1), {})

    def no_space(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(StoreError, match="the disk is full"):
        store.write("ocr_results", "shard_00", table(2), {})
    with pytest.raises(StoreError, match="the disk is full"):
        store.journal("ocr_results", "shard_00", SCHEMA).add({"page_id": "p0", "n": 1})
    assert store.read("ocr_results", "shard_00").equals(table(1))
    assert [path.name for path in (tmp_path / "ocr_results").iterdir()] == ["shard_00.parquet"]
    assert not list((tmp_path / ".journal" / "ocr_results" / "shard_00").iterdir())


def test_a_temporary_file_that_its_writer_is_done_with_stops_nobody_else(tmp_path: Path):
    # A name that leads nowhere, like a file that is renamed after it was listed.
    (tmp_path / "raw_pages").mkdir()
    (tmp_path / "raw_pages" / ".shard_00.parquet.0a1b2c3d.tmp").symlink_to("gone")
    store = ShardStore(url=str(tmp_path))
    store.write("raw_pages", "shard_00", table(1), {})
    assert store.footer("raw_pages", "shard_00")[0] == 3


def test_one_process_at_a_time_makes_a_table(tmp_path: Path):
    store = ShardStore(url=str(tmp_path))
    entered = threading.Event()

    def second() -> None:
        with store.exclusive("ocr_results", "shard_00"):
            entered.set()

    with store.exclusive("ocr_results", "shard_00"):
        other = threading.Thread(target=second)
        other.start()
        assert not entered.wait(0.2)
    other.join()
    assert entered.is_set()


def test_the_newest_row_of_a_journal_comes_last_also_when_the_clock_is_set_back(
    store: ShardStore, monkeypatch: pytest.MonkeyPatch
):
    clock = iter(range(10**18, 0, -(10**15)))
    monkeypatch.setattr("time.time_ns", lambda: next(clock))
    for n in range(4):
        journal = store.journal("ocr_results", "shard_00", SCHEMA)
        journal.add({"page_id": "p0", "n": n})
        journal.flush()
    assert store.journal("ocr_results", "shard_00", SCHEMA).rows()["n"].to_pylist() == [0, 1, 2, 3]


def test_what_a_killed_writer_left_in_a_log_is_removed_after_a_day(tmp_path: Path):
    log = ShardStore(url=str(tmp_path)).parts(".ledger", "ocr_results", "shard_00")
    log.append(table(1))
    folder = tmp_path / ".ledger" / "ocr_results" / "shard_00"
    old, new = folder / ".1.parquet.tmp", folder / ".2.parquet.tmp"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    log.append(table(2))
    assert (old.exists(), new.exists()) == (False, True)


def test_a_disk_that_is_only_read_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(StoreError, match=r"was not written \(Read-only file system\)"):
        write_new(tmp_path / "a.parquet", pa.py_buffer(b""))
