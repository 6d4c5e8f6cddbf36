"""Engines of a run are prepared before their steps, where they have rows to make and nowhere else."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from kopub_assets.materialize.row_inputs.rows import RowSpec
from kopub_assets.raw_pages import RawPages
from resources.embedding.embeddings import Embedding
from resources.errors import EngineError
from resources.layout.regions import PageLayout, Region
from resources.pages.page import Page
from resources.parallel import Begun
from resources.recognition.readings import PageReading
from tests.doubles.engines import Diary, OneRegionLayout, SlowReader, UnitEmbedder
from tests.support.harness import Platform
from tests.support.sources.corpora import pages

LAYOUT, READING = "layout_regions", "ocr_results"


class NotedLayout(OneRegionLayout):
    def prepare(self) -> None:
        Diary(f"{self.diary}.all").note("prepare layout")

    def detect(self, pages: Iterable[Page]) -> Iterator[PageLayout]:
        Diary(f"{self.diary}.all").note("detect")
        return super().detect(pages)


class NotedReader(SlowReader):
    def prepare(self) -> None:
        Diary(self.diary).note("prepare recognition")

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        Diary(self.diary).note("read")
        return super().read(pages)


class NotedEmbedder(UnitEmbedder):
    needs_server: ClassVar[bool] = True

    diary: str = ""

    def prepare(self) -> None:
        Diary(self.diary).note("prepare embedding")

    def embed_images(self, pages: Iterable[Page]) -> Iterator[Embedding]:
        Diary(self.diary).note("embed")
        return super().embed_images(pages)


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


def noted(platform: Platform) -> list[str]:
    """What the engines were asked for since the last look, in order."""
    path = platform.home / "diary.all"
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return lines


def test_all_engines_are_prepared_before_the_first_page_is_listed(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    before: list[set[str]] = []
    rows = RawPages.rows

    def listed(asset: RawPages, shard: str) -> Iterator[RowSpec]:
        before.append(set(noted(platform)))
        return rows(asset, shard)

    monkeypatch.setattr(RawPages, "rows", listed)
    assert platform.run().success
    assert before[0] == {"prepare layout", "prepare recognition", "prepare embedding"}


def test_what_needs_no_server_is_done_first(platform: Platform) -> None:
    assert platform.run().success
    done = noted(platform)
    assert done.index("detect") < done.index("embed")


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
    platform.engines["layout"] = NotedLayout(diary=diary, revision="r2")
    assert platform.run(LAYOUT).success
    assert noted(platform) == ["prepare layout", "detect"]


def test_a_corpus_without_queries_needs_no_embedder_for_them(platform: Platform) -> None:
    assert platform.run("query_embeddings").success
    assert noted(platform) == []


def test_what_was_begun_fails_where_it_is_taken() -> None:
    def fail() -> None:
        raise EngineError("no such model")

    begun = Begun(fail)
    with pytest.raises(EngineError, match="no such model"):
        begun.result()
