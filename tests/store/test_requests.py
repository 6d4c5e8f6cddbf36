"""Requests to object storage are few, and looking costs no more for more shards."""

import random
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from kopub.cli.commands.plan import plan_values
from kopub.cli.commands.run import run_assets
from kopub.cli.commands.status import status_values
from kopub.search.measuring import Measurement, SearchedCorpus, measure
from kopub.search.metrics import HISTORY
from kopub.store import ledger, table_source
from kopub.store.corpus_tables import TABLES
from kopub.store.objects import AT_ONCE, Objects
from kopub.store.table_source import FooterCache
from kopub.store.table_store import TableStore
from kopub.tables.plan import survey
from tests.doubles.s3 import S3Double
from tests.support.harness import STANDARD, Platform
from tests.support.processes.two_writers import OnObjects
from tests.support.sources.corpora import pages

FIRST, AGAIN, LOOK = 440, 165, 100
"""Most requests of a first run of the samples, a run that changes nothing, and a look at all tables."""
TABLES_OF_ROWS = tuple(table.name for table in TABLES)
TABLE = pa.table({"page_id": ["a"] * 10})


@pytest.fixture
def store(s3_root: str, s3: S3Double, tmp_path: Path) -> TableStore:
    store = TableStore(f"{s3_root}/{tmp_path.name}")
    store.write("ocr_results", "shard_00", TABLE, {"recipe": "1"})
    s3.asked.clear()
    return store


def asked(s3: S3Double) -> list[str]:
    methods = [method for method, _ in s3.asked]
    s3.asked.clear()
    return methods


def test_a_small_table_is_read_in_one_request_whether_it_is_there_or_not(store: TableStore, s3: S3Double):
    assert store.read("ocr_results", "shard_00").num_rows == 10
    assert store.find("ocr_results", "shard_01") is None
    assert store.metadata("ocr_results", "shard_00") == {"recipe": "1"}
    assert asked(s3) == ["GET"] * 3


def test_so_is_a_large_one_that_is_read_whole(store: TableStore, s3: S3Double):
    large = pa.table({"page_id": ["a"], "bytes": [random.Random(7).randbytes(2 * AT_ONCE)]})
    store.write("ocr_results", "shard_00", large, {"recipe": "2"})
    s3.asked.clear()
    assert store.read("ocr_results", "shard_00").equals(large)
    assert asked(s3) == ["GET"]
    with store.fetched_once():
        assert store.find("ocr_results", "shard_00") is not None
        assert store.metadata("ocr_results", "shard_00") == {"recipe": "2"}
    assert asked(s3) == ["GET"]


def test_a_listing_is_one_request_whether_there_is_something_or_not(store: TableStore, s3: S3Double):
    assert (store.published("ocr_results").keys(), store.published("raw_pages")) == ({"shard_00"}, {})
    assert (store.has("ocr_results", "shard_00"), store.has("ocr_results", "shard_0")) == (True, False)
    assert store.parts(".ledger").names() == []
    assert asked(s3) == ["GET"] * 5


def test_a_large_table_is_read_in_three_requests_and_its_footer_costs_no_more_than_a_small_table(
    store: TableStore, s3: S3Double
):
    large = pa.table({"page_id": [f"{number:032x}" * 8 for number in range(9_000)], "n": range(9_000)})
    store.write("raw_pages", "shard_00", large, {"recipe": "1"}, replaces=False)
    asked(s3)
    assert store.read("raw_pages", "shard_00").equals(large)
    assert len(asked(s3)) <= 4
    assert store.footer("raw_pages", "shard_00") == (9_000, {"recipe": "1"})
    assert len(asked(s3)) <= 2


def test_the_first_table_of_a_shard_is_published_in_two_requests(store: TableStore, s3: S3Double):
    with store.exclusive("ocr_results", "shard_01"):
        asked(s3)
        store.write("ocr_results", "shard_01", TABLE, {"recipe": "1"}, replaces=False)
        assert asked(s3) == ["GET", "PUT"]


def test_a_journal_is_listed_once_and_removed_in_one_request(store: TableStore, s3: S3Double):
    journal = store.journal("ocr_results", "shard_00", TABLE.schema)
    assert journal.rows().num_rows == 0
    for _ in range(3):
        journal.add({"page_id": "a"})
        journal.flush()
    assert journal.rows().num_rows == 3
    journal.clear()
    assert asked(s3) == ["GET", "PUT", "PUT", "PUT", "POST"]
    assert store.journal("ocr_results", "shard_00", TABLE.schema).rows().num_rows == 0


def test_the_last_run_is_told_by_the_names_of_its_entries(store: TableStore, s3: S3Double):
    for shard in ("shard_00", "shard_01", "shard_02"):
        rows = ledger.entries([("a", "f"), ("b", "f")], [1.0, None], 1, f"run-of-{shard[-1]}", "own")
        ledger.append(store, "ocr_results", shard, rows)
        last = ledger.entries([("a", "g"), ("b", "g")], [1.0, 2.0], 1, "the-last-run", "own")
        ledger.append(store, "ocr_results", shard, last)
    asked(s3)
    found = ledger.last_run(store, {"ocr_results": {"shard_00", "shard_02"}, "raw_pages": {"shard_00"}})
    assert found is not None
    assert (found.run_id, found.rows) == ("the-last-run", {"ocr_results": 4, "raw_pages": 0})
    assert asked(s3) == ["GET", "GET"]


@pytest.mark.slow
@pytest.mark.services
def test_the_demo_asks_half_of_what_it_did(s3_root: str, s3: S3Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}")
    samples = OnObjects(tmp_path / "home", url=f"{s3_root}/{tmp_path.name}")
    samples.home.mkdir()
    asked(s3)
    counts = []
    for _ in range(2):
        # As in a process that has just started.
        monkeypatch.setattr(table_source, "_last_footers", {})
        run_assets(samples.settings, [], "", Console(quiet=True))
        counts.append(len(asked(s3)))
    assert (counts[0] <= FIRST, counts[1] <= AGAIN) == (True, True), counts
    shown = status_values(samples.settings)
    assert (len(shown["assets"]), shown["next"], shown["reading"] is not None) == (len(STANDARD), None, True)


@pytest.mark.slow
def test_a_run_with_nothing_changed_asks_less_than_fifteen_times_a_shard(
    s3_root: str, s3: S3Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    counts = []
    for shards in (2, 5):
        url = f"{s3_root}/{tmp_path.name}/{shards}"
        home = OnObjects.of(tmp_path / str(shards), [pages(f"{shard}_1") for shard in range(shards)]).home
        made = OnObjects(home, url=url)
        keys = made.settings.corpus.manifest.keys
        assert made.run(first=keys[0], last=keys[-1]).success
        asked(s3)
        # As in a process that has just started.
        monkeypatch.setattr(table_source, "_last_footers", {})
        assert made.run(first=keys[0], last=keys[-1]).success
        # No lock is taken for a table that stays as it is.
        assert not [path for method, path in s3.asked if method in ("PUT", "DELETE") and ".shard_" in path]
        counts.append(len(asked(s3)))
    assert (counts[1] - counts[0]) / 3 < 15, counts


def scored(home: Path, store: TableStore) -> Measurement:
    settings = Platform(home).settings
    keys, measured = settings.corpus.manifest.keys, HISTORY.measured(store)
    corpus = SearchedCorpus(store, keys, {"image", "text"}, settings.embedding, measured=measured)
    return measure(store, corpus)


@pytest.mark.slow
def test_a_look_at_all_tables_asks_no_more_for_more_shards(s3_root: str, s3: S3Double, tmp_path: Path):
    looks = []
    for shards in (3, 15):
        made = OnObjects.of(tmp_path / str(shards), [pages(f"{shard}_1") for shard in range(shards)])
        Platform(made.home).make(*TABLES_OF_ROWS)
        scored(made.home, Platform(made.home).store)
        there = f"{s3_root}/{tmp_path.name}/{shards}"
        objects, folder = Objects.at(there)
        objects.fs.put(f"{made.home}/store/", f"{folder}/", recursive=True)
        on_objects = OnObjects(made.home, url=there)
        asked(s3)
        # The first look may read every table once.
        survey(on_objects.resources(), FooterCache(on_objects.store))
        assert len(asked(s3)) <= shards * len(TABLES_OF_ROWS) + LOOK
        plan_values(on_objects.settings)
        plan = len(asked(s3))
        shown = status_values(on_objects.settings)
        status = len(asked(s3))
        assert not scored(made.home, on_objects.store).computed
        looks.append((plan, status, len(asked(s3))))
        assert {each["made"] for each in shown["assets"]} == {0, shards}
    # Two threads that look for the same table at once each send a request.
    assert all(more <= few + 2 for few, more in zip(*looks, strict=True)), looks
    assert max(looks[0]) < LOOK
