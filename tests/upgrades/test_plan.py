"""The plan of a change: what is made again, why, and at what cost."""

import os
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
import yaml
from aiohttp import web

from benchmarks import upgrades
from kopub.cli.commands.plan import in_between
from kopub.cli.console import duration
from kopub.config.choices import Upgrades
from kopub.config.settings import read_settings, what_if
from kopub.errors import ConfigError
from kopub.fingerprints import CodeVersion
from kopub.folders import SAMPLES
from kopub.layout.cpu.engine import CpuLayout
from kopub.recognition.vlm.glm_ocr import GlmOcrRecognizer
from kopub.release.local import LocalRelease
from kopub.store import ledger
from kopub.store.table_source import FooterCache
from kopub.store.table_store import ShardStore
from kopub.tables.graph import GRAPH
from kopub.tables.plan import AssetPlan, Survey, survey
from kopub.tables.staleness import Standing
from kopub.vllm.server import VLLMServer
from tests.doubles.engines import OneRegionLayout, SlowReader, UnitEmbedder
from tests.doubles.full_disk import FullDisk
from tests.doubles.http_double import HttpDouble, SentRequest, says
from tests.support.harness import STANDARD, Platform, Prepared, failure
from tests.support.sources.corpora import page_image, pages, query

READING = ["ocr_results", "parsed_texts", "corpus_text_embeddings"]


class TwoGpuReader(SlowReader):
    code_version: ClassVar[CodeVersion] = CodeVersion("recognition.two_gpu_reader", {1: "a double"})

    @property
    def gpus(self) -> int:
        return 2


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Return two shards with everything made but the release."""
    home = tmp_path_factory.mktemp("plan") / "home"
    platform = Platform.of(home, [pages("a_1", "a_2", "a_3"), pages("b_1", "b_2")], [query("q1", "무엇?", "a_2")])
    reads(platform, "read")
    assert platform.run(",".join(asset for asset in STANDARD if asset != "hf_release"), last="shard_01").success
    return Prepared(platform)


@pytest.fixture
def platform(built: Prepared) -> Platform:
    return built.renewed()


def reads(platform: Platform, prompt: str, **fields: Any) -> None:
    diary = str(platform.home / "recognition.diary")
    platform.engines["recognition"] = TwoGpuReader(diary=diary, prompt=prompt, **fields)


def surveyed(platform: Platform) -> Survey:
    return survey(platform.resources(), FooterCache(platform.store))


def plans(platform: Platform) -> dict[str, AssetPlan]:
    return {plan.asset: plan for plan in surveyed(platform).plans()}


def touched(platform: Platform) -> dict[str, tuple[int, int]]:
    """Return each planned asset's rows to be made and the most that may be."""
    return {asset: (plan.pages, plan.pages_at_most) for asset, plan in plans(platform).items() if plan.pages_at_most}


def test_nothing_changed_nothing_planned(platform: Platform):
    assert touched(platform) == {}
    assert plans(platform)["hf_release"].shards[Standing.MISSING] == ["shard_00", "shard_01"]


def test_a_change_is_named_with_its_old_and_new_value(platform: Platform):
    reads(platform, "say")
    found = plans(platform)
    assert found["ocr_results"].why == {"recognition.prompt read -> say": 2}
    assert touched(platform) == {"ocr_results": (5, 5), "parsed_texts": (0, 5), "corpus_text_embeddings": (0, 5)}
    assert found["ocr_results"].exact
    assert found["layout_regions"].shards[Standing.CURRENT] == ["shard_00", "shard_01"]


def test_what_it_will_cost_is_what_it_cost(platform: Platform):
    reads(platform, "say")
    plan = plans(platform)["ocr_results"]
    spent = [ledger.sum_costs(ledger.read(platform.store, "ocr_results", shard)) for shard in ("shard_00", "shard_01")]
    assert sum(each.rows for each in spent) == 5
    assert plan.seconds == pytest.approx(sum(each.seconds for each in spent))
    assert plan.gpu_seconds == pytest.approx(2 * sum(each.seconds for each in spent))
    assert plans(platform)["parsed_texts"].gpu_seconds_at_most == 0


def test_another_engine_is_expected_to_take_what_it_says_itself(platform: Platform):
    class OtherReader(TwoGpuReader):
        code_version: ClassVar[CodeVersion] = CodeVersion("recognition.other", {1: "the first release"})
        typical_seconds: ClassVar[float] = 3.0

    diary = str(platform.home / "recognition.diary")
    platform.engines["recognition"] = OtherReader(diary=diary, prompt="read")
    plan = plans(platform)["ocr_results"]
    assert (plan.seconds, plan.gpu_seconds, plan.measured) == (pytest.approx(15), pytest.approx(30), False)


def test_other_engine_other_dimension_other_page_other_parent(platform: Platform):
    platform.engines["embedding"] = UnitEmbedder(dim=8)
    platform.engines["layout"] = OneRegionLayout(diary=str(platform.home / "layout.diary"), revision="r2")
    found = plans(platform)
    assert found["corpus_image_embeddings"].why == {"embedding.dim 4 -> 8": 2}
    assert found["layout_regions"].why == {"layout.revision r1 -> r2": 2}
    del platform.engines["layout"]
    platform.engines["embedding"] = UnitEmbedder()
    platform.reindex([pages("a_1", "a_2", "a_3", "a_4"), pages("b_1", "b_2")], [query("q1", "무엇?", "a_2")])
    found = plans(platform)
    assert found["raw_pages"].why == {"the source changed": 1}
    assert found["raw_pages"].pages == 1, "three of the four are as they were"
    assert platform.run("raw_pages").success
    assert plans(platform)["layout_regions"].why == {"raw_pages changed": 1}


def test_another_class_of_engine_is_one_reason(platform: Platform):
    platform.engines["recognition"] = SlowReader(diary=str(platform.home / "recognition.diary"))
    assert list(plans(platform)["ocr_results"].why) == ["recognition.engine two_gpu_reader -> slow_reader"]


def test_another_version_of_the_code_is_shown_with_its_reason(platform: Platform, monkeypatch: pytest.MonkeyPatch):
    now = GRAPH.by_name["ocr_results"].code_version
    steps = {**now.steps, now.number + 1: "rows split at wide gaps", now.number + 2: "blank cells stay"}
    monkeypatch.setattr(GRAPH.by_name["ocr_results"], "code_version", CodeVersion("ocr_results", steps))
    assert list(plans(platform)["ocr_results"].why) == [
        f"ocr_results.version {now.number} -> {now.number + 2} (rows split at wide gaps; blank cells stay)"
    ]
    monkeypatch.undo()
    monkeypatch.setattr(TwoGpuReader, "code_version", CodeVersion(TwoGpuReader.code_version.name, {1: "a", 2: "b"}))
    assert list(plans(platform)["ocr_results"].why) == ["recognition.version 1 -> 2 (b)"]


def test_an_upgrade_that_is_taken_back_costs_nothing(platform: Platform):
    reads(platform, "say")
    assert platform.run(",".join(READING), last="shard_01").success
    reads(platform, "read")
    found = plans(platform)["ocr_results"]
    assert (found.pages, len(found.shards[Standing.STALE])) == (0, 2)
    assert found.why == {"recognition.prompt say -> read": 2, "a replaced table of the same recipe is kept": 2}


def test_a_table_that_does_not_say_how_it_was_made_is_stale(platform: Platform):
    store = platform.store
    store.write("parsed_texts", "shard_00", store.read("parsed_texts", "shard_00"), {"recipe": "0" * 16})
    assert plans(platform)["parsed_texts"].shards[Standing.STALE] == ["shard_00"]
    assert failure(platform.run("corpus_text_embeddings")) == (
        "shard_00: parsed_texts of shard_00 does not say how it was made: materialize parsed_texts again"
    )


def test_all_tables_below_a_missing_one_wait_for_it(platform: Platform):
    (platform.home / "store" / "layout_regions" / "shard_00.parquet").unlink()
    found = plans(platform)
    assert found["layout_regions"].shards[Standing.MISSING] == ["shard_00"]
    assert {found[asset].shards[Standing.BLOCKED][0] for asset in READING} == {"shard_00"}
    assert found["parsed_texts"].shards[Standing.CURRENT] == ["shard_01"]


def test_a_killed_run_is_charged_as_unknown(platform: Platform, monkeypatch: pytest.MonkeyPatch):
    reads(platform, "say", die_on="a_3")
    with monkeypatch.context() as killed:
        killed.setattr(ledger, "append", lambda *arguments: None)
        assert not platform.run("ocr_results").success
    reads(platform, "say")
    assert platform.run("ocr_results").success
    entries = ledger.newest(ledger.read(platform.store, "ocr_results", "shard_00")).to_pylist()
    now = {entry["row_id"]: entry["seconds"] for entry in entries[-3:]}
    assert (now["a_1"], now["a_2"]) == (None, None)
    assert now["a_3"] > 0


def test_a_run_that_broke_is_charged_for_what_it_did(platform: Platform):
    before = ledger.read(platform.store, "ocr_results", "shard_00").num_rows
    reads(platform, "say", die_on="a_3")
    assert not platform.run("ocr_results").success
    reads(platform, "say")
    assert platform.run("ocr_results").success
    entries = ledger.read(platform.store, "ocr_results", "shard_00").slice(before).to_pylist()
    assert [entry["row_id"] for entry in entries] == ["a_1", "a_2", "a_3"]
    assert all(entry["gpu_seconds"] == 2 * entry["seconds"] > 0 for entry in entries)
    assert len({entry["run_id"] for entry in entries}) == 2


def test_the_ui_shows_what_rows_cost(platform: Platform):
    reads(platform, "say")
    (made,) = platform.run("ocr_results").asset_materializations_for_node("ocr_results")
    shown = {name: float(str(value.value)) for name, value in made.metadata.items() if "seconds" in name}
    assert shown["gpu_seconds"] == pytest.approx(2 * shown["seconds"], rel=0.01)
    assert shown["gpu_seconds_per_row"] == pytest.approx(shown["gpu_seconds"] / 3, rel=1e-3)


def test_the_footer_cache_sees_every_table_that_is_written(platform: Platform):
    footers = FooterCache(platform.store)
    before = survey(platform.resources(), footers).standings
    reads(platform, "say")
    assert platform.run("ocr_results", "shard_01").success
    kept, anew = survey(platform.resources(), footers), surveyed(platform)
    assert kept.standings == anew.standings != before
    assert kept.standings["ocr_results"] == {"shard_00": Standing.STALE, "shard_01": Standing.CURRENT}


def test_the_footer_cache_opens_no_table_twice(platform: Platform, monkeypatch: pytest.MonkeyPatch):
    surveyed(platform)
    monkeypatch.setattr(
        "kopub.store.table_store.ShardStore.footer", lambda *arguments: pytest.fail("a footer was read")
    )
    surveyed(platform)


def test_a_store_that_takes_no_footer_cache_is_read_without_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(FullDisk, "no_room_for", ".footers")
    store = ShardStore(url="fulldisk://plan")
    for asset in ("ocr_results", "parsed_texts"):
        store.write(asset, "shard_00", pa.table({"page_id": ["a_1"]}), {"recipe": "0" * 16})
    footers = FooterCache(store)
    for asset in ("ocr_results", "parsed_texts"):
        assert footers.tables(asset)["shard_00"].rows == 1
    (said,) = (record.getMessage() for record in caplog.records)
    assert said.startswith("every footer is read each time: the disk is full: ")


def test_a_damaged_footer_cache_is_written_anew(platform: Platform):
    before = surveyed(platform).standings
    (file,) = (platform.home / "store" / ".footers" / "ocr_results").iterdir()
    file.write_bytes(b"PAR1")
    assert surveyed(platform).standings == before
    assert file.stat().st_size > 4


@pytest.mark.slow
def test_another_table_prompt_reads_the_tables_again_and_nothing_else(tmp_path: Path):
    async def reply(asked: SentRequest) -> web.StreamResponse:
        return says("<table><tr><td>1</td></tr></table>" if "able" in asked.prompt else f"글 {asked.number}")

    with HttpDouble(reply) as double:
        server = VLLMServer(model="glm", revision="r1", mode="external", urls=[double.url], images_per_prompt=0)

        def reader(**prompts: str) -> GlmOcrRecognizer:
            return GlmOcrRecognizer(server=server, processes=1, reuse_folder=str(tmp_path / "reuse"), prompts=prompts)

        (tmp_path / "home").mkdir()
        (tmp_path / "home" / "shards.json").symlink_to(SAMPLES / "shards.json")
        (tmp_path / "home" / "corpus").symlink_to(SAMPLES / "corpus")
        (tmp_path / "home" / "queries.parquet").symlink_to(SAMPLES / "queries.parquet")
        platform = Platform(tmp_path / "home", {"layout": CpuLayout(threads=1), "recognition": reader()})
        assert platform.run("raw_pages,layout_regions,ocr_results").success
        tasks = [region["task"] for row in platform.rows("layout_regions").values() for region in row["regions"]]
        double.asked.clear()
        platform.engines["recognition"] = reader(table="Tabelle:")
        plan = plans(platform)["ocr_results"]
        assert plan.why == {"recognition.prompts.table Table Recognition: -> Tabelle:": 1}
        assert plan.regions == tasks.count("table") > 0
        assert platform.run("ocr_results").success
        assert {asked.prompt for asked in double.asked} == {"Tabelle:"}
        assert len({asked.image for asked in double.asked}) == tasks.count("table")
        latest = ledger.read(platform.store, "ocr_results", "shard_00").slice(len(platform.rows("ocr_results")))
        charged = {row["row_id"] for row in latest.to_pylist() if row["seconds"]}
        layouts = platform.rows("layout_regions").values()
        assert charged == {row["page_id"] for row in layouts for region in row["regions"] if region["task"] == "table"}


@pytest.mark.parametrize(
    ("profile", "key", "value", "line"),
    [
        ("cpu", "embedding.colour", "red", "profile cpu: embedding has no key 'colour'; it has engine, dim, threads"),
        ("cpu", "embedding.dim", "many", "profile cpu: embedding.dim is 'many', and must be a whole number"),
        ("cpu", "embedding.dim.x", "1", "profile cpu: embedding.dim is {'x': 1}, and must be a whole number"),
        ("cpu", "embedding", "1", "--set embedding: write SECTION.KEY=VALUE, as in embedding.dim=512"),
        ("cpu", "gpu.count", "1", "--set gpu.count: 'gpu' is neither a section nor a pin; there are layout,"),
        ("cpu", "glm_ocr.revision", "0" * 40, "--set glm_ocr.revision: no engine of this profile uses the pin glm_ocr"),
        ("h200", "glm_ocr.branch", "main", "--set glm_ocr.branch: glm_ocr has no key 'branch'; it has repo, revision"),
        ("h200", "recognition.prompts.tabel", "x", "profile h200: recognition.prompts: 'tabel' is not"),
        ("h200", "recognition.scripts", "[1", "--set recognition.scripts: '[1' is neither a list, as [a, b]"),
        ("h200", "recognition.model.name", "x", "--set recognition.model.name: 'model' is a value and has no keys"),
    ],
)
def test_a_what_if_that_cannot_be_is_one_line(
    monkeypatch: pytest.MonkeyPatch, profile: str, key: str, value: str, line: str
):
    monkeypatch.setenv("KOPUB_PROFILE", profile)
    with pytest.raises(ConfigError) as error:
        what_if({key: value})
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)


def test_files_of_a_release_are_an_upper_bound(platform: Platform):
    folder = str(platform.home / "release")
    platform.engines["release"] = LocalRelease(folder=folder)
    assert platform.run("hf_release", last="shard_01").success
    platform.engines["release"] = LocalRelease(folder=folder, title="Andere Seiten")
    plan = plans(platform)["hf_release"]
    assert (plan.pages_at_most > 0, plan.exact) == (True, False)


def test_a_what_if_changes_what_it_names_and_nothing_else(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KOPUB_PROFILE", "h200")
    other = what_if({"glm_ocr.revision": "0" * 40, "recognition.prompts.table": "Tabelle:"})
    assert other.recognition.weights()["revision"] == "0" * 40
    now = what_if({})
    assert other.layout.recipe() == now.layout.recipe()
    assert now.recognition.weights()["revision"] != "0" * 40


def test_rows_are_counted_where_only_what_is_above_them_changed(platform: Platform):
    platform.reindex([[("a_1", page_image(99)), *pages("a_1", "a_2", "a_3")[1:]], pages("b_1", "b_2")])
    assert platform.run("raw_pages").success
    assert touched(platform)["layout_regions"] == (1, 1)
    assert plans(platform)["layout_regions"].exact


def test_rows_that_an_interrupted_run_has_finished_are_not_planned(platform: Platform):
    reads(platform, "say", die_on="a_3")
    assert not platform.run("ocr_results").success
    reads(platform, "say")
    assert plans(platform)["ocr_results"].pages == 3
    reads(platform, "read")
    assert plans(platform)["ocr_results"].pages == 0


def test_the_engines_of_a_gpu_profile_say_what_they_hold_and_compute_with(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KOPUB_PROFILE", "h200")
    settings = what_if({})
    assert (settings.layout.gpus, settings.recognition.gpus, what_if({"layout.device": "cpu"}).layout.gpus) == (1, 1, 0)
    assert {"torch", "opencv-python-headless"} < settings.layout.weights().keys()
    monkeypatch.setenv("KOPUB_PROFILE", "cpu")
    assert {engine.gpus for engine in (what_if({}).layout, what_if({}).recognition, what_if({}).embedding)} == {0}


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("HOUR", "2", "profile cpu: upgrades has no key 'hour'; it has "),
        ("TIMEZONE", "Asia/Soul", "profile cpu: upgrades.timezone: 'Asia/Soul' is no time zone"),
        ("START", "25:00", "profile cpu: upgrades.start is '25:00', and must be a time (HH:MM)"),
        ("START", "06:00", "profile cpu: upgrades.start: it is the same as end"),
    ],
)
def test_a_night_that_cannot_be_is_one_line(monkeypatch: pytest.MonkeyPatch, key: str, value: str, line: str):
    monkeypatch.setenv(f"KOPUB_UPGRADES__{key}", value)
    with pytest.raises(ConfigError) as error:
        what_if({})
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("at", "night"), [((21, 59), False), ((22, 0), True), ((1, 30), True), ((5, 0), False)])
def test_a_night_may_begin_in_the_evening_and_yaml_writes_it_without_quotes(at: tuple[int, int], night: bool):
    upgrades = Upgrades(**yaml.safe_load("{start: 22:00, end: 05:00}"))
    now = datetime(2026, 11, 21, *at, tzinfo=ZoneInfo("Asia/Seoul"))
    assert upgrades.is_night(now) is night
    assert (str(upgrades), upgrades.cron) == ("from 22:00 to 05:00 Asia/Seoul", "0 22 * * *")


@pytest.mark.parametrize(
    ("least", "most", "shown"),
    [
        (0.0, 0.6, "0 - 0.6 s"),
        (4.3, 4.9, "4.3 - 4.9 s"),
        (30.0, 600.0, "30 s - 10 min"),
        (5.0, 5.0, "5.0 s"),
    ],
)
def test_a_range_names_its_unit_once(least: float | None, most: float, shown: str):
    assert in_between(least, most, duration) == shown


def test_the_corpus_that_the_benchmark_makes_up_is_current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    home, history = tmp_path / "home", tmp_path / "dagster"
    history.mkdir()
    monkeypatch.setenv("KOPUB_HOME", str(home))
    monkeypatch.setenv("DAGSTER_HOME", str(history))
    upgrades.make_home(home, 1)
    upgrades.fill()
    settings = read_settings(os.environ)
    assert not any(survey(settings.resources, FooterCache(settings.store)).outdated.values())
