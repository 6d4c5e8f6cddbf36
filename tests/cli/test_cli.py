"""The commands of the README as real processes."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import kopub
from kopub.config.settings import ROOT
from tests.support.dagster.dagster_home import make_dagster_home
from tests.support.processes import forked
from tests.support.sources.corpora import page_image, pages, query, write_corpus

pytestmark = pytest.mark.services

BIN = Path(sys.executable).parent


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def environment_of(home: Path) -> dict[str, str]:
    return forked.inherited() | {"KOPUB_HOME": str(home), "DAGSTER_HOME": str(home / "dagster")}


def run(home: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a fork with the platform imported, unlike `run_anew`."""
    make_dagster_home(home / "dagster")
    return forked.run(command, environment_of(home) | environment)


def run_anew(home: Path, *command: str) -> subprocess.CompletedProcess[str]:
    make_dagster_home(home / "dagster")
    return subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        cwd=ROOT,
        env=environment_of(home),
        capture_output=True,
        text=True,
        check=False,
    )


def materialize(home: Path, select: str, *rest: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run(home, "dagster", "asset", "materialize", "--select", select, *rest, "-m", "definitions", **environment)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    queries = [query("q1", "무엇인가?", "b_1")]
    return write_corpus(tmp_path / "pages", [pages("a_1"), pages("b_1"), pages("c_1")], queries)


def test_index_build_status_export(home: Path, corpus: Path, tmp_path: Path):
    indexed = run_anew(home, "kopub", "index", str(corpus))
    assert indexed.returncode == 0, indexed.stderr
    assert f"{home}: 3 pages in 3 documents, 1 query" in indexed.stdout.splitlines()
    assert run(home, "kopub", "shards", "--range").stdout == "shard_00...shard_02\n"

    one = materialize(home, "*", "--partition", "shard_01")
    assert one.returncode == 0, one.stderr
    every = materialize(home, "*", "--partition-range", "shard_00...shard_02")
    assert every.returncode == 0, every.stderr

    status = run(home, "kopub", "status", COLUMNS="200")
    assert status.returncode == 0, status.stderr
    assert "ocr_results" in status.stdout
    assert "3/3" in status.stdout
    assert "every table is current, and another run would compute nothing" in status.stdout

    exported = run(home, "kopub", "export", str(tmp_path / "export"))
    assert exported.returncode == 0, exported.stderr
    assert len((tmp_path / "export" / "ocr_results.jsonl").read_text().splitlines()) == 3

    written = run(home, "kopub", "export", "--markdown", str(tmp_path / "documents"))
    assert written.returncode == 0, written.stderr
    assert "3 documents of 3 pages" in written.stdout
    assert sorted(path.name for path in (tmp_path / "documents").glob("*.md")) == ["a.md", "b.md", "c.md"]

    os.utime(corpus / "corpus" / "data-0.arrow", (0, 0))
    told = [run(home, "kopub", command, COLUMNS="200").stdout for command in ("status", "plan")]
    assert all("data-0.arrow was written since it was indexed" in each for each in told)
    assert "next     kopub index SOURCE  (its files have changed since they were indexed)" in told[0]


def test_before_anything_is_made_the_plan_says_what_it_will_take(home: Path):
    planned = run(home, "kopub", "plan")
    assert planned.returncode == 0, planned.stderr
    takes = r"about \d+ s for 12 pages, by what rows cost elsewhere"
    assert re.search(rf"^18 tables were never made. To make them: kopub run; {takes}$", planned.stdout, re.MULTILINE)
    assert "Nothing is stale" not in planned.stdout
    served = json.loads(run(home, "kopub", "plan", "--json", "--profile", "l4").stdout)["run"]
    assert served["seconds_to_start"] == 257, "of two servers and the layout model"
    assert served["seconds"] > 257


def test_what_was_lost_is_told_one_line_a_page_and_not_for_ever(home: Path, tmp_path: Path):
    lost = [(f"lost_{number}", b"no image") for number in range(1, 24)]
    run(home, "kopub", "index", str(write_corpus(tmp_path / "pages", [[*pages("a_1"), *lost]], [])))
    materialize(home, "raw_pages", "--partition", "shard_00")
    status = run(home, "kopub", "status", COLUMNS="60")
    assert status.returncode == 0, status.stderr
    told = [line for line in status.stdout.splitlines() if line.startswith("lost_")]
    assert len(told) == 20
    assert all("in raw_pages, shard_00: " in line for line in told)
    assert "and 3 more that failed or are quarantined" in status.stdout


def test_an_error_steers_no_terminal(home: Path):
    refused = run(home, "kopub", "diff", "\x1b[2J", "\u202e")
    told = r"Error: \x1b[2J and \u202e are different shards: name two versions of one shard"
    assert (refused.returncode, refused.stderr) == (1, f"{told}\n")


@pytest.mark.parametrize(
    ("start", "command"),
    [
        (run, ["dagster", "definitions", "validate"]),
        (run_anew, ["dagster", "definitions", "validate", "-w", "workspace.yaml"]),
        (run_anew, ["dg", "check", "defs"]),
        (run, ["dg", "list", "defs"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_every_front_door_loads_the_definitions(
    home: Path, start: Callable[..., subprocess.CompletedProcess[str]], command: list[str]
):
    loaded = start(home, *command)
    assert loaded.returncode == 0, loaded.stderr


def test_dg_launch(home: Path, corpus: Path):
    run(home, "kopub", "index", str(corpus))
    launched = run(home, "dg", "launch", "--assets", "raw_pages", "--partition", "shard_02")
    assert launched.returncode == 0, launched.stderr
    assert (home / "store" / "raw_pages" / "shard_02.parquet").exists()


def test_a_damaged_history_of_dagster_is_one_line(home: Path):
    assert run(home, "kopub", "run", "--asset", "raw_pages").returncode == 0
    databases = list((home / "dagster").rglob("*.db"))
    assert databases
    for database in databases:
        database.write_bytes(b"no database" * 100)
    done = run(home, "kopub", "run", "--asset", "raw_pages")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Error: Dagster's history in {home / 'dagster'} cannot be used")


def test_a_path_that_looks_like_a_pattern_is_one_folder(tmp_path: Path):
    source, home = tmp_path / "s*[a]?", tmp_path / "h*[1]?"
    own_history = {"DAGSTER_HOME": str(make_dagster_home(tmp_path / "dagster"))}

    def told(*command: str) -> str:
        done = forked.run(["kopub", *command], environment_of(home) | own_history)
        assert done.returncode in (0, 3), done.stderr
        return done.stdout

    for folder, seed in ((source, 1), (tmp_path / "sXaY", 2)):
        folder.mkdir()
        (folder / "p*[1].png").write_bytes(page_image(seed))
    told("run", str(source))
    shutil.copytree(home, tmp_path / "hX1Y")
    assert told("run", str(source)).splitlines()[-1].startswith("nothing to compute; 1 page: 1 ok")
    assert told("verify", str(home / "release")) == f"{home / 'release'} is sound\n"
    told("export", "--markdown", str(tmp_path / "out*[a]?"))
    assert [path.name for path in (tmp_path / "out*[a]?").glob("*.md")] == ["p_1.md"]
    for place in (home, home / "release"):
        assert [page.id for page in kopub.open(place).pages] == ["p*[1]_1"]
