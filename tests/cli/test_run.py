"""`kopub run`: its tables, its output and its exit status."""

import io
import json
import os
import pty
import re
import select
from functools import partial
from pathlib import Path

import dagster as dg
import pytest
from rich.console import Console

from kopub.cli.commands.run import run_assets
from kopub.cli.dagster_home import prepare_home
from kopub.cli.run_display import RunDisplay
from kopub.errors import KopubError, StoreError
from kopub.recognition.tesseract.recognizer import TesseractRecognizer
from kopub.states import State
from kopub.store.table_store import ShardStore
from kopub.tables.progress import Forecast, Stage
from kopub_assets.running.execution import shard_ranges
from tests.doubles.engines import SlowReader
from tests.support.dagster.dagster_home import make_dagster_home
from tests.support.harness import Platform
from tests.support.processes import forked
from tests.support.processes.commands import kopub
from tests.support.sources.corpora import pages, write_corpus
from tests.support.sources.pdf_files import sheet, text_pdf, written
from tests.support.waiting import until

KEYS = [f"shard_{number:02d}" for number in range(6)]


@pytest.mark.parametrize(
    ("wanted", "most", "runs"),
    [
        (KEYS, None, [KEYS]),
        (KEYS, 4, [KEYS[:4], KEYS[4:]]),
        (["shard_05", "shard_00", "shard_01"], None, [KEYS[:2], KEYS[5:]]),
        ([], None, []),
    ],
)
def test_a_run_is_of_shards_that_follow_each_other(wanted: list[str], most: int | None, runs: list[list[str]]) -> None:
    assert shard_ranges(KEYS, wanted, most) == runs


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def work(stage: Stage, rows: int, start: float, each: float, shard: str = "a", more: float = 0.0) -> None:
    """Count `rows` from `start` on, every `each` seconds, the first `more` seconds later."""
    stage.begin(start)
    stage.planned.setdefault(shard, stage.likely[shard])
    for row in range(1, rows + 1):
        stage.count(shard, start + more + row * each)


def test_a_forecast_follows_the_pace_of_this_machine() -> None:
    forecast = Forecast([Stage("layout", {"a": 100}, 0.1, False), Stage("ocr", {"a": 100}, 1.0, False)])
    assert forecast.remaining(0.0) == pytest.approx(110)
    layout, ocr = forecast.stages.values()
    work(layout, 100, 0.0, 0.4)
    layout.ended = 40.0
    # Layout was four times slower than expected, so the forecast assumes most of that for the other stage too.
    assert 200 < forecast.remaining(40.0) < 300
    work(ocr, 50, 40.0, 2.0)
    assert forecast.remaining(140.0) == pytest.approx(100, rel=0.2)
    assert forecast.share(140.0) == pytest.approx(140 / 240, rel=0.2)
    work(ocr, 50, 140.0, 2.0)
    ocr.ended = 240.0
    assert (forecast.remaining(240.0), forecast.share(240.0)) == (0.0, 1.0)


def test_a_forecast_trusts_what_was_measured_here() -> None:
    forecast = Forecast([Stage("layout", {"a": 10}, 0.1, False), Stage("ocr", {"a": 10}, 1.0, True)])
    layout, _ = forecast.stages.values()
    work(layout, 10, 0.0, 0.5)
    layout.ended = 5.0
    assert forecast.remaining(5.0) == pytest.approx(10)


def test_what_is_loaded_before_a_first_row_says_nothing_of_the_others() -> None:
    forecast = Forecast([Stage("ocr", {"a": 100}, 1.0, False)])
    work(forecast.stages["ocr"], 3, 0.0, 1.0, more=60.0)
    assert forecast.remaining(63.0) == pytest.approx(97)


def test_what_a_server_takes_to_start_is_counted_until_the_first_row() -> None:
    stage = Stage("ocr", {"a": 100}, 1.0, True, seconds_to_start=120.0)
    forecast = Forecast([stage, Stage("current", {"a": 0}, 1.0, True, seconds_to_start=60.0)])
    assert (forecast.seconds_to_start, forecast.remaining(0.0)) == (120.0, 220.0)
    stage.begin(10.0)
    assert forecast.remaining(50.0) == pytest.approx(180)
    stage.count("a", 110.0)
    assert forecast.remaining(110.0) == pytest.approx(99)


def test_a_shard_of_fuller_pages_takes_longer() -> None:
    stage = Stage("ocr", {"a": 10, "b": 10}, 1.0, True, weights={"a": 0.5, "b": 1.5})
    forecast = Forecast([stage])
    work(stage, 10, 0.0, 0.5)
    assert forecast.remaining(5.0) == pytest.approx(15)


def test_a_stage_that_waits_for_the_next_part_of_a_run_is_not_over() -> None:
    stage = Stage("ocr", {"a": 10, "b": 10}, 1.0, True)
    forecast = Forecast([stage])
    work(stage, 10, 0.0, 1.0)
    stage.ended = 10.0
    assert forecast.remaining(10.0) == pytest.approx(10)
    # The time of other stages in between does not count for its rows.
    work(stage, 5, 1000.0, 1.0, "b")
    assert forecast.remaining(1005.0) == pytest.approx(5)
    assert stage.elapsed(1005.0) == 15.0


@pytest.mark.parametrize("slower", [1.0, 1.5, 2.0])
def test_a_forecast_is_right_after_the_first_tenth_of_a_run(slower: float) -> None:
    """This also holds on a machine slower than the one that was measured."""
    recorded = json.loads((Path(__file__).parent / "recorded_run.json").read_text("utf-8"))
    end, events, stages = slower * recorded["end"], [], []
    for each in recorded["stages"]:
        figures = {name: each[name] for name in ("asset", "likely", "seconds_each", "seconds_more", "weights")}
        stage = Stage(**figures, measured=False)
        stages.append(stage)
        events.append((slower * each["began"], stage.begin))
        for shard, rows in each["rows"].items():
            stage.planned[shard] = len(rows)
            events += [(slower * at, partial(stage.count, shard)) for at in rows]
        events.append((slower * each["ended"], partial(setattr, stage, "ended")))
    forecast, now = Forecast(stages), end / 10
    events.sort(key=lambda event: event[0], reverse=True)
    while now < end:
        while events and events[-1][0] <= now:
            at, happens = events.pop()
            happens(at)
        left = forecast.remaining(now)
        assert abs(left - (end - now)) < 0.2 * end, now
        assert forecast.share(now) == pytest.approx(now / end, abs=0.1), now
        now += 0.5


def test_an_engine_of_this_machine_is_expected_to_use_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(8))
    two, eight = (TesseractRecognizer(threads=threads).expected_seconds(0.5) for threads in (2, 0))
    assert eight == pytest.approx(two / 4)
    assert TesseractRecognizer(threads=2).expected_seconds(1.0) > 1.5 * two


@pytest.mark.parametrize(("quota", "cores"), [("250000 100000", 3), ("max 100000", 8), ("1600000 100000", 8)])
def test_a_container_uses_no_more_cores_than_it_has(
    quota: str, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(8))
    (tmp_path / "cpu.max").write_text(quota)
    monkeypatch.setattr("kopub.parallel._QUOTA", tmp_path / "cpu.max")
    assert TesseractRecognizer().expected_seconds(1.0) == pytest.approx(
        TesseractRecognizer(threads=cores).expected_seconds(1.0)
    )


def test_rows_that_are_known_replace_those_that_were_likely() -> None:
    clock, out = Clock(), io.StringIO()
    forecast = Forecast([Stage("ocr", {"a": 10, "b": 10}, 1.0, True)])
    display = RunDisplay(forecast, Console(file=out, width=200), clock)
    display.began("ocr")
    display.planned("ocr", "a", 2)
    display.computed("ocr", "a")
    display.published("ocr", "a")
    display.published("ocr", "b")
    clock.now = 16.0
    display.computed("ocr", "a")
    display.ended("ocr")
    lines = out.getvalue().splitlines()
    assert lines == [
        "ocr: 2 of 2 rows made, 0.1 rows/s; about 0 s to go",
        "ocr: 2 of 2 rows made in 16 s",
    ]


def test_a_terminal_sees_every_asset_with_its_rate() -> None:
    clock, out = Clock(), io.StringIO()
    forecast = Forecast([Stage("layout", {"a": 10}, 0.1, True), Stage("ocr", {"a": 10}, 1.0, True)])
    console = Console(file=out, force_terminal=True, width=100)
    with RunDisplay(forecast, console, clock) as display:
        display.began("layout")
        display.planned("layout", "a", 10)
        clock.now = 1.0
        for _ in range(10):
            display.computed("layout", "a")
        display.published("layout", "a")
        display.ended("layout")
    shown = out.getvalue()
    assert "layout" in shown
    assert "10/10" in shown
    assert "done" in shown
    assert "about 10 s to go" in shown


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Platform:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    (tmp_path / "dagster").mkdir()
    return Platform.of(tmp_path / "home", [pages("a_1", "a_2"), pages("b_1")])


def made(platform: Platform, *wanted: str, shards: str = "") -> str:
    out = io.StringIO()
    run_assets(platform.settings, wanted, shards, Console(file=out, width=300))
    return out.getvalue()


@pytest.mark.slow
def test_everything_is_made_and_recorded(platform: Platform) -> None:
    said = made(platform, "raw_pages", "layout_regions", "ocr_results")
    assert said.startswith("3 pages in 2 shards by the profile cpu: about ")
    assert "ocr_results: 3 of 3 rows made" in said
    assert platform.states("ocr_results", "shard_01") == {"b_1": State.OK}
    with dg.DagsterInstance.get() as instance:
        assert instance.get_materialized_partitions(dg.AssetKey("ocr_results")) == {"shard_00", "shard_01"}
    assert made(platform, "raw_pages", "layout_regions", "ocr_results").startswith("nothing to compute; 3 pages: ")


def test_a_failed_shard_leaves_the_others_and_ends_in_one_line(platform: Platform) -> None:
    platform.engines["recognition"] = SlowReader(
        diary=str(platform.home / "recognition.diary"), prompt="read", die_on="a_2"
    )
    out = io.StringIO()
    with pytest.raises(KopubError, match="1 failure; what was finished is kept"):
        run_assets(platform.settings, ["raw_pages", "layout_regions", "ocr_results"], "", Console(file=out, width=300))
    assert "ocr_results: shard_00: the engine is out of order; repair it and run again" in out.getvalue()
    assert set(platform.store.published("ocr_results")) == {"shard_01"}


def test_a_shard_that_fails_in_two_assets_is_counted_as_two_failures(platform: Platform) -> None:
    with pytest.raises(KopubError, match=r"^2 failures; what was finished is kept"):
        made(platform, "parsed_texts", "corpus_image_embeddings", shards="shard_00")


@pytest.mark.parametrize(
    ("asset", "shards", "message"),
    [
        ("ocr_result", "", r"there is no asset ocr_result .*; did you mean ocr_results\?"),
        ("raw_pages", "shard_0", r"there is no shard shard_0 \(there are shard_00, shard_01\); did you mean"),
        ("raw_pages", "shard_01...shard_00", "the first shard comes after the last"),
        ("raw_pages", "shard_01...", r"a range needs two ends, such as shard_00\.\.\.shard_01"),
    ],
)
def test_a_wrong_name_is_one_line(platform: Platform, asset: str, shards: str, message: str) -> None:
    with pytest.raises(KopubError, match=message):
        made(platform, asset, shards=shards)


@pytest.mark.parametrize("named", ["", " , "])
def test_shards_that_name_none_are_not_all(tmp_path: Path, named: str) -> None:
    refused = kopub({"KOPUB_HOME": str(tmp_path)}, "run", "--shards", named)
    assert (refused.returncode, refused.stderr) == (1, "Error: --shards names no shard: leave it out for all\n")


@pytest.mark.parametrize(
    "option", [["--dpi", "600"], ["--add"], ["--replace"], ["--max-pages", "3"]], ids=lambda words: words[0]
)
def test_an_option_about_a_source_needs_one(tmp_path: Path, option: list[str]) -> None:
    refused = kopub({"KOPUB_HOME": str(tmp_path)}, "run", *option)
    assert (refused.returncode, refused.stderr) == (1, f"Error: {option[0]} needs a SOURCE: name its folder too\n")


def test_ocr_and_text_layer_exclude_each_other(tmp_path: Path) -> None:
    refused = kopub({"KOPUB_HOME": str(tmp_path)}, "run", "--ocr", "--text-layer")
    assert (refused.returncode, refused.stderr) == (1, "Error: --ocr and --text-layer cannot be combined: choose one\n")


@pytest.mark.slow
def test_text_layers_are_taken_but_for_a_run_with_ocr(tmp_path: Path) -> None:
    lines = ((72, 700, "Every page of a document ends in exactly one state"), (72, 680, "and nothing of it is lost."))
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.pdf").write_bytes(text_pdf(sheet(written(*lines), box="0 0 595 842")))
    make_dagster_home(tmp_path / "home" / ".dagster")
    environment = {"KOPUB_HOME": str(tmp_path / "home"), "KOPUB_PDF__TEXT_LAYER": "check"}
    only = ("--asset", "raw_pages", "--asset", "layout_regions", "--asset", "ocr_results")
    store = ShardStore(url=str(tmp_path / "home" / "store"))

    def origins() -> set[str]:
        (row,) = store.read("ocr_results", "shard_00").to_pylist()
        return {region["origin"] for region in row["regions"]}

    taken = kopub(environment, "run", str(tmp_path / "source"), "--text-layer", *only)
    assert "on 1 page taken from the text layers of PDFs" in taken.stdout, taken.stderr
    assert origins() == {"text_layer"}
    read = kopub(environment, "run", "--ocr", *only)
    assert "taken from" not in read.stdout
    assert "the next run uses text layers again" in read.stdout
    assert origins() == {"recognizer"}
    assert "pdf.text_layer null -> prefer" in kopub({"KOPUB_HOME": str(tmp_path / "home")}, "plan").stdout


@pytest.mark.services
@pytest.mark.smoke
def test_ctrl_c_ends_in_one_line_and_the_next_run_goes_on(tmp_path: Path) -> None:
    write_corpus(tmp_path / "source", [pages("a_1")])
    make_dagster_home(tmp_path / "home" / ".dagster")
    environment = os.environ | {"KOPUB_HOME": str(tmp_path / "home"), "DAGSTER_HOME": ""}
    with forked.started(["kopub", "run", str(tmp_path / "source")], environment) as running:
        until(lambda: not running.at_work or "\nraw_pages" in running.said, 200)
        running.interrupt()
        stopped = running.ended(60)
    assert (stopped.returncode, stopped.stderr) == (
        130,
        "stopped; finished pages are kept: run the same command again to go on\n",
    )
    kept = (tmp_path / "home" / "store" / "raw_pages" / "shard_00.parquet").stat().st_mtime_ns
    again = forked.run(["kopub", "run", "--asset", "raw_pages", "--asset", "layout_regions"], environment)
    assert again.returncode == 0, again.stderr
    assert "raw_pages" not in again.stdout
    assert (tmp_path / "home" / "store" / "raw_pages" / "shard_00.parquet").stat().st_mtime_ns == kept


def test_a_person_sees_a_run_go_on(tmp_path: Path) -> None:
    """Dagster redirects a step's output into a file, but progress stays at the terminal."""
    write_corpus(tmp_path / "source", [pages("a_1", "a_2")])
    make_dagster_home(tmp_path / "home" / ".dagster")
    environment = os.environ | {"KOPUB_HOME": str(tmp_path / "home"), "DAGSTER_HOME": "", "TERM": "xterm"}
    command = ["kopub", "run", str(tmp_path / "source")]
    for asset in ("raw_pages", "layout_regions", "ocr_results"):
        command += ["--asset", asset]
    reader, terminal = pty.openpty()
    shown = b""
    with forked.started(command, environment, terminal=Path(os.ttyname(terminal))) as running:
        while running.at_work:
            if select.select([reader], [], [], 0.1)[0]:
                shown += os.read(reader, 65536)
    for end in (reader, terminal):
        os.close(end)
    shares = [int(share) for share in re.findall(rb"(\d+)%, about", shown)]
    # Which percentages are drawn depends on the machine's load, so only their rise is asserted.
    assert shares[0] < shares[-1], shares
    assert any(0 < share < 100 for share in shares), shares
    logs = (tmp_path / "home" / ".dagster" / "storage").rglob("compute_logs/*.out")
    assert not any("to go" in log.read_text() for log in logs)


def test_the_command_line_has_short_help_and_a_version(tmp_path: Path) -> None:
    for words, said in ((["-h"], "run "), (["plan", "-h"], "--set"), (["--version"], "kopub ")):
        done = kopub({"KOPUB_HOME": str(tmp_path)}, *words)
        assert (done.returncode, said in done.stdout) == (0, True), words


def test_a_new_home_of_dagster_gets_settings_and_a_wrong_one_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (prepare_home(tmp_path / "new") / "dagster.yaml").read_text().count("enabled: false")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "history").touch()
    assert not (prepare_home(tmp_path / "old") / "dagster.yaml").exists()
    (tmp_path / "file").touch()
    for wrong, line in (
        (Path("near"), "needs an absolute path"),
        (tmp_path / "file", "is a file: name a folder"),
        (tmp_path / "what?", "whose path has a ? or what looks like %20: set DAGSTER_HOME to another folder"),
        (tmp_path / "a%20b", "whose path has a ? or"),
    ):
        with pytest.raises(KopubError, match=re.escape(line)):
            prepare_home(wrong)
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with pytest.raises(StoreError, match=r"old was not written \(Permission denied\)"):
        prepare_home(tmp_path / "old")
