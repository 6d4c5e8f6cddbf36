"""How a server's start goes, in the log of the run that waits for it."""

import logging
import time

from resources.errors import EngineError
from resources.vllm.supervisor.server_log import LogTail, remaining, stage
from resources.vllm.supervisor.server_state import Phase, ServerFolder, State, server_folders

_REPORT_SECONDS = 10.0
"""Between two lines on a start's progress."""
_TURN_REPORT_SECONDS = 60.0
_TURN_SECONDS = 1.0
"""Every start waits for an instant; longer is for a GPU."""
_SHOWN = 20
"""Log lines shown when a start fails."""


class StartReport:
    """Logs how a start goes."""

    def __init__(self, folder: ServerFolder, log: logging.Logger, restart: bool) -> None:
        self._folder = folder
        self._log = log
        self._tail = LogTail(folder.log(0), skip=restart)
        self._began = time.monotonic()
        self._last_report = 0.0
        self._stage = "starting"
        self._boots: set[int] = set()
        self._reasons: set[tuple[int, str]] = set()

    def progress(self, state: State) -> None:
        """Log new lines of the server's log at level debug, and from time to time the stage of the start."""
        if state.phase is Phase.WAITING:
            self._report_waiting(state.since)
            return
        if state.boot not in self._boots:
            self._boots.add(state.boot)
            self._stage = "starting"
            self._log.info("%s starts; its log is %s", server_name(self._folder), self._folder.log(0))
        if state.reason and (state.boot, state.reason) not in self._reasons:
            self._reasons.add((state.boot, state.reason))
            self._log.warning("%s is started again: %s", server_name(self._folder), state.reason)
        before = self._stage
        for line in self._tail.lines():
            self._log.debug("vllm: %s", line)
            self._stage = stage(line, self._stage)
        if self._stage != before or time.monotonic() - self._last_report > _REPORT_SECONDS:
            elapsed = time.time() - state.since
            left = remaining(elapsed, self._folder.boot_seconds)
            self._say("%s: %s, %.0f s so far, %s", server_name(self._folder), self._stage, elapsed, left)

    def ready(self, state: State) -> None:
        """Log that the server is ready, unless it was ready at once."""
        if self._last_report:
            seconds = time.monotonic() - self._began
            name, stages, urls = server_name(self._folder), self._folder.stages, ", ".join(state.urls)
            self._log.info("%s is ready after %.0f s at %s; its start: %s", name, seconds, urls, stages)

    def failure(self, state: State) -> EngineError:
        """Return the error for a server that ended; logs the last lines of its log."""
        log = self._folder.log(state.failed)
        if state.phase is Phase.STOPPED:
            return EngineError(f"{server_name(self._folder)} was stopped: {state.reason}")
        if log.exists():
            lines = log.read_text("utf-8", errors="replace").splitlines()[-_SHOWN:]
            self._log.error("the last lines of %s:\n%s", log, "\n".join(lines))
        return EngineError(f"{server_name(self._folder)} is not to be had: {state.reason}; its log is {log}")

    def _report_waiting(self, since: float) -> None:
        if time.time() - since < _TURN_SECONDS:
            return
        if not self._last_report or time.monotonic() - self._last_report > _TURN_REPORT_SECONDS:
            gpus = set(self._folder.specification.gpus)
            others = [
                server_name(other)
                for other in server_folders()
                if other != self._folder and gpus & set(other.specification.gpus) and other.supervised
            ]
            self._say("%s waits for the GPU of %s", server_name(self._folder), ", ".join(others) or "another")

    def _say(self, message: str, *arguments: object) -> None:
        self._last_report = time.monotonic()
        self._log.info(message, *arguments)


def server_name(folder: ServerFolder) -> str:
    """Return a server as log lines and errors call it."""
    return f"vLLM {folder.specification.model} ({folder.path.name[:6]})"
