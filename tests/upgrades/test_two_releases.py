"""With two releases of KoPub on one store, the older leaves the newer's tables alone."""

from pathlib import Path
from typing import ClassVar

import pytest

from kopub.cli.commands.plan import plan_values
from kopub.fingerprints import CodeVersion
from kopub.store.table_source import FooterCache
from kopub.tables.hf_release import HfRelease
from kopub.tables.plan import Survey, survey
from tests.doubles.engines import OneRegionLayout
from tests.support.harness import Platform, failure
from tests.support.sources.corpora import pages, query

LAYOUT = "raw_pages,layout_regions"
NEWER = r"layout_regions of shard_00 was made by a newer release of KoPub (version 2 of the one_region engine, here 1)"


class NewerLayout(OneRegionLayout):
    code_version: ClassVar[CodeVersion] = CodeVersion("layout.one_region", {1: "a double", 2: "sees more"})


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    return Platform.of(tmp_path, [pages("a_1", "a_2"), pages("b_1")], [query("q1", "무엇인가?", "a_1")])


def upgrade(platform: Platform) -> None:
    """Switch to the layout engine of the next release."""
    platform.engines["layout"] = NewerLayout(diary=str(platform.home / "layout.diary"), regions=2)


def surveyed(platform: Platform) -> Survey:
    return survey(platform.resources(), FooterCache(platform.store))


def test_an_older_release_leaves_the_tables_of_a_newer_one(platform: Platform):
    assert platform.run(LAYOUT, last="shard_01").success
    upgrade(platform)
    assert platform.run(LAYOUT).success
    newer = platform.store.read("layout_regions", "shard_00")

    del platform.engines["layout"]
    result = platform.run(LAYOUT, last="shard_01")
    assert not result.success
    (line,) = failure(result).splitlines()
    assert NEWER in line
    assert line.endswith("upgrade this machine; store.allow_downgrade replaces it")
    assert platform.store.read("layout_regions", "shard_00").equals(newer)
    assert platform.store.versions("layout_regions", "shard_00")

    assert platform.run(LAYOUT, launchpad={"store": {"allow_downgrade": True}}).success
    assert not platform.store.read("layout_regions", "shard_00").equals(newer)


def test_the_night_of_an_older_release_asks_for_nothing_of_a_newer_one(platform: Platform):
    texts = f"{LAYOUT},ocr_results,parsed_texts"
    upgrade(platform)
    assert platform.run(texts, last="shard_01").success
    assert not any(surveyed(platform).outdated.values())
    del platform.engines["layout"]
    assert not any(surveyed(platform).outdated.values())
    (layout,) = [each for each in plan_values(platform.settings)["assets"] if each["asset"] == "layout_regions"]
    assert (layout["shards"]["newer"], layout["shards"]["stale"]) == (["shard_00", "shard_01"], [])


def test_an_older_release_takes_its_turn_again_where_it_may(platform: Platform):
    upgrade(platform)
    assert platform.run(LAYOUT).success
    del platform.engines["layout"]
    platform.engines["store"] = platform.store.model_copy(update={"allow_downgrade": True})
    assert surveyed(platform).outdated["layout_regions"] == {"shard_00"}


@pytest.mark.slow
def test_a_release_by_newer_code_stays_as_it_is(platform: Platform, monkeypatch: pytest.MonkeyPatch):
    later = CodeVersion("hf_release", {**HfRelease.code_version.steps, len(HfRelease.code_version.steps) + 1: "later"})
    with monkeypatch.context() as newer:
        newer.setattr(HfRelease, "code_version", later)
        assert platform.run(last="shard_01").success
    released = {path: path.read_bytes() for path in (platform.home / "release").rglob("*") if path.is_file()}
    result = platform.run("hf_release", last="shard_01")
    assert not result.success
    assert "hf_release of shard_00 was made by a newer release of KoPub" in failure(result)
    assert {path: path.read_bytes() for path in (platform.home / "release").rglob("*") if path.is_file()} == released
