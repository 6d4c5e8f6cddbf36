"""Storage faults: transient ones are retried, others are one line, nothing is left half written."""

import threading
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import fsspec.config
import pyarrow as pa
import pytest

from kopub.errors import StoreError
from kopub.store import faults, ledger
from kopub.store import locks as object_locks
from kopub.store.objects import Objects
from kopub.store.table_store import TableStore
from tests.doubles.s3 import CUT, CUT_WITHIN, FULL, SILENT, Fault, S3Double
from tests.support.processes.two_writers import ASSETS, OnObjects
from tests.support.sources.corpora import pages

TABLE = pa.table({"page_id": ["a", "b"]})
PATIENCE = faults.RETRY_TIMEOUT_S
"""The real timeout, which these tests shorten."""


@pytest.fixture
def store(s3_root: str, s3: S3Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TableStore]:
    """Yield a store with a table of recipe `before`, which no fault may change."""
    monkeypatch.setattr(faults, "RETRY_TIMEOUT_S", 5.0)
    store = TableStore(f"{s3_root}/{tmp_path.name}", keep_versions=0)
    store.write("ocr_results", "shard_00", TABLE, {"recipe": "before"})
    yield store
    s3.before = s3.after = lambda method, path: None


def first(count: int, status: int, of: str = "PUT") -> Fault:
    """Return a fault that answers the first requests of a method with `status`."""
    left = iter([status] * count)
    return lambda method, path: next(left, None) if method == of else None


@pytest.mark.parametrize(
    ("when", "fault"),
    [
        *((when, fault) for when in ("before", "after") for fault in (503, 500, CUT)),
        pytest.param("before", CUT_WITHIN, id="cut in the middle of the PUT"),
    ],
)
def test_a_fault_that_passes_is_waited_out(store: TableStore, s3: S3Double, when: str, fault: int):
    setattr(s3, when, first(2, fault))
    store.write("ocr_results", "shard_00", TABLE, {"recipe": "now"})
    assert store.metadata("ocr_results", "shard_00") == {"recipe": "now"}


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_so_is_one_while_a_table_is_read(store: TableStore, s3: S3Double, method: str):
    s3.before = first(2, 503, of=method)
    assert store.read("ocr_results", "shard_00").equals(TABLE)


def test_a_storage_that_goes_away_for_a_while_is_waited_for(store: TableStore, s3: S3Double):
    s3.go_away()
    back = threading.Timer(2.0, s3.come_back)
    back.start()
    store.write("ocr_results", "shard_00", TABLE, {"recipe": "now"})
    back.join()
    assert store.published("ocr_results").keys() == {"shard_00"}
    assert store.metadata("ocr_results", "shard_00") == {"recipe": "now"}


def test_a_minute_without_the_storage_costs_neither_a_table_nor_its_lock():
    assert PATIENCE > 60
    assert object_locks._OWN_SHARE * object_locks.LEASE_TTL_S > 60 + object_locks.LEASE_TTL_S / object_locks._BEATS


@pytest.mark.slow
def test_slow_answers_are_waited_for_and_asked_for_again(
    store: TableStore, s3: S3Double, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(fsspec.config.conf, "s3", {"config_kwargs": {"connect_timeout": 0.2, "read_timeout": 0.2}})
    impatient = TableStore(store.url, keep_versions=0)
    s3.before = first(2, SILENT)
    impatient.write("ocr_results", "shard_00", TABLE, {"recipe": "now"})
    assert impatient.metadata("ocr_results", "shard_00") == {"recipe": "now"}
    monkeypatch.setattr(faults, "RETRY_TIMEOUT_S", 0.1)
    s3.before = lambda method, path: SILENT
    with pytest.raises(StoreError, match=r"\(.*[Tt]imeout.*\): the storage does not answer; what is finished") as e:
        impatient.write("ocr_results", "shard_00", TABLE, {"recipe": "then"})
    assert "\n" not in str(e.value)


def test_a_bucket_that_is_full_is_one_line_at_once_and_the_old_table_stays(store: TableStore, s3: S3Double):
    s3.before = lambda method, path: FULL if method == "PUT" else None
    for write in (
        lambda: store.write("ocr_results", "shard_00", TABLE, {"recipe": "now"}),
        lambda: store.parts(".ledger", "ocr_results", "shard_00").append(TABLE),
        lambda: store.exclusive("ocr_results", "shard_00").__enter__(),
    ):
        s3.asked.clear()
        with pytest.raises(StoreError, match=r"has no room for it \(.+\); .*: make room or raise the quota") as e:
            write()
        assert "\n" not in str(e.value)
        assert s3.counted()["PUT"] == 1, "asking again makes no room"
    assert store.metadata("ocr_results", "shard_00") == {"recipe": "before"}
    s3.before = lambda method, path: None
    with store.exclusive("ocr_results", "shard_00"):
        store.write("ocr_results", "shard_00", TABLE, {"recipe": "now"})


def test_a_bucket_that_is_not_there_is_one_line(store: TableStore):
    with pytest.raises(StoreError, match=r"there is no such bucket: make it, or correct store\.url$"):
        TableStore("s3://nowhere/store").write("ocr_results", "shard_00", TABLE, {})
    with pytest.raises(StoreError, match="there is no such bucket"):
        TableStore("s3://nowhere/store").exclusive("ocr_results", "shard_00").__enter__()


@pytest.mark.slow
def test_a_shard_that_is_made_through_all_of_them_is_the_same_and_entered_once(
    s3_root: str, s3: S3Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(faults, "RETRY_TIMEOUT_S", 30.0)
    home = OnObjects.of(tmp_path / "home", [pages("a_1", "a_2", "a_3")]).home
    calm, stormy = (OnObjects(home, url=f"{s3_root}/{tmp_path.name}/{name}") for name in ("calm", "stormy"))
    calm.make(*ASSETS)
    some = cycle([None, 503, None, None, CUT, None, 500, None, None, CUT_WITHIN, None])
    lost = cycle([None, None, None, CUT, None, None, None, 503, None, None, None, None, None])
    s3.before, s3.after = (lambda method, path: next(some)), (lambda method, path: next(lost))
    stormy.make(*ASSETS)
    s3.before = s3.after = lambda method, path: None
    for asset in ASSETS:
        assert stormy.store.read(asset, "shard_00").equals(calm.store.read(asset, "shard_00"))
        assert ledger.read(stormy.store, asset, "shard_00").num_rows == 3
    objects, there = Objects.at(stormy.url)
    left = [path.removeprefix(f"{there}/").partition("/")[0] for path in objects.below(there)]
    assert set(left) == {*ASSETS, ".ledger", ".footers"}


@pytest.mark.parametrize("fault", [503, CUT], ids=["busy", "cut"])
def test_a_storage_that_stays_away_is_one_line_and_the_old_table_stays(
    store: TableStore, s3: S3Double, monkeypatch: pytest.MonkeyPatch, fault: int
):
    monkeypatch.setattr(faults, "RETRY_TIMEOUT_S", 0.2)
    s3.before = lambda method, path: fault
    with pytest.raises(
        StoreError, match=r"ocr_results/shard_00 cannot be listed \(.+\): the storage does not answer; what is"
    ) as e:
        store.write("ocr_results", "shard_00", TABLE, {"recipe": "now"})
    assert "\n" not in str(e.value)
    s3.before = lambda method, path: None
    assert store.metadata("ocr_results", "shard_00") == {"recipe": "before"}


def test_wrong_credentials_are_one_line_at_once(store: TableStore, s3: S3Double):
    s3.before = lambda method, path: 403
    s3.asked.clear()
    for call in (
        lambda: store.write("ocr_results", "shard_00", TABLE, {}),
        lambda: store.read("ocr_results", "shard_00"),
        lambda: store.published("ocr_results"),
        lambda: store.parts(".ledger", "ocr_results", "shard_00").read(),
        lambda: store.exclusive("ocr_results", "shard_00").__enter__(),
    ):
        with pytest.raises(StoreError, match=r"\(InvalidAccessKeyId\): correct the credentials") as e:
            call()
        assert "\n" not in str(e.value)
    assert len(s3.asked) < 20
