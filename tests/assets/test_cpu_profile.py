"""The cpu profile as it ships, on a real page of the samples and on pages of the oddest shapes."""

from pathlib import Path

import datasets
import pytest

from resources.config.settings import load_settings
from resources.pages.corpus import Corpus
from resources.pages.manifest import SAMPLES
from resources.states import State
from tests.support.corpora import page_image, query
from tests.support.harness import Platform

pytestmark = pytest.mark.slow


def sample(page_id: str) -> tuple[str, bytes]:
    corpus = Corpus(home=str(SAMPLES))
    for shard in corpus.manifest.keys:
        for row in corpus.rows(shard):
            if row.page_id == page_id and row.data is not None:
                return page_id, bytes(row.data)
    raise LookupError(page_id)


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    settings = load_settings()
    odd = [
        ("one_pixel", page_image(size=(1, 1))),
        ("wide_20000", page_image(3, size=(20_000, 200))),
    ]
    platform = Platform.of(
        tmp_path_factory.mktemp("cpu"),
        [[sample("install.ko_19"), *odd]],
        [query("q1", "데비안이 지원하는 하드웨어 아키텍처는 무엇인가?", "install.ko_19")],
    )
    platform.engines = {"layout": settings.layout, "recognition": settings.recognition, "embedding": settings.embedding}
    assert platform.run().success
    return platform


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
