"""A night upgrades the corpus only if its benchmark is read as well as before."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.parquet as pq
import pytest

from kopub.cli.commands.plan import evaluation_lines, plan_values
from kopub.config.settings import Settings
from kopub.corrections.log import Action, Correction, CorrectionLog
from kopub.evaluation.benchmark import SamplePicture
from kopub.release.gates import Gates
from kopub.release.publishing import reading_scores
from kopub.store.corpus_tables import BENCHMARKS
from kopub.tables.evaluations import guards_of, prepare_answers, standings_of_guards
from kopub_assets.scores import benchmark_scores
from tests.support.benchmarks import TEXT, guarded, reader, write_pages
from tests.support.dagster.nights import Nights
from tests.support.harness import Platform, Prepared, failure


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Return one shard of all assets, whose reader was evaluated on eight documents."""
    home = tmp_path_factory.mktemp("guard") / "home"
    answers = write_pages(home / "answers", 8)
    platform = Platform.of(home, [[("p_0", (answers / "p_0.png").read_bytes())]])
    guarded(platform, answers)
    assert platform.run("*", "shard_00").success
    return Prepared(platform)


@pytest.fixture
def platform(built: Prepared) -> Platform:
    return built.renewed()


def upgrade(platform: Platform, **fields: Any) -> None:
    platform.engines["recognition"] = reader(platform, platform.home / "answers", **fields)


def night(platform: Platform) -> list[set[str]]:
    """Return what a night's ticks request in turn, when each request is made at once."""
    nights, requested = Nights(platform), []
    assert nights.tick(0) == {}
    for step in range(8):
        found = nights.tick(3 + step / 10)
        if not found:
            break
        requested.append(set(found))
        for asset, shards in found.items():
            if not shards:
                assert platform.run(asset, first=None).success
        nights.make({asset: shards for asset, shards in found.items() if shards})
    return requested


@pytest.mark.slow
def test_the_first_build_evaluates_the_reader_before_the_release(platform: Platform):
    assert (platform.home / "evaluations" / "texts").is_dir()
    (shown,) = plan_values(platform.settings)["evaluations"]
    assert (shown["current"], shown["closed"], shown["why"]) == (True, [], [])


def test_a_reader_as_good_is_evaluated_first_and_then_the_night_goes_on(platform: Platform):
    upgrade(platform, blank="  ")
    first, second, *rest = night(platform)
    assert first == {BENCHMARKS}
    assert second >= {"ocr_results"}
    assert any("hf_release" in each for each in rest)


def test_a_reader_that_reads_worse_stops_the_night_until_it_is_taken_back(platform: Platform):
    upgrade(platform, wrong=5)
    assert night(platform) == [{BENCHMARKS}]
    read = platform.diary("recognition").pages
    assert night(platform) == []
    assert platform.diary("recognition").pages == read
    (shown,) = plan_values(platform.settings)["evaluations"]
    assert shown["current"]
    assert "texts is read worse: cer went from 0.0000 by +0." in shown["closed"][0]
    upgrade(platform)
    assert night(platform)[0] == {BENCHMARKS}
    assert plan_values(platform.settings)["evaluations"][0]["closed"] == []


@pytest.mark.slow
def test_a_reason_lets_a_worse_reader_pass_and_later_runs_are_compared_with_it(platform: Platform):
    upgrade(platform, wrong=5)
    guarded_with(platform, override="the new model is a tenth of the cost")
    first, second, *_ = night(platform)
    assert (first, "ocr_results" in second) == ({BENCHMARKS}, True)
    guarded_with(platform)
    assert plan_values(platform.settings)["evaluations"][0]["closed"] == []


def guarded_with(platform: Platform, **gates: Any) -> None:
    platform.engines["gates"] = Gates(benchmarks={"texts": str(platform.home / "answers")}, **gates)


@pytest.mark.slow
def test_pages_that_a_person_checked_are_a_guard_of_the_corpus(platform: Platform):
    said = json.dumps({"text": f"{TEXT} 0"})
    CorrectionLog(platform.store).add(Correction("p_0", "shard_00", Action.CHECKED, "Kim", after=said))
    platform.engines["gates"] = Gates(benchmarks={"corrections": "anywhere"})
    assert not plan_values(platform.settings)["evaluations"][0]["current"]
    upgrade(platform, wrong=1)
    first, second, *_ = night(platform)
    assert (first, "ocr_results" in second) == ({BENCHMARKS}, True)
    assert plan_values(platform.settings)["evaluations"][0]["current"]
    (run,) = (platform.home / "evaluations" / "corrections").glob("*/profiles/cpu/store/ocr_scores/all.parquet")
    cer = next(row for row in pq.read_table(run).to_pylist() if row["metric"] == "cer")
    assert (cer["samples"], cer["lost"], cer["value"] > 0) == (1, 0, True)


def test_a_plan_names_the_evaluation_that_an_upgrade_makes_stale(platform: Platform):
    upgrade(platform, version=2)
    (shown,) = plan_values(platform.settings)["evaluations"]
    assert not shown["current"]
    assert any("recognition.version 1 -> 2" in line for line in shown["why"])
    assert shown["pages"] == 8
    assert shown["seconds"] is not None
    assert shown["command"].startswith("kopub evaluate texts ")
    (line,) = evaluation_lines([shown])
    assert line.startswith(f"evaluation texts of {platform.home / 'answers'}: stale, ocr_results: recognition.version")
    assert line.endswith(shown["command"])


def test_a_benchmark_that_was_never_read_is_evaluated_before_anything_is_upgraded(platform: Platform):
    write_pages(platform.home / "others", 2)
    platform.engines["gates"] = Gates(benchmarks={"texts": str(platform.home / "others")})
    (shown,) = plan_values(platform.settings)["evaluations"]
    assert shown["why"] == ["this profile has not been scored on it"]
    assert night(platform)[0] == {BENCHMARKS}


def test_a_benchmark_whose_pages_are_being_written_is_not_scored_yet(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
):
    def stop(picture: SamplePicture) -> object:
        raise KeyboardInterrupt

    (platform.home / "answers" / "p_8.png").write_bytes(b"a new picture")
    (platform.home / "answers" / "p_8.txt").write_text(TEXT, "utf-8")
    (asked,) = guards_of(platform.settings)
    monkeypatch.setattr(SamplePicture, "made", stop)
    with pytest.raises(KeyboardInterrupt):
        prepare_answers(asked, platform.home)
    (shown,) = plan_values(platform.settings)["evaluations"]
    assert (shown["current"], shown["why"]) == (False, ["this profile has not been scored on it"])


@pytest.mark.slow
def test_another_embedding_needs_no_evaluation(platform: Platform):
    from tests.doubles.engines import UnitEmbedder

    platform.engines["embedding"] = UnitEmbedder(dim=8)
    assert BENCHMARKS not in night(platform)[0]


def scores(platform: Platform) -> tuple[list[Any], list[str]]:
    settings = platform.settings
    made_from = json.loads(settings.store.metadata("hf_release", "shard_00")["made_from"])
    found = reading_scores(settings.corpus, settings.store, settings.gates, "cpu", {"shard_00": made_from})
    return list(found[0]), found[1]


def test_the_card_has_the_scores_and_a_drop_keeps_a_release_off_the_hub(platform: Platform):
    tables, problems = scores(platform)
    assert (len(tables), problems) == (1, [])
    card = (platform.home / "release" / "README.md").read_text()
    assert "| texts | cer | lower | 8 | 0 | 0.0000 |" in card
    upgrade(platform, wrong=5)
    platform.run(BENCHMARKS, first=None)
    platform.make("ocr_results", "parsed_texts", "corpus_text_embeddings")
    result = platform.run("hf_release", "shard_00")
    (event,) = result.asset_materializations_for_node("hf_release")
    assert "texts is read worse" in str(event.metadata["keeps_it_off_the_hub"].value)
    _, problems = scores(platform)
    assert "texts is read worse" in problems[0]
    assert "texts is read worse" in (platform.home / "release" / "README.md").read_text()


def test_a_release_that_another_reader_made_was_not_measured(platform: Platform):
    upgrade(platform, version=2)
    assert platform.run("ocr_results,parsed_texts,corpus_text_embeddings", "shard_00").success
    _, problems = scores(platform)
    assert problems == [
        "the benchmark texts was not read by what made this release: "
        f"kopub evaluate texts {platform.home / 'answers'} --limit 200"
    ]


def test_a_run_judges_the_reader_before_it_makes_what_it_would_make_worse(platform: Platform):
    before = platform.store.metadata("ocr_results", "shard_00")
    upgrade(platform, wrong=5)
    result = platform.run("*", "shard_00")
    assert failure(result).startswith("gate closed, so nothing was made: texts is read worse: cer went from 0.0000")
    assert platform.store.metadata("ocr_results", "shard_00") == before
    guarded_with(platform, override="the new model is a tenth of the cost")
    assert platform.run("*", "shard_00").success
    assert platform.store.metadata("ocr_results", "shard_00") != before


def named(platform: Platform, profile: str) -> Settings:
    """Return the settings of the platform under another profile's name."""
    return replace(platform.settings, profile_name=profile)


def evaluated(settings: Settings) -> dg.ExecuteInProcessResult:
    return dg.materialize([benchmark_scores(settings)], instance=dg.DagsterInstance.ephemeral())


def test_another_profile_is_compared_with_the_reading_of_the_one_before(platform: Platform):
    """The baseline belongs to the corpus and the benchmark, whatever the profile's file is called."""
    upgrade(platform, wrong=5)
    (check,) = evaluated(named(platform, "rtx4090")).get_asset_check_evaluations()
    assert not check.passed
    (guard,) = standings_of_guards(named(platform, "rtx4090"))
    assert "texts is read worse: cer went from 0.0000 by +0." in guard.closed[0]
    upgrade(platform)
    (check,) = evaluated(named(platform, "cpu")).get_asset_check_evaluations()
    assert check.passed
    upgrade(platform, wrong=5)
    assert not evaluated(named(platform, "mine")).get_asset_check_evaluations()[0].passed


@pytest.mark.parametrize("profile", ["cpu", "rtx4090"])
def test_the_first_run_that_guards_a_corpus_is_compared_with_what_profiles_scored_before(
    platform: Platform, profile: str
):
    (asked,) = guards_of(platform.settings)
    shutil.rmtree(asked.home(platform.home) / "baseline")
    upgrade(platform, wrong=5)
    assert not evaluated(named(platform, profile)).get_asset_check_evaluations()[0].passed


def test_a_benchmark_too_small_to_prove_a_fall_says_so(platform: Platform):
    platform.engines["recognition"] = reader(platform, write_pages(platform.home / "few", 2))
    platform.engines["gates"] = Gates(benchmarks={"texts": str(platform.home / "few")})
    result = platform.run("*", "shard_00")
    logged = {record.user_message for record in platform.instance.all_logs(result.run_id)}
    (line,) = [line for line in logged if line.startswith("not judged: the benchmark")]
    assert line.endswith("benchmark texts: 2 documents, fewer than the 6 that prove a fall: this gate cannot close")


def test_the_check_says_what_got_worse(platform: Platform):
    upgrade(platform, wrong=5)
    result = platform.run(BENCHMARKS, first=None)
    (check,) = result.get_asset_check_evaluations()
    assert not check.passed
    assert check.severity == dg.AssetCheckSeverity.WARN
    (event,) = result.asset_materializations_for_node(BENCHMARKS)
    assert event.metadata["texts_cer"].value == pytest.approx(5 / len("".join(f"{TEXT} 0".split())), abs=0.02)


def test_a_folder_that_is_gone_fails_in_one_line(platform: Platform, tmp_path: Path):
    platform.engines["gates"] = Gates(benchmarks={"texts": str(tmp_path / "nowhere")})
    result = platform.run(BENCHMARKS, first=None)
    assert not result.success
