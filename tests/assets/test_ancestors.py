"""An asset is not made from parent tables that do not match each other."""

from pathlib import Path

import pytest

from kopub.states import State
from tests.support.harness import Platform, Prepared, failure
from tests.support.sources.corpora import page_image, pages


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Return a built platform where raw_pages has since seen new bytes for one page."""
    platform = Platform.of(tmp_path_factory.mktemp("ancestors") / "home", [pages("a_1", "a_2"), pages("b_1")])
    assert platform.run(last="shard_01").success
    platform.reindex([[("a_1", page_image(99)), pages("a_1", "a_2")[1]], pages("b_1")])
    assert platform.run("raw_pages", last="shard_01").success
    return Prepared(platform)


@pytest.fixture
def platform(prepared: Prepared) -> Platform:
    return prepared.renewed()


@pytest.mark.parametrize(("asset", "parent"), [("ocr_results", "layout_regions"), ("hf_release", "layout_regions")])
def test_the_parent_that_waits_is_named_and_the_table_stays(platform: Platform, asset: str, parent: str):
    before = platform.store.metadata(asset, "shard_00")
    assert failure(platform.run(asset, last="shard_01")).splitlines()[0] == (
        f"shard_00: {parent} of shard_00 was made from another raw_pages than the one there is: "
        f"materialize {parent} again"
    )
    assert platform.store.metadata(asset, "shard_00") == before
    assert platform.store.metadata(asset, "shard_01")


def test_the_line_is_all_it_takes(platform: Platform):
    assert platform.run("layout_regions,ocr_results", last="shard_01").success
    assert sorted(platform.diary("recognition").pages) == ["a_1", "a_1", "a_2", "b_1"]


@pytest.mark.slow
def test_a_layout_that_lacks_a_page_is_one_line(tmp_path: Path):
    platform = Platform.of(tmp_path, [pages("a_1", "a_2")])
    assert platform.run("raw_pages,layout_regions,ocr_results").success
    layout = platform.store.read("layout_regions", "shard_00")
    known = platform.store.metadata("layout_regions", "shard_00")
    platform.store.write("layout_regions", "shard_00", layout.slice(0, 1), {**known, "recipe": "cut"})
    assert failure(platform.run("ocr_results")) == (
        "shard_00: layout_regions of shard_00 lacks 1 of 2 pages (a_2 first): materialize layout_regions again"
    )
    assert platform.run("raw_pages,layout_regions,ocr_results").success
    assert set(platform.states("ocr_results").values()) == {State.OK}
