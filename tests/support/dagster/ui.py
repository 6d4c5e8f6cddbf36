"""`kopub ui` as a person starts it, with a client of its GraphQL API."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from kopub.config.settings import ROOT
from tests.support.dagster.dagster_home import make_dagster_home
from tests.support.waiting import until

PATIENCE = 240.0
"""Seconds: the backfill daemon looks for work every 30 s, and a run starts a process of its own."""
_CLIENT = httpx.Client(timeout=60)
"""One client for all queries, because each new client reads the certificates again."""


class Ui:
    """The UI of the Dagster home `dagster` at `url`, with its output in `log`."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.dagster = make_dagster_home(folder / "dagster")
        self.log = folder / "ui.log"
        self.environment = {**os.environ, **environment, "DAGSTER_HOME": str(self.dagster), "PYTHONUNBUFFERED": "1"}
        self.url, self.pid = "", 0

    @contextmanager
    def started(self, *options: str) -> Iterator["Ui"]:
        """Run `kopub ui` on a free port until the context ends."""
        command = [sys.executable, "-c", "from kopub.cli.main import main; main()", "ui", "--port", "0", *options]
        with self.log.open("w") as log:
            server = subprocess.Popen(
                command, cwd=ROOT, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )
        self.pid = server.pid
        try:
            self.until(self._is_open)
            yield self
        finally:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()

    def ask(self, text: str, **variables: Any) -> dict[str, Any]:
        """Return the data of a GraphQL answer, requested as the UI's own page does."""
        asked = {"query": text, "variables": variables}
        answer = _CLIENT.post(f"{self.url}/graphql", json=asked, headers={"Origin": self.url}).json()
        assert "errors" not in answer, answer["errors"]
        return answer["data"]

    def until(self, condition: Callable[[], Any], patience: float = PATIENCE) -> None:
        # The daemon looks every 30 s, so asking more often would only load the webserver.
        until(condition, patience, 2, lambda: self.log.read_text()[-3000:])

    def _is_open(self) -> bool:
        said = next((line for line in self.log.read_text().splitlines() if line.startswith("http://")), "")
        self.url = said.partition(" ")[0]
        if not self.url:
            return False
        try:
            loaded = self.ask("{ repositoriesOrError { ... on RepositoryConnection { nodes { name } } } }")
        except httpx.TransportError:
            return False
        return bool(loaded["repositoriesOrError"].get("nodes"))
