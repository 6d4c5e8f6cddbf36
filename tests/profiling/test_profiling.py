"""A run's time: observed cores and GPUs, stages and their limits, and the report."""

import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import PathDistribution
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from filelock import FileLock
from typer.testing import CliRunner

from benchmarks.whole_graph.cases import case_of
from benchmarks.whole_graph.grid_engines import GridLayout, MadeUpTexts, made_up_text
from benchmarks.whole_graph.setup import changed, write_plugin
from benchmarks.whole_graph.tables import first_growth
from kopub.cli.main import app
from kopub.cli.profile_display import RunProfile, page_of, tables
from kopub.config.profile_files import find_profile
from kopub.config.settings import Settings, load_settings
from kopub.errors import KopubError
from kopub.gpu import GIB, GpuCard, GpuReading, Readings
from kopub.profiling.observer import Cores, Observations, Observer, ServerHistory
from kopub.profiling.report import ReportTable, RunStage, render, report, section
from kopub.profiling.timeline import (
    Activity,
    Limit,
    Span,
    Split,
    activities,
    busy_share,
    gaps,
    idle_between,
    limit,
    longest_gap_at,
    split,
    steady_rate,
)
from kopub.recognition.base import STEP_TIMES
from kopub.recognition.step_times import step_times

STEP = 0.1


def busy(*parts: tuple[float, float]) -> list[Activity]:
    """Return sampled activities for consecutive (seconds, busy share) parts from time 0."""
    samples, at = [(0.0, 0.0)], 0.0
    for seconds, share in parts:
        for _ in range(round(seconds / STEP)):
            at += STEP
            samples.append((round(at, 3), share))
    return activities(samples)


def rounded(found: Split) -> list[float]:
    return [round(seconds, 1) for seconds in found]


def test_a_sample_speaks_for_the_time_before_it():
    assert activities([(1.0, 0.9), (2.0, 0.5), (2.5, 0.1)]) == [Activity(1.0, 2.0, 0.5), Activity(2.0, 2.5, 0.1)]
    assert activities([]) == []


def test_the_seconds_of_a_stage_add_up():
    steps = busy((4, 0.0), (3, 0.5), (10, 1.0), (2, 0.3), (1, 0.0))
    found = split(steps, Span(0.0, 20.0))
    assert found.seconds == pytest.approx(20.0)
    assert rounded(found)[0] == 4.0  # starting
    assert found.ramping == pytest.approx(3.0, abs=0.5)
    assert found.working == pytest.approx(10.0, abs=0.5)
    assert found.draining == pytest.approx(2.0, abs=0.5)
    assert rounded(found)[5] == 1.0  # platform


def test_gaps_under_load_are_waiting():
    steps = busy((5, 1.0), (2, 0.0), (5, 1.0))
    assert rounded(split(steps, Span(0.0, 12.0))) == [0.0, 0.0, 10.0, 2.0, 0.0, 0.0]
    half = busy((10, 0.6))
    assert rounded(split(half, Span(0.0, 10.0))) == [0.0, 0.0, 6.0, 4.0, 0.0, 0.0]


def test_a_stage_without_work_on_the_device_is_all_platform():
    assert rounded(split(busy((5, 0.02)), Span(1.0, 4.0))) == [0.0, 0.0, 0.0, 0.0, 0.0, 3.0]


def test_a_stage_sees_only_its_own_time():
    steps = busy((5, 1.0), (5, 0.0), (5, 1.0))
    assert rounded(split(steps, Span(6.0, 15.0))) == [4.0, 0.0, 5.0, 0.0, 0.0, 0.0]
    assert busy_share(steps, Span(0.0, 20.0)) == pytest.approx(0.5)


def test_times_without_work_between_stages_and_shards():
    steps = busy((3, 1.0), (2, 0.0), (3, 1.0), (6, 0.0), (2, 1.0))
    first, second = Span(0.0, 9.0), Span(9.0, 16.0)
    assert idle_between(steps, first, second) == pytest.approx(6.0)
    assert longest_gap_at(steps, 4.0, first) == pytest.approx(2.0)
    assert longest_gap_at(steps, 1.0, Span(0.0, 3.0)) == 0.0
    assert [round(gap.seconds, 1) for gap in gaps(steps, Span(0.0, 16.0))] == [2.0, 6.0]


def test_the_steady_rate_leaves_out_the_ends():
    slow, fast = [(float(at), at * 1.0) for at in range(16)], [(15.0 + at, 15.0 + 10.0 * at) for at in range(1, 8)]
    tail = [(22.0 + at, 85.0 + at) for at in range(1, 16)]
    assert steady_rate([*slow, *fast, *tail]) == pytest.approx(10.0)
    assert steady_rate([(0.0, 5.0), (1.0, 5.0)]) is None
    assert steady_rate([]) is None


def observed() -> Observations:
    """Return a run of 20 s.

    A server starts for 4 s and answers 80 requests from 6 to 14 s, with the cores busy then.
    """
    cores = [(at * STEP, 1.0 if 6 < at * STEP <= 14 else 0.0) for at in range(201)]
    requests = [(4.0 + at * 0.5, max(0.0, min(80.0, 10 * (at * 0.5 - 2)))) for at in range(33)]
    server = ServerHistory("org/model", starts=[Span(0.0, 4.0)], requests=requests)
    return Observations(no_gpu="none here", readings=Readings(), cores=cores, servers={"key": server})


def test_a_report_of_a_run():
    stages = [
        RunStage("made", Span(5.0, 15.0), shards={"a": 10.0, "b": 14.5}, computed=40),
        RunStage("written", Span(15.0, 18.0), computed=40),
    ]
    found = report(Span(0.0, 20.0), stages, observed(), {"made": "key"})
    made, written = found.stages
    assert (found.loading, found.between, found.ending) == (5.0, 0.0, 2.0)
    assert found.device == "cores"
    assert found.busy == pytest.approx(8 / 20, abs=0.02)
    assert rounded(made.split) == [1.0, 0.0, 8.0, 0.0, 0.0, 1.0]
    assert rounded(written.split) == [0.0, 0.0, 0.0, 0.0, 0.0, 3.0]
    assert (made.rate, made.requests) == (4.0, 80.0)
    assert made.steady == pytest.approx(5.0)  # 10 requests a second, two of them a page
    assert list(made.gaps) == [0.0]
    assert made.busy is None


def test_it_is_told_when_the_host_had_other_work_for_the_cores():
    seen = observed()
    assert report(Span(0.0, 20.0), [], seen).slowed == ""
    seen.stolen = [(at * STEP, 0.3 if at * STEP <= 5 else 0.0) for at in range(201)]
    found = report(Span(0.0, 20.0), [RunStage("made", Span(0.0, 5.0)), RunStage("written", Span(6.0, 20.0))], seen)
    assert [each.stolen for each in found.stages] == [pytest.approx(0.3), 0.0]
    assert found.slowed == "the host of this virtual machine had other work for 8% of the cores"


def test_an_answer_counts_for_one_of_two_stages_however_late_the_server_tells_its_count():
    # Ten a second until 8 s, then thirty; no count is reported from 6 to 10 s, when the second stage begins.
    looks = [(0.0, 0.0), *((float(at), 10.0 * at) for at in range(1, 7)), (10.0, 140.0), (12.0, 200.0), (13.0, 200.0)]
    seen = Observations(servers={"key": ServerHistory("org/model", requests=looks)})
    stages = [RunStage("slow", Span(0.0, 8.0), computed=80), RunStage("fast", Span(8.0, 12.0), computed=120)]
    slow, fast = report(Span(0.0, 12.0), stages, seen, {"slow": "key", "fast": "key"}).stages
    assert slow.requests + fast.requests == 200
    assert slow.requests == pytest.approx(80, abs=20)


def test_stages_side_by_side_are_counted_once_between_them():
    stages = [RunStage("a", Span(1.0, 8.0)), RunStage("b", Span(2.0, 6.0)), RunStage("c", Span(10.0, 12.0))]
    assert report(Span(0.0, 12.0), stages, Observations()).between == pytest.approx(2.0)


def test_between_stages_counts_none_that_went_on_beside_another():
    """For example, texts are parsed beside vectors of pages."""
    seen = Observations(cores=[(at * STEP, 1.0 if at * STEP <= 8 or at * STEP > 10 else 0.0) for at in range(121)])
    stages = [RunStage("a", Span(0.0, 8.0)), RunStage("b", Span(1.0, 4.0)), RunStage("c", Span(8.0, 12.0))]
    found = report(Span(0.0, 12.0), stages, seen).idle_between
    assert found == {("a", "c"): pytest.approx(2.0, abs=0.2)}


def test_the_first_answer_is_none_of_those_before_the_server_was_seen():
    history = ServerHistory("m", requests=[(1.0, 3.0), (2.0, 3.0), (3.0, 9.0)])
    assert first_growth(history.requests) == 3.0
    assert first_growth(ServerHistory("m").requests) is None


def test_the_page_holds_everything_itself():
    stages = [RunStage("made <b>", Span(5.0, 15.0), shards={"a": 10.0}, computed=40)]
    seen = observed()
    run = report(Span(0.0, 20.0), stages, seen, {"made <b>": "key"})
    page = render("A run", [section("Run", run, seen, [ReportTable("t", ["", "n"], [("<x>", "1")])], ["a line"])])
    assert "made &lt;b&gt;" in page
    assert "&lt;x&gt;" in page
    assert page.count("<polygon") == 2  # the answers a second, and the cores
    assert "ready after 4 s" in page
    assert not any(word in page for word in ("<script", "http://", "https://", "url(", "@import"))


def test_a_run_without_length_has_a_page():
    run = report(Span(5.0, 5.0), [RunStage("made", Span(5.0, 5.0), shards={"a": 5.0})], observed())
    assert "0 s" in render("A run", [section("Run", run, observed(), [])])


KEYS = ("in_flight", "processes", "server.max_num_seqs", "server.gpus", "line_height")


@pytest.mark.parametrize(
    ("section", "split", "busy", "cores", "name", "keys"),
    [
        ("recognition", Split(working=95, waiting=5), 0.9, 0.5, "GPU", ("server.gpus", "line_height")),
        ("recognition", Split(working=50, waiting=50), 0.5, 0.95, "cores", ("line_height",)),
        ("recognition", Split(working=50, waiting=50), 0.5, 0.3, "requests", KEYS[:3]),
        ("recognition", Split(starting=60, working=40), 0.4, 0.3, "start", ()),
        ("layout", Split(platform=100), None, 0.9, "cores", ()),
        (None, Split(platform=100), 0.0, 0.2, "one core", ()),
    ],
    ids=["gpu", "host", "clients", "start", "cpu", "one thread"],
)
def test_the_limit_of_a_stage(
    section: str | None, split: Split, busy: float | None, cores: float, name: str, keys: tuple[str, ...]
):
    found = limit(section, 100.0, split, busy, cores, KEYS)
    assert (found.name, found.keys) == (name, keys)
    assert found.why


def test_a_short_stage_tells_nothing():
    assert limit("layout", 0.4, Split(working=0.4), 1.0, 1.0, KEYS).name == ""


@pytest.mark.parametrize("sums", [True, False])
def test_work_is_seen(monkeypatch: pytest.MonkeyPatch, sums: bool):
    if not sums:
        monkeypatch.setattr(psutil, "cpu_times", lambda: (0.0, 0.0))
    cores = Cores()
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    assert 0 < cores.shares().busy <= 1


def test_what_the_host_takes_is_no_work_of_this_machine(monkeypatch: pytest.MonkeyPatch):
    times = SimpleNamespace(user=50.0, system=10.0, idle=15.0, iowait=5.0, steal=20.0)
    monkeypatch.setattr(psutil, "cpu_times_percent", lambda: times)
    assert Cores().shares() == (pytest.approx(0.6), pytest.approx(0.2))


def test_a_process_that_ended_takes_nothing_back(monkeypatch: pytest.MonkeyPatch):
    seconds = {1: 5.0, 2: 100.0}
    monkeypatch.setattr(psutil, "cpu_times", lambda: (0.0,))
    monkeypatch.setattr(
        psutil,
        "process_iter",
        lambda: [
            SimpleNamespace(pid=pid, cpu_times=lambda spent=spent: SimpleNamespace(user=spent, system=0.0))
            for pid, spent in seconds.items()
        ],
    )
    cores = Cores()
    seconds.pop(2)
    assert cores.shares() == (0.0, 0.0)
    seconds[1] = 6e6
    assert cores.shares() == (1.0, 0.0)


def test_the_cards_have_mean_median_and_most_of_each_figure():
    taken = [
        (float(at), (GpuReading(busy, busy / 2, memory * GIB, 3600.0 * at),))
        for at, (busy, memory) in enumerate([(0.2, 1), (0.4, 2), (0.9, 6)])
    ]
    observed = Observations(cards=[GpuCard("0", "one", 8 * GIB, None)], readings=Readings(taken))
    stages = [RunStage("ocr_results", Span(0.0, 2.0)), RunStage("parsed_texts", Span(5.0, 6.0))]
    found = RunProfile(
        pages=1,
        profile="mine",
        run=report(Span(0.0, 6.0), stages, observed),
        observed=observed,
        limits={stage.name: Limit("", "") for stage in stages},
        settings=load_settings(),
        steps=(),
        slow_pages=(),
        slow_regions=(),
    )
    assert found.lines[0].startswith("1 page in 6.0 s, ")
    assert "<title>1 page with profile mine" in page_of(found)
    (_, cards) = tables(found)
    assert [list(row) for row in cards.rows] == [
        ["ocr_results", "50%, 40%, 90%", "25%, 20%, 45%", "3.0, 2.0, 6.0", "2.00"],
        ["parsed_texts", "-", "-", "-", "-"],
    ]


def test_each_call_of_a_step_is_kept_while_somebody_watches_and_not_otherwise(tmp_path: Path):
    program = "from kopub.recognition.step_times import keep; [keep('request', n / 100) for n in range(1, 101)]"
    for file in ("", str(tmp_path / "steps")):
        subprocess.run(
            [sys.executable, "-c", program], env={STEP_TIMES: file}, cwd=Path(__file__).parents[2], check=True
        )
        assert [path.name for path in tmp_path.iterdir()] == ([Path(file).name] if file else [])
    (step,) = step_times(tmp_path / "steps")
    assert (step.step, step.calls, step.share) == ("request", 100, 1.0)
    assert (step.mean, step.p50, step.p95) == pytest.approx((0.505, 0.505, 0.9505))
    assert step_times(tmp_path / "none") == []


def test_a_case_has_its_own_shards_and_changes():
    assert (case_of("warm", 2).shards, case_of("shards8", 2).shards) == (2, 8)
    case = case_of("ocr+recognition.line_height=24+recognition.in_flight=512", 2)
    assert (case.base, case.name) == ("ocr", "ocr+recognition.line_height=24+recognition.in_flight=512")
    changes = {"recognition.server.gpus": [0], "recognition.line_height": 24, "recognition.in_flight": 512}
    assert case.changes == changes
    with pytest.raises(SystemExit, match="there is no case 'hot'"):
        case_of("hot", 2)


def test_a_case_names_the_stages_that_it_measures():
    assert case_of("layout", 2).stages == {"raw_pages", "layout_regions"}
    assert case_of("side_by_side", 2).stages == case_of("warm", 2).stages - {"raw_pages"}
    assert case_of("own", 2).stages == set()


def test_a_profile_with_random_weights_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plugin = write_plugin(tmp_path / "plugin")
    monkeypatch.syspath_prepend(str(plugin))
    folder = tmp_path / "weights"
    folder.mkdir()
    h200 = find_profile("h200").sections
    sections: list[str] = ["layout", "recognition", "embedding"]
    random = dict.fromkeys(sections, str(folder))
    profile = changed(h200, random, {"recognition.server.replicas": 4, "embedding.server.extra_flags+": ["--x"]})
    settings = Settings.of(tmp_path, profile)
    assert isinstance(settings.layout, GridLayout)
    assert isinstance(settings.recognition, MadeUpTexts)
    assert (settings.recognition.tries, settings.recognition.server.replicas) == (1, 4)
    assert "--load-format=dummy" in settings.recognition.server.extra_flags
    flags = settings.embedding.server.extra_flags  # type: ignore[attr-defined]
    assert flags[-2:] == ["--load-format=dummy", "--x"]
    assert h200 == find_profile("h200").sections


def test_the_engines_for_random_weights_are_those_of_a_package(tmp_path: Path):
    (package,) = write_plugin(tmp_path / "plugin").iterdir()
    points = {(point.group, point.name): point.load() for point in PathDistribution(package).entry_points}
    assert points == {("kopub.layout", "grid"): GridLayout, ("kopub.recognition", "made_up_texts"): MadeUpTexts}


def test_a_made_up_text_is_the_same_for_the_same_region():
    assert made_up_text("p 1", 290) == made_up_text("p 1", 290) != made_up_text("p 2", 290)
    assert 280 <= len(made_up_text("p 1", 290)) <= 330


def test_two_profiles_of_one_home_do_not_run_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KOPUB_HOME", str(tmp_path))
    (tmp_path / "profile" / "home").mkdir(parents=True)
    (tmp_path / "profile" / "home" / "run.log").touch()
    with FileLock(tmp_path / "profile" / ".lock"):
        refused = CliRunner().invoke(app, ["profile", "--pages", "1"]).exception
    assert isinstance(refused, KopubError)
    assert "another `kopub profile` is running" in str(refused)
    assert (tmp_path / "profile" / "home" / "run.log").exists()


@pytest.mark.parametrize("by_option", [True, False])
def test_the_run_finds_a_profile_that_was_named_from_this_folder(
    by_option: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    started: list[str] = []

    def start(words: Sequence[str], env: dict[str, str], **_: object) -> None:
        started.append(env["KOPUB_PROFILE"])
        raise KopubError("started")

    (tmp_path / "my+own.yaml").write_text("extends: cpu\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KOPUB_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KOPUB_PROFILE", "cpu" if by_option else "my+own.yaml")
    monkeypatch.setattr("kopub.cli.sample_run.require_ready", lambda *_: None)
    monkeypatch.setattr(subprocess, "run", start)
    load_settings.cache_clear()
    option = ["--profile", "my+own.yaml"] if by_option else []
    assert str(CliRunner().invoke(app, ["profile", "--pages", "1", *option]).exception) == "started"
    assert started == [str(tmp_path / "my+own.yaml")]


def test_only_the_cards_of_a_profile_are_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Others are idle, so that their load would make the mean too low."""
    watched: list[Sequence[str] | None] = []

    class Watching(Observer):
        def __init__(self, names: Sequence[str] | None = None) -> None:
            watched.append(names)
            raise KopubError("seen")

    profile = tmp_path / "mine.yaml"
    served = "recognition: {server: {gpus: [1]}}"
    profile.write_text(f"extends: l4\nlayout: {{engine: cpu}}\nembedding: {{engine: hashed}}\n{served}\n")
    monkeypatch.setenv("KOPUB_HOME", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("kopub.cli.sample_run.require_ready", lambda *_: None)
    monkeypatch.setattr("kopub.cli.sample_run.Observer", Watching)
    for name in (str(profile), "cpu"):
        load_settings.cache_clear()
        assert str(CliRunner().invoke(app, ["profile", "--pages", "1", "--profile", name]).exception) == "seen"
    assert watched == [["1"], None]
