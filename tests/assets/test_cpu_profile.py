"""The cpu profile as shipped, with figures, on real pages and pages of odd shapes."""

import io
import json
from pathlib import Path

import datasets
import numpy as np
import pytest
from PIL import Image, ImageFilter, ImageOps

from kopub.config.choices import Figures
from kopub.config.settings import load_settings
from kopub.documents.export import sound_notes, write_documents
from kopub.release.export import export
from kopub.release.verify import verify
from kopub.search.options import Mode
from kopub.search.searcher import Searcher
from kopub.states import State
from kopub.store.corpus_tables import FIGURE_TABLES
from tests.doubles.figure_chat import DESCRIPTION, VALID, chat
from tests.figures.test_noters import noter
from tests.support.harness import Platform
from tests.support.sample_home import sample
from tests.support.sources.corpora import page_image, query

pytestmark = pytest.mark.slow
FIGURES = "gimp-history26_3"
"""A page with three figures, two of them with a caption."""
STRIPS = ((840, 990), (1360, 1800), (2040, 2640))
"""(top, bottom) in pixels of the titles, some text and the head of a table."""
PASSAGE = (1500, 2424)
"""(top, bottom) in pixels of paragraphs and the first rows of a table."""


def strips_of(page_id: str) -> tuple[str, bytes]:
    page = Image.open(io.BytesIO(sample(page_id)[1]))
    parts = [page.crop((0, top, page.width, bottom)) for top, bottom in STRIPS]
    joined = Image.new(page.mode, (page.width, sum(part.height for part in parts)), "white")
    top = 0
    for part in parts:
        joined.paste(part, (0, top))
        top += part.height
    file = io.BytesIO()
    joined.save(file, "PNG")
    return page_id, file.getvalue()


def wide_page() -> bytes:
    """Return a page 20,000 px wide that holds the title of a real page."""
    title = Image.open(io.BytesIO(sample("install.ko_19")[1])).crop((350, 850, 1110, 970))
    page = Image.new("RGB", (20_000, 200), "white")
    page.paste(title, (400, 40))
    file = io.BytesIO()
    page.save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    settings = load_settings()
    odd = [
        ("one_pixel", page_image(size=(1, 1))),
        ("wide_20000", wide_page()),
    ]
    platform = Platform.of(
        tmp_path_factory.mktemp("cpu"),
        [[strips_of("install.ko_19"), sample(FIGURES), *odd]],
        [query("q1", "데비안이 지원하는 하드웨어 아키텍처는 무엇인가?", "install.ko_19")],
    )
    engines = {"layout": settings.layout, "recognition": settings.recognition, "embedding": settings.embedding}
    with chat((VALID, "stop")) as double:
        platform.engines = {**engines, "figures": Figures(vectors=True), "notes": noter(double.url)}
        assert platform.run().success
    return platform


@pytest.mark.smoke
def test_a_real_page_is_read(platform: Platform):
    page = platform.rows("ocr_results")["install.ko_19"]
    labels = {region["native_label"] for region in page["regions"]}
    assert {"text", "table", "paragraph_title"} <= labels
    assert "시스템 요구 사항" in page["markdown"]
    assert "<table>" in page["markdown"]
    assert "<td" not in platform.rows("parsed_texts")["install.ko_19"]["text"]


def test_odd_pages_end_in_one_state_and_leave_the_others(platform: Platform):
    states = platform.states("layout_regions")
    assert states["one_pixel"] == State.BLANK
    assert states["wide_20000"] in (State.OK, State.FAILED)
    for asset in ("ocr_results", "parsed_texts", "corpus_text_embeddings", "corpus_image_embeddings"):
        assert set(platform.states(asset)) == set(states)
        assert platform.states(asset)["install.ko_19"] == State.OK


def test_the_query_finds_its_page(platform: Platform):
    queries = platform.store.read("query_embeddings", "shard_00")["vector"].to_pylist()
    pages = platform.rows("corpus_text_embeddings")
    scores = {
        page: sum(a * b for a, b in zip(queries[0], row["vector"], strict=True))
        for page, row in pages.items()
        if row["vector"]
    }
    assert max(scores, key=lambda page: scores[page]) == "install.ko_19"


def test_the_release_loads(platform: Platform, tmp_path: Path):
    folder = str(platform.home / "release")
    pages = datasets.load_dataset(folder, "pages", split="train", cache_dir=str(tmp_path))
    assert len(pages) == len(platform.states("raw_pages"))
    assert "page images from source, made with the cpu profile" in (platform.home / "release" / "README.md").read_text()
    vectors = datasets.load_dataset(folder, "text_embeddings", split="train", cache_dir=str(tmp_path))
    assert len(vectors[0]["vector"]) == load_settings().embedding.dim


def test_its_figures_are_found_by_their_captions_and_described(platform: Platform):
    figures = platform.rows("figure_embeddings")[FIGURES]["figures"]
    captions = ["", "그림 A.9. 텍스트 도구의 경계 상자", "그림 A.10. 사각 조절 영역"]
    assert [figure["caption"] for figure in figures] == captions
    assert [figure["state"] for figure in figures] == [State.BLANK, State.OK, State.OK]
    searcher = Searcher(platform.store, ["shard_00"], platform.engines["embedding"], "cpu", platform.home / "search")
    (hit, *_) = searcher.search("텍스트 도구의 경계 상자", mode=Mode.FIGURE).hits
    assert hit.page.page_id == FIGURES
    assert hit.figure is not None
    assert list(hit.figure.box_2d) == figures[1]["bbox_2d"]
    notes = platform.rows("figure_notes")[FIGURES]["notes"]
    assert [(note["state"], note["description"]) for note in notes] == [(State.OK, DESCRIPTION)] * 3
    assert platform.states("figure_notes")["install.ko_19"] == State.BLANK


def test_figures_are_in_the_release_and_notes_in_the_exports(platform: Platform, tmp_path: Path):
    release, keys = platform.home / "release", ["shard_00"]
    assert list(verify(release)) == []
    for config, of in (("figure_embeddings", 2), ("figure_notes", 3)):
        rows = datasets.load_dataset(str(release), config, split="train", cache_dir=str(tmp_path / "cache"))
        assert list(rows["page_id"]) == [FIGURES] * of
    done = export(platform.store, keys, out := tmp_path / "export", [table.name for table in FIGURE_TABLES])
    assert (done.vectors["figures"], np.load(out / "embeddings" / "figures.npy").shape[0]) == (2, 2)
    assert json.loads((out / "embeddings" / "figures_ids.json").read_text()) == [f"{FIGURES}_6", f"{FIGURES}_9"]
    lines = [json.loads(line) for line in (out / "figure_notes.jsonl").read_text("utf-8").splitlines()]
    assert [note["description"] for line in lines for note in line["notes"]] == [DESCRIPTION] * 3
    assert [line["page_idx"] for line in lines] == list(range(4))
    export(platform.store, keys, out)
    assert not (out / "figure_notes.jsonl").exists()
    write_documents(platform.store, keys, tmp_path / "out", ["markdown"], sound_notes(platform.store, keys))
    assert (tmp_path / "out" / "gimp-history26.md").read_text("utf-8").count(f"![{DESCRIPTION}]") == 3


@pytest.mark.timeout(300)
def test_a_scan_is_read_or_doubted_whatever_was_done_to_it(tmp_path: Path):
    scan = Image.open(io.BytesIO(sample("install.ko_19")[1])).convert("RGB")
    page = ImageOps.expand(scan.crop((0, PASSAGE[0], scan.width, PASSAGE[1])), 80, "white")
    edged = np.array(page)
    edged[:40] = edged[-40:] = edged[:, :40] = edged[:, -40:] = 0
    done = {
        "whole_1": page,
        "edged_1": Image.fromarray(edged),
        "dithered_1": page.convert("1"),
        "12 bits_1": Image.fromarray(np.array(page.convert("L")).astype(np.uint16) * 16),
        "faint_1": Image.fromarray((170 + np.array(page.convert("L")).astype(int) * 30 // 255).astype(np.uint8)),
        "turned_1": page.transpose(Image.Transpose.ROTATE_180),
        "mirrored_1": ImageOps.mirror(page),
        "blurred_1": page.filter(ImageFilter.GaussianBlur(14)),
        "raster_1": _raster(page.size),
    }
    files = {name: io.BytesIO() for name in done}
    for name, image in done.items():
        image.save(files[name], "PNG")
    pages = [(name, file.getvalue()) for name, file in files.items()]
    platform, settings = Platform.of(tmp_path, [pages]), load_settings()
    platform.engines = {"layout": settings.layout, "recognition": settings.recognition}
    platform.make("raw_pages", "layout_regions", "ocr_results", "parsed_texts")
    rows = platform.rows("parsed_texts")
    whole = rows["whole_1"]["n_chars"]
    for name in ("edged_1", "dithered_1", "12 bits_1", "faint_1", "turned_1"):
        assert abs(rows[name]["n_chars"] - whole) <= whole * 0.02, name
        assert rows[name]["doubt"] == 0, name
    for name in ("mirrored_1", "blurred_1", "raster_1"):
        assert rows[name]["doubt"] >= 0.5, name


def _raster(size: tuple[int, int]) -> Image.Image:
    """Return a halftone photo, whose dots OCR takes for thousands of full stops."""
    greys = np.random.default_rng(0).random((18, 13)) * 255
    photo = np.asarray(Image.fromarray(greys.astype(np.uint8)).resize(size, Image.Resampling.BICUBIC))
    cell = np.kron([[0, 8, 2, 10], [12, 4, 14, 6], [3, 11, 1, 9], [15, 7, 13, 5]], np.ones((4, 4)))
    rows, columns = photo.shape
    screen = np.tile(cell, (rows // 16 + 1, columns // 16 + 1))[:rows, :columns]
    return Image.fromarray(photo / 16 > screen)
