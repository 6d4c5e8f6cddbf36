"""The asset `ocr_scores` exists where answers are known and compares consecutive runs."""

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from kopub.cli.score_lines import reading_lines
from kopub.corrections.corrected import CorrectedTables, correct_page, truth_of
from kopub.corrections.log import Action, Correction, CorrectionLog
from kopub.evaluation.benchmark import Benchmark, PageText, Sample
from kopub.evaluation.home import KnownAnswers, read_gold, write_gold
from kopub.folders import SAMPLES
from kopub.pages.manifest import GOLD, Manifest
from kopub.release.gates import Gates
from kopub.store.table_store import ShardStore
from tests.corrections.test_corrections import corrected
from tests.doubles.full_disk import FullDisk
from tests.support.benchmarks import TEXT, reader, write_pages
from tests.support.harness import Platform, Prepared, failure
from tools import samples_gold

UPSTREAM = "*ocr_scores,parsed_texts"
COUNT = 8


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Return two shards of pages with known texts, read without a mistake and scored."""
    home = tmp_path_factory.mktemp("scored") / "home"
    answers = write_pages(home / "answers", COUNT)
    rows = [(f"p_{at}", (answers / f"p_{at}.png").read_bytes()) for at in range(COUNT)]
    platform = Platform.of(home, [rows[:4], rows[4:]])
    write_gold(home / GOLD, [known(COUNT)])
    platform.engines["recognition"] = reader(platform, answers)
    assert platform.run(UPSTREAM, last="shard_01").success
    return Prepared(platform)


def known(count: int) -> KnownAnswers:
    samples = [Sample(f"p_{at}", f"p_{at}", None, {}, PageText(f"{TEXT} {at}")) for at in range(count)]
    return KnownAnswers(Benchmark("texts", "1", "l", "s", samples), count)


@pytest.fixture
def platform(built: Prepared) -> Platform:
    return built.renewed()


def upgrade(platform: Platform, **fields: Any) -> dg.ExecuteInProcessResult:
    platform.engines["recognition"] = reader(platform, platform.home / "answers", **fields)
    result = platform.run(UPSTREAM, last="shard_01")
    assert result.success
    return result


def row(platform: Platform, metric: str = "cer") -> dict[str, Any]:
    table = platform.store.read("ocr_scores", "all").to_pylist()
    return next(each for each in table if (each["metric"], each["slice"]) == (metric, "all"))


def metadata(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    (event,) = result.asset_materializations_for_node("ocr_scores")
    return {name: value.value for name, value in event.metadata.items()}


def passed(result: dg.ExecuteInProcessResult) -> bool:
    checks = result.get_asset_check_evaluations()
    return next(each.passed for each in checks if each.asset_key.path[-1] == "ocr_scores")


@pytest.mark.slow
def test_a_corpus_without_known_answers_has_no_such_asset(tmp_path: Path, platform: Platform):
    names = {asset.key.path[-1] for asset in platform.assets}
    (platform.home / GOLD).unlink()
    assert names - {asset.key.path[-1] for asset in platform.assets} == {"ocr_scores"}


def test_scores_are_plotted_and_compared_with_the_last_run(platform: Platform):
    assert (row(platform)["value"], row(platform)["samples"], row(platform)["previous"]) == (0.0, COUNT, None)
    result = upgrade(platform, wrong=2)
    found = metadata(result)
    assert found["texts_cer"] == row(platform)["value"] > 0
    assert (found["samples"], found["lost"], found["computed"]) == (COUNT, 0, COUNT)
    assert row(platform)["previous"] == 0.0
    assert row(platform)["dropped"]
    assert not passed(result)


def test_scores_of_before_a_shard_was_read_are_not_those_of_today(platform: Platform):
    read = platform.home / "store" / "ocr_results" / "shard_01.parquet"
    kept = read.rename(platform.home / "kept.parquet")
    assert platform.run("ocr_scores", first=None).success
    told = reading_lines(platform.settings, lambda asset, shard: True)[0]
    assert "4 of them not read" in told[0]
    kept.rename(read)
    told = reading_lines(platform.settings, lambda asset, shard: True)[0]
    assert told == ["reading  not measured on the tables as they are now: kopub run measures it"]


@pytest.mark.slow
@pytest.mark.parametrize("full", ["ocr_scores/", "ocr_runs/", "ocr_samples/"])
def test_a_full_disk_is_one_line_and_the_next_run_makes_the_scores(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, full: str
):
    platform.engines["store"] = ShardStore(url=f"fulldisk://reading{len(full)}")
    with monkeypatch.context() as disk:
        disk.setattr(FullDisk, "no_room_for", full)
        told = failure(platform.run(UPSTREAM, last="shard_01"))
    assert told.startswith("the disk is full: ")
    assert full in told
    assert platform.run("ocr_scores", first=None).success


def test_a_second_run_computes_nothing(platform: Platform):
    assert metadata(platform.run("ocr_scores", first=None))["computed"] == 0


def test_a_drop_stays_a_drop_until_it_is_accepted(platform: Platform):
    upgrade(platform, wrong=2)
    assert not passed(upgrade(platform, wrong=3))
    platform.engines["gates"] = Gates(override="known")
    upgrade(platform, wrong=3)
    platform.engines["gates"] = Gates()
    assert passed(upgrade(platform, wrong=3, blank="  "))
    assert row(platform)["change"] == 0.0


def test_a_shard_that_was_not_read_is_lost_and_named(platform: Platform):
    for asset in ("ocr_results", "parsed_texts"):
        (platform.home / "store" / asset / "shard_01.parquet").unlink()
    found = metadata(platform.run("ocr_scores", first=None))
    assert (row(platform)["lost"], row(platform)["value"]) == (4, 0.5)
    assert "shard_01 was not read to the end: its samples are lost" in found["measured"]


def test_other_gold_is_not_compared(platform: Platform):
    write_gold(platform.home / GOLD, [known(COUNT - 1)])
    found = metadata(platform.run("ocr_scores", first=None))
    assert found["compared"].startswith("not compared")


def checked(platform: Platform, page_id: str, text: str, shard: str = "shard_00") -> None:
    """Record that a person corrected a page's text and then marked it as right."""
    corrected(platform, page_id, 0, text, shard=shard)
    tables = CorrectedTables(platform.store)
    page = correct_page(*tables.pages(shard, {page_id})[page_id], tables.changes()[page_id])
    log = CorrectionLog(platform.store)
    log.add(Correction(page_id, shard, Action.CHECKED, "Kim", after=truth_of(page)))


def test_pages_that_a_person_checked_are_known_answers_by_which_the_reader_is_judged(platform: Platform):
    (platform.home / GOLD).unlink()
    checked(platform, "p_1", f"{TEXT} 하나")
    assert "ocr_scores" in {asset.key.path[-1] for asset in platform.assets}
    found = metadata(platform.run(UPSTREAM, last="shard_01"))
    assert (found["samples"], row(platform)["benchmark"], row(platform)["lost"]) == (1, "corrections", 0)
    # The tables hold the person's text, but the reader is judged by what it read.
    assert platform.rows("parsed_texts")["p_1"]["text"] == f"{TEXT} 하나"
    assert 0 < row(platform)["value"] == found["corrections_cer"]
    assert metadata(platform.run("ocr_scores", first=None))["computed"] == 0
    lines, _ = reading_lines(platform.settings, lambda asset, shard: True)
    assert lines[0].startswith("reading  corrections: cer 0.")


def test_a_correction_makes_no_reader_better(platform: Platform):
    upgrade(platform, wrong=2)
    before = row(platform)["value"]
    for at in range(4):
        corrected(platform, f"p_{at}", 0, f"{TEXT} {at}")
    assert platform.run(UPSTREAM, last="shard_01").success
    assert platform.rows("parsed_texts")["p_1"]["text"] == f"{TEXT} 1"
    assert row(platform)["value"] == before > 0


@pytest.mark.slow
def test_a_page_that_was_checked_meanwhile_hides_no_drop(platform: Platform):
    for at in range(7):
        checked(platform, f"p_{at}", f"{TEXT} {at}.", "shard_00" if at < 4 else "shard_01")
    assert passed(platform.run("ocr_scores", first=None))
    checked(platform, "p_7", f"{TEXT} 7.", "shard_01")
    checked(platform, "p_6", f"{TEXT} 여섯", "shard_01")
    result = upgrade(platform, wrong=2)
    assert not passed(result)
    rows = [each for each in platform.store.read("ocr_scores", "all").to_pylist() if each["slice"] == "all"]
    dropped = {each["benchmark"] for each in rows if each["dropped"]}
    assert dropped == {"texts"}
    # A new page and a page with a new answer are not compared.
    changed = next(each for each in rows if (each["benchmark"], each["metric"]) == ("corrections", "cer"))
    assert (changed["samples"], metadata(result)["compared"][:8]) == (8, "compared")
    assert changed["previous"] == pytest.approx(1 / len(f"{TEXT} 0.".replace(" ", "")), rel=0.01)


def test_status_says_how_well_pages_are_read(platform: Platform):
    lines, drops = reading_lines(platform.settings, lambda asset, shard: True)
    assert lines == [
        f"reading  texts: cer 0.000 over {COUNT} samples",
        f"reading  texts: bag_f1 1.000 over {COUNT} samples",
    ]
    assert drops == []
    upgrade(platform, wrong=2)
    assert "texts is read worse" in reading_lines(platform.settings, lambda asset, shard: True)[1][0]


def test_the_samples_have_gold_for_every_page():
    assert samples_gold.is_current(), "run python -m tools.samples_gold"
    texts, facts = read_gold(SAMPLES / GOLD)
    assert (texts.benchmark.name, facts.benchmark.name) == ("texts", "facts")
    ids = {sample.id for sample in texts.benchmark.samples}
    assert len(ids) == Manifest.load(SAMPLES).rows == 12
    assert {sample.id for sample in facts.benchmark.samples} == ids


def test_every_fact_holds_in_the_gold_text_and_tables_have_their_own():
    """A fact that contradicts the print would penalise a correct reader."""
    for line in (SAMPLES / "gold" / "facts.jsonl").read_text("utf-8").splitlines():
        fact = json.loads(line)
        text = (SAMPLES / "gold" / f"{fact['pdf'].removesuffix('.pdf')}_{fact['page']}.txt").read_text("utf-8")
        flat = " ".join(text.split())
        named = [value for name, value in fact.items() if name not in ("pdf", "page", "id", "type", "checked")]
        for value in (value for value in named if isinstance(value, str)):
            assert (value in flat) == (fact["type"] != "absent"), fact
        if fact["type"] == "order":
            assert flat.find(fact["before"]) < flat.rfind(fact["after"]), fact
