"""`kopub run`: what it makes, what it says, and how it ends."""

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
from rich.console import Console

from kopub_assets.running.execution import shard_ranges
from kopub_assets.running.forecast import Forecast, Stage
from kopub_cli.display.run_display import RunDisplay
from kopub_cli.run import run_assets
from resources.config.configured import configured
from resources.errors import KopubError
from resources.states import State
from tests.doubles.engines import SlowReader
from tests.support.commands import kopub
from tests.support.corpora import pages, write_corpus
from tests.support.harness import Platform

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


def test_a_forecast_follows_the_pace_of_this_machine() -> None:
    forecast = Forecast([Stage("layout", {"a": 100}, 0.1, False), Stage("ocr", {"a": 100}, 1.0, False)])
    assert forecast.remaining(0.0) == pytest.approx(110)
    layout, ocr = forecast.stages.values()
    layout.began, layout.done, layout.ended = 0.0, 100, 20.0
    # Twice as slow as elsewhere, so the other stage is likely to be so too.
    assert forecast.remaining(20.0) == pytest.approx(200)
    ocr.began, ocr.done = 20.0, 50
    assert forecast.remaining(70.0) == pytest.approx(50, rel=0.2)
    assert forecast.share(70.0) == pytest.approx(70 / 120, rel=0.2)
    ocr.done, ocr.ended = 100, 120.0
    assert (forecast.remaining(120.0), forecast.share(120.0)) == (0.0, 1.0)


def test_a_forecast_trusts_what_was_measured_here() -> None:
    forecast = Forecast([Stage("layout", {"a": 10}, 0.1, False), Stage("ocr", {"a": 10}, 1.0, True)])
    layout, _ = forecast.stages.values()
    layout.began, layout.done, layout.ended = 0.0, 10, 5.0
    assert forecast.remaining(5.0) == pytest.approx(10)


def test_rows_that_are_known_replace_those_that_were_likely() -> None:
    clock, out = Clock(), io.StringIO()
    forecast = Forecast([Stage("ocr", {"a": 10, "b": 10}, 1.0, True)])
    display = RunDisplay(forecast, Console(file=out, width=200), clock)
    display.began("ocr")
    display.planned("ocr", "a", 2)
    display.computed("ocr")
    display.published("ocr", "a")
    display.published("ocr", "b")
    clock.now = 16.0
    display.computed("ocr")
    display.ended("ocr")
    lines = out.getvalue().splitlines()
    assert lines == [
        "ocr: 2 of 2 rows made, 0.1 a second; about 0 s to go",
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
            display.computed("layout")
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
    assert "every table is current" in made(platform, "raw_pages", "layout_regions", "ocr_results")


@pytest.mark.slow
def test_a_failed_shard_leaves_the_others_and_ends_in_one_line(platform: Platform) -> None:
    platform.engines["recognition"] = configured(
        SlowReader, diary=str(platform.home / "recognition.diary"), prompt="read", die_on="a_2"
    )
    out = io.StringIO()
    with pytest.raises(KopubError, match="1 shard failed; what was finished is kept"):
        run_assets(platform.settings, ["raw_pages", "layout_regions", "ocr_results"], "", Console(file=out, width=300))
    assert "ocr_results: shard_00: the engine is out of order; repair it and run again" in out.getvalue()
    assert set(platform.store.published("ocr_results")) == {"shard_01"}


@pytest.mark.parametrize(
    ("asset", "shards", "message"),
    [
        ("ocr_result", "", r"there is no asset ocr_result .*; did you mean ocr_results\?"),
        ("raw_pages", "shard_0", r"there is no shard shard_0 \(there is shard_00, shard_01\); did you mean"),
        ("raw_pages", "shard_01...shard_00", "the first shard comes after the last"),
    ],
)
def test_a_wrong_name_is_one_line(platform: Platform, asset: str, shards: str, message: str) -> None:
    with pytest.raises(KopubError, match=message):
        made(platform, asset, shards=shards)


@pytest.mark.services
def test_ctrl_c_ends_in_one_line_and_the_next_run_goes_on(tmp_path: Path) -> None:
    write_corpus(tmp_path / "source", [pages("a_1")])
    environment = os.environ | {"KOPUB_HOME": str(tmp_path / "home"), "DAGSTER_HOME": ""}
    command = [sys.executable, "-c", "from kopub_cli.main import main; main()", "run", str(tmp_path / "source")]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, process_group=0
    )
    assert running.stdout is not None
    for line in running.stdout:
        if line.startswith("raw_pages"):
            running.send_signal(signal.SIGINT)
            break
    _, said = running.communicate(timeout=60)
    assert (running.returncode, said) == (
        130,
        "stopped; finished pages are kept: run the same command again to go on\n",
    )
    kept = (tmp_path / "home" / "store" / "raw_pages" / "shard_00.parquet").stat().st_mtime_ns
    again = subprocess.run([*command[:-1]], capture_output=True, text=True, env=environment, check=True)
    assert "raw_pages: 0 of 0 rows made" in again.stdout
    assert (tmp_path / "home" / "store" / "raw_pages" / "shard_00.parquet").stat().st_mtime_ns == kept


def test_the_command_line_has_short_help_and_a_version(tmp_path: Path) -> None:
    for words, said in ((["-h"], "run "), (["plan", "-h"], "--set"), (["--version"], "kopub ")):
        done = kopub({"KOPUB_HOME": str(tmp_path)}, *words)
        assert (done.returncode, said in done.stdout) == (0, True), words
