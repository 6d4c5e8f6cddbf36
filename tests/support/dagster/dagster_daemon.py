"""A real Dagster daemon with its own home, whose processes a test can kill."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import yaml

import dagster as dg
from dagster._daemon import controller
from dagster._daemon.auto_run_reexecution import event_log_consumer
from dagster._daemon.cli import main
from kopub.config.settings import ROOT
from tests.support.processes.forked import inherited
from tests.support.processes.living import kill_together, lives
from tests.support.waiting import until

PATIENCE = 120.0
"""Seconds that a test waits at most; machines that run tests are slow at times."""
RELOAD_SECONDS = 10
"""Seconds between reloads of the workspace, instead of 60; each starts another code server."""
_RELOAD = "RELOAD_SECONDS_OF_TEST"
LOOK_SECONDS = 2
"""Seconds between the daemon's looks for backfills, instead of 30."""
_LOOKED = "looked"
"""The file that is touched whenever the daemon has looked for failed runs."""


class Daemon:
    """A daemon with a `dagster.yaml` of `deploy/`, edited by `change`, and the definitions of `module`."""

    def __init__(
        self,
        folder: Path,
        configuration: str,
        module: str,
        environment: Mapping[str, str],
        change: Callable[[dict[str, Any]], None] = lambda written: None,
    ) -> None:
        self.folder = folder
        self.module = module
        self.home = folder / "dagster"
        self.home.mkdir()
        written: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / configuration / "dagster.yaml").read_text())
        # The daemon looks for dead runs as often as it can, and waits for a code server for as long as a test does.
        written["run_monitoring"]["poll_interval_seconds"] = 1
        if written["run_launcher"]["class"] == "WatchedRunLauncher":
            written["run_launcher"]["config"] = {"gone_seconds": 1}
            written["run_coordinator"]["config"]["user_code_failure_retry_delay"] = 1
            written["run_coordinator"]["config"]["max_user_code_failure_retries"] = int(PATIENCE)
        change(written)
        (self.home / "dagster.yaml").write_text(yaml.safe_dump(written))
        self.environment = {
            **inherited(),
            "PYTHONPATH": str(ROOT),
            "DAGSTER_HOME": str(self.home),
            _RELOAD: str(RELOAD_SECONDS if configuration == "local" else controller.RELOAD_WORKSPACE_INTERVAL),
            **environment,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = self.popen("tests.support.dagster.dagster_daemon", "run", "-m", self.module)

    def popen(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start `python -m module` in the daemon's environment."""
        command = [sys.executable, "-m", module, *arguments]
        with (self.folder / "log").open("a") as log:
            return subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=log, stderr=log)

    def kill_code_servers(self) -> None:
        """Kill all code servers, of which the daemon starts another now and then."""
        servers = [child for child in self._children() if lives(child) and "grpc" in child.cmdline()]
        assert servers
        kill_together(servers)

    def kill(self) -> None:
        """Kill the daemon and all its descendants at once, like a power failure."""
        if self._process is None:
            return
        kill_together([psutil.Process(self._process.pid), *self._children(recursive=True)])
        self._process.wait()
        self._process = None

    def until_it_looks(self) -> None:
        """Wait until the daemon has just looked for failed runs.

        A failure from now on is fully written by its next look, five seconds later. The daemon never retries a run
        whose failure it finds half written.
        """
        before = self._looked()
        self.until(lambda: self._looked() > before)

    def until(self, condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
        """Wait until `condition` returns something true, and return that."""
        return until(condition, seconds, 0.2, self._told)

    def _looked(self) -> int:
        file = self.folder / _LOOKED
        return file.stat().st_mtime_ns if file.exists() else 0

    def _told(self) -> str:
        """Return the status of the runs, and the end of the daemon's log without warnings."""
        with dg.DagsterInstance.get() as instance:
            runs = [f"{run.run_id} {run.status.value} {run.tags}" for run in instance.get_runs()]
        log = (self.folder / "log").read_text().splitlines()
        told = [line for line in log if "BetaWarning" not in line and "return fn(*args" not in line]
        return "\n".join([*runs, *told[-100:]])

    def _children(self, recursive: bool = False) -> list[psutil.Process]:
        assert self._process is not None
        return psutil.Process(self._process.pid).children(recursive=recursive)


def with_status(instance: dg.DagsterInstance, *status: dg.DagsterRunStatus) -> list[dg.DagsterRun]:
    return list(instance.get_runs(dg.RunsFilter(statuses=list(status))))


def _tell_of_each_look() -> None:
    persist = event_log_consumer._persist_cursors

    def persist_and_tell(*arguments: Any) -> None:
        persist(*arguments)
        Path(_LOOKED).touch()

    event_log_consumer._persist_cursors = persist_and_tell


if __name__ == "__main__":
    _tell_of_each_look()
    controller.RELOAD_WORKSPACE_INTERVAL = int(os.environ[_RELOAD])
    controller.DEFAULT_DAEMON_INTERVAL_SECONDS = LOOK_SECONDS
    main()
