"""An upgrade keeps a set number of replaced tables intact, so it can be undone."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from kopub.errors import StoreError
from kopub.store.earlier_rows import known_rows
from kopub.store.objects import Objects
from kopub.store.table_source import FooterCache
from kopub.store.table_store import ShardStore
from kopub.store.versions import Versions
from kopub.tables.plan import survey
from kopub.tables.provenance import content
from tests.doubles.engines import OneRegionLayout, SlowReader
from tests.support.harness import STANDARD, Platform
from tests.support.sources.corpora import pages, query

SCHEMA = pa.schema([pa.field("page_id", pa.string()), pa.field("n", pa.int32())])
TABLE = ("ocr_results", "shard_00")
TABLES = [asset for asset in STANDARD if asset != "hf_release"]
"""The release tells which run made what, so it differs from one to the next."""


def table(n: int, rows: int = 3) -> pa.Table:
    return pa.Table.from_pylist([{"page_id": f"p{i}", "n": n} for i in range(rows)], SCHEMA)


def write(store: ShardStore, *versions: str) -> None:
    """Write a table for each recipe in turn, each with its own content."""
    for version in versions:
        store.write(*TABLE, table(ord(version)), {"recipe": version})


def kept(store: ShardStore) -> list[str]:
    return [version.recipe for version in store.versions(*TABLE)]


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ShardStore:
    return ShardStore(url=str(tmp_path / "store") if request.param == "file" else f"memory://{tmp_path.name}")


def test_a_replaced_table_is_kept_and_read_by_its_recipe(store: ShardStore):
    write(store, "a", "b")
    assert store.read(*TABLE).equals(table(ord("b")))
    assert store.read(*TABLE, version="a").equals(table(ord("a")))
    assert store.read(*TABLE, ["n"], "a").column_names == ["n"]
    assert store.metadata(*TABLE, version="a") == {"recipe": "a"}
    (version,) = store.versions(*TABLE)
    assert (version.recipe, version.rows) == ("a", 3)
    assert version.bytes > 0
    assert version.made_at.year > 2000


def test_the_same_recipe_keeps_nothing(store: ShardStore):
    write(store, "a", "a")
    store.write(*TABLE, table(7), {"recipe": "a"})
    assert kept(store) == []


def test_the_oldest_go_first_whatever_the_clock_says(tmp_path: Path):
    store = ShardStore(url=str(tmp_path))
    write(store, "a", "b")
    later = 4e9
    for file in tmp_path.glob(".versions/**/*.parquet"):
        os.utime(file, (later, later))
    write(store, "c")
    assert kept(store) == ["b", "a"]
    write(store, "d")
    assert kept(store) == ["c", "b"]


@pytest.mark.parametrize(("most", "left"), [(0, []), (1, ["c"]), (3, ["c", "b", "a"])])
def test_as_many_are_kept_as_the_profile_says(store: ShardStore, most: int, left: list[str]):
    write(ShardStore(url=store.url, keep_versions=3), "a", "b", "c")
    few = ShardStore(url=store.url, keep_versions=most)
    write(few, "d")
    assert kept(few) == left


def test_a_way_back_and_forth_keeps_one_of_each(store: ShardStore):
    write(store, "z", "a", "b", "a")
    assert kept(store) == ["b", "z"]
    write(store, "b", "a", "b")
    assert kept(store) == ["a", "z"]
    assert store.read(*TABLE, version="a").equals(table(ord("a")))


def test_the_newest_stay_in_their_order_after_others_were_removed(store: ShardStore):
    write(store, "f", "e", "d", "c", "b", "a")
    assert kept(store) == ["b", "c"]


def test_a_version_that_a_kill_doubled_goes_with_the_next_table(store: ShardStore, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as killed:
        killed.setattr(Versions, "remove", lambda *_: None)
        write(store, "a", "b", "a", "b")
    files = store.parts(".versions", *TABLE)
    assert [name.partition("-")[2] for name in files.names()] == ["a.parquet", "b.parquet", "a.parquet"]
    write(store, "c")
    assert kept(store) == ["b", "a"]
    assert len(files.names()) == 2


def test_what_is_not_kept_is_named(store: ShardStore):
    write(store, "a")
    with pytest.raises(StoreError, match=r"^ocr_results of shard_00 is not kept at recipe z$"):
        store.read(*TABLE, version="z")


def test_a_damaged_version_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    store = ShardStore(url=str(tmp_path))
    write(store, "z", "a", "b")
    (file,) = tmp_path.glob(".versions/ocr_results/shard_00/*-a.parquet")
    file.write_bytes(file.read_bytes()[:-10])
    assert kept(store) == ["z"]
    assert f"{file} is damaged" in caplog.text
    write(store, "c")
    assert kept(store) == ["b", "z"]


def test_a_table_whose_footer_is_damaged_hides_no_version_and_is_replaced(tmp_path: Path):
    """A run lists the versions before it makes a damaged table again."""
    store = ShardStore(url=str(tmp_path))
    write(store, "a", "b")
    path = Path(store.location(*TABLE))
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert kept(store) == ["a"]
    store.write(*TABLE, table(7), {"recipe": "c"}, replaces=False)
    assert store.read(*TABLE).equals(table(7))
    assert kept(store) == ["a"]


def test_a_table_that_is_replaced_between_two_looks_gives_the_rows_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Moved rows are looked up in other shards' tables, which the run may be publishing."""
    schema = pa.schema([(name, pa.string()) for name in ("page_id", "fingerprint", "state")])

    def rows(*ids: str) -> pa.Table:
        return pa.Table.from_pylist([{"page_id": each, "fingerprint": "f", "state": "ok"} for each in ids], schema)

    store, read = ShardStore(url=str(tmp_path)), ShardStore.read
    store.write(*TABLE, rows("a", "b", "c"), {"recipe": "before"})

    def replaced(self: ShardStore, asset: str, shard: str, *given: Any, **named: Any) -> pa.Table:
        found = read(self, asset, shard, *given, **named)
        monkeypatch.setattr(ShardStore, "read", read)
        store.write(*TABLE, rows("c", "d"), {"recipe": "after"})
        return found

    monkeypatch.setattr(ShardStore, "read", replaced)
    found = known_rows(store, *TABLE, schema, "page_id", [("b", "f"), ("c", "f")], published=True)
    assert sorted(found["page_id"].to_pylist()) == ["b", "c"]


def test_a_row_of_two_versions_is_found_once_and_a_failed_one_or_one_of_another_schema_is_not(store: ShardStore):
    schema = pa.schema([(name, pa.string()) for name in ("page_id", "fingerprint", "state")])
    other = schema.append(pa.field("text", pa.string()))
    replaced = {"a": ("p0", "p1", "p2"), "b": ("p0", "p1"), "c": ("p0",), "d": ()}
    for recipe, ids in replaced.items():
        rows = [{"page_id": each, "fingerprint": "f", "state": "failed" if each == "p2" else "ok"} for each in ids]
        table = pa.Table.from_pylist(rows, other if recipe == "b" else schema)
        ShardStore(url=store.url, keep_versions=3).write(*TABLE, table, {"recipe": recipe})
    found = known_rows(store, *TABLE, schema, "page_id", [(each, "f") for each in ("p0", "p1", "p2")])
    assert found["page_id"].to_pylist() == ["p0", "p1"]


def test_a_version_that_goes_between_two_looks_costs_its_rows_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The run looking up moved rows may publish the other shard, evicting its oldest version."""
    schema = pa.schema([(name, pa.string()) for name in ("page_id", "fingerprint", "state")])
    store, versions = ShardStore(url=str(tmp_path), keep_versions=1), ShardStore.versions
    for recipe in ("a", "b"):
        row = {"page_id": recipe, "fingerprint": "f", "state": "ok"}
        store.write(*TABLE, pa.Table.from_pylist([row], schema), {"recipe": recipe})

    def evicted(self: ShardStore, asset: str, shard: str) -> Any:
        listed = versions(self, asset, shard)
        monkeypatch.setattr(ShardStore, "versions", versions)
        store.write(*TABLE, schema.empty_table(), {"recipe": "c"})
        return listed

    monkeypatch.setattr(ShardStore, "versions", evicted)
    found = known_rows(store, *TABLE, schema, "page_id", [("a", "f"), ("b", "f")], published=True)
    assert found["page_id"].to_pylist() == ["b"]


def test_a_version_that_goes_while_they_are_listed_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store, describe = ShardStore(url=str(tmp_path), keep_versions=2), Versions.describe
    write(store, "a", "b", "c")

    def evicted(self: Versions, recipe: str) -> Any:
        monkeypatch.setattr(Versions, "describe", describe)
        write(store, "d", "e")
        return describe(self, recipe)

    monkeypatch.setattr(Versions, "describe", evicted)
    assert kept(store) == []
    assert kept(store) == ["d", "c"]


def test_a_version_shares_the_disk_with_its_table_until_that_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    store = ShardStore(url=str(tmp_path))
    write(store, "a")
    monkeypatch.setattr(ShardStore, "_put", _killed)
    with pytest.raises(KeyboardInterrupt):
        write(store, "b")
    (file,) = tmp_path.glob(".versions/ocr_results/shard_00/*.parquet")
    assert file.samefile(tmp_path / "ocr_results" / "shard_00.parquet")


def test_killed_between_the_version_and_the_table_nothing_is_lost_or_kept_twice(
    store: ShardStore, monkeypatch: pytest.MonkeyPatch
):
    write(store, "y", "z", "a")
    for _ in range(2):
        with monkeypatch.context() as killing:
            killing.setattr(ShardStore, "_put", _killed)
            with pytest.raises(KeyboardInterrupt):
                write(store, "b")
        assert store.read(*TABLE).equals(table(ord("a")))
        assert kept(store) == ["z", "y"]
    write(store, "b")
    assert kept(store) == ["a", "z"]
    assert store.read(*TABLE, version="a").equals(table(ord("a")))


def _killed(*args: object) -> None:
    raise KeyboardInterrupt


def test_a_disk_that_is_full_for_the_version_leaves_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = ShardStore(url=str(tmp_path))
    write(store, "a")

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "link", full)
    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(StoreError, match=r"^the disk is full: .*\.versions.* was not written"):
        write(store, "b")
    assert store.read(*TABLE).equals(table(ord("a")))
    assert kept(store) == []


def test_a_file_system_without_links_gets_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = ShardStore(url=str(tmp_path))

    def unsupported(*args: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", unsupported)
    write(store, "a", "b")
    assert store.read(*TABLE, version="a").equals(table(ord("a")))


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    return Platform.of(tmp_path, [pages("a_1", "a_2", "a_3")], [query("q1", "무엇인가?", "a_1")])


def upgrade(platform: Platform, revision: str, prompt: str) -> None:
    diaries = {name: str(platform.home / f"{name}.diary") for name in ("layout", "recognition")}
    platform.engines["layout"] = OneRegionLayout(diary=diaries["layout"], revision=revision)
    platform.engines["recognition"] = SlowReader(diary=diaries["recognition"], prompt=prompt)
    assert platform.run(",".join(TABLES)).success


@pytest.mark.slow
def test_a_finished_upgrade_is_taken_back_without_computing(platform: Platform):
    upgrade(platform, "r1", "read")
    old = platform.tables()
    upgrade(platform, "r2", "look")
    new = platform.tables()
    assert not new["ocr_results", "shard_00"].equals(old["ocr_results", "shard_00"])
    worked = {name: list(platform.diary(name).pages) for name in ("layout", "recognition")}

    for revision, prompt, tables in (("r1", "read", old), ("r2", "look", new)):
        upgrade(platform, revision, prompt)
        assert {name: platform.diary(name).pages for name in worked} == worked
        for asset in TABLES:
            assert platform.store.read(asset, "shard_00").equals(tables[asset, "shard_00"]), asset
            (event,) = platform.instance.fetch_materializations(dg.AssetKey(asset), limit=1).records
            assert event.asset_materialization is not None
            assert event.asset_materialization.metadata["computed"].value == 0


def test_what_failed_before_an_upgrade_is_tried_again_after_it_is_taken_back(platform: Platform):
    platform.engines["layout"] = OneRegionLayout(diary=str(platform.home / "layout.diary"), fail_on="a_2")
    assert platform.run("layout_regions,raw_pages").success
    platform.engines["layout"] = OneRegionLayout(diary=str(platform.home / "layout.diary"), revision="r2")
    assert platform.run("layout_regions").success
    before = len(platform.diary("layout").pages)
    platform.engines["layout"] = OneRegionLayout(diary=str(platform.home / "layout.diary"), fail_on="a_2")
    assert platform.run("layout_regions").success
    assert platform.diary("layout").pages[before:] == ["a_2"]


def test_a_second_writer_of_the_same_upgrade_evicts_no_older_version(store: ShardStore):
    write(store, "a", "b", "c")
    other = ShardStore(url=store.url, keep_versions=store.keep_versions)
    for writer in (other, store, other):
        write(writer, "c")
    assert kept(store) == ["b", "a"]


def test_a_kept_version_says_itself_which_recipe_it_is_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Another writer may replace a table on object storage while it is being kept."""
    store = ShardStore(url=f"memory://{tmp_path.name}")
    write(store, "a")
    get = Objects.get

    def overtaken(self: Objects, path: str) -> bytes:
        monkeypatch.setattr(Objects, "get", get)
        write(store, "b")
        return get(self, path)

    monkeypatch.setattr(Objects, "get", overtaken)
    write(store, "c")
    for recipe in ("a", "b"):
        assert store.metadata(*TABLE, recipe)["recipe"] == recipe


def test_the_content_of_a_table_is_its_rows_without_how_often_they_were_tried():
    def made(*regions: list[str], attempts: int = 1) -> str:
        listed = [[{"text": text, "attempts": attempts} for text in of_page] for of_page in regions]
        return content(pa.table({"page_id": ["a_1", "a_2"], "regions": listed, "attempts": [attempts] * 2}))

    assert made(["one", "two"], ["three"]) == made(["one", "two"], ["three"], attempts=3)
    assert made(["one", "two"], ["three"]) != made(["one"], ["two", "three"]), "a region moved to the other page"


@pytest.mark.slow
def test_equal_readings_have_equal_contents_however_long_they_took(tmp_path: Path):
    platform = Platform.of(tmp_path, [pages("a_1", "a_2")])
    assert platform.run().success
    before = platform.store.metadata("parsed_texts", "shard_00")
    rows = platform.rows("ocr_results")
    (tmp_path / "store" / "ocr_results" / "shard_00.parquet").unlink()
    platform.engines["recognition"] = SlowReader(diary=str(tmp_path / "recognition.diary"), took=7.0)
    assert platform.run().success
    again = platform.rows("ocr_results")
    assert again["a_1"]["regions"][0]["seconds"] != rows["a_1"]["regions"][0]["seconds"]
    assert platform.store.metadata("parsed_texts", "shard_00") == before
    assert survey(platform.resources(), FooterCache(platform.store)).outdated["parsed_texts"] == set()
