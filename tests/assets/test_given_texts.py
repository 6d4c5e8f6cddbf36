"""Texts of a layout engine that reads go into `ocr_results`; `reread` has regions read again."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kopub.fingerprints import CodeVersion
from kopub.layout.regions import Layout, Task
from kopub.pages.page import Page
from kopub.store.table_source import FooterCache
from kopub.tables.plan import survey
from kopub.tables.staleness import Standing
from tests.doubles.engines import OneRegionLayout, SlowReader
from tests.support.harness import Platform
from tests.support.sources.corpora import pages

TEXTS = "raw_pages,layout_regions,ocr_results,parsed_texts"


class ReadingLayout(OneRegionLayout):
    """A layout engine that reads all regions but the second; the third is a table."""

    code_version: ClassVar[CodeVersion] = CodeVersion("layout.reading", {1: "a double"})

    def detect(self, pages: Iterable[Page]) -> Iterator[Layout]:
        for layout in super().detect(pages):
            first, second, third = layout.regions
            read = (
                replace(first, text=f"laid out {layout.page_id}"),
                second,
                replace(third, label="table", task=Task.TABLE, text="<table><tr><td>1</td></tr></table>"),
            )
            yield replace(layout, regions=read)


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    platform = Platform.of(tmp_path, [pages("a_1", "a_2")])
    platform.engines["layout"] = ReadingLayout(diary=str(tmp_path / "layout.diary"), regions=3)
    return platform


def reader(platform: Platform, **fields: Any) -> SlowReader:
    return SlowReader(diary=str(platform.home / "recognition.diary"), **fields)


def origins(platform: Platform) -> list[str]:
    return [region["origin"] for region in platform.rows("ocr_results")["a_1"]["regions"]]


def test_texts_of_the_layout_flow_on_and_every_region_has_its_origin(platform: Platform):
    result = platform.run(TEXTS)
    assert result.success
    assert origins(platform) == ["layout", "recognizer", "layout"]
    assert platform.rows("parsed_texts")["a_2"]["text"] == "laid out a_2\n\nread a_2\n\n1"
    (made,) = result.asset_materializations_for_node("ocr_results")
    counted: Any = made.metadata["regions_by_origin"].value
    assert counted == {"recognizer": 2, "layout": 4, "text_layer": 0, "not_read": 0}
    assert sum(counted.values()) == made.metadata["regions"].value


@pytest.mark.slow
def test_another_reread_makes_the_readings_and_what_follows_stale_and_nothing_else(platform: Platform):
    assert platform.run(TEXTS).success
    layouts, diary = platform.rows("layout_regions"), len(platform.diary("layout").pages)
    platform.engines["recognition"] = reader(platform, reread=["table"])
    surveyed = survey(platform.resources(), FooterCache(platform.store))
    # On each of the two pages: the region without a text, and the table to be reread.
    (plan,) = [plan for plan in surveyed.plans() if plan.asset == "ocr_results"]
    assert (plan.pages, plan.regions) == (2, 4)
    found = surveyed.standings
    assert {asset: found[asset]["shard_00"] for asset in TEXTS.split(",")} == {
        "raw_pages": Standing.CURRENT,
        "layout_regions": Standing.CURRENT,
        "ocr_results": Standing.STALE,
        "parsed_texts": Standing.MAYBE_STALE,
    }
    assert platform.run(TEXTS).success
    assert origins(platform) == ["layout", "recognizer", "recognizer"]
    assert platform.rows("layout_regions") == layouts
    assert len(platform.diary("layout").pages) == diary


@pytest.mark.slow
def test_a_changed_text_of_the_layout_is_another_row(platform: Platform):
    assert platform.run(TEXTS).success
    before = platform.rows("ocr_results")["a_1"]["fingerprint"]
    platform.engines["layout"] = OneRegionLayout(diary=str(platform.home / "layout.diary"), regions=3)
    assert platform.run(TEXTS).success
    assert platform.rows("ocr_results")["a_1"]["fingerprint"] != before
    assert origins(platform) == ["recognizer"] * 3


def test_a_task_that_nobody_reads_is_refused():
    with pytest.raises(Exception, match="'skip' is not read; name some of text, table, formula"):
        SlowReader(diary="", reread=["skip"])
