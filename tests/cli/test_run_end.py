"""The last lines and exit status of `kopub run` report lost pages and worse scores."""

import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from rich.console import Console
from typer.testing import CliRunner

from kopub.cli.commands.run import run_assets
from kopub.cli.main import app
from kopub.evaluation.benchmark import Benchmark, PageText, Sample
from kopub.evaluation.home import KnownAnswers, write_gold
from kopub.pages.manifest import GOLD
from kopub.release.gates import Gates
from kopub.release.hub import HubTarget
from tests.search.test_search import Typist
from tests.support.benchmarks import TEXT, reader, write_pages
from tests.support.dagster.dagster_home import make_dagster_home
from tests.support.harness import Platform, Prepared
from tests.support.processes import forked
from tests.support.sources.pdf_files import pdf, sheet

COUNT = 8
READ = ("raw_pages", "layout_regions", "ocr_results", "parsed_texts")
PAGES = (*READ, "corpus_image_embeddings", "corpus_text_embeddings", "ocr_scores")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Return an indexed corpus of two shards with known texts, without any table."""
    home = tmp_path_factory.mktemp("ended") / "home"
    answers = write_pages(home / "answers", COUNT)
    rows = [(f"p_{at}", (answers / f"p_{at}.png").read_bytes()) for at in range(COUNT)]
    platform = Platform.of(home, [rows[:4], rows[4:]])
    samples = [Sample(f"p_{at}", f"p_{at}", None, {}, PageText(f"{TEXT} {at}")) for at in range(COUNT)]
    write_gold(home / GOLD, [KnownAnswers(Benchmark("texts", "1", "l", "s", samples), COUNT)])
    return Prepared(platform)


@pytest.fixture
def platform(built: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Platform:
    monkeypatch.setenv("DAGSTER_HOME", str(make_dagster_home(tmp_path / "dagster")))
    platform = built.renewed()
    # One line of text in a region as large as the page is doubtful.
    platform.engines["gates"] = Gates(max_doubtful_share=1.0)
    return platform


def ended(platform: Platform, wanted: Sequence[str] = PAGES, **reads: Any) -> tuple[int, list[str]]:
    """Return the exit status and output of a run whose reader has these fields."""
    platform.engines["recognition"] = reader(platform, platform.home / "answers", **reads)
    out = io.StringIO()
    status = run_assets(platform.settings, wanted, "", Console(file=out, width=300))
    return status, out.getvalue().splitlines()


def test_a_run_in_which_every_page_failed_says_so_and_is_no_success(platform: Platform):
    status, lines = ended(platform, READ, fail=" ".join(f"p_{at}" for at in range(COUNT)))
    assert status == 3
    assert any(line.startswith("ocr_results: 0 of 8 rows made, 8 failed in ") for line in lines)
    end = lines.index("8 pages: 8 failed")
    assert lines[end + 1] == "- p_0 is failed: ocr_results: asked to fail"
    assert lines[end + 4] == "kopub status lists all 8; kopub run tries again what failed"
    # The failed pages are retried; the tables above them are current.
    status, lines = ended(platform, READ)
    assert (status, lines[0].partition(":")[0]) == (0, "8 pages in 2 shards by the profile cpu")
    assert not any("every table is current" in line for line in lines)


@pytest.mark.slow
def test_failed_pages_are_work_of_the_next_run(platform: Platform):
    fails = {"fail": "p_1"}
    assert ended(platform, **fails)[0] == 3
    status, lines = ended(platform, **fails)
    assert (status, lines[0].partition(": about ")[0]) == (3, "8 pages in 2 shards by the profile cpu")
    assert lines[-1].startswith("next: ")
    assert "8 pages: 7 ok, 1 failed; 7 need review" in lines


def test_a_second_run_computes_nothing_and_says_only_that(platform: Platform):
    assert ended(platform)[0] == 0
    assert ended(platform) == (0, ["nothing to compute; 8 pages: 8 ok; 8 need review"])


@pytest.mark.slow
def test_reading_that_got_worse_ends_a_run_with_its_numbers(platform: Platform):
    status, lines = ended(platform)
    assert status == 0
    assert "reading: texts cer 0.000, texts bag_f1 1.000" in lines
    status, lines = ended(platform, wrong=2)
    assert status == 3
    assert any(line.startswith("reading: texts cer 0.000 to 0.0") and "(worse)" in line for line in lines)
    assert "worse than the run before: kopub diff shows the pages that changed" in lines
    # Nothing is computed, but the scores are still worse.
    assert ended(platform, wrong=2) == (
        3,
        ["nothing to compute; 8 pages: 8 ok; 8 need review; reading or finding got worse; see kopub status"],
    )
    platform.engines["gates"] = Gates(max_doubtful_share=1.0, override="known to be worse")
    assert ended(platform, wrong=2)[0] == 0


def test_a_part_of_the_graph_leaves_the_pages_unfinished(platform: Platform):
    status, lines = ended(platform, READ[:2])
    assert status == 0
    assert "8 pages: 8 unfinished" in lines
    assert lines[-1].startswith("next: kopub run for the unfinished pages, ")


@pytest.mark.parametrize(("repo", "status"), [("", 0), ("somebody/pages", 3)])
@pytest.mark.slow
def test_a_licence_counts_for_those_who_publish(platform: Platform, repo: str, status: int):
    platform.engines["hub"] = HubTarget(repo=repo)
    ended_with, lines = ended(platform, ())
    assert ended_with == status, lines
    assert any(line.startswith("gate closed: ") and "license_override" in line for line in lines) == bool(status)


@pytest.mark.slow
def test_dagster_shows_how_the_corpus_stands(platform: Platform):
    assert ended(platform, (), fail="p_1 p_2 p_3")[0] == 3
    with dg.DagsterInstance.get() as instance:
        (record,) = instance.fetch_materializations(dg.AssetKey("hf_release"), limit=1).records
        told = [entry.user_message for entry in instance.all_logs(record.run_id)]
        lost = "3 pages lost or read in part: `kopub status` names them; the next run tries the failed ones again"
        assert {lost, "need review: `kopub doubts` lists them, worst first"} <= set(told)
        made = record.asset_materialization
        assert made
        assert made.metadata["pages_of_the_corpus"].value == "8 pages: 5 ok, 3 failed; 5 need review"
        key = dg.AssetCheckKey(dg.AssetKey("hf_release"), "corpus_is_whole")
        (check,) = instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
        assert check.event
        found = check.event.asset_check_evaluation
        assert found
        assert not found.passed
        assert str(found.description).startswith("8 pages: 5 ok, 3 failed; 5 need review; reading: texts cer ")
        assert "gate closed: 3 of 8 pages failed or are quarantined" in str(found.description)


@pytest.mark.services
def test_a_cut_pdf_and_a_file_that_is_none_are_named_in_the_last_lines(tmp_path: Path):
    folder = tmp_path / "mine"
    folder.mkdir()
    whole = pdf(sheet(), sheet())
    (folder / "good.pdf").write_bytes(whole)
    (folder / "cut.pdf").write_bytes(whole[: len(whole) // 3])
    (folder / "letter.pages").write_bytes(b"PK")
    home = tmp_path / "home"
    make_dagster_home(home / ".dagster")
    environment = os.environ | {"KOPUB_HOME": str(home), "DAGSTER_HOME": ""}
    command = ["kopub", "run", "--asset", "raw_pages"]
    done = forked.run([*command, str(folder)], environment)
    assert done.returncode == 3, done.stderr
    last = done.stdout.splitlines()[-5:]
    assert last[0] == "3 pages: 1 quarantined, 2 unfinished"
    assert last[1].startswith("- cut.pdf is quarantined: the file is damaged")
    assert last[3] == f"1 file left out: {home / 'left_out.txt'} says why"
    again = forked.run(command, environment)
    assert (again.returncode, again.stdout.splitlines()) == (
        3,
        ["nothing to compute; 3 pages: 1 quarantined, 2 unfinished; see kopub status"],
    )


@pytest.mark.slow
def test_scripts_that_the_profile_does_not_read_are_named_with_what_to_do(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
):
    russian = Typist(texts={f"p_{at}": f"Страница {at} из книги о лесах" for at in range(COUNT)})
    platform.engines["recognition"] = russian
    out = io.StringIO()
    run_assets(platform.settings, READ, "", Console(file=out, width=300))
    assert {row["script"] for row in platform.rows("parsed_texts").values()} == {"CYRILLIC"}
    (line,) = [line for line in out.getvalue().splitlines() if "CYRILLIC" in line]
    assert line == "8 pages mainly in CYRILLIC, which the profile does not read: choose a reader and settings for it"
    monkeypatch.setenv("KOPUB_HOME", str(platform.home))
    says, do = "8 pages mainly in CYRILLIC, which the profile does not read", "add rus / ukr / bul to"
    told = " ".join(CliRunner().invoke(app, ["status"]).output.split())
    assert told.count(f"{says}: {do}") == 1
    (status,) = json.loads(CliRunner().invoke(app, ["status", "--json"]).output)["scripts_not_read"]
    assert (status["script"], status["pages"]) == ("CYRILLIC", COUNT)
    found = json.loads(CliRunner().invoke(app, ["doctor", "--quick", "--json"]).output)["findings"]
    (finding,) = [each for each in found if each["check"] == "scripts"]
    assert (finding["level"], finding["says"], finding["do"]) == ("warning", says, status["do"])
    assert finding["do"].startswith(do)
