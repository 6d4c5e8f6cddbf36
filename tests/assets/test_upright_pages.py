"""Skewed, turned and photographed pages are read upright and shown as they were read."""

import io
import json
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from starlette.testclient import TestClient
from typer.testing import CliRunner

import kopub
from kopub import confinement
from kopub.cli.evaluation_display import picture_of
from kopub.cli.main import app
from kopub.cli.options import corpus_check
from kopub.embedding.hashed import HashedEmbedder
from kopub.errors import UnreadImage
from kopub.evaluation.benchmarks.transformed import photographed, turned
from kopub.layout.cpu.engine import CpuLayout
from kopub.layout.ground_truth import GroundTruthLayout
from kopub.pages import inspection
from kopub.pages.corpus import Corpus, KeptPixels
from kopub.pages.indexing import index
from kopub.pages.inspection import Inspector
from kopub.pages.page import PackedPixels, decode
from kopub.processes import ChildWorker
from kopub.release.local import LocalRelease
from kopub.search.searcher import Searcher
from kopub.states import State
from kopub.tables.lineage import compared_tables
from kopub.web.app import reading_room
from kopub.web.room import Room
from tests.support.harness import Platform, Prepared
from tests.support.sample_home import sample
from tests.support.sources.pdf_files import HELVETICA, pdf, sheet, written

PLAIN = (("white", 255), ("black", 0))
"""Pages of one grey level."""
READING = ("raw_pages", "layout_regions", "ocr_results", "parsed_texts", "corpus_image_embeddings")


def png(pixels: np.ndarray) -> bytes:
    return cv2.imencode(".png", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR))[1].tobytes()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Return a page in three forms, read as an older release did and then upright."""
    home = tmp_path_factory.mktemp("upright") / "home"
    page = np.asarray(cv2.resize(_sample(), None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA), np.uint8)
    rng = np.random.default_rng(1)
    shard = [("a_1", page), ("a_2", turned(2, page, rng)), ("a_3", photographed(False, 0, page, rng))]
    platform = Platform.of(home, [[(id, png(pixels)) for id, pixels in shard]])
    platform.engines |= {"layout": CpuLayout(), "corpus": Corpus(home=str(home), upright=False)}
    platform.make(*READING)
    del platform.engines["corpus"]
    platform.make(*READING)
    return Prepared(platform)


@pytest.fixture
def platform(built: Prepared) -> Platform:
    return built.renewed()


def boxes(platform: Platform, page_id: str) -> list[list[float]]:
    return [region["bbox"] for region in platform.rows("layout_regions")[page_id]["regions"]]


def test_the_table_keeps_what_was_done_and_the_size_of_the_upright_page(platform: Platform):
    rows = platform.rows("raw_pages")
    assert rows["a_1"]["upright"] is None
    assert (rows["a_2"]["upright"]["turns"], rows["a_2"]["upright"]["paper"]) == (2, False)
    assert rows["a_3"]["upright"]["paper"]
    for row in rows.values():
        assert (row["width"], row["height"]) == Image.fromarray(_read(platform, row["page_id"])).size


def _sample() -> np.ndarray:
    """Return an upright page of the samples."""
    return decode(sample("install.ko_19")[1])


def _read(platform: Platform, page_id: str) -> np.ndarray:
    """Return the page as engines see it."""
    row = platform.rows("raw_pages")[page_id]
    with platform.settings.corpus.reader("shard_00") as reader:
        return reader.page(page_id, row["page_idx"], row["sha256"], row["upright"]).image


def test_a_scan_is_set_upright_under_the_text_that_another_program_laid_over_it(tmp_path: Path):
    picture = Image.fromarray(np.rot90(_sample(), 2)).convert("L").reduce(2)
    encoded, (width, height) = io.BytesIO(), picture.size
    picture.save(encoded, "JPEG")
    kind = f"/Subtype /Image /Width {width} /Height {height} /ColorSpace /DeviceGray /BitsPerComponent 8"
    scan = f"<< {kind} /Filter /DCTDecode /Length {len(encoded.getvalue())} >> stream\n".encode() + encoded.getvalue()
    named = b"/Resources << /Font << /F1 5 0 R >> /XObject << /X 6 0 R >> >>"
    (tmp_path / "source").mkdir()
    for name, mode in (("scanned", 3), ("printed", 0)):
        content = f"q {width} 0 0 {height} 0 0 cm /X Do Q ".encode() + written((72, 400, "Some words"), mode=mode)
        page = sheet(content, named, f"0 0 {width} {height}")
        (tmp_path / "source" / f"{name}.pdf").write_bytes(pdf(page, objects=[HELVETICA, scan + b"\nendstream"]))
    index(str(tmp_path / "source"), tmp_path / "home", dpi=72)
    platform = Platform(tmp_path / "home")
    platform.make("raw_pages")
    scanned, printed = (platform.rows("raw_pages")[page_id] for page_id in ("scanned_1", "printed_1"))
    assert (scanned["upright"]["turns"], printed["upright"]) == (2, None)
    assert None not in (scanned["text_layer_id"], printed["text_layer_id"])


def test_layout_finds_on_a_turned_page_what_it_finds_on_the_upright_one(platform: Platform):
    assert boxes(platform, "a_2") == boxes(platform, "a_1")
    assert np.array_equal(_read(platform, "a_2"), _read(platform, "a_1"))
    assert platform.rows("layout_regions")["a_3"]["state"] == "ok"


def test_pages_that_are_upright_were_not_read_again_for_those_that_are_not(platform: Platform):
    assert sorted(platform.diary("recognition").pages) == ["a_1", "a_2", "a_2", "a_3", "a_3"]


def test_pages_are_left_as_they_came_where_the_profile_says_so(platform: Platform):
    platform.engines["corpus"] = Corpus(home=str(platform.home), upright=False)
    platform.make(*READING)
    assert {row["upright"] for row in platform.rows("raw_pages").values()} == {None}
    # The tables of the first reading were kept, so nothing was read again.
    assert len(platform.diary("recognition").pages) == 5


def test_a_second_run_computes_nothing(platform: Platform):
    before = platform.tables()
    result = platform.run("raw_pages,layout_regions")
    assert result.success
    for (asset, shard), table in before.items():
        assert platform.store.read(asset, shard).equals(table), asset


def test_a_page_for_which_memory_ran_out_is_failed_and_tried_again(platform: Platform, monkeypatch: pytest.MonkeyPatch):
    """It must not be stored as an upright page."""
    with monkeypatch.context() as patch:
        patch.setattr(inspection, "find_transform", lambda pixels: bytes(2**62))
        shutil.rmtree(platform.home / "store" / "raw_pages")
        platform.make("raw_pages")
    row = platform.rows("raw_pages")["a_2"]
    assert (row["state"], row["upright"]) == ("failed", None)
    assert row["reason"].startswith("the page was not set upright: ")
    platform.make("raw_pages")
    assert platform.rows("raw_pages")["a_2"]["upright"]["turns"] == 2


@pytest.mark.slow
def test_processes_find_of_every_page_what_threads_find(platform: Platform, monkeypatch: pytest.MonkeyPatch):
    """Machines with many cores use processes."""
    damaged = Platform.of(
        platform.home.with_name("damaged"),
        [[("whole", png(_sample())), ("cut_off", png(_sample())[:-1000]), ("none", b"no picture")]],
    )
    damaged.engines["layout"] = CpuLayout()
    expected = []
    for each in (platform, damaged):
        shutil.rmtree(each.home / "store" / "raw_pages", ignore_errors=True)
        each.make("raw_pages")
        expected.append(each.rows("raw_pages"))
    monkeypatch.setattr(inspection, "_FEWEST_CORES", 1)
    monkeypatch.setattr(inspection, "_PAGES_PER_PROCESS", 0)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(2))
    monkeypatch.setattr(inspection, "find_transform", None)
    for each, rows in zip((platform, damaged), expected, strict=True):
        shutil.rmtree(each.home / "store" / "raw_pages")
        each.make("raw_pages")
        assert each.rows("raw_pages") == rows
    assert {id: row["state"] for id, row in expected[1].items()} == {
        "whole": State.OK,
        "cut_off": State.QUARANTINED,
        "none": State.QUARANTINED,
    }


def test_a_picture_that_ends_its_process_twice_is_failed_alone(monkeypatch: pytest.MonkeyPatch):
    start, lives = ChildWorker._start, iter([False, False, True])

    pids: list[int] = []

    def started(worker: ChildWorker) -> "subprocess.Popen[bytes]":
        process = start(worker)
        pids.append(process.pid)
        if not next(lives):
            process.kill()
            process.wait()
        return process

    monkeypatch.setattr(ChildWorker, "_start", started)
    picture = png(_sample())
    with Inspector(2, upright=True, processes=2) as inspector:
        with pytest.raises(UnreadImage, match="the process that read it ended by SIGKILL"):
            inspector.inspect(picture, may_turn=True)
        assert inspector.inspect(picture, may_turn=True).height == _sample().shape[0]
        if confinement.why_open() is None:
            assert re.search(r"^Seccomp:\t2$", Path(f"/proc/{pids[-1]}/status").read_text(), re.MULTILINE)


@pytest.mark.slow
def test_later_steps_get_the_pixels_of_an_inspected_page_unless_it_was_turned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(inspection, "_FEWEST_CORES", 1)
    monkeypatch.setattr(inspection, "_PAGES_PER_PROCESS", 1)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(2))
    page = np.asarray(cv2.resize(_sample(), (1700, 2405), interpolation=cv2.INTER_AREA), np.uint8)
    shown = {"a_1": page, "a_2": np.rot90(page, 2)}
    platform = Platform.of(tmp_path, [[(page_id, png(pixels)) for page_id, pixels in shown.items()]])
    platform.engines["corpus"] = corpus = Corpus(home=str(tmp_path))
    platform.make("raw_pages")
    with corpus.reader("shard_00") as reader:
        pages = {page_id: reader.page_of(row) for page_id, row in platform.rows("raw_pages").items()}
    packed = {page_id for page_id, found in pages.items() if found.packed is not None}
    assert packed == {"a_1"}
    assert np.array_equal(pages["a_1"].image, page)
    assert np.array_equal(pages["a_2"].image, page)


def test_pixels_are_kept_within_their_room_and_found_by_the_bytes_of_the_page(monkeypatch: pytest.MonkeyPatch):
    packed = PackedPixels.of(_sample())
    assert packed is not None
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=8 * len(packed.data)))
    kept = KeptPixels()
    kept.keep("one", packed)
    kept.keep("two", packed)
    assert (kept.find("one"), kept.find("two")) == (packed, None)
    assert PackedPixels.of(np.random.default_rng(0).integers(0, 256, (2000, 2000, 3), np.uint8)) is None


def test_a_layout_that_is_known_beforehand_counts_on_pages_as_they_came(platform: Platform):
    platform.engines["layout"] = GroundTruthLayout(home=str(platform.home))
    platform.make("raw_pages")
    assert {row["upright"] for row in platform.rows("raw_pages").values()} == {None}


def test_the_package_gives_the_upright_page_and_boxes_on_the_picture_as_it_came(platform: Platform):
    corpus = kopub.open(platform.home)
    straight, upside_down, photo = (corpus.page(page_id) for page_id in ("a_1", "a_2", "a_3"))
    assert straight.upright is None
    assert straight.upright_bytes == straight.image_bytes
    assert np.array_equal(np.asarray(upside_down.image), np.asarray(straight.image))
    assert str(upside_down.upright) == "turned upside down"
    assert straight.on_source((1, 2, 3, 4)) == [(1, 2), (3, 2), (3, 4), (1, 4)]
    width, height = upside_down.width or 0, upside_down.height or 0
    assert upside_down.on_source((0, 0, 9, 19))[0] == pytest.approx((width - 1, height - 1))
    # The sheet does not fill the photo, so its corners lie inside the picture.
    came = Image.open(io.BytesIO(photo.image_bytes))
    for x, y in photo.on_source((0, 0, photo.width or 0, photo.height or 0)):
        assert 0 < x < came.width
        assert 0 < y < came.height


def test_lineage_says_what_was_done_and_cuts_regions_out_of_the_upright_page(
    platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KOPUB_HOME", str(platform.home))

    def lineage(*words: str) -> str:
        result = CliRunner().invoke(app, ["lineage", *words])
        assert result.exit_code == 0, result.output
        return result.stdout

    assert "turned upside down" in lineage("a_2")
    assert "set upright" not in lineage("a_1")
    assert json.loads(lineage("a_2", "--json"))["source"]["upright"]["turns"] == 2
    for page_id in ("a_1", "a_2"):
        lineage(page_id, "--crop", str(tmp_path), "--region", "0")
    assert (tmp_path / "a_1_0.png").read_bytes() == (tmp_path / "a_2_0.png").read_bytes()
    lineage("a_2", "--crop", str(tmp_path / "all"))
    assert {"a_2.png", "a_2_upright.png"} < {path.name for path in (tmp_path / "all").iterdir()}
    lineage("a_2", "--crop", str(tmp_path / "one.jpg"), "--region", "0")
    assert Image.open(tmp_path / "one.jpg").format == "JPEG"


def test_two_versions_are_compared_on_the_page_on_which_boxes_count(platform: Platform):
    now: dict[str, str | None] = {"raw_pages": None}
    tables, _ = compared_tables(platform.store, "shard_00", now, now)
    rows = {row["page_id"]: row for row in tables["raw_pages"].to_pylist()}
    shown = {page_id: picture_of(platform.settings.corpus, "shard_00", rows[page_id], 1 << 20) for page_id in rows}
    assert shown["a_1"] == shown["a_2"]
    earlier = platform.store.read("raw_pages", "shard_00").drop_columns(["upright"])
    platform.store.write("raw_pages", "shard_00", earlier, platform.store.metadata("raw_pages", "shard_00"))
    assert compared_tables(platform.store, "shard_00", now, now)[0]["raw_pages"].num_rows == 3


def test_the_room_shows_the_page_on_which_boxes_count(platform: Platform):
    settings = platform.settings
    searcher = Searcher(settings.store, ["shard_00"], HashedEmbedder(), "cpu", platform.home / "search")
    room = Room(settings, searcher, corpus_check(settings.corpus.manifest, settings.store))
    with TestClient(reading_room(room), base_url="http://127.0.0.1") as client:
        shown = {}
        for page_id in ("a_1", "a_2"):
            answer = client.get("/picture", params={"id": page_id, "size": "small"})
            assert answer.status_code == 200
            shown[page_id] = answer.content
        assert shown["a_1"] == shown["a_2"]


@pytest.mark.slow
def test_a_release_holds_the_picture_as_it_came_and_how_it_was_set_upright(platform: Platform, tmp_path: Path):
    platform.engines["release"] = LocalRelease(folder=str(tmp_path / "release"), license="cc-by-4.0", page_images=True)
    assert platform.run("*").success
    (file,) = (tmp_path / "release").rglob("pages/*.parquet")
    rows = {row["page_id"]: row for row in pq.read_table(file).to_pylist()}
    came = platform.rows("raw_pages")
    assert {page_id: row["upright"] for page_id, row in rows.items()} == {
        page_id: row["upright"] for page_id, row in came.items()
    }
    assert decode(rows["a_2"]["image"]["bytes"])[::-1, ::-1].tolist() == decode(rows["a_1"]["image"]["bytes"]).tolist()
    page = kopub.open(tmp_path / "release").page("a_2")
    assert str(page.upright) == "turned upside down"
    assert (page.image.width, page.image.height) == (page.width, page.height)


def test_a_blank_page_that_is_dark_all_over_is_doubted_and_a_white_one_is_not(tmp_path: Path):
    platform = Platform.of(tmp_path, [[(id, png(np.full((400, 300, 3), level, np.uint8))) for id, level in PLAIN]])
    platform.engines["layout"] = CpuLayout()
    platform.make("raw_pages", "layout_regions", "ocr_results", "parsed_texts")
    rows = platform.rows("parsed_texts")
    assert {row["state"] for row in rows.values()} == {"blank"}
    assert (rows["white"]["doubt"], rows["white"]["doubts"]) == (None, None)
    assert rows["black"]["doubt"] == 1
    assert "dark all over" in rows["black"]["doubts"][0]
