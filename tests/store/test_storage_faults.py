"""Faults of object storage: those that pass cost time, the others are one line, and nothing is ever half there."""

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from resources.errors import StoreError
from resources.store import faults
from resources.store.table_store import TableStore
from tests.doubles.s3 import BUCKET, CUT, Fault, S3Double
from tests.support.buckets import bucket

TABLE = pa.table({"page_id": ["a", "b"]})


@pytest.fixture(scope="module")
def server() -> Iterator[S3Double]:
    with S3Double() as server:
        yield server


@pytest.fixture(scope="module")
def root(server: S3Double) -> Iterator[str]:
    with bucket(server.environment, BUCKET) as url:
        yield url


@pytest.fixture
def store(root: str, server: S3Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TableStore]:
    """With a table of recipe `before`, to which a fault must do nothing."""
    monkeypatch.setattr(faults, "PATIENCE", 5.0)
    store = TableStore(f"{root}/{tmp_path.name}", keep_versions=0)
    store.write("ocr_results", "shard_00", TABLE, {"recipe": "before"})
    yield store
    server.before = server.after = lambda method, path: None


def first(count: int, status: int, of: str = "PUT") -> Fault:
    """The first requests of a method end so."""
    left = iter([status] * count)
    return lambda method, path: next(left, None) if method == of else None


@pytest.mark.parametrize("fault", [503, 500, CUT], ids=["busy", "broken", "cut"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_fault_that_passes_is_waited_out(store: TableStore, server: S3Double, fault: int, when: str):
    setattr(server, when, first(2, fault))
    store.write("ocr_results", "shard_00", TABLE, {"recipe": "now"})
    assert store.metadata("ocr_results", "shard_00") == {"recipe": "now"}


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_so_is_one_while_a_table_is_read(store: TableStore, server: S3Double, method: str):
    server.before = first(2, 503, of=method)
    assert store.read("ocr_results", "shard_00").equals(TABLE)


def test_a_storage_that_goes_away_for_a_while_is_waited_for(store: TableStore, server: S3Double):
    back = time.monotonic() + 2
    server.before = lambda method, path: CUT if time.monotonic() < back else None
    store.write("ocr_results", "shard_00", TABLE, {"recipe": "now"})
    assert store.published("ocr_results").keys() == {"shard_00"}


@pytest.mark.parametrize("fault", [503, CUT], ids=["busy", "cut"])
def test_a_storage_that_stays_away_is_one_line_and_the_old_table_stays(
    store: TableStore, server: S3Double, monkeypatch: pytest.MonkeyPatch, fault: int
):
    monkeypatch.setattr(faults, "PATIENCE", 0.2)
    server.before = lambda method, path: fault
    with pytest.raises(
        StoreError, match=r"shard_00\.parquet cannot be .* the storage does not answer \(.+\); what is"
    ) as e:
        store.write("ocr_results", "shard_00", TABLE, {"recipe": "now"})
    assert "\n" not in str(e.value)
    server.before = lambda method, path: None
    assert store.metadata("ocr_results", "shard_00") == {"recipe": "before"}


def test_wrong_credentials_are_one_line_at_once(store: TableStore, server: S3Double):
    server.before = lambda method, path: 403
    server.asked.clear()
    for call in (
        lambda: store.write("ocr_results", "shard_00", TABLE, {}),
        lambda: store.read("ocr_results", "shard_00"),
        lambda: store.published("ocr_results"),
        lambda: store.parts(".ledger", "ocr_results", "shard_00").read(),
        lambda: store.exclusive("ocr_results", "shard_00").__enter__(),
    ):
        with pytest.raises(StoreError, match=r"with these credentials .*: correct them and run again$") as e:
            call()
        assert "\n" not in str(e.value)
    assert len(server.asked) < 20
