"""Each `pdf.text_layer` mode on sound, garbled, lying and damaged text layers, and on a scan."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient

import kopub
from kopub.cli.commands.doubts import about_layers, texts_by_shard
from kopub.cli.options import corpus_check
from kopub.config.choices import Pdf
from kopub.embedding.hashed import HashedEmbedder
from kopub.errors import KopubError
from kopub.layout.cpu.engine import CpuLayout
from kopub.pages.documents.pdf import Pdfs
from kopub.pages.indexing import index
from kopub.release.gates import Gates
from kopub.search.searcher import Searcher
from kopub.store.table_source import FooterCache
from kopub.tables.lineage import chain
from kopub.tables.plan import AssetPlan, survey
from kopub.tables.staleness import Standing, settings_changed
from kopub.texts.extracted_text import CODE
from kopub.texts.layer_counts import from_layers
from kopub.texts.text_quality import DOUBTFUL
from kopub.web.app import reading_room
from kopub.web.room import Room
from tests.doubles.engines import OneRegionLayout, SlowReader
from tests.support.harness import Platform, Prepared
from tests.support.sources.corpora import page_image, pages
from tests.support.sources.pdf_files import mapped_pdf, sheet, text_pdf, written

READING = ("raw_pages", "layout_regions", "ocr_results", "parsed_texts")
A5 = "0 0 420 595"
PRINTED = ((72, 400, "Every page of a document"), (72, 380, "ends in exactly one state."))
SOUND = "Every page of a document\nends in exactly one state."
LYING = dict(zip("abcdefghijklmnopqrstuvwxyz", "etaoinsrhldcumfpgwybvkxjqz", strict=True))
"""A letter map whose words look like a language but are not the printed ones."""
SAYS = {"sound_1": SOUND, "lying_1": SOUND}
"""Texts of the pages that the recognizer reads correctly."""
GARBLED = {char: chr(0xE000 + ord(char)) for char in "abcdefghijklmnopqrstuvwxyzE."}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Return a platform of sound, garbled, lying and scanned pages, read with `never`."""
    home = tmp_path_factory.mktemp("layers") / "home"
    source = home / "source"
    source.mkdir(parents=True)
    page = sheet(written(*PRINTED), box=A5)
    (source / "sound.pdf").write_bytes(text_pdf(page))
    (source / "garbled.pdf").write_bytes(mapped_pdf(page, GARBLED))
    (source / "lying.pdf").write_bytes(mapped_pdf(page, LYING))
    (source / "scan.png").write_bytes(page_image())
    index(str(source), home, dpi=72)
    platform = Platform(home)
    platform.engines["layout"] = OneRegionLayout(diary=str(home / "layout.diary"))
    layers(platform, "never")
    platform.make(*READING)
    return Prepared(platform)


@pytest.fixture
def platform(built: Prepared) -> Platform:
    platform = built.renewed()
    platform.engines["recognition"] = reader(platform)
    layers(platform, "never")
    return platform


def reader(platform: Platform, **more: Any) -> SlowReader:
    return SlowReader(diary=str(platform.home / "recognition.diary"), says=SAYS, **more)


def pdf_at(folder: Path, content: bytes) -> Path:
    path = folder / "some.pdf"
    path.write_bytes(content)
    return path


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
        "lying_1": True,
        "scan_1": False,
        "sound_1": True,
    }


def test_a_layer_is_kept_and_doubted_if_the_reader_cannot_read_its_script(tmp_path: Path):
    source = tmp_path / "source"
    source.mkdir()
    russian = {chr(ord("a") + at): chr(ord("а") + at) for at in range(26)}
    (source / "russian.pdf").write_bytes(mapped_pdf(sheet(written(*PRINTED), box=A5), russian))
    index(str(source), tmp_path, dpi=72)
    platform = Platform(tmp_path)
    platform.engines["layout"] = OneRegionLayout(diary=str(tmp_path / "layout.diary"))
    platform.engines["recognition"] = SlowReader(diary=str(tmp_path / "recognition.diary"))
    layers(platform, "prefer")
    platform.make(*READING)
    (row,) = platform.rows("parsed_texts").values()
    assert (row["text_layer"], row["doubt"] >= DOUBTFUL, row["script"]) == ("sound", True, "CYRILLIC")
    assert row["text"].splitlines()[0] == PRINTED[0][2].translate(str.maketrans(russian))


@pytest.mark.slow
def test_a_page_that_only_looks_blank_has_its_print_and_is_doubted_for_hidden_text(tmp_path: Path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "poster.pdf").write_bytes(text_pdf(sheet(written(*PRINTED, size=4), box="0 0 6000 6000")))
    (source / "hidden.pdf").write_bytes(text_pdf(sheet(written(*PRINTED, mode=3), box=A5)))
    (source / "number.pdf").write_bytes(text_pdf(sheet(written((72, 400, "12"), mode=3), box=A5)))
    index(str(source), tmp_path, dpi=72)
    platform = Platform(tmp_path)
    platform.engines |= {"layout": CpuLayout(), "gates": Gates(max_empty_jump=1)}
    layers(platform, "prefer")
    platform.make(*READING)
    says = ["the page looks blank, but the text layer of its PDF has 41 letters"]
    found = {page_id: (row["state"], row["doubts"]) for page_id, row in platform.rows("parsed_texts").items()}
    assert found == {"poster_1": ("ok", []), "hidden_1": ("blank", says), "number_1": ("blank", [])}
    assert texts(platform)["poster_1"].split() == [word for _, _, text in PRINTED for word in text.split()]


def test_never_reads_every_page_and_looks_at_no_layer(platform: Platform):
    assert texts(platform) == {page: f"read {page}" for page in ("garbled_1", "lying_1", "scan_1", "sound_1")}
    assert {row["text_layer"] for row in platform.rows("parsed_texts").values()} == {None}


def test_check_reads_the_same_and_says_how_far_it_is_from_the_layers(platform: Platform):
    layers(platform, "check")
    found, before = plans(platform), len(read_since(platform, 0))
    assert {name: plan.pages_at_most for name, plan in found.items() if plan.pages_at_most} == {"parsed_texts": 3}
    assert list(found["parsed_texts"].why) == ["pdf.text_layer null -> check", f"texts.layers null -> {CODE.number}"]
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
    assert (found["layout_regions"].pages, found["layout_regions"].exact) == (3, True)
    assert found["ocr_results"].pages_at_most >= 3
    assert list(found["ocr_results"].why) == ["pdf.text_layer null -> prefer", f"texts.layers null -> {CODE.number}"]
    before = len(read_since(platform, 0))
    platform.make(*READING)
    # One line each of the sound and of the lying page is read as a check; the lying page fails it, so it is read.
    assert sorted(read_since(platform, before)) == ["garbled_1", "lying_1", "lying_1", "sound_1"]
    assert texts(platform) == {
        "garbled_1": "read garbled_1",
        "lying_1": SOUND,
        "scan_1": "read scan_1",
        "sound_1": SOUND,
    }
    regions = {page_id: row["regions"] for page_id, row in platform.rows("ocr_results").items()}
    assert {page_id: [region["origin"] for region in each] for page_id, each in regions.items()} == {
        "garbled_1": ["recognizer"],
        "lying_1": ["recognizer"],
        "scan_1": ["recognizer"],
        "sound_1": ["text_layer"],
    }
    rows = platform.rows("parsed_texts")
    assert rows["sound_1"]["text_layer_distance"] == 0
    assert rows["lying_1"]["doubt"] == 1
    assert any("differ from the text layer" in says for says in rows["lying_1"]["doubts"])
    assert not any(plan.pages_at_most for name, plan in plans(platform).items() if name in READING)


@pytest.mark.slow
def test_what_was_taken_is_told_by_the_summary_the_package_the_room_and_the_release(platform: Platform):
    layers(platform, "prefer")
    platform.engines["embedding"] = HashedEmbedder()
    assert platform.run().success
    assert from_layers(platform.store, ["shard_00"]).line == (
        "text of 1 of 4 regions on 1 page taken from the text layers of PDFs"
    )
    corpus = kopub.open(platform.home)
    assert {page.id: page.regions[0].origin for page in corpus.pages}["sound_1"] == "text_layer"
    assert corpus.to_arrow("regions")["origin"].to_pylist().count("text_layer") == 1
    release = kopub.open(platform.home / "release")
    assert release.page("sound_1").regions == corpus.page("sound_1").regions
    card = (platform.home / "release" / "README.md").read_text("utf-8")
    assert "The text of 1 of the 4 regions is from the text layer of their PDF" in card
    settings = platform.settings
    searcher = Searcher(settings.store, ["shard_00"], HashedEmbedder(), "cpu", platform.home / "search")
    room = Room(settings, searcher, corpus_check(settings.corpus.manifest, settings.store))
    browser = TestClient(reading_room(room), base_url="http://127.0.0.1")
    shown = {page_id: browser.get("/page", params={"id": page_id}).text for page_id in ("sound_1", "lying_1")}
    assert "text from the PDF" in shown["sound_1"]
    assert "1 of 1 regions is from the PDF" in shown["sound_1"]
    assert "from the PDF" not in shown["lying_1"]


def test_a_page_whose_samples_cannot_be_read_is_read_again_whole(platform: Platform):
    layers(platform, "prefer")
    platform.engines["recognition"] = reader(platform, lose="sound_1")
    platform.make("ocr_results")
    (region,) = platform.rows("ocr_results")["sound_1"]["regions"]
    assert (region["state"], region["origin"]) == ("failed", "recognizer")


def test_a_damaged_layer_costs_its_page_alone(tmp_path: Path):
    made = Pdfs().make(pdf_at(tmp_path, text_pdf(sheet(written(*PRINTED), box=A5))), 0, 72)
    stored = {"bad_1": "{}", "empty_1": '{"size":[0,0]}', "sound_1": made.text_layer, "text_1": "no JSON"}
    source = tmp_path / "home" / "source"
    source.mkdir(parents=True)
    rows = [
        {"id": page_id, "image": {"bytes": made.data}, "pdf_text_layer": layer} for page_id, layer in stored.items()
    ]
    pq.write_table(pa.Table.from_pylist(rows), source / "pages.parquet")
    platform = Platform(tmp_path / "home")
    index(str(source), platform.home)
    platform.engines["recognition"] = reader(platform)
    platform.make(*READING)
    assert texts(platform) == {page: SOUND if page == "sound_1" else f"read {page}" for page in stored}
    reasons = {page_id: row["text_layer_reason"] for page_id, row in platform.rows("parsed_texts").items()}
    assert reasons.pop("sound_1") is None
    assert all(reason.startswith("it could not be read: it is damaged") for reason in reasons.values())


def test_from_check_to_prefer_and_back_only_what_it_changes_is_stale(platform: Platform):
    layers(platform, "check")
    platform.make(*READING)
    layers(platform, "prefer")
    found = plans(platform)
    assert found["parsed_texts"].shards[Standing.MAYBE_STALE] == ["shard_00"]
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
    assert counted == {"text_layers_sound": 2, "text_layers_unsound": 1}
    shown = chain(platform.store, platform.settings.corpus, "page", "sound_1", "shard_00", None)
    parameters = {step["asset"]: step["parameters"] for step in shown["steps"]}
    assert parameters["parsed_texts"]["pdf.text_layer"] == "check"
    assert "pdf.text_layer" not in parameters["ocr_results"]
    assert about_layers(list(texts_by_shard(platform.settings.corpus.manifest, platform.store).values())) == [
        "3 pages have a text layer, 2 a sound one; what was read of half of them differs from it in less than 86.6% of "
        "the letters",
        "unsound: some of its characters have no meaning, as of fonts without a Unicode map (1)",
    ]
    columns = {"text_layer": ["sound"], "text_layer_distance": [0.0], "text_layer_reason": [None]}
    assert about_layers([pa.table(columns)]) == [
        "1 page has a text layer, 1 a sound one; what was read of half of them differs from it in no letter"
    ]
    assert settings_changed({"pdf.text_layer": "check", "raw_pages": "1"}, {"raw_pages": "2"}) == [
        "pdf.text_layer check -> null"
    ]
