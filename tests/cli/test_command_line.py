"""Errors and Ctrl-C in the commands of Dagster and of the platform, run as real processes."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import fsspec
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from kopub.config.settings import ROOT
from kopub.errors import STOPPED, ConfigError
from kopub.states import FINAL
from kopub.store.faults import require_reachable
from kopub_assets.running.execution import copy_to_the_end
from tests.cli.test_cli import environment_of, materialize, run
from tests.support.dagster.dagster_home import make_dagster_home
from tests.support.processes import forked
from tests.support.waiting import until

pytestmark = pytest.mark.services

QUIET = {"PYTHONWARNINGS": "ignore"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home with the Dagster settings of `make setup`, which silence its notices."""
    home = tmp_path / "home"
    (home / "dagster").mkdir(parents=True)
    (home / "dagster" / "dagster.yaml").symlink_to(ROOT / "deploy" / "local" / "dagster.yaml")
    return home


@pytest.mark.parametrize(
    ("url", "start", "reason"),
    [
        ("nowhere://bucket/tables", "Error: profile cpu: store.url: ", "has the unknown protocol 'nowhere'"),
        (
            "webhdfs://127.0.0.1:9/tables",
            "Error: store.url webhdfs://127.0.0.1:9/tables cannot be read (",
            "ConnectionError",
        ),
    ],
    ids=["unknown", "unreachable"],
)
def test_a_store_that_cannot_be_read_is_one_line(home: Path, url: str, start: str, reason: str):
    asked: list[Callable[[], subprocess.CompletedProcess[str]]] = [
        lambda: materialize(home, "raw_pages", "--partition", "shard_00", KOPUB_STORE__URL=url, **QUIET),
        lambda: run(home, "kopub", "status", KOPUB_STORE__URL=url),
    ]
    for ask in asked:
        refused = ask()
        assert refused.returncode == 1
        assert len(refused.stderr.splitlines()) == 1, refused.stderr
        assert refused.stderr.startswith(start)
        assert reason in refused.stderr


class Guarded(MemoryFileSystem):
    """An object store that refuses its credentials."""

    protocol = "guarded"

    def ls(self, path: str, detail: bool = True, **options: object) -> list[str]:
        raise PermissionError("Forbidden\nrequest 77")


def test_a_store_that_refuses_its_credentials_says_so_in_one_line():
    fsspec.register_implementation("guarded", Guarded, clobber=True)
    with pytest.raises(ConfigError, match=r"^store.url guarded://b cannot be read \(PermissionError: Forbidden\)"):
        require_reachable("guarded://b")


def test_a_failed_shard_is_named_with_what_to_do(home: Path):
    failed = materialize(home, "parsed_texts", "--partition", "shard_00", **QUIET)
    assert failed.returncode == 1
    assert "shard_00: raw_pages of shard_00 has not been made yet: `kopub run` makes it" in failed.stderr


def test_a_wrong_profile_is_told_without_a_stack(home: Path):
    failed = run(home, "dagster", "definitions", "validate", KOPUB_PROFILE="nonsense", **QUIET)
    assert failed.returncode == 1
    assert "KopubError: profile nonsense: there is no such profile; there are b200, cpu," in failed.stdout
    assert "Stack Trace" not in failed.stdout


def test_the_last_line_of_a_step_is_shown_however_short_it_was(tmp_path: Path):
    written, terminal = tmp_path / "written", tmp_path / "terminal"
    written.write_text("of an earlier step\n")
    with terminal.open("w") as stream, copy_to_the_end(str(written), stream), written.open("a") as step:
        step.write("why it failed\n")
    assert terminal.read_text() == "of an earlier step\nwhy it failed\n"


def test_ctrl_c_cancels_the_run_and_the_next_one_keeps_its_rows(home: Path):
    make_dagster_home(home / "dagster")
    select = ["--select", "raw_pages,layout_regions,ocr_results", "--partition", "shard_00", "-m", "definitions"]
    journal = home / "store" / ".journal" / "ocr_results" / "shard_00"
    command = ["dagster", "asset", "materialize", *select]
    with forked.started(command, environment_of(home) | QUIET) as running:
        until(lambda: list(journal.glob("*.parquet")) or not running.at_work, 200)
        running.interrupt()
        stopped = running.ended(100)
    assert stopped.returncode != 0, stopped.stderr
    with dg.DagsterInstance.from_config(str(home / "dagster")) as instance:
        assert [stored.status for stored in instance.get_runs()] == [dg.DagsterRunStatus.CANCELED]

    shown = run(home, "kopub", "status", COLUMNS="200").stdout
    parts = [pq.read_table(path, columns=["page_id", "state"]) for path in journal.glob("*.parquet")]
    # A part may hold a row that failed, which is not finished.
    kept = len({row["page_id"] for part in parts for row in part.to_pylist() if row["state"] in FINAL})
    assert f"ocr_results of shard_00: {kept} of 6 rows are finished and kept for the next run" in shown


def test_ctrl_c_of_a_kopub_command_is_one_line(home: Path, tmp_path: Path):
    program = (
        "import signal, kopub.cli.main as main, kopub.pages.indexing as indexing;"
        "indexing.index = lambda *_: signal.raise_signal(signal.SIGINT);"
        "main.main()"
    )
    stopped = run(home, "python", "-c", program, "index", str(tmp_path))
    assert (stopped.returncode, stopped.stderr) == (130, f"{STOPPED}\n")
