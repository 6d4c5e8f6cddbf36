"""The lease on a managed server: any number of processes share it, and the first one starts the server."""

import fcntl
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from resources.errors import EngineError
from resources.vllm.endpoint import Endpoint
from resources.vllm.supervisor.progress import LogTail, remaining, stage
from resources.vllm.supervisor.server_state import (
    POLL,
    Phase,
    ServerFolder,
    Specification,
    State,
    locked,
    no_runtime_folder,
    runtime_folder,
    server_folders,
)
from resources.vllm.supervisor.supervisor import ANOTHER_RUNS

_STOP_SECONDS = 120.0
"""A server that is just being stopped gives the lease up well within this."""
_SPAWN_SECONDS = 60.0
"""For an interpreter to start on a busy machine."""
_SUPERVISORS = 3
"""Supervisors that one caller starts; when so many vanish, something kills them."""
_REPORT_SECONDS = 10.0
"""Between two lines on a start's progress."""
_TURN_REPORT_SECONDS = 60.0
_TURN_SECONDS = 1.0
"""Every start waits for an instant; longer is for a GPU."""
_SHOWN = 20
"""Log lines shown when a start fails."""
_ENDED = (Phase.STOPPED, Phase.FAILED)
_ROOT = Path(__file__).resolve().parents[2]

_in_use: list[tuple[str, frozenset[str], bool]] = []
"""(server, GPUs, whether it shares them) of the leases that this process holds."""


@contextmanager
def lease_server(specification: Specification, key: str, log: logging.Logger) -> Iterator[Endpoint]:
    """Use the server of `key`, started or waited for if need be. Raises `EngineError` when it cannot be had."""
    try:
        folder = ServerFolder(runtime_folder() / key)
        folder.path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise EngineError(no_runtime_folder(error)) from None
    use = (key, frozenset(specification.gpus), specification.share_gpu)
    _refuse_waiting_for_oneself(use, specification)
    with ExitStack() as held:
        try:
            held.enter_context(locked(folder.lease, fcntl.LOCK_SH, _STOP_SECONDS))
        except TimeoutError as error:
            raise EngineError(
                f"the server of {specification.model} is being stopped and does not end: {error}"
            ) from None
        held.callback(folder.lease.touch)  # the idle time begins
        _in_use.append(use)
        held.callback(_in_use.remove, use)
        yield _ready(folder, specification, 0, None, log)


def restart_server(endpoint: Endpoint, log: logging.Logger) -> Endpoint:
    """The server that replaces one that died or hangs; all callers of the same one get the same.

    The supervisor first makes sure that it does hang. Raises `EngineError` when it was restarted too
    often, was stopped on purpose, or does not come up again. The caller holds a lease.
    """
    assert endpoint.folder is not None
    folder = ServerFolder(endpoint.folder)
    boot, now = endpoint.boot, _current(folder)
    if now is not None and now.boot > boot:
        # It need not be newer than the death: a boot follows also the restart of one replica, which keeps its URL.
        if now.targets != endpoint.targets or now.alive(folder.specification.hang_seconds):
            return now
        boot = now.boot
    folder.restart_request(boot).touch()
    return _ready(folder, None, boot, boot, log)


def restart_replica(endpoint: Endpoint, url: str, reason: str, log: logging.Logger) -> Endpoint:
    """Have the supervisor restart the replica at `url` if it hangs; returns the endpoint as it is now.

    Does not wait. A server that is being restarted is left alone; one that is gone as a whole is for `restart_server`.
    """
    assert endpoint.folder is not None
    folder = ServerFolder(endpoint.folder)
    now = _current(folder)
    if now is None:
        return endpoint
    if url in now.urls:
        request = folder.restart_request(now.boot, now.urls.index(url))
        if not request.exists():
            log.warning(
                "%s goes on without one of its replicas, which is restarted if it hangs: %s",
                _name(folder),
                reason,
            )
            request.touch()
    return now


def _current(folder: ServerFolder) -> Endpoint | None:
    """The server's endpoint if it is ready now."""
    if not folder.supervised:
        return None
    state = folder.state
    return _endpoint(folder, state) if state is not None and state.phase is Phase.READY else None


def _ready(
    folder: ServerFolder, specification: Specification | None, after: int, joined: int | None, log: logging.Logger
) -> Endpoint:
    """Wait for a ready server of a boot later than `after`, starting supervisors as needed.

    `joined` is the boot whose end concerns the caller; None until there is one.
    """
    report = _StartReport(folder, log, restart=joined is not None)
    started = 0
    while True:
        supervised = folder.supervised
        state = folder.state
        if state is not None and supervised and state.phase.lives:
            joined = state.boot if joined is None else joined
            if state.phase is Phase.READY and state.boot > after:
                report.ready(state)
                return _endpoint(folder, state)
            report.progress(state)
        elif state is not None and joined is not None and state.boot >= joined and state.phase in _ENDED:
            raise report.failure(state)
        elif not supervised:  # also when it was killed while it stopped the server
            if started == _SUPERVISORS:
                raise EngineError(f"{started} supervisors of {_name(folder)} vanished; see {folder.supervisor_log}")
            _start_supervisor(folder, specification)
            started += 1
            # What was read before is the past.
            after_start = folder.state
            joined = after_start.boot if after_start else joined
            continue
        time.sleep(POLL)


def _start_supervisor(folder: ServerFolder, specification: Specification | None) -> None:
    try:
        with locked(folder.starting, fcntl.LOCK_EX, _SPAWN_SECONDS), folder.supervisor_log.open("ab") as output:
            if folder.supervised:
                return
            if specification is not None:
                folder.write_specification(specification)
            status = subprocess.run(
                [sys.executable, "-m", "resources.vllm.supervisor.supervisor", str(folder.path)],
                cwd=_ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                timeout=_SPAWN_SECONDS,
                check=False,
            ).returncode
    except (TimeoutError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"the supervisor of the server could not be started in time: {error}") from None
    if status not in (0, ANOTHER_RUNS):
        lines = folder.supervisor_log.read_text("utf-8", errors="replace").splitlines()
        raise EngineError(f"the supervisor of the server did not start: {lines[-1] if lines else 'no message'}")


class _StartReport:
    """Logs how a start goes."""

    def __init__(self, folder: ServerFolder, log: logging.Logger, restart: bool) -> None:
        self._folder = folder
        self._log = log
        self._tail = LogTail(folder.log(0), skip=restart)
        self._began = time.monotonic()
        self._last_report = 0.0
        self._stage = "starting"
        self._boots: set[int] = set()

    def progress(self, state: State) -> None:
        """Log new lines of the server's log at level debug, and from time to time the stage of the start."""
        if state.phase is Phase.WAITING:
            self._report_waiting(state.since)
            return
        if state.boot not in self._boots:
            self._boots.add(state.boot)
            self._log.info("%s starts; its log is %s", _name(self._folder), self._folder.log(0))
            if state.reason:
                self._log.warning("%s is started again: %s", _name(self._folder), state.reason)
        before = self._stage
        for line in self._tail.lines():
            self._log.debug("vllm: %s", line)
            self._stage = stage(line) or self._stage
        if self._stage != before or time.monotonic() - self._last_report > _REPORT_SECONDS:
            elapsed = time.time() - state.since
            left = remaining(elapsed, self._folder.boot_seconds)
            self._say("%s: %s, %.0f s so far, %s", _name(self._folder), self._stage, elapsed, left)

    def ready(self, state: State) -> None:
        """Log that the server is ready, unless it was ready at once."""
        if self._last_report:
            seconds = time.monotonic() - self._began
            self._log.info("%s is ready after %.0f s at %s", _name(self._folder), seconds, ", ".join(state.urls))

    def failure(self, state: State) -> EngineError:
        """The error for a server that ended; logs the last lines of its log."""
        log = self._folder.log(state.failed)
        if state.phase is Phase.STOPPED:
            return EngineError(f"{_name(self._folder)} was stopped: {state.reason}")
        if log.exists():
            lines = log.read_text("utf-8", errors="replace").splitlines()[-_SHOWN:]
            self._log.error("the last lines of %s:\n%s", log, "\n".join(lines))
        return EngineError(f"{_name(self._folder)} is not to be had: {state.reason}; its log is {log}")

    def _report_waiting(self, since: float) -> None:
        if time.time() - since < _TURN_SECONDS:
            return
        if not self._last_report or time.monotonic() - self._last_report > _TURN_REPORT_SECONDS:
            gpus = set(self._folder.specification.gpus)
            others = [
                _name(other)
                for other in server_folders()
                if other != self._folder and gpus & set(other.specification.gpus) and other.supervised
            ]
            self._say("%s waits for the GPU of %s", _name(self._folder), ", ".join(others) or "another")

    def _say(self, message: str, *arguments: object) -> None:
        self._last_report = time.monotonic()
        self._log.info(message, *arguments)


def _refuse_waiting_for_oneself(use: tuple[str, frozenset[str], bool], specification: Specification) -> None:
    key, gpus, shares = use
    for other, taken, shared in _in_use:
        if other != key and gpus & taken and not (shares and shared):
            raise EngineError(
                f"{specification.model} needs GPU {', '.join(sorted(gpus & taken))}, which this process still uses for "
                "another server: end that use first, or set share_gpu for both when they fit side by side"
            )


def _endpoint(folder: ServerFolder, state: State) -> Endpoint:
    specification = folder.specification
    return Endpoint(
        state.urls,
        state.api_key,
        specification.model,
        specification.runner,
        specification.images,
        folder.path,
        state.boot,
    )


def _name(folder: ServerFolder) -> str:
    return f"vLLM {folder.specification.model} ({folder.path.name[:6]})"
