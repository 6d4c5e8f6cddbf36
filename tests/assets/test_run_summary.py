"""Per-page counts of engines in the ledger, in the UI and in `kopub costs`."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import PrivateAttr

from kopub.cli.commands.costs import collect_costs, counts_line
from kopub.fingerprints import CodeVersion
from kopub.layout.regions import Region
from kopub.pages.page import Page
from kopub.recognition.base import Recognizer
from kopub.recognition.regions import PageReading, RegionText, page_reading
from kopub.states import State
from tests.doubles.engines import OneRegionLayout
from tests.support.harness import Platform
from tests.support.sources.corpora import pages, query

TOKENS = {"a_1": 100, "a_2": 40, "b_1": 60}


class CountingReader(Recognizer):
    """A recognizer whose second region of a page needs a retry, which fails on a_2."""

    code_version: ClassVar[CodeVersion] = CodeVersion("recognition.counting", {1: "a double"})
    spans_shards: ClassVar[bool] = True
    _counted: dict[str, float] = PrivateAttr(default_factory=dict)

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        for page, regions in pages:
            self._counted = {"requests": 3, "answer_tokens": TOKENS[page.page_id], "answers_loop": 1}
            first, second = (RegionText(region.index, region.label, "read") for region in regions)
            state, reason = (State.FAILED, "it loops") if page.page_id == "a_2" else (State.OK, None)
            second = RegionText(second.index, "table", "read", state, reason, attempts=2)
            yield page_reading(page.page_id, (first, second), ())

    def take_figures(self) -> dict[str, float]:
        taken, self._counted = self._counted, {}
        return taken


def test_a_run_is_summed_up_by_page(tmp_path: Path):
    platform = Platform.of(tmp_path, [pages("a_1", "a_2"), pages("b_1")])
    platform.engines["layout"] = OneRegionLayout(diary=str(tmp_path / "layout.diary"), regions=2)
    platform.engines["recognition"] = CountingReader()
    result = platform.run("raw_pages,layout_regions,ocr_results", last="shard_01")
    assert result.success
    made = {each.partition: each.metadata for each in result.asset_materializations_for_node("ocr_results")}
    figures = {name: made["shard_00"][name].value for name in ("second_tries", "second_tries_taken", "tokens_most")}
    assert figures == {"second_tries": 2, "second_tries_taken": 1, "tokens_most": 100}
    table: Any = made["shard_00"]["most_tokens"].value
    assert [record.data for record in table.records] == [{"id": "a_1", "tokens": 100}, {"id": "a_2", "tokens": 40}]
    (run,) = next(each for each in collect_costs(platform.located, 1)["assets"] if each["asset"] == "ocr_results")[
        "runs"
    ]
    assert run["run_id"] == result.run_id
    assert run["most_tokens"] == [("a_1", 100), ("b_1", 60), ("a_2", 40)]
    assert counts_line(run) == (
        "67 answer tokens a row (median 60, most 100); requests 9; answer tokens 200; retries 3; "
        "of them taken 2; loops 3; partial 1"
    )
    # A run that computes nothing adds no run to the ledger.
    assert platform.run("ocr_results", last="shard_01").success
    (again,) = next(each for each in collect_costs(platform.located, 1, 5)["assets"] if each["asset"] == "ocr_results")[
        "runs"
    ]
    assert again == run


def test_costs_are_of_the_indexed_corpus_and_no_page_without_bytes_is_the_costliest(tmp_path: Path):
    tables = ("raw_pages", "corpus_image_embeddings", "query_embeddings")
    platform = Platform.of(tmp_path, [pages("a_1", "a_2")], [query("q1", "무엇?", "a_1")])
    platform.make(*tables)
    platform.reindex([[*pages("b_1"), ("b_2", b"no image")]], [query("q1", "어디?", "b_1")])
    platform.make(*tables)
    costs = {each["asset"]: each for each in collect_costs(platform.located, 9)["assets"]}
    assert {name: each["computed"] for name, each in costs.items()} == dict(zip(tables, (2, 2, 1), strict=True))
    assert {row["row_id"] for row in costs["raw_pages"]["costliest"]} == {"b_1", "b_2"}
    assert {row["row_id"] for row in costs["corpus_image_embeddings"]["costliest"]} == {"b_1"}
    assert all(len(each["runs"]) == 1 for each in costs.values())
