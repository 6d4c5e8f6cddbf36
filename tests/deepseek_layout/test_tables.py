"""A page reader, region readers and a text layer all end in the same tables."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from aiohttp import web

from kopub.cli.commands.plan import plan_values
from kopub.config.choices import Pdf
from kopub.config.settings import Settings, what_if
from kopub.documents.export import write_documents
from kopub.embedding.hashed import HashedEmbedder
from kopub.pages.indexing import index
from kopub.recognition.deepseek_layout.detector import DeepSeekOcrLayout
from kopub.recognition.vlm.deepseek_ocr import DeepSeekOcrRecognizer
from kopub.release.verify import verify
from kopub.search.searcher import Searcher
from kopub.states import State
from kopub.store.table_source import FooterCache
from kopub.tables.lineage import chain, compare_versions, edition
from kopub.tables.plan import survey
from kopub.tables.staleness import Standing
from tests.doubles.engines import OneRegionLayout
from tests.doubles.http_double import HttpDouble, SentRequest, says
from tests.recognition.test_deepseek_ocr import TestProfile, server_of
from tests.support.harness import Platform, failure
from tests.support.sources.grounded_pages import HTML, LAST, TEXTS, WHOLE, drawn_page, table, tag, upper
from tests.support.sources.pdf_files import sheet, text_pdf, written

READ = "raw_pages,layout_regions,ocr_results,parsed_texts"
TOLD = "\n\n".join([TEXTS["title"], TEXTS["first"], TEXTS["caption"], "서울\t12\n부산\t-", TEXTS["last"]])
CROPPED = "읽은 글"


class Model:
    """A model that answers pages with `whole` and crops as a region reader would."""

    def __init__(self) -> None:
        self.whole = [WHOLE]
        self.finish_reason = "stop"
        self.pages = self.crops = 0

    async def reply(self, asked: SentRequest) -> web.StreamResponse:
        # Only a whole page has the width that it was drawn with.
        if asked.prompt.startswith("<|grounding|>") and asked.size[0] == 1240:
            self.pages += 1
            return says(self.whole[min(self.pages, len(self.whole)) - 1], self.finish_reason)
        self.crops += 1
        return says(HTML if asked.prompt.startswith("<|grounding|>") else CROPPED)


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def platform(tmp_path: Path, model: Model):
    with HttpDouble(model.reply) as double:
        platform = Platform.of(tmp_path, [[("p_1", bytes(drawn_page().data)), ("p_2", None)]])
        platform.engines["layout"] = layout(double)
        platform.engines["recognition"] = recognizer(double)
        platform.double = double  # type: ignore[attr-defined]
        yield platform


def layout(double: HttpDouble, **fields: Any) -> Any:
    return DeepSeekOcrLayout(server=server_of(double.url), processes=1, retry_seconds=0.001, **fields)


def recognizer(double: HttpDouble, **fields: Any) -> Any:
    return DeepSeekOcrRecognizer(server=server_of(double.url), processes=1, retry_seconds=0.001, **fields)


def test_a_page_is_read_by_one_request_and_its_texts_flow_on(platform: Platform, model: Model):
    result = platform.run(READ)
    assert result.success
    assert (model.pages, model.crops) == (1, 0)
    for asset in READ.split(","):
        assert platform.states(asset) == {"p_1": State.OK, "p_2": State.QUARANTINED}, asset
    assert platform.rows("parsed_texts")["p_1"]["text"] == TOLD
    regions = platform.rows("ocr_results")["p_1"]["regions"]
    assert {region["origin"] for region in regions} == {"layout"}
    assert f"# {TEXTS['title']}" in platform.rows("ocr_results")["p_1"]["markdown"]
    (made,) = result.asset_materializations_for_node("ocr_results")
    assert made.metadata["regions_by_origin"].value == {"recognizer": 0, "layout": 5, "text_layer": 0, "not_read": 0}
    shown = chain(platform.store, platform.resources()["corpus"], "page", "p_1", "shard_00", None)
    assert [region["origin"] for region in shown["regions"]] == ["layout"] * 5
    assert [step["asset"] for step in shown["steps"]] == READ.split(",")


@pytest.mark.slow
def test_region_readers_end_in_the_same_tables(platform: Platform, model: Model):
    assert platform.run(READ).success
    ours = {asset: platform.store.read(asset, "shard_00").schema for asset in READ.split(",")}
    text = platform.rows("parsed_texts")["p_1"]["text"]
    platform.engines["recognition"] = recognizer(platform.double, reread=["text", "table"])  # type: ignore[attr-defined]
    assert platform.run(READ).success
    assert (model.pages, model.crops) == (1, 5)
    assert {asset: platform.store.read(asset, "shard_00").schema for asset in READ.split(",")} == ours
    assert platform.rows("parsed_texts")["p_1"]["text"] == "\n\n".join([CROPPED] * 3 + ["서울\t12\n부산\t-", CROPPED])
    assert text != platform.rows("parsed_texts")["p_1"]["text"]


def test_what_is_in_doubt_is_read_from_its_crop_and_a_lost_rest_makes_the_page_partial(
    platform: Platform, model: Model
):
    model.whole = [upper() + table() + f"{tag('text', LAST)}\n{TEXTS['last']} 그리고"]
    model.finish_reason = "length"
    platform.engines["layout"] = layout(platform.double, halves_share=0.0)  # type: ignore[attr-defined]
    assert platform.run(READ).success
    assert (model.pages, model.crops) == (1, 1)
    row = platform.rows("ocr_results")["p_1"]
    assert row["state"] == State.PARTIAL
    assert "cut off" in row["reason"]
    assert [region["origin"] for region in row["regions"]] == ["layout"] * 4 + ["recognizer"]
    assert platform.rows("parsed_texts")["p_1"]["text"].endswith(CROPPED)


def test_each_shard_has_second_tries_of_its_own(platform: Platform, model: Model):
    page = bytes(drawn_page().data)
    platform.reindex([[("p_1", page), ("p_2", page)], [("p_3", page), ("p_4", page)]])
    model.whole, model.finish_reason = [upper()], "length"
    result = platform.run("raw_pages,layout_regions", last="shard_01")
    assert result.success
    made = {each.partition: each.metadata for each in result.asset_materializations_for_node("layout_regions")}
    for shard, second in (("shard_00", "p_1"), ("shard_01", "p_3")):
        figures = made[shard]
        assert (figures["second_tries"].value, figures["second_tries_left_out"].value) == (1, 1)
        assert figures["requests"].value == 2 + 2
        told = {
            page_id: "not read in halves" in row["reason"]
            for page_id, row in platform.rows("layout_regions", shard).items()
        }
        assert told == {page_id: page_id != second for page_id in told}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "stale"),
    [
        (("layout", {"prompt": "<|grounding|>OCR this image."}), "layout_regions"),
        (("recognition", {"reread": ["table"]}), "ocr_results"),
        (("recognition", {"threads": 3}), None),
    ],
)
def test_a_change_makes_stale_what_it_must(platform: Platform, changed: tuple[str, dict[str, Any]], stale: str | None):
    assert platform.run(READ).success
    section, fields = changed
    make = {"layout": layout, "recognition": recognizer}[section]
    platform.engines[section] = make(platform.double, **fields)  # type: ignore[attr-defined]
    found = survey(platform.resources(), FooterCache(platform.store)).standings
    standings = {asset: found[asset]["shard_00"] for asset in READ.split(",")}
    assert [asset for asset, how in standings.items() if how is Standing.STALE] == ([stale] if stale else [])


PROFILE = f"""
layout:
  engine: deepseek_ocr
  model: deepseek_ocr
  server: &deepseek {TestProfile.SERVER[:-1]}, command: [sh], gpus: []}}
recognition:
  engine: deepseek_ocr
  model: deepseek_ocr
  server: *deepseek
embedding:
  engine: hashed
"""


def test_both_engines_of_a_profile_share_one_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    profile = tmp_path / "mine.yaml"
    profile.write_text(PROFILE)
    monkeypatch.setenv("KOPUB_PROFILE", str(profile))
    settings: Settings = what_if({})
    assert isinstance(settings.layout, DeepSeekOcrLayout)
    assert isinstance(settings.recognition, DeepSeekOcrRecognizer)
    assert settings.layout.server.key == settings.recognition.server.key


SAID = "Every page of a document\nends in exactly one state."
PRINTED = ((72, 400, "Every page of a document"), (72, 380, "ends in exactly one state."))
WAYS = {"recognizer": "regions", "layout": "the page", "text_layer": "its text layer"}
"""What found the text, by the origin of its region."""


async def reply(asked: SentRequest) -> web.StreamResponse:
    is_page = asked.prompt.startswith("<|grounding|>")
    return says(f"<|ref|>text<|/ref|><|det|>[[150, 290, 650, 380]]<|/det|>\n{SAID}" if is_page else SAID)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Return the outputs for the page by the origin of its text, in run order."""
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
            stale = [asset["asset"] for asset in plan_values(platform.settings)["assets"] if asset["pages"]]
            asked = len(double.asked)
            result = platform.run()
            assert result.success, failure(result)
            found[way] = {**_end(platform, home.parent / way), "stale": stale, "asked": len(double.asked) - asked}
            if way != "recognizer":
                before, now = (edition(platform.store, "shard_00", name) for name in ("previous", "current"))
                found[way]["diff"] = compare_versions(platform.store, "shard_00", before, now)
    return found


def _end(platform: Platform, out: Path) -> dict[str, Any]:
    """Return all that tables, search, release, lineage and exports show of the page."""
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


@pytest.mark.slow
@pytest.mark.parametrize("way", list(WAYS)[1:])
def test_it_ends_in_the_same(ended: dict[str, dict[str, Any]], way: str):
    for what, expected in ended["recognizer"]["same"].items():
        assert ended[way]["same"][what] == expected, what


@pytest.mark.slow
def test_what_it_ends_in(ended: dict[str, dict[str, Any]]):
    same = ended["recognizer"]["same"]
    assert set(same["states"]["ocr_results"].values()) == {State.OK}
    assert same["text"] == SAID
    assert [page_id for page_id, _ in same["hits"]] == ["a_1"]
    assert same["release"][:2] == (SAID, [])
    # A region of a whole page is far higher than two printed lines, so the line break stays.
    lines = SAID.replace("\n", "  \n")
    assert same["markdown"] == f"<!-- a.pdf: 1 page -->\n\n<!-- page 1 -->\n\n{lines}\n"
    assert same["docling"] == ("text", SAID)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_who_found_the_text_is_all_that_differs(ended: dict[str, dict[str, Any]], way: str):
    assert ended[way]["origins"] == ([way], way)
    # Even with a text layer one line is read, as a check.
    assert ended[way]["asked"] == 1


@pytest.mark.slow
def test_the_plan_names_what_another_way_makes_again_and_the_diff_finds_no_other_text(
    ended: dict[str, dict[str, Any]],
):
    assert "layout_regions" in ended["layout"]["stale"]
    assert "ocr_results" in ended["text_layer"]["stale"]
    for way in ("layout", "text_layer"):
        assert "raw_pages" not in ended[way]["stale"]
        assert ended[way]["diff"].pages == 1
        assert ended[way]["diff"].damage.score == 0
