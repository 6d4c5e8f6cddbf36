"""Corrections are never lost, change only their own page, and can be undone without trace."""

import json
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import ClassVar

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from kopub import open as open_corpus
from kopub.cli.commands.plan import plan_values
from kopub.cli.commands.status import status_values
from kopub.cli.main import app
from kopub.corrections import log
from kopub.corrections.corrected import CorrectedTables, truth_of
from kopub.corrections.gold import known_answers, write_checked_pages
from kopub.corrections.log import Action, CorrectedMeanwhile, Correction, CorrectionLog
from kopub.embedding.hashed import HashedEmbedder
from kopub.errors import DamagedTable, KopubError, SourceError
from kopub.evaluation.scoring import load
from kopub.fingerprints import CodeVersion
from kopub.layout.base import LayoutDetector
from kopub.layout.regions import Layout, Region, Task
from kopub.pages.page import Page
from kopub.release.files import config_files
from kopub.release.local import LocalRelease
from kopub.release.verify import verify
from kopub.search.searcher import Searcher
from kopub.states import State
from kopub.store import ledger
from kopub.store.table_store import TableStore
from kopub.tables.staleness import Standing, find_standings
from tests.doubles.engines import SlowReader
from tests.doubles.s3 import S3Double
from tests.support.harness import STANDARD, Platform, Prepared
from tests.support.sources.corpora import pages, query

TABLES = STANDARD[:-1]


class Bands(LayoutDetector):
    """A layout of stacked regions, each a quarter of the page plus `taller` pixels high."""

    code_version: ClassVar[CodeVersion] = CodeVersion("layout.bands", {1: "a double"})

    taller: int = 0
    labels: ClassVar[tuple[str, ...]] = ("doc_title", "text", "table")

    def detect(self, pages: Iterable[Page]) -> Iterator[Layout]:
        for page in pages:
            height, width = page.image.shape[:2]
            step = height // 4 + self.taller
            regions = [
                Region(
                    at,
                    label,
                    Task.TABLE if label == "table" else Task.TEXT,
                    1.0,
                    (0, at * step, width, (at + 1) * step),
                )
                for at, label in enumerate(self.labels)
            ]
            yield Layout(page.page_id, State.OK, None, tuple(regions))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    home = tmp_path_factory.mktemp("corrected") / "home"
    platform = Platform(home)
    platform.engines |= {
        "layout": Bands(),
        "recognition": SlowReader(diary=str(home / "recognition.diary"), prompt="read"),
        "embedding": HashedEmbedder(),
    }
    platform.reindex([pages("a_1", "a_2", "a_3"), pages("b_1", "b_2")], [query("q1", "무엇?", "a_1")])
    platform.make(*TABLES)
    return Prepared(platform)


@pytest.fixture
def platform(prepared: Prepared) -> Platform:
    return prepared.renewed()


def region(platform: Platform, page_id: str, index: int, shard: str = "shard_00") -> dict:
    """Return the fields by which a correction names a region, as the page is now."""
    layouts, readings = (
        {row["page_id"]: row for row in CorrectedTables(platform.store).read(asset, shard).to_pylist()}
        for asset in ("layout_regions", "ocr_results")
    )
    layout = next(r for r in layouts[page_id]["regions"] if r["index"] == index)
    reading = next(r for r in readings[page_id]["regions"] if r["index"] == index)
    return {
        "page_id": page_id,
        "shard": shard,
        "author": "Kim",
        "bbox": tuple(layout["bbox"]),
        "bbox_2d": tuple(layout["bbox_2d"]),
        "label": layout["label"],
        "kind": reading["label"],
        "before": reading["content"],
    }


def corrected(
    platform: Platform,
    page_id: str,
    index: int,
    after: str,
    action: Action = Action.TEXT,
    shard: str = "shard_00",
) -> Correction:
    log = CorrectionLog(platform.store)
    return log.add(Correction(action=action, after=after, **region(platform, page_id, index, shard)))


def undone(platform: Platform, correction: Correction) -> Correction:
    log = CorrectionLog(platform.store)
    return log.add(Correction(correction.page_id, correction.shard, Action.UNDO, "Lee", after=correction.id))


def files(platform: Platform) -> dict[str, bytes]:
    """Return the bytes of every published table by its path."""
    store = platform.home / "store"
    return {str(path.relative_to(store)): path.read_bytes() for path in sorted(store.glob("[a-z]*/*.parquet"))}


def standings(platform: Platform) -> dict[tuple[str, str], Standing]:
    from kopub.store.table_source import FooterCache
    from kopub.tables.graph import GRAPH

    declared = GRAPH.on(platform.resources()).declared(platform.resources())
    footers = FooterCache(platform.store)
    made = {name: asset for name, asset in declared.items() if name in TABLES}
    tables = {name: footers.tables(name) for name in made}
    found = find_standings(made, tables, ["shard_00", "shard_01"], False)
    return {(name, shard): standing for name, by_shard in found.items() for shard, standing in by_shard.items()}


def computed(platform: Platform, asset: str, shard: str = "shard_00") -> int:
    return ledger.read(platform.store, asset, shard).num_rows


def test_a_correction_is_stale_for_its_page_alone(platform: Platform):
    before, tables = files(platform), platform.tables()
    counts = {asset: computed(platform, asset) for asset in TABLES}
    corrected(platform, "a_2", 1, "고쳐 쓴 제목입니다")
    now = standings(platform)
    assert now["parsed_texts", "shard_00"] is Standing.STALE
    assert now["corpus_text_embeddings", "shard_00"] is Standing.MAYBE_STALE
    assert {where for where, standing in now.items() if standing is not Standing.CURRENT} == {
        ("parsed_texts", "shard_00"),
        ("corpus_text_embeddings", "shard_00"),
    }
    platform.make(*TABLES)
    assert set(standings(platform).values()) == {Standing.CURRENT}
    changed = {name for name, data in files(platform).items() if data != before[name]}
    assert changed == {"parsed_texts/shard_00.parquet", "corpus_text_embeddings/shard_00.parquet"}
    for asset in ("parsed_texts", "corpus_text_embeddings"):
        assert computed(platform, asset) == counts[asset] + 1, f"{asset} made other rows again"
        was, rows = tables[asset, "shard_00"].to_pylist(), list(platform.rows(asset).values())
        assert [row["page_id"] for row, old in zip(rows, was, strict=True) if row != old] == ["a_2"]
    assert platform.rows("parsed_texts")["a_2"]["text"] == "read a_2\n\n고쳐 쓴 제목입니다\n\nread a_2"
    assert computed(platform, "ocr_results") == counts["ocr_results"]


def test_corrections_stay_in_their_order_when_the_clock_is_set_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class Clock(datetime):
        moments: ClassVar[Iterator[datetime]] = iter(datetime(year, 1, 1, tzinfo=UTC) for year in range(2030, 2020, -1))

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return next(cls.moments)

    monkeypatch.setattr("kopub.corrections.log.datetime", Clock)
    log = CorrectionLog(TableStore(str(tmp_path)))
    for reason in ("first", "second", "third"):
        log.add(Correction("a_1", "shard_00", Action.CHECKED, "Kim", reason=reason))
    assert [each.reason for each in log.page("a_1").every] == ["first", "second", "third"]


def test_search_finds_the_new_words(platform: Platform):
    def found(words: str) -> list[str]:
        keys = ["shard_00", "shard_01"]
        searcher = Searcher(CorrectedTables(platform.store), keys, HashedEmbedder(), "cpu", platform.home / "search")
        answer = searcher.search(words, top=1)
        return [hit.page.page_id for hit in answer.hits if any("자전거" in region.text for region in hit.page.regions)]

    assert not found("자전거 수리")
    log = CorrectionLog(platform.store)
    log.add(Correction(action=Action.TEXT, after="자전거 수리 안내", **region(platform, "b_2", 1, "shard_01")))
    platform.make(*TABLES)
    assert found("자전거 수리") == ["b_2"]


def test_an_open_corpus_has_the_corrections_of_when_it_was_opened(platform: Platform):
    corrected(platform, "a_2", 1, "고쳐 쓴 제목입니다")
    corpus = open_corpus(platform.home)
    corrected(platform, "a_2", 1, "다시 고친 제목입니다")
    for opened, title in ((corpus, "고쳐 쓴 제목입니다"), (corpus.refreshed(), "다시 고친 제목입니다")):
        assert title in opened.page("a_2").markdown
        assert opened.to_arrow()["markdown"].to_pylist() == [page.markdown for page in opened.pages]


def test_a_table_that_lacks_a_column_of_this_release_is_corrected(platform: Platform):
    """Every release may add a column, which the tables of a home stay without until they are made anew."""
    store = platform.store
    table, metadata = store.find("ocr_results", "shard_00") or pytest.fail("ocr_results was not made")
    store.write("ocr_results", "shard_00", table.drop_columns(["page_idx"]), metadata)
    corrected(platform, "a_2", 1, "고쳐 쓴 제목입니다")
    corpus = open_corpus(platform.home)
    page = corpus.page("a_2")
    assert "고쳐 쓴 제목입니다" in page.markdown
    assert [region.content for region in page.regions][1] == "고쳐 쓴 제목입니다"
    readings = CorrectedTables(store).read("ocr_results", "shard_00", ["page_id", "markdown"])
    assert dict(zip(*readings.to_pydict().values(), strict=True))["a_2"] == page.markdown
    assert [standing.page_id for standing in CorrectedTables(store).standings(["shard_00"]) if standing.page] == ["a_2"]
    shown = CliRunner().invoke(app, ["lineage", "a_2", "--json"], env={"KOPUB_HOME": str(platform.home)})
    assert "ocr_results" in {step["asset"] for step in json.loads(shown.stdout)["steps"]}


def test_undo_brings_the_tables_back_byte_for_byte(platform: Platform):
    before = files(platform)
    made = [
        corrected(platform, "a_1", 0, "다른 제목"),
        corrected(platform, "a_1", 1, "paragraph_title", Action.LABEL),
        corrected(platform, "a_1", 2, "", Action.STRIKE),
    ]
    platform.make(*TABLES)
    assert files(platform) != before
    taken_back = [undone(platform, each) for each in made]
    platform.make(*TABLES)
    assert files(platform) == before
    # Undoing an undo restores the correction.
    undone(platform, taken_back[0])
    platform.make(*TABLES)
    assert platform.rows("parsed_texts")["a_1"]["text"].startswith("다른 제목")


def test_labels_order_and_regions_change_and_pictures_follow_their_region(platform: Platform):
    first, second, third = (region(platform, "a_1", index) for index in range(3))
    log = CorrectionLog(platform.store)
    log.add(Correction(action=Action.ORDER, after=json.dumps(third["bbox_2d"]), **first))
    log.add(Correction(action=Action.LABEL, after="footnote", **third))
    added = {**first, "bbox": (0.0, 170.0, 160.0, 220.0), "bbox_2d": (0, 780, 1000, 1000), "label": "text"}
    log.add(Correction(action=Action.ADD, after="쪽 끝", **{**added, "kind": "text"}))
    log.add(Correction(action=Action.STRIKE, **second))
    regions = open_corpus(platform.home).page("a_1").regions
    assert [(r.index, r.label, r.content, r.origin) for r in regions] == [
        (0, "footnote", "read a_1", "recognizer"),
        (1, "doc_title", "read a_1", "recognizer"),
        (2, "text", "쪽 끝", "person"),
    ]
    assert open_corpus(platform.home).page("a_1").markdown == "read a_1\n\n# read a_1\n\n쪽 끝"


def test_a_region_that_was_lost_is_mended_and_its_page_is_whole(tmp_path: Path):
    home = tmp_path / "home"
    reader = SlowReader(diary=str(home / "recognition.diary"), prompt="read", lose="a_1")
    platform = Platform(home, {"layout": Bands(), "recognition": reader})
    platform.reindex([pages("a_1", "a_2")])
    platform.make(*TABLES)
    assert platform.states("parsed_texts")["a_1"] == State.PARTIAL
    corrected(platform, "a_1", 2, "<table><tr><td>가</td><td>나</td></tr></table>")
    platform.make(*TABLES)
    assert platform.states("parsed_texts")["a_1"] == State.OK
    assert platform.rows("parsed_texts")["a_1"]["text"] == "read a_1\n\nread a_1\n\n가\t나"


@pytest.mark.parametrize(
    ("taller", "label", "stays"),
    [(4, "text", True), (-40, "text", False), (-13, "text", False), (4, "table", False)],
    ids=["box", "elsewhere", "nearby", "table"],
)
def test_after_another_layout_a_correction_stays_with_its_box_or_is_listed(
    platform: Platform, taller: int, label: str, stays: bool, monkeypatch: pytest.MonkeyPatch
):
    corrected(platform, "a_1", 1, "고친 글")
    monkeypatch.setattr(Bands, "labels", ("doc_title", label, "table"))
    platform.engines["layout"] = Bands(taller=taller)
    platform.make(*TABLES)
    assert ("고친 글" in platform.rows("parsed_texts")["a_1"]["text"]) is stays
    monkeypatch.setenv("KOPUB_HOME", str(platform.home))
    said = CliRunner().invoke(app, ["corrections"]).output
    assert ("1 placed, 0 unplaced" if stays else "0 placed, 1 unplaced") in said
    listed = CliRunner().invoke(app, ["corrections", "--unplaced", "--json"]).output
    assert [json.loads(line)["standing"] for line in listed.splitlines()] == ([] if stays else ["unplaced"])
    monkeypatch.undo()
    platform.engines["layout"] = Bands()
    platform.make(*TABLES)
    assert "고친 글" in platform.rows("parsed_texts")["a_1"]["text"]


def test_a_user_without_a_name_undoes_a_correction(platform: Platform, monkeypatch: pytest.MonkeyPatch):
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 54321")

    made = corrected(platform, "a_1", 0, "무른 글")
    monkeypatch.setattr("getpass.getuser", nameless)
    monkeypatch.setenv("KOPUB_HOME", str(platform.home))
    said = CliRunner().invoke(app, ["corrections", "--undo", made.id])
    assert (said.exit_code, said.output[:6]) == (0, "undone"), said.exception
    assert CorrectionLog(platform.store).page("a_1").every[-1].author == f"user {os.getuid()}"


def test_what_is_undone_cannot_be_undone_twice(platform: Platform, monkeypatch: pytest.MonkeyPatch):
    made = corrected(platform, "a_1", 0, "무른 글")
    monkeypatch.setenv("KOPUB_HOME", str(platform.home))

    def undo(wanted: str) -> BaseException | None:
        done = CliRunner().invoke(app, ["corrections", "--undo", wanted])
        return None if done.exit_code == 0 else done.exception

    assert undo(made.id) is None
    assert "is undone already" in str(undo(made.id))
    # A second undo would keep this from restoring it.
    assert undo(CorrectionLog(platform.store).page("a_1").every[-1].id) is None
    assert CorrectionLog(platform.store).page("a_1").lasting == (made,)


def test_after_another_reader_a_correction_stands(platform: Platform):
    corrected(platform, "a_1", 1, "고친 글")
    platform.engines["recognition"] = SlowReader(diary=str(platform.home / "other.diary"), prompt="look")
    platform.make(*TABLES)
    assert platform.rows("parsed_texts")["a_1"]["text"] == "look a_1\n\n고친 글\n\nlook a_1"


@pytest.mark.slow
def test_the_release_says_that_a_person_wrote_it(platform: Platform):
    corrected(platform, "a_3", 1, "사람이 쓴 글")
    assert platform.run(last="shard_01").success
    released = open_corpus(platform.home / "release")
    assert [r.origin for r in released.page("a_3").regions] == ["recognizer", "person", "recognizer"]
    assert "사람이 쓴 글" in released.page("a_3").markdown
    assert {r.origin for r in released.page("a_1").regions} == {"recognizer"}
    before = {path: path.read_bytes() for path in (platform.home / "release").rglob("*shard_01*") if path.is_file()}
    undone(platform, CorrectionLog(platform.store).page("a_3").every[0])
    assert platform.run(last="shard_01").success
    assert {r.origin for r in open_corpus(platform.home / "release").page("a_3").regions} == {"recognizer"}
    for path, data in before.items():
        assert path.read_bytes() == data


@pytest.mark.parametrize(("wanted", "authors"), [("anonymous", None), ("named", "Kim")])
@pytest.mark.slow
def test_a_release_lists_the_corrections_where_they_are_wanted(platform: Platform, wanted: str, authors: str | None):
    folder = platform.home / "release"

    def released(choice: str) -> list[dict] | None:
        platform.engines["release"] = LocalRelease(folder=str(folder), license="cc-by-4.0", corrections=choice)  # type: ignore[arg-type]
        assert platform.run(last="shard_01").success
        assert list(verify(folder)) == []
        files = config_files(folder, "corrections")
        return [row for file in files for row in pq.read_table(file).to_pylist()] if files else None

    log = CorrectionLog(platform.store)
    first = corrected(platform, "a_2", 1, "사람이 쓴 글")
    undone(platform, corrected(platform, "a_1", 0, "무른 글"))
    log.add(Correction("b_1", "shard_01", Action.CHECKED, "Kim", after="{}", reason="scanned at /home/kim/scan.png"))
    assert released("none") is None
    before = {path: path.read_bytes() for path in folder.rglob("*.parquet")}
    rows = released(wanted)
    assert rows is not None
    assert [(row["page_id"], row["action"], row["before"], row["after"]) for row in rows] == [
        ("a_2", "text", "read a_2", "사람이 쓴 글"),
        ("b_1", "checked", "", "{}"),
    ]
    assert {row["author"] for row in rows} == {authors}
    assert (rows[0]["at"], tuple(rows[0]["bbox_2d"])) == (first.at, first.bbox_2d)
    assert "/home/kim" not in rows[1]["reason"]
    card = (folder / "README.md").read_text("utf-8")
    assert "Changes by people: 1, on 1 of 5 pages; pages that they marked as right: 1." in card
    assert ("Kim" in card, {path: path.read_bytes() for path in before}) == (False, before)
    # A mark changes no table but is still in the release.
    log.add(Correction("b_2", "shard_01", Action.CHECKED, "Kim", after="{}"))
    assert [row["page_id"] for row in released(wanted) or ()] == ["a_2", "b_1", "b_2"]
    assert released("none") is None
    assert {path: path.read_bytes() for path in folder.rglob("*.parquet")} == before


def test_the_second_of_two_people_is_told_of_the_first(platform: Platform):
    log = CorrectionLog(platform.store)
    seen = log.page("a_1").seen
    draft = Correction(action=Action.TEXT, after="하나", **region(platform, "a_1", 0))
    log.add(draft, seen)
    with pytest.raises(CorrectedMeanwhile, match="Kim has corrected a_1 meanwhile"):
        log.add(replace(draft, after="둘"), seen)
    assert [each.after for each in log.page("a_1").every] == ["하나"]


def test_a_checked_page_is_checked_until_it_is_corrected_and_tells_when_it_reads_otherwise(platform: Platform):
    log = CorrectionLog(platform.store)

    def standing():
        return CorrectedTables(platform.store).standings(["shard_00", "shard_01"])[0]

    corrected(platform, "a_1", 1, "맞는 글")
    page = standing().page
    assert page is not None
    said = truth_of(page)
    log.add(Correction("a_1", "shard_00", Action.CHECKED, "Kim", after=said))
    assert standing().done.checked
    assert not standing().differs
    platform.engines["recognition"] = SlowReader(diary=str(platform.home / "other.diary"), prompt="look")
    platform.make(*TABLES)
    assert standing().differs
    corrected(platform, "a_1", 0, "더 고친 글")
    assert standing().done.checked is None


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"action": Action.LABEL, "after": "tabel"}, "is no label; did you mean table"),
        ({"action": Action.LABEL, "after": "image"}, "strike it out instead"),
        ({"action": Action.TEXT, "bbox_2d": (10, 10, 5, 20)}, "the box has no width"),
        ({"action": Action.TEXT, "author": " "}, "needs the name of its author"),
        ({"action": Action.TEXT, "after": "글", "reason": "\udcff"}, "is not valid Unicode"),
        ({"action": Action.UNDO, "after": "nothing"}, "has no correction 'nothing' to undo"),
    ],
)
def test_what_no_page_can_hold_is_refused(platform: Platform, wrong: dict, says: str):
    with pytest.raises(KopubError, match=says):
        CorrectionLog(platform.store).add(Correction(**{**region(platform, "a_1", 0), **wrong}))
    assert not CorrectionLog(platform.store).by_page()


def test_a_damaged_correction_is_said_and_stays(platform: Platform):
    corrected(platform, "a_1", 0, "고친 글")
    (part,) = (platform.home / "store" / ".corrections").iterdir()
    data = bytearray(part.read_bytes())
    data[len(data) // 20] ^= 0xFF
    part.write_bytes(data)
    fresh = platform.home.rename(platform.home.with_name("moved"))
    try:
        with pytest.raises(DamagedTable, match="restore it from a backup"):
            CorrectionLog(TableStore(str(fresh / "store"))).by_page()
    finally:
        fresh.rename(platform.home)
    assert part.exists()


def test_what_a_kill_during_a_merge_left_in_two_files_counts_once(platform: Platform):
    corrected(platform, "a_1", 0, "고친 글")
    (part,) = (platform.home / "store" / ".corrections").iterdir()
    (part.parent / part.name.replace(".parquet", "0.parquet")).write_bytes(part.read_bytes())
    fresh = platform.home.rename(platform.home.with_name("merged"))
    try:
        assert len(CorrectionLog(TableStore(str(fresh / "store"))).page("a_1").every) == 1
    finally:
        fresh.rename(platform.home)


def test_a_damaged_correction_stops_what_depends_on_it_and_not_status(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
):
    corrected(platform, "a_1", 0, "고친 글")
    (part,) = (platform.home / "store" / ".corrections").iterdir()
    part.write_bytes(part.read_bytes()[:-50])
    monkeypatch.setattr(log, "_read", {})
    shown = status_values(platform.settings)
    assert [line for line in shown["damage"] if f"{part} is damaged" in line and "restore it from a backup" in line]
    made = {each["asset"]: (each["made"], each["stale"]) for each in shown["assets"]}
    assert made["ocr_results"] == (2, 0)
    assert made["parsed_texts"] == (2, 2)
    with pytest.raises(DamagedTable):
        plan_values(platform.settings)


def test_a_power_cut_takes_no_correction_that_was_acknowledged(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    synced: list[Path] = []
    sync = os.fsync

    def recorded(file: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{file}")))
        sync(file)

    monkeypatch.setattr(os, "fsync", recorded)
    corrected(platform, "a_1", 0, "고친 글")
    folder = platform.home / "store" / ".corrections"
    # First the content under its temporary name, then the folder with the final name, then the folder of that folder.
    at = [path.parent == folder and path.suffix == ".tmp" for path in synced].index(True)
    assert synced[at + 1 :][:2] == [folder, folder.parent]


def test_of_two_that_correct_a_page_after_the_same_look_one_is_saved_on_object_storage(
    s3_root: str, s3: S3Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    mine, theirs = (TableStore(f"{s3_root}/{tmp_path.name}") for _ in range(2))
    # The other process has taken the lock over, because this one was stopped before it wrote.
    monkeypatch.setattr(theirs, "exclusive", lambda *_: nullcontext())
    given = Correction("a_1", "shard_00", Action.TEXT, "Kim", (0, 0, 9, 9), (0, 0, 9, 9), after="one")

    def take_over(method: str, path: str) -> None:
        if method == "PUT" and "/.corrections/" in path:
            s3.before = lambda method, path: None
            CorrectionLog(theirs).add(replace(given, author="Lee", after="another"))

    for _ in range(2):
        s3.before = take_over
        with pytest.raises(CorrectedMeanwhile, match="another process has corrected a_1 meanwhile"):
            CorrectionLog(mine).add(given)
    assert [each.author for each in CorrectionLog(mine).page("a_1").every] == ["Lee", "Lee"]
    CorrectionLog(mine).add(given)
    assert [each.author for each in CorrectionLog(mine).page("a_1").every] == ["Lee", "Lee", "Kim"]


def _write(url: str, writer: int, told: str, count: int) -> None:
    log = CorrectionLog(TableStore(url))
    with open(told, "a") as file:
        for at in range(count):
            text = f"{writer}-{at}"
            made = log.add(Correction("a_1", "shard_00", Action.TEXT, "Kim", (0, 0, 9, 9), (0, 0, 9, 9), after=text))
            file.write(f"{made.id} {text}\n")
            file.flush()


@pytest.mark.slow
def test_ten_writers_that_are_killed_lose_and_double_nothing(tmp_path: Path):
    url, spawn = str(tmp_path / "store"), multiprocessing.get_context("fork")
    told = [tmp_path / f"{writer}.told" for writer in range(10)]
    writers = [spawn.Process(target=_write, args=(url, at, str(told[at]), 60)) for at in range(10)]
    for writer in writers:
        writer.start()
    chosen = random.Random(7)
    for writer in chosen.sample(writers, 6):
        time.sleep(chosen.uniform(0.1, 0.5))
        if writer.pid and writer.is_alive():
            os.kill(writer.pid, signal.SIGKILL)
    for writer in writers:
        writer.join(60)
    kept = CorrectionLog(TableStore(url)).page("a_1").every
    ids = [each.id for each in kept]
    said = [line.split() for path in told if path.exists() for line in path.read_text().splitlines()]
    assert len(set(ids)) == len(ids)
    assert {tuple(line) for line in said} <= {(each.id, each.after) for each in kept}
    # Each of the six killed writers may have saved one correction that it did not report.
    assert len(kept) - len(said) <= 6
    assert [each.at for each in kept] == sorted(each.at for each in kept)
    assert len(list((tmp_path / "store" / ".corrections").glob("*.parquet"))) <= 80


def test_checked_pages_are_known_answers_and_no_doubts(platform: Platform, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KOPUB_HOME", str(platform.home))
    corpus, folder = platform.resources()["corpus"], platform.home / "checked_pages"
    with pytest.raises(SourceError, match="no page is checked yet"):
        write_checked_pages(corpus, platform.store, folder)
    doubtful = CliRunner().invoke(app, ["doubts", "--json"]).output
    log = CorrectionLog(platform.store)
    for page_id in ("a_1", "a_2"):
        corrected(platform, page_id, 1, f"확인한 글 {page_id}")
        (page,) = [each for each in CorrectedTables(platform.store).standings(["shard_00"]) if each.page_id == page_id]
        assert page.page is not None
        log.add(Correction(page_id, "shard_00", Action.CHECKED, "Kim", after=truth_of(page.page)))
    assert write_checked_pages(corpus, platform.store, folder) == 2
    known = load("corrections", folder)
    assert {sample.id: "확인한 글" in str(sample.gold) for sample in known.samples} == {"a_1": True, "a_2": True}
    assert {sample.document for sample in known.samples} == {"a"}
    (of_corpus,) = known_answers(corpus, platform.store)
    assert [(each.id, each.gold) for each in of_corpus.benchmark.samples] == [(s.id, s.gold) for s in known.samples]
    # A shard that is indexed and not made yet has no checked page.
    more = [pages("a_1", "a_2", "a_3"), pages("b_1", "b_2"), pages("c_1")]
    platform.reindex(more, [query("q1", "무엇?", "a_1")])
    assert write_checked_pages(platform.resources()["corpus"], platform.store, folder) == 2
    # A page that is corrected after it was checked is no longer a known answer.
    corrected(platform, "a_2", 1, "다시 고친 글")
    assert write_checked_pages(corpus, platform.store, folder) == 1
    assert [sample.id for sample in load("corrections", folder).samples] == ["a_1"]
    listed = CliRunner().invoke(app, ["doubts", "--json"]).output
    assert '"a_1"' in doubtful
    assert '"a_1"' not in listed
    assert '"a_2"' in listed


def test_checked_pages_are_written_in_the_order_of_the_corpus(platform: Platform):
    """The next writer, with other hashes of the same ids, leaves the file as it is."""
    ids = {"shard_00": ["a_1", "a_2", "a_3"], "shard_01": ["b_1", "b_2"]}
    for shard, page_id in reversed([(shard, page_id) for shard, here in ids.items() for page_id in here]):
        CorrectionLog(platform.store).add(
            Correction(page_id, shard, Action.CHECKED, "Kim", after=json.dumps({"text": f"글 {page_id}"}))
        )
    write_checked_pages(platform.resources()["corpus"], platform.store, platform.home / "checked_pages")
    written = pq.read_table(platform.home / "checked_pages" / "pages.parquet")
    assert written[0].to_pylist() == [page_id for here in ids.values() for page_id in here]
