"""The tables that a page reader ends in are those of region readers: states, texts, lineage, and what is stale."""

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from kopub_assets.upgrades.lineage import chain
from kopub_assets.upgrades.plan import Standing
from kopub_assets.upgrades.stale_scan import survey
from resources.config.settings import Settings, what_if
from resources.deepseek_layout.detector import DeepSeekOcrLayout
from resources.recognition.vlm.deepseek.deepseek_ocr import DeepSeekOcrRecognizer
from resources.states import State
from resources.store.footer_cache import FooterCache
from tests.doubles.http_double import Asked, HttpDouble, says
from tests.recognition.deepseek.test_deepseek_ocr import TestProfile, server_of
from tests.support.harness import Platform
from tests.support.sources.grounded_pages import HTML, LAST, TEXTS, WHOLE, drawn_page, table, tag, upper

READ = "raw_pages,layout_regions,ocr_results,parsed_texts"
TOLD = "\n\n".join([TEXTS["title"], TEXTS["first"], TEXTS["caption"], "서울\t12\n부산\t-", TEXTS["last"]])
CROPPED = "읽은 글"


class Model:
    """Answers about whole pages with `whole`, and about crops with what a region reader would."""

    def __init__(self) -> None:
        self.whole = [WHOLE]
        self.finish_reason = "stop"
        self.pages = self.crops = 0

    async def reply(self, asked: Asked) -> web.StreamResponse:
        # A page is as wide as it was drawn; a crop is not.
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
