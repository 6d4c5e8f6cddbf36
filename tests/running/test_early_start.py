"""Engines with rows to make are prepared before their steps and kept while needed."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import ClassVar

import pytest

from kopub.embedding.base import Embedding
from kopub.errors import EngineError, SourceError
from kopub.layout.regions import Layout, Region
from kopub.pages.page import Page
from kopub.parallel import BackgroundTask
from kopub.recognition.regions import PageReading
from kopub.tables.pages_and_layout import RawPages
from kopub.tables.rows import RowSpec
from tests.doubles.engines import Diary, OneRegionLayout, SlowReader, UnitEmbedder
from tests.support.harness import Platform
from tests.support.sources.corpora import pages

LAYOUT, READING = "layout_regions", "ocr_results"
TEXTS, IMAGES, TEXT_VECTORS = "parsed_texts", "corpus_image_embeddings", "corpus_text_embeddings"


class NotedLayout(OneRegionLayout):
    def prepare(self) -> None:
        Diary(f"{self.diary}.all").note("prepare layout")

    def detect(self, pages: Iterable[Page]) -> Iterator[Layout]:
        Diary(f"{self.diary}.all").note("detect")
        return super().detect(pages)

    def release(self) -> None:
        Diary(f"{self.diary}.all").note("release layout")


class NotedReader(SlowReader):
    def prepare(self) -> None:
        Diary(self.diary).note("prepare recognition")

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        Diary(self.diary).note("read")
        return super().read(pages)

    def release(self) -> None:
        Diary(self.diary).note("release recognition")


class NotedEmbedder(UnitEmbedder):
    """An embedder that takes all its input before it answers."""

    needs_server: ClassVar[bool] = True
    spans_shards: ClassVar[bool] = True

    diary: str = ""

    def prepare(self) -> None:
        Diary(self.diary).note("prepare embedding")

    def prepare_texts(self) -> None:
        Diary(self.diary).note("prepare embedding of texts")

    def embed_images(self, pages: Iterable[Page]) -> Iterator[Embedding]:
        Diary(self.diary).note("embed")
        taken = list(pages)
        Diary(self.diary).note("answer")
        yield from super().embed_images(taken)

    def embed_texts(self, texts: Iterable[tuple[str, str]]) -> Iterator[Embedding]:
        Diary(self.diary).note("embed texts")
        taken = list(texts)
        Diary(self.diary).note("answer texts")
        yield from super().embed_texts(taken)

    def release(self) -> None:
        Diary(self.diary).note("release embedding")


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    built = Platform.of(tmp_path, [pages("a_1"), pages("b_1")])
    diary = str(tmp_path / "diary")
    built.engines = {
        "layout": NotedLayout(diary=diary),
        "recognition": NotedReader(diary=f"{diary}.all"),
        "embedding": NotedEmbedder(diary=f"{diary}.all"),
    }
    return built


def everything(platform: Platform) -> list[str]:
    """Return what the engines were asked for since the last look, in order."""
    path = platform.home / "diary.all"
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return lines


def noted(platform: Platform) -> list[str]:
    """Return `everything` without releases and answers, and without repeats in a row."""
    lines = [line for line in everything(platform) if not line.startswith(("release", "answer"))]
    return [line for line, _ in groupby(lines)]


def test_all_engines_are_prepared_before_the_first_page_is_listed(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    before: list[list[str]] = []
    rows = RawPages.rows

    def listed(asset: RawPages, shard: str) -> Iterator[RowSpec]:
        before.append(noted(platform))
        return rows(asset, shard)

    monkeypatch.setattr(RawPages, "rows", listed)
    assert platform.run().success
    assert before[0] == ["prepare embedding", "prepare layout", "prepare recognition"], "what needs a server first"


@pytest.mark.slow
def test_what_needs_no_server_is_done_first(platform: Platform) -> None:
    assert platform.run().success
    done = noted(platform)
    assert done.index("detect") < done.index("embed")


@pytest.mark.slow
def test_a_run_that_makes_nothing_prepares_nothing(platform: Platform) -> None:
    assert platform.run().success
    noted(platform)
    assert platform.run().success
    assert noted(platform) == []


def test_only_engines_of_selected_assets_with_rows_to_make_are_prepared(platform: Platform) -> None:
    assert platform.run(f"raw_pages,{LAYOUT}").success
    assert set(noted(platform)) == {"prepare layout", "detect"}
    assert platform.run(f"raw_pages,{LAYOUT},{READING}").success
    assert set(noted(platform)) == {"prepare recognition", "read", "a_1"}


def test_what_follows_is_prepared_when_the_last_row_is_handed_out_and_kept_while_it_is_needed(
    platform: Platform,
) -> None:
    assert platform.run(f"raw_pages,{LAYOUT},{READING},{TEXTS},{IMAGES},{TEXT_VECTORS}").success
    done = everything(platform)
    assert [line for line in done[done.index("embed") :] if not line.startswith("release")] == [
        "embed",
        "prepare embedding of texts",
        "answer",
        "prepare embedding of texts",
        "embed texts",
        "answer texts",
    ]
    assert "prepare recognition" not in done[done.index("read") :]
    assert done.index("detect") < done.index("release layout") < done.index("read")
    assert done.index("read") < done.index("release recognition") < done.index("embed")
    assert done.index("answer texts") < done.index("release embedding")


def test_what_no_step_ahead_has_rows_for_is_not_prepared_at_the_end_of_one(platform: Platform) -> None:
    assert platform.run(f"raw_pages,{LAYOUT},{READING},{TEXTS},{TEXT_VECTORS}").success
    everything(platform)
    assert platform.run(f"raw_pages,{LAYOUT},{READING},{TEXTS},{IMAGES},{TEXT_VECTORS}").success
    done = everything(platform)
    assert done[done.index("embed") :][:2] == ["embed", "answer"]


def test_a_step_that_fails_releases_what_those_that_wait_for_it_need(platform: Platform) -> None:
    platform.engines["recognition"] = NotedReader(diary=f"{platform.home}/diary.all", die_on="a_1")
    assert not platform.run(f"raw_pages,{LAYOUT},{READING},{TEXTS},{IMAGES},{TEXT_VECTORS}").success
    done = everything(platform)
    assert "embed texts" not in done
    assert "prepare embedding of texts" not in done
    assert done.index("answer") < done.index("release embedding")


def test_a_run_that_fails_before_an_engine_s_turn_releases_it(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(asset: RawPages, shard: str) -> Iterator[RowSpec]:
        raise SourceError("the source is gone")

    monkeypatch.setattr(RawPages, "rows", lost)
    assert not platform.run().success
    done = everything(platform)
    assert "detect" not in done
    for engine in ("layout", "recognition", "embedding"):
        assert done.index(f"prepare {engine}") < done.index(f"release {engine}")


def test_a_failed_row_and_another_recipe_are_rows_to_make(platform: Platform) -> None:
    diary = str(platform.home / "diary")
    platform.engines["layout"] = NotedLayout(diary=diary, fail_on="a_1")
    platform.run(f"raw_pages,{LAYOUT}")
    noted(platform)
    platform.run(LAYOUT)
    assert noted(platform) == ["prepare layout", "detect"]
    platform.engines["layout"] = NotedLayout(diary=diary)
    assert platform.run(LAYOUT).success
    assert noted(platform) == ["prepare layout", "detect"]
    assert platform.run(LAYOUT).success
    assert noted(platform) == []
    platform.engines["layout"] = NotedLayout(diary=diary, revision="r2")
    assert platform.run(LAYOUT).success
    assert noted(platform) == ["prepare layout", "detect"]


def test_a_corpus_without_queries_needs_no_embedder_for_them(platform: Platform) -> None:
    assert platform.run("query_embeddings").success
    assert noted(platform) == []


def test_what_was_begun_fails_where_it_is_taken() -> None:
    def fail() -> None:
        raise EngineError("no such model")

    begun = BackgroundTask(fail)
    with pytest.raises(EngineError, match="no such model"):
        begun.result()
