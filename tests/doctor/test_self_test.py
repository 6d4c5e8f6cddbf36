"""The self-test finds and records a model that reads rubbish, and runs refuse it."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kopub.cli.main import app
from kopub.doctor.checks import Finding, Level
from kopub.doctor.self_test import Engines, Samples, Step, character_error_rate, read_samples, self_test
from kopub.embedding.hashed import HashedEmbedder
from kopub.layout.cpu.engine import CpuLayout
from kopub.layout.regions import Region
from kopub.pages.corpus import Query
from kopub.pages.page import Page
from kopub.recognition.regions import PageReading
from kopub.recognition.tesseract.recognizer import TesseractRecognizer
from kopub.release.gates import Gates
from kopub.states import TRIES_AGAIN, State
from kopub.store import run_records
from kopub.tables.asset import RunContext
from kopub.tables.checks import Problems
from kopub.tables.engines import require_tested
from kopub.tables.lineage import chain
from kopub.tables.ocr_and_texts import OcrResults
from tests.doubles.tested_engines import ComparedEmbedder, KnownReader, TwoColumns
from tests.support.harness import Platform, failure
from tests.support.sample_home import first_samples
from tests.support.sources.corpora import page_image, pages

TEXTS = {
    "install": "데비안 설치 프로그램을 USB 메모리로 시작하려면 부팅 순서를 바꿉니다.",
    "latex": "수식에는 분수와 제곱근을 쓸 수 있고, 행렬은 배열 환경으로 씁니다.",
    "gimp": "레이어 모드는 아래 레이어와 색을 섞는 방법을 정합니다.",
    "chart": "주식 차트는 시가와 종가를 막대로 보여 줍니다.",
    "keys": "수식 편집기의 단축키는 표에 있습니다.",
    "faq": "데비안은 자유 소프트웨어로만 이루어진 배포판입니다.",
}
RUBBISH = "ㅁㄴㅇㄹ qwer 0000 |||| ~~~~ " * 2


def samples() -> Samples:
    drawn = [Page(page_id, page_image(seed)) for seed, page_id in enumerate(TEXTS)]
    asked = {"install": "USB 메모리로 설치", "latex": "분수와 제곱근 수식", "gimp": "레이어 색을 섞기"}
    return Samples(drawn, TEXTS, [Query(f"q-{page}", text, ground_truth=[page]) for page, text in asked.items()])


def diagnosed(home: Path, step: Step = lambda *_: None, **engines: Any) -> dict[str, list[Finding]]:
    right = {"layout": TwoColumns(), "recognition": KnownReader(known=TEXTS), "embedding": ComparedEmbedder()}
    found: dict[str, list[Finding]] = {"layout": [], "recognition": [], "embedding": []}
    for finding in self_test(Engines(**(right | engines)), samples(), home, step):
        found[finding.check].append(finding)
    return found


def levels(found: list[Finding]) -> set[Level]:
    return {finding.level for finding in found}


def test_engines_that_are_right_pass_and_it_is_kept(tmp_path: Path) -> None:
    steps: list[tuple[str, int, int]] = []
    found = diagnosed(tmp_path, step=lambda *step: steps.append(step))
    assert all(levels(lines) == {Level.OK} for lines in found.values()), found
    assert {what for what, *_ in steps} >= {"layout", "recognition", "embedding"}
    kept = run_records.find(tmp_path, KnownReader(known=TEXTS).recipe())
    assert kept is not None
    assert kept.figures == {"CER": 0.0}
    assert str(kept).startswith("passed on 20")
    assert str(kept).endswith("with CER 0.000")
    vectors = run_records.find(tmp_path, ComparedEmbedder().recipe())
    assert vectors is not None
    assert vectors.figures["recall@5 of text vectors"] == 1.0
    assert vectors.figures["cosine of a page"] > 0.999


@pytest.mark.parametrize(
    ("section", "engine", "says"),
    [
        ("layout", TwoColumns(empty=True), "6 of 6 pages have no regions (install: no region was found"),
        ("layout", TwoColumns(moved=30.0), "0% as the model's own code finds them"),
        ("recognition", KnownReader(rubbish=RUBBISH), "it reads rubbish: character error rate 1.000"),
        ("embedding", ComparedEmbedder(spoil=True), "15 of 15 vectors are not sound"),
        ("embedding", ComparedEmbedder(turn=1.0), "the vector of a page has cosine 0.7"),
    ],
)
def test_a_wrong_engine_is_found(section: str, engine: Any, says: str, tmp_path: Path) -> None:
    found = diagnosed(tmp_path, **{section: engine})
    wrong = [finding for finding in found[section] if finding.level is Level.PROBLEM]
    assert wrong
    assert says in wrong[0].says
    assert "weights" in wrong[0].do
    kept = run_records.find(tmp_path, engine.recipe())
    assert kept is not None
    assert not kept.passed
    assert str(kept).startswith("failed on 20")
    assert section == "embedding" or levels(found["embedding"]) == {Level.OK}, "each engine is judged by itself"
    if section == "layout":
        assert "not judged" in found["recognition"][0].says
        assert run_records.find(tmp_path, KnownReader(known=TEXTS).recipe()) is None


class LateReader(KnownReader):
    """Has no time for one page, or for any page."""

    every: bool = False

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        for reading in super().read(pages):
            is_late = self.every or reading.page_id == "faq"
            why = f"Tesseract took too long for this page; {TRIES_AGAIN}"
            yield PageReading(reading.page_id, State.PARTIAL, why, ()) if is_late else reading


@pytest.mark.parametrize("every", [False, True])
def test_a_page_that_took_too_long_is_not_blamed_on_the_weights(every: bool, tmp_path: Path) -> None:
    found = diagnosed(tmp_path, recognition=LateReader(known=TEXTS, every=every))["recognition"]
    assert "took too long" in " ".join(finding.says for finding in found)
    assert not any("weights" in finding.do for finding in found)
    assert levels(found) == ({Level.WARNING, Level.PROBLEM} if every else {Level.WARNING, Level.OK})


def test_an_engine_that_cannot_run_was_not_tested(tmp_path: Path) -> None:
    engine = KnownReader(broken=True)
    (found,) = diagnosed(tmp_path, recognition=engine)["recognition"]
    assert found.level is Level.PROBLEM
    assert found.says == "it cannot run: the server ended: the GPU's memory does not suffice"
    assert run_records.find(tmp_path, engine.recipe()) is None, "its rows are not in doubt when it runs again"


def test_a_mended_engine_is_tested_anew_and_another_recipe_by_itself(tmp_path: Path) -> None:
    diagnosed(tmp_path, recognition=KnownReader(rubbish=RUBBISH))
    assert run_records.find(tmp_path, KnownReader(known=TEXTS).recipe()) is None
    record = next((tmp_path / "self_tests").glob("*.json"))
    record.write_text(record.read_text()[:20])
    assert len([*(tmp_path / "self_tests").iterdir()]) == 3
    diagnosed(tmp_path, recognition=KnownReader(rubbish=RUBBISH))
    results = [json.loads(path.read_text()) for path in (tmp_path / "self_tests").iterdir()]
    assert sum(bool(result["problems"]) for result in results) == 1


# --- what a run, lineage and the card make of it ----------------------------------------------------------------------

READ = "raw_pages,layout_regions,ocr_results"


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    platform = Platform.of(tmp_path / "home", [pages("a_1")])
    platform.engines["recognition"] = KnownReader(rubbish=RUBBISH)
    return platform


def test_a_run_refuses_an_engine_that_reads_rubbish_unless_there_is_a_reason(platform: Platform) -> None:
    assert platform.run(READ).success, "an engine that was never tested runs"
    diagnosed(platform.home, recognition=KnownReader(rubbish=RUBBISH))
    refused = platform.run(READ)
    assert not refused.success
    line = failure(refused)
    assert line.startswith("the recognition engine known failed on 20")
    assert "it reads rubbish" in line
    assert "`kopub doctor`" in line
    assert "gates.self_test_override" in line
    assert "\n" not in line
    assert platform.run(READ, launchpad={"gates": {"self_test_override": "a trial"}}).success
    platform.engines["gates"] = Gates(self_test_override="a trial")
    assert platform.run(READ).success
    platform.engines = {"recognition": KnownReader(known=TEXTS)}
    assert platform.run(READ).success, "another recipe is another engine"


def test_lineage_and_card_tell_the_result(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    diagnosed(platform.home, recognition=KnownReader(rubbish=RUBBISH))
    platform.engines["gates"] = Gates(self_test_override="a | trial")
    assert platform.run().success
    settings = platform.settings
    shown = chain(settings.store, settings.corpus, "page", "a_1", "shard_00", None)
    by_asset = {step["asset"]: step["self_test"] for step in shown["steps"]}
    assert by_asset["ocr_results"].startswith("failed on 20")
    assert by_asset["layout_regions"] is None, "another engine, which was not tested"
    monkeypatch.setattr("kopub.cli.lineage_display.load_settings", lambda: settings)
    printed = CliRunner().invoke(app, ["lineage", "a_1"], env={"COLUMNS": "200"}).output
    assert "  self-test  failed on 20" in printed
    card = (platform.home / "release" / "README.md").read_text("utf-8")
    assert "> - the self-test of recognition failed on 20" in card
    assert "was run all the same, because: a \\| trial" in card
    assert "- self-test of recognition (known): failed on 20" in card


def test_an_untested_gpu_engine_is_named_once(platform: Platform) -> None:
    said: list[str] = []

    def ask(engine: KnownReader) -> list[str]:
        said.clear()
        platform.engines["recognition"] = engine
        run = RunContext("r", ("shard_00",), Problems((), {}), said.append, said.append)
        require_tested(OcrResults(platform.resources()), run)
        return said

    assert ask(KnownReader()) == []
    assert "`kopub doctor`" in ask(KnownReader(held=1))[0]
    assert platform.run(READ).success
    assert ask(KnownReader(held=1)) == [], "after the first table nobody needs the hint"


def test_the_plan_names_the_doctor_for_a_gpu_profile_alone(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    def plan() -> str:
        monkeypatch.setattr("kopub.config.settings.what_if", lambda changes: platform.settings)
        return CliRunner().invoke(app, ["plan"], env={"COLUMNS": "200"}).output

    assert "kopub doctor" not in plan()
    platform.engines["recognition"] = KnownReader(known=TEXTS, held=1)
    assert plan().count("`kopub doctor`") == 1
    diagnosed(platform.home, recognition=KnownReader(known=TEXTS, held=1))
    assert "kopub doctor" not in plan()


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def doctor(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setattr("kopub.doctor.self_test.read_samples", samples)

    def run(*arguments: str) -> Result:
        monkeypatch.setattr("kopub.config.settings.load_settings", lambda: platform.settings)
        return CliRunner().invoke(app, ["doctor", *arguments], env={"COLUMNS": "200"})

    return run


def test_the_command_says_so_and_ends_with_status_1(platform: Platform, doctor: Callable[..., Result]) -> None:
    platform.engines |= {"layout": TwoColumns(), "embedding": ComparedEmbedder()}
    failed = doctor()
    assert failed.exit_code == 1
    assert "problem  recognition  it reads rubbish: character error rate 1.000" in failed.output
    assert failed.output.splitlines()[-1] == "profile cpu: 1 problem"
    platform.engines["recognition"] = KnownReader(known=TEXTS)
    passed = doctor("--json")
    assert passed.exit_code == 0, passed.output
    assert json.loads(passed.output)["well"] is True
    assert doctor("--quick").exit_code == 0


def test_with_a_problem_of_the_machine_nothing_is_loaded(
    platform: Platform, doctor: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kopub.doctor.checks.open_file_limit", lambda: 10)
    platform.engines["recognition"] = KnownReader(broken=True)
    refused = doctor()
    assert refused.exit_code == 1
    assert "the samples were not read" in refused.output
    assert "it cannot run" not in refused.output


# --- the measures and the samples -------------------------------------------------------------------------------------


def test_a_lost_page_is_all_wrong_and_line_breaks_are_not() -> None:
    assert character_error_rate({"a": "가 나\n다"}, {"a": "가나 다"}) == 0.0
    assert character_error_rate({"a": "가나"}, {"a": "가나", "b": "다라마바사아"}) == 0.75
    assert character_error_rate({"a": "x" * 1000}, {"a": "가나"}) == 1.0


def test_vectors_that_are_all_alike_find_nothing(tmp_path: Path) -> None:
    (found, *_) = diagnosed(tmp_path, embedding=ComparedEmbedder(flat=True))["embedding"]
    assert found.level is Level.PROBLEM
    assert found.says == "0% of 3 questions find their page by text among the first 5"


def test_every_sample_page_has_its_text_and_questions() -> None:
    known = read_samples()
    assert len(known.pages) == 12
    assert all(len(known.texts[page.page_id]) > 200 for page in known.pages)
    assert len(known.queries) == 16


@pytest.mark.slow
def test_the_engines_of_the_cpu_profile_pass(tmp_path: Path) -> None:
    engines = Engines(CpuLayout(), TesseractRecognizer(), HashedEmbedder())
    findings = list(self_test(engines, first_samples(2), tmp_path))
    assert levels(findings) == {Level.OK}, findings
