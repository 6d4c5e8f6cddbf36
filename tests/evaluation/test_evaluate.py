"""A benchmark is read in its own home and scored; nothing is lost or reread."""

import json
import shlex
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterExecutionInterruptedError
from typer.testing import CliRunner

from kopub.cli.evaluation_display import as_json_values, write_page
from kopub.cli.main import app
from kopub.config.settings import Settings
from kopub.errors import KopubError, SourceError
from kopub.evaluation import reading_scores
from kopub.evaluation.benchmark import (
    Benchmark,
    GivenRegion,
    LineText,
    PageText,
    Sample,
    SamplePicture,
    SampleReading,
    SampleScore,
)
from kopub.evaluation.home import (
    EvaluationRequest,
    KnownAnswers,
    first_by_hash,
    prepare,
    read_gold,
    write_gold,
)
from kopub.evaluation.reading_scores import changes_between, readings, write_predictions
from kopub.evaluation.report import Side, compare_sample, render
from kopub.fingerprints import CodeVersion
from kopub.layout.ground_truth import GroundTruthLayout
from kopub.layout.regions import Task
from kopub.pages.arrow import open_pages
from kopub.states import State
from kopub.tables.evaluations import Evaluation, evaluate, prepare_answers, settings_in
from tests.doubles.readers import KnowingReader
from tests.support.benchmarks import TEXT, reader, write_pages
from tests.support.harness import Platform
from tests.support.sources.corpora import page_image, pages


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    return write_pages(tmp_path / "answers", 3)


@pytest.fixture
def platform(tmp_path: Path, answers: Path) -> Platform:
    """Return a platform whose own corpus is not the benchmark's."""
    platform = Platform.of(tmp_path / "home", [pages("own_1")])
    platform.engines["recognition"] = reader(platform, answers)
    return platform


def evaluated(platform: Platform, folder: Path, limit: int | None = None, **fields: Any) -> Evaluation:
    asked = EvaluationRequest("texts", folder, limit)
    prepare_answers(asked, platform.home)
    return evaluate(settings_in(_settings(platform, **fields), asked))


def _settings(platform: Platform, **fields: Any) -> Settings:
    from dataclasses import replace

    return replace(platform.settings, **fields)


def value(evaluated: Evaluation, metric: str = "cer", column: str = "value") -> Any:
    (row,) = (r for r in evaluated.scores.to_pylist() if (r["metric"], r["slice"]) == (metric, "all"))
    return row[column]


def test_pages_are_read_by_the_assets_in_a_home_of_their_own(platform: Platform, answers: Path):
    found = evaluated(platform, answers)
    assert (value(found), value(found, "cer", "samples"), value(found, "cer", "lost")) == (0.0, 3, 0)
    assert sorted(platform.diary("recognition").pages) == ["p_0", "p_1", "p_2"]
    assert not (platform.home / "store").exists()
    assert set(found.settings.store.read("ocr_results", "shard_00")["page_id"].to_pylist()) == {"p_0", "p_1", "p_2"}


def test_a_second_run_reads_nothing_and_a_new_scorer_scores_what_was_read(
    platform: Platform, answers: Path, monkeypatch: pytest.MonkeyPatch
):
    first = evaluated(platform, answers)
    again = evaluated(platform, answers)
    assert again.run.inputs == first.run.inputs
    now = reading_scores.VERSION
    another = CodeVersion("evaluation", {**now.steps, now.number + 1: "another"})
    monkeypatch.setattr(reading_scores, "VERSION", another)
    rescored = evaluated(platform, answers)
    assert rescored.run.inputs != first.run.inputs
    assert rescored.compared.startswith("not compared: the run before was scored in another way")
    assert len(platform.diary("recognition").pages) == 3


def test_a_reading_of_a_newer_release_is_replaced_where_the_store_allows_it(platform: Platform, answers: Path):
    class Newer(KnowingReader):
        code_version = CodeVersion("recognition.knowing_reader", {1: "a double", 2: "reads better"})

    evaluated(platform, answers, recognition=Newer(**reader(platform, answers).model_dump()))
    with pytest.raises(KopubError, match=r"newer release of KoPub .*; store.allow_downgrade replaces it$"):
        evaluated(platform, answers)
    allowed = platform.store.model_copy(update={"allow_downgrade": True})
    assert value(evaluated(platform, answers, store=allowed), "cer", "samples") == 3


def test_failed_quarantined_and_missing_pages_score_worst_and_are_counted(platform: Platform, answers: Path):
    (answers / "p_1.png").write_bytes(b"no picture")
    platform.engines["recognition"] = reader(platform, answers, fail="p_2")
    found = evaluated(platform, answers)
    assert value(found) == pytest.approx(2 / 3)
    assert (value(found, "cer", "lost"), value(found, "cer", "value_of_read")) == (2, 0.0)
    run = {row["sample"]: row for row in found.run.table.to_pylist() if row["metric"] == "cer"}
    assert [(run[f"p_{at}"]["value"], run[f"p_{at}"]["lost"]) for at in range(3)] == [(0, False), (1, True), (1, True)]
    assert "quarantined" in run["p_1"]["notes"][0]
    assert "asked to fail" in run["p_2"]["notes"][0]


def test_a_sample_whose_id_cannot_be_used_is_lost_and_not_left_out(platform: Platform, tmp_path: Path):
    samples = [Sample(each, each, SamplePicture(_picture(tmp_path)), {}, PageText(TEXT)) for each in ("p_0", "../x")]
    write_pages(tmp_path / "answers", 1)
    asked = EvaluationRequest("texts", tmp_path)
    prepare(Benchmark("texts", "1", "l", "s", samples), asked.home(platform.home))
    found = evaluate(settings_in(platform.settings, asked))
    assert (value(found, "cer", "samples"), value(found, "cer", "lost")) == (2, 1)


def _picture(folder: Path) -> Path:
    (folder / "picture.png").write_bytes(page_image())
    return folder / "picture.png"


def test_the_limit_takes_the_same_samples_each_time_and_the_report_says_so(platform: Platform, answers: Path):
    found = evaluated(platform, answers, limit=2)
    taken = set(platform.diary("recognition").pages)
    assert len(taken) == 2
    write_pages(answers, 4)
    assert taken >= {each.id for each in first_by_hash(_benchmark(answers), 1).samples}
    known = read_gold(found.settings.corpus.gold or answers)[0]
    assert (len(known.benchmark.samples), known.of) == (2, 3)
    shown = as_json_values(EvaluationRequest("texts", answers, 2), known, [found])
    assert (shown["samples"], shown["of"]) == (2, 3)


def _benchmark(folder: Path) -> Benchmark:
    from kopub.evaluation.scoring import load

    return load("texts", folder)


def test_two_profiles_are_compared_sample_by_sample(platform: Platform, answers: Path):
    good = evaluated(platform, answers)
    bad = evaluated(platform, answers, profile_name="worse", recognition=reader(platform, answers, wrong=5))
    (change,) = [
        c
        for (_, metric, part), c in changes_between(good.run.table, bad.run.table).items()
        if (metric, part) == ("cer", "all")
    ]
    assert change.samples == 3
    assert change.change == pytest.approx(value(bad))
    assert change.low > 0
    assert good.settings.store.url != bad.settings.store.url
    shown = as_json_values(EvaluationRequest("texts", answers), KnownAnswers(_benchmark(answers), 3), [good, bad])
    assert [each["metric"] for each in shown["profiles"][1]["against_the_first"]]
    assert shown["profiles"][0]["against_the_first"] == []


def test_a_run_that_was_killed_goes_on(platform: Platform, answers: Path):
    diary = platform.diary("recognition")
    # Dagster has its own exception for an interrupt, unless this process saw another one before.
    with pytest.raises((DagsterExecutionInterruptedError, KeyboardInterrupt)):
        evaluated(platform, answers, recognition=reader(platform, answers, die_after=2))
    read = set(diary.pages)
    assert len(read) == 2
    found = evaluated(platform, answers)
    assert (value(found, "cer", "samples"), value(found, "cer", "lost")) == (3, 0)
    assert len(diary.pages) == 3


def test_a_picture_that_changed_is_read_again_and_no_other(platform: Platform, answers: Path):
    evaluated(platform, answers)
    (answers / "p_1.png").write_bytes(page_image(99))
    evaluated(platform, answers)
    assert platform.diary("recognition").pages[3:] == ["p_1"]


def test_an_engine_that_cannot_run_is_one_line(platform: Platform, answers: Path):
    class Broken(KnowingReader):
        def read(self, pages: Any) -> Any:
            from kopub.errors import EngineError

            raise EngineError("the engine is out of order; repair it")

    broken = Broken(answers=str(answers), diary=str(platform.home / "recognition.diary"))
    with pytest.raises(KopubError, match=r"^profile cpu: ocr_results: shard_00: the engine is out of order"):
        evaluated(platform, answers, recognition=broken)


def test_regions_that_the_benchmark_gives_are_the_layout(platform: Platform, tmp_path: Path):
    asked = EvaluationRequest("lines", tmp_path)
    region = (GivenRegion("text", Task.TEXT),)
    benchmark = Benchmark(
        "lines", "1", "l", "s", [Sample("p_0", "d", SamplePicture(_picture(tmp_path)), {}, LineText("x"), region)]
    )
    prepare(benchmark, asked.home(platform.home))
    moved = settings_in(platform.settings, asked)
    assert isinstance(moved.layout, GroundTruthLayout)
    (page,) = moved.layout.detect([*_pages(moved)])
    assert page.regions[0].bbox == (0, 0, 160, 220)


def _pages(settings: Settings) -> Any:
    import hashlib

    data = page_image()
    with settings.corpus.reader("shard_00") as source:
        yield source.page("p_0", 0, hashlib.sha256(data).hexdigest())


def test_a_benchmark_without_samples_says_why(platform: Platform, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "p_0.png").write_bytes(page_image())
    with pytest.raises(SourceError, match=r"p_0.png: it is a picture without gold"):
        prepare_answers(EvaluationRequest("texts", tmp_path / "empty"), platform.home)


def test_the_command_of_an_evaluation_can_be_pasted(tmp_path: Path):
    asked = EvaluationRequest("texts", tmp_path / "확인한 쪽", 5)
    assert shlex.split(asked.command) == ["kopub", "evaluate", "texts", str(asked.folder), "--limit", "5"]


def test_a_new_version_of_a_benchmark_makes_its_pictures_again(tmp_path: Path):
    drawn = tmp_path / "page.png"
    drawn.write_bytes(page_image())
    for version, picture in (("1", page_image(1)), ("2", page_image(2))):
        sample = Sample("a", "d", SamplePicture(drawn, load=lambda picture=picture: picture), {}, PageText("가"))
        prepare(Benchmark("transformed", version, "l", "s", [sample]), tmp_path / "home")
        row = open_pages(tmp_path / "home" / "pages" / "pages-0000.arrow", "arrow").row(0)
        assert bytes(row.image or b"") == picture


def test_gold_is_read_as_it_was_written_and_other_gold_is_another_identity(tmp_path: Path):
    samples = [Sample("a", "d", None, {"language": "korean"}, PageText("가"))]
    known = KnownAnswers(Benchmark("texts", "1", "l", "s", samples), 7)
    write_gold(tmp_path / "gold.parquet", [known])
    assert read_gold(tmp_path / "gold.parquet") == [known]
    other = KnownAnswers(Benchmark("texts", "1", "l", "s", [Sample("a", "d", None, {}, PageText("나"))]), 7)
    assert other.identity != known.identity
    (tmp_path / "gold.parquet").write_bytes(b"PAR1")
    with pytest.raises(SourceError, match="holds no known answers"):
        read_gold(tmp_path / "gold.parquet")


def test_predictions_are_what_the_official_scripts_take(platform: Platform, answers: Path, tmp_path: Path):
    platform.engines["recognition"] = reader(platform, answers, fail="p_2")
    found = evaluated(platform, answers)
    read = dict(readings(found.settings.store, found.settings.corpus.manifest.keys))
    assert write_predictions(tmp_path / "out", _benchmark(answers), read) == 3
    assert (tmp_path / "out" / "p_0.md").read_text() == f"{TEXT} 0"
    assert (tmp_path / "out" / "p_2.md").read_text() == ""


def test_the_page_escapes_what_a_benchmark_and_a_reader_say(platform: Platform, answers: Path, tmp_path: Path):
    hostile = "<script>alert(1)</script>"
    (answers / "p_0.txt").write_text(f"{hostile} 가나다")
    (answers / "p_<b>.png").write_bytes(page_image(7))
    (answers / "p_<b>.txt").write_text("가")
    found = evaluated(platform, answers, recognition=reader(platform, answers, wrong=1))
    known = KnownAnswers(_benchmark(answers), 4)
    write_page(tmp_path / "page.html", known, [found], 3)
    html = (tmp_path / "page.html").read_text()
    assert "<script" not in html
    assert "<b>" not in html.replace("<b>of", "")
    assert "script&gt;alert(1)" in html
    assert html.count("<article") == 3
    assert html.count("data:image/webp") == 3
    assert "http://" not in html and "https://" not in html  # noqa: PT018


@pytest.mark.parametrize(
    "gold",
    [
        PageText("# 제목\n\n- 첫 **굵은** 항목", markdown=True),
        PageText(unicodedata.normalize("NFD", "제목\n첫 굵은 항목")),
    ],
    ids=["markdown", "single letters"],
)
def test_what_no_score_counts_is_no_difference(gold: PageText):
    shown = compare_sample(Sample("a", "d", None, {}, gold), SampleReading(State.OK, text="제목\n\n첫 굵은 항목"), {})
    assert not any(differs for side in shown["texts"] for _, differs in side)
    assert "".join(text for text, _ in shown["texts"][0]).split() == ["제목", "첫", "굵은", "항목"]


def test_the_worst_sample_comes_first_and_two_runs_stand_side_by_side(
    platform: Platform, answers: Path, tmp_path: Path
):
    good = evaluated(platform, answers)
    bad = evaluated(platform, answers, profile_name="worse", recognition=reader(platform, answers, fail="p_2"))
    write_page(tmp_path / "page.html", KnownAnswers(_benchmark(answers), 3), [good, bad], 1)
    html = (tmp_path / "page.html").read_text()
    assert html.index("p_2") < html.index("p_0")
    assert "worse cer" in html
    assert "failed: asked to fail" in html


def test_the_page_of_two_runs_holds_the_paired_difference_that_decides(
    platform: Platform, answers: Path, tmp_path: Path
):
    write_pages(answers, 7)
    good = evaluated(platform, answers)
    bad = evaluated(platform, answers, profile_name="worse", recognition=reader(platform, answers, wrong=5))
    change = changes_between(good.run.table, bad.run.table)["texts", "cer", "all"]
    assert change.low > 0
    write_page(tmp_path / "page.html", KnownAnswers(_benchmark(answers), 7), [good, bad], 1)
    html = (tmp_path / "page.html").read_text()
    interval = f"{change.low:+.4f} to {change.high:+.4f}"
    assert f'<td class="number alarm">{interval}</td>' in html
    verdict = f"cer: worse is worse than cpu ({change.change:+.4f}, 95 % interval {interval}, paired over 7 samples)"
    assert f'<p class="alarm">{verdict}</p>' in html
    write_page(tmp_path / "page.html", KnownAnswers(_benchmark(answers), 7), [bad, good], 1)
    assert "cer: cpu is better than worse (-" in (tmp_path / "page.html").read_text()
    write_page(tmp_path / "page.html", KnownAnswers(_benchmark(answers), 7), [good], 1)
    assert "change from" not in (tmp_path / "page.html").read_text()


def test_the_page_of_1355_samples_is_light():
    text = "가나다라 마바사 " * 200
    samples = [Sample(f"p_{at}", f"p_{at}", None, {}, PageText(text)) for at in range(1355)]
    read = {sample.id: SampleReading(State.OK, text=text.replace("라", "러")) for sample in samples}
    side = Side("cpu", read, [SampleScore(sample.id, "cer", 0.1) for sample in samples], [])
    html = render(Benchmark("texts", "1", "l", "s", samples), 1355, [side], ["cer"], lambda page_id: None, 24)
    assert html.count("<article") == 24
    assert len(html) < 500_000


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs `kopub evaluate` in a home with the cpu profile."""
    monkeypatch.setenv("KOPUB_HOME", str(tmp_path / "cli"))
    return lambda *arguments: CliRunner().invoke(app, ["evaluate", *map(str, arguments)])


def test_the_command_prints_json_and_writes_files(command: Any, answers: Path, tmp_path: Path):
    done = command(
        "texts", answers, "--limit", 1, "--json", "--html", tmp_path / "e.html", "--predictions", tmp_path / "p"
    )
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert (shown["samples"], shown["of"], [each["profile"] for each in shown["profiles"]]) == (1, 3, ["cpu"])
    assert len(list((tmp_path / "p").glob("*.md"))) == 1
    assert (tmp_path / "e.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("textz", "."), "textz"),
        (("texts", "/nowhere"), "/nowhere"),
        (("texts", ".", "--profile", "cpu", "--profile", "cpu"), "two profiles are called cpu"),
        (("texts", ".", "--profile", "cray"), "cray"),
    ],
)
def test_what_cannot_be_evaluated_is_one_line(command: Any, arguments: tuple[str, ...], says: str):
    done = command(*arguments)
    assert isinstance(done.exception, KopubError)
    assert says in str(done.exception)
    assert "\n" not in str(done.exception)


def test_a_missing_package_of_the_scorers_is_named_before_a_page_is_read(command: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "apted", None)
    error = command("pubtabnet", "/nowhere").exception
    assert isinstance(error, KopubError)
    assert str(error) == "pubtabnet needs apted: `pip install 'kopub[eval]'`"


def test_a_folder_that_looks_like_markup_is_evaluated(command: Any, answers: Path, tmp_path: Path):
    folder = tmp_path / "[" / "b] 문서"
    folder.parent.mkdir()
    answers.rename(folder)
    done = command("texts", folder)
    assert done.exit_code == 0, done.exception
    assert done.stdout.startswith("texts, version 1: 3 samples\n")


def test_one_sample_is_counted_as_one(command: Any, tmp_path: Path):
    assert command("texts", write_pages(tmp_path / "one", 1)).stdout.startswith("texts, version 1: 1 sample\n")
