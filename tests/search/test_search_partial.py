"""A page of the samples of which three regions could not be read: the rest is found, and what is missing is counted."""

import pytest

from resources.config.choices import Gates
from resources.config.settings import load_settings
from resources.release.hub import HubTarget
from resources.release.local import LocalRelease
from resources.search.searcher import Searcher
from resources.states import State
from tests.assets.test_cpu_profile import sample
from tests.doubles.hubs.writable_hub import REPO, WritableHub
from tests.support.harness import Platform, failure
from tests.support.sources.corpora import query
from tests.web.test_browser import PartlyBlind

PAGE = "install.ko_19"
LOST = (3, 5, 6)
WHOLE = ("raw_pages", "layout_regions", "corpus_image_embeddings")
READ = ("ocr_results", "parsed_texts", "corpus_text_embeddings")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    """Everything but the release, with three regions lost."""
    settings = load_settings()
    queries = [query("q1", "하드웨어 아키텍처", PAGE)]
    platform = Platform.of(tmp_path_factory.mktemp("partial"), [[sample(PAGE)]], queries)
    platform.engines = {
        "layout": settings.layout,
        "recognition": PartlyBlind(fail=list(LOST)),
        "embedding": settings.embedding,
        "release": LocalRelease(folder=str(platform.home / "release"), license="cc-by-4.0"),
        "hub": HubTarget(repo=REPO),
        "gates": Gates(max_doubtful_share=1),
    }
    assert platform.run(",".join((*WHOLE, *READ, "query_embeddings"))).success
    assert platform.run("retrieval_scores", first=None).success
    return platform


def test_the_page_is_partial_in_every_table_that_is_made_from_its_reading(made: Platform):
    assert [made.states(asset) for asset in READ] == [{PAGE: State.PARTIAL}] * len(READ)
    assert [made.states(asset) for asset in WHOLE] == [{PAGE: State.OK}] * len(WHOLE)
    reading = made.rows("ocr_results")[PAGE]
    assert [region["state"] for region in reading["regions"] if region["index"] in LOST] == [State.FAILED] * len(LOST)
    reason = "3 of 10 regions failed; region 3 (paragraph_title): it repeats itself"
    assert {made.rows(asset)[PAGE]["reason"] for asset in READ} == {reason}


def test_the_text_of_the_other_regions_is_found(made: Platform):
    searcher = Searcher(made.store, ["shard_00"], made.engines["embedding"], "cpu", made.home / "search")
    (hit,) = searcher.search("지원하는 하드웨어").hits
    assert hit.page.page_id == PAGE
    passage = hit.match.passage
    assert {passage.text[start:end] for start, end in passage.marks} >= {"하드웨어"}
    assert not set(hit.match.regions) & set(LOST)


def test_retrieval_is_measured_on_it(made: Platform):
    scores = made.store.read("retrieval_scores", "all").to_pylist()
    found = {row["retriever"]: row["value"] for row in scores if row["metric"] == "recall@1"}
    assert (found["text"], found["bm25"]) == (1.0, 1.0)


def test_the_card_counts_the_regions_and_the_gate_closes_at_its_share(made: Platform, hub: WritableHub):
    push = {"kopub/publish": "true"}
    assert failure(made.run("hf_release", tags=push)) == (
        "in the end: not published: 3 of 10 regions could not be read, more than gates.max_lost_regions_share (1.0%); "
        "give gates.override a reason to publish it all the same"
    )
    assert not hub.asked
    card = (made.home / "release" / "README.md").read_text("utf-8")
    assert "Regions that could not be read: 3 of the 10 that were to be (30.00 %)." in card
    assert "| pages, all steps | 0 | 1 | 0 | 0 | 0 |" in card
    made.engines["gates"] = Gates(max_doubtful_share=1, max_lost_regions_share=0.3)
    assert made.run("hf_release", tags=push).success
    assert len(hub.commits) == 2
