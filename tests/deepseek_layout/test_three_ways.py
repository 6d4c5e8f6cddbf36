"""A page that the page reader read, that region readers read, or that its text layer tells ends in the same tables."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from aiohttp import web

from kopub_assets.upgrades.lineage import chain
from kopub_assets.upgrades.shard_diff import compare_versions
from kopub_assets.upgrades.table_versions import edition
from kopub_cli.commands.plan import planned
from resources.config.choices import Pdf
from resources.deepseek_layout.detector import DeepSeekOcrLayout
from resources.documents.export import write_documents
from resources.embedding.hashed.embedder import HashedEmbedder
from resources.pages.indexing import index
from resources.recognition.vlm.deepseek.deepseek_ocr import DeepSeekOcrRecognizer
from resources.release.verify import verify
from resources.search.searcher import Searcher
from resources.states import State
from tests.doubles.engines import OneRegionLayout
from tests.doubles.http_double import Asked, HttpDouble, says
from tests.recognition.deepseek.test_deepseek_ocr import server_of
from tests.support.harness import Platform, failure
from tests.support.sources.pdf_files import sheet, text_pdf, written

SAID = "Every page of a document\nends in exactly one state."
PRINTED = ((72, 400, "Every page of a document"), (72, 380, "ends in exactly one state."))
WAYS = {"recognizer": "regions", "layout": "the page", "text_layer": "its text layer"}
"""Who found the text, by the origin of its region."""


async def reply(asked: Asked) -> web.StreamResponse:
    is_page = asked.prompt.startswith("<|grounding|>")
    return says(f"<|ref|>text<|/ref|><|det|>[[150, 290, 650, 380]]<|/det|>\n{SAID}" if is_page else SAID)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the page ended in, by who found its text; each way took the place of the one before."""
    home = tmp_path_factory.mktemp("ways") / "home"
    (home / "source").mkdir(parents=True)
    (home / "source" / "a.pdf").write_bytes(text_pdf(sheet(written(*PRINTED), box="0 0 420 595")))
    index(str(home / "source"), home, dpi=72)
    found: dict[str, dict[str, Any]] = {}
    with HttpDouble(reply) as double:
        served = {"server": server_of(double.url), "processes": 1}
        whole = OneRegionLayout(diary=str(home / "layout.diary"))
        ways = {
            "recognizer": {"layout": whole, "pdf": Pdf(text_layer="never")},
            "layout": {"layout": DeepSeekOcrLayout(**served), "pdf": Pdf(text_layer="never")},
            "text_layer": {"layout": whole},
        }
        for way, engines in ways.items():
            platform = Platform(home)
            platform.engines = {
                "recognition": DeepSeekOcrRecognizer(**served),
                "embedding": HashedEmbedder(),
                **engines,
            }
            stale = [asset["asset"] for asset in planned(platform.settings)["assets"] if asset["pages"]]
            asked = len(double.asked)
            result = platform.run()
            assert result.success, failure(result)
            found[way] = {**_end(platform, home.parent / way), "stale": stale, "asked": len(double.asked) - asked}
            if way != "recognizer":
                before, now = (edition(platform.store, "shard_00", name) for name in ("previous", "current"))
                found[way]["diff"] = compare_versions(platform.store, "shard_00", before, now)
    return found


def _end(platform: Platform, out: Path) -> dict[str, Any]:
    """All that a reader of the tables, a search, a release, a lineage or an export sees of the page."""
    store, release = platform.store, platform.home / "release"
    made = [name for name in platform.graph.names if store.has(name, "shard_00")]
    write_documents(store, ["shard_00"], out, ["markdown", "docling"])
    (item,) = json.loads((out / "a.json").read_text("utf-8"))["texts"]
    searcher = Searcher(store, ["shard_00"], platform.engines["embedding"], "mine", platform.home / "search")
    found = searcher.search("state")
    (row,), (region,) = (
        pq.read_table(release / "data" / config / "shard_00.parquet").to_pylist() for config in ("pages", "regions")
    )
    shown = chain(store, platform.settings.corpus, "page", "a_1", "shard_00", None)
    return {
        "same": {
            "columns": {name: store.read(name, "shard_00").schema.remove_metadata() for name in made},
            "states": {name: platform.states(name) for name in made if name != "hf_release"},
            "text": platform.rows("parsed_texts")["a_1"]["text"],
            "hits": [(hit.page.page_id, hit.score) for hit in found.hits],
            "release": (row["text"], list(verify(release)), sorted(path.name for path in (release / "data").iterdir())),
            "lineage": [(step["asset"], step["state"]) for step in shown["steps"]],
            "markdown": (out / "a.md").read_text("utf-8"),
            "docling": (item["label"], item["text"]),
        },
        "origins": ([region["origin"] for region in shown["regions"]], region["origin"]),
    }


@pytest.mark.parametrize("way", list(WAYS)[1:])
def test_it_ends_in_the_same(ended: dict[str, dict[str, Any]], way: str):
    for what, expected in ended["recognizer"]["same"].items():
        assert ended[way]["same"][what] == expected, what


def test_what_it_ends_in(ended: dict[str, dict[str, Any]]):
    same = ended["recognizer"]["same"]
    assert set(same["states"]["ocr_results"].values()) == {State.OK}
    assert same["text"] == SAID
    assert [page_id for page_id, _ in same["hits"]] == ["a_1"]
    assert same["release"][:2] == (SAID, [])
    # Two lines over a whole page are none of its print, so they stay lines.
    lines = SAID.replace("\n", "  \n")
    assert same["markdown"] == f"<!-- a.pdf: 1 page -->\n\n<!-- page 1 -->\n\n{lines}\n"
    assert same["docling"] == ("text", SAID)


@pytest.mark.parametrize("way", WAYS)
def test_who_found_the_text_is_all_that_differs(ended: dict[str, dict[str, Any]], way: str):
    assert ended[way]["origins"] == ([way], way)
    # Of a text layer one line is read.
    assert ended[way]["asked"] == 1


def test_the_plan_names_what_another_way_makes_again_and_the_diff_finds_no_other_text(
    ended: dict[str, dict[str, Any]],
):
    assert "layout_regions" in ended["layout"]["stale"]
    assert "ocr_results" in ended["text_layer"]["stale"]
    for way in ("layout", "text_layer"):
        assert "raw_pages" not in ended[way]["stale"]
        assert ended[way]["diff"].pages == 1
        assert ended[way]["diff"].damage.score == 0
