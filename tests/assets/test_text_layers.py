"""Pages of PDFs with sound and with garbled text layers, and a scan, for each value of `pdf.text_layer`."""

from pathlib import Path
from typing import Any

import pytest

from kopub_assets.upgrades.lineage import chain
from kopub_assets.upgrades.plan import AssetPlan, Standing, settings_changed
from kopub_assets.upgrades.stale_scan import survey
from kopub_cli.judge.doubts import about_layers, texts_by_shard
from resources.config.choices.pdf import Pdf
from resources.errors import KopubError
from resources.pages.indexing import index
from resources.store.footer_cache import FooterCache
from tests.doubles.engines import OneRegionLayout, SlowReader
from tests.support.harness import Platform, Prepared
from tests.support.sources.corpora import page_image, pages
from tests.support.sources.pdf_files import mapped_pdf, sheet, text_pdf, written

READING = ("raw_pages", "layout_regions", "ocr_results", "parsed_texts")
A5 = "0 0 420 595"
PRINTED = ((72, 400, "Every page of a document"), (72, 380, "ends in exactly one state."))
SOUND = "Every page of a document\nends in exactly one state."
GARBLED = {char: chr(0xE000 + ord(char)) for char in "abcdefghijklmnopqrstuvwxyzE."}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """A sound page, one whose font has a map of nothing, and a scan, read with `never`."""
    home = tmp_path_factory.mktemp("layers") / "home"
    source = home / "source"
    source.mkdir(parents=True)
    page = sheet(written(*PRINTED), box=A5)
    (source / "sound.pdf").write_bytes(text_pdf(page))
    (source / "garbled.pdf").write_bytes(mapped_pdf(page, GARBLED))
    (source / "scan.png").write_bytes(page_image())
    index(str(source), home, dpi=72)
    platform = Platform(home)
    platform.engines["layout"] = OneRegionLayout(diary=str(home / "layout.diary"))
    platform.make(*READING)
    return Prepared(platform)


@pytest.fixture
def platform(built: Prepared) -> Platform:
    platform = built.renewed()
    platform.engines["recognition"] = SlowReader(diary=str(platform.home / "recognition.diary"))
    return platform


def layers(platform: Platform, mode: str) -> None:
    platform.engines["pdf"] = Pdf(text_layer=mode)  # pyright: ignore[reportArgumentType]


def read_since(platform: Platform, before: int) -> list[str]:
    return platform.diary("recognition").pages[before:]


def plans(platform: Platform) -> dict[str, AssetPlan]:
    return {plan.asset: plan for plan in survey(platform.resources(), FooterCache(platform.store)).plans()}


def texts(platform: Platform) -> dict[str, str]:
    return {page_id: row["text"] for page_id, row in platform.rows("parsed_texts").items()}


def test_raw_pages_know_which_pages_have_a_layer(platform: Platform):
    rows = platform.rows("raw_pages")
    assert {page_id: row["text_layer_id"] is not None for page_id, row in rows.items()} == {
        "garbled_1": True,
        "scan_1": False,
        "sound_1": True,
    }


def test_never_reads_every_page_and_looks_at_no_layer(platform: Platform):
    assert texts(platform) == {page: f"read {page}" for page in ("garbled_1", "scan_1", "sound_1")}
    assert {row["text_layer"] for row in platform.rows("parsed_texts").values()} == {None}


def test_check_reads_the_same_and_says_how_far_it_is_from_the_layers(platform: Platform):
    layers(platform, "check")
    found, before = plans(platform), len(read_since(platform, 0))
    assert {name: plan.pages_at_most for name, plan in found.items() if plan.pages_at_most} == {"parsed_texts": 2}
    assert list(found["parsed_texts"].why) == ["pdf.text_layer null -> check", "texts.layers null -> 1"]
    assert found["parsed_texts"].exact
    platform.make(*READING)
    assert read_since(platform, before) == []
    rows = platform.rows("parsed_texts")
    assert texts(platform)["sound_1"] == "read sound_1"
    assert [rows[page]["text_layer"] for page in ("garbled_1", "scan_1", "sound_1")] == ["unsound", None, "sound"]
    assert "no meaning" in rows["garbled_1"]["text_layer_reason"]
    assert rows["sound_1"]["text_layer_distance"] > 0.5
    assert any("differ from the text layer" in says for says in rows["sound_1"]["doubts"])
    assert rows["garbled_1"]["text_layer_distance"] is None
    assert not plans(platform)["parsed_texts"].pages_at_most


def test_prefer_takes_sound_layers_and_reads_the_other_pages(platform: Platform):
    layers(platform, "prefer")
    found = plans(platform)
    assert found["layout_regions"].shards[Standing.CURRENT] == ["shard_00"]
    assert (found["ocr_results"].pages, found["ocr_results"].exact) == (2, True)
    assert list(found["ocr_results"].why) == ["pdf.text_layer null -> prefer", "texts.layers null -> 1"]
    before = len(read_since(platform, 0))
    platform.make(*READING)
    assert read_since(platform, before) == ["garbled_1"]
    assert texts(platform) == {"garbled_1": "read garbled_1", "scan_1": "read scan_1", "sound_1": SOUND}
    regions = {page_id: row["regions"][0] for page_id, row in platform.rows("ocr_results").items()}
    assert {page_id: region["origin"] for page_id, region in regions.items()} == {
        "garbled_1": "recognizer",
        "scan_1": "recognizer",
        "sound_1": "text_layer",
    }
    assert platform.rows("parsed_texts")["sound_1"]["text_layer_distance"] == 0
    assert not any(plan.pages_at_most for name, plan in plans(platform).items() if name in READING)


def test_from_check_to_prefer_and_back_only_what_it_changes_is_stale(platform: Platform):
    layers(platform, "check")
    platform.make(*READING)
    layers(platform, "prefer")
    found = plans(platform)
    assert found["parsed_texts"].shards[Standing.PERHAPS] == ["shard_00"]
    assert found["ocr_results"].shards[Standing.STALE] == ["shard_00"]
    platform.make(*READING)
    layers(platform, "check")
    assert plans(platform)["ocr_results"].pages == 0, "the table before is kept"
    platform.make(*READING)
    assert texts(platform)["sound_1"] == "read sound_1"


def test_a_corpus_of_images_is_current_whatever_is_asked_of_text_layers(tmp_path: Path):
    platform = Platform.of(tmp_path, [pages("a_1", "a_2")])
    platform.make(*READING)
    for mode in ("check", "prefer"):
        layers(platform, mode)
        assert all(plans(platform)[name].shards[Standing.CURRENT] == ["shard_00"] for name in READING)


def test_reread_reads_a_task_again_although_its_layer_is_sound(platform: Platform):
    layers(platform, "prefer")
    platform.engines["recognition"] = SlowReader(diary=str(platform.home / "recognition.diary"), reread=["text"])
    platform.make(*READING)
    assert texts(platform)["sound_1"] == "read sound_1"


def test_a_layer_that_changed_since_raw_pages_saw_it_stops_the_step(platform: Platform):
    (platform.home / "source" / "sound.pdf").write_bytes(
        text_pdf(sheet(written(*PRINTED, (72, 300, "another line")), box=A5))
    )
    index(str(platform.home / "source"), platform.home, dpi=72)
    layers(platform, "prefer")
    with pytest.raises(KopubError, match="materialize raw_pages"):
        platform.make("ocr_results")


def test_the_ui_counts_sound_layers_and_lineage_and_diff_name_the_setting(platform: Platform):
    layers(platform, "check")
    result = platform.run("parsed_texts")
    (made,) = result.asset_materializations_for_node("parsed_texts")
    counted: dict[str, Any] = {name: made.metadata[name].value for name in ("text_layers_sound", "text_layers_unsound")}
    assert counted == {"text_layers_sound": 1, "text_layers_unsound": 1}
    shown = chain(platform.store, platform.settings.corpus, "page", "sound_1", "shard_00", None)
    parameters = {step["asset"]: step["parameters"] for step in shown["steps"]}
    assert parameters["parsed_texts"]["pdf.text_layer"] == "check"
    assert "pdf.text_layer" not in parameters["ocr_results"]
    assert about_layers(list(texts_by_shard(platform.settings.corpus.manifest, platform.store).values())) == [
        "2 pages have a text layer, 1 a sound one; half of them differ from it in less than 82.9% of their letters",
        "unsound: some of its characters have no meaning, as of fonts without a Unicode map (1)",
    ]
    assert settings_changed({"pdf.text_layer": "check", "raw_pages": "1"}, {"raw_pages": "2"}) == [
        "pdf.text_layer check -> null"
    ]
