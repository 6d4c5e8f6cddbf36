"""The lease on a managed server: any number of processes share it, and the first one starts the server."""

import fcntl
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from resources.errors import EngineError
from resources.parallel import Begun
from resources.vllm.endpoint import Endpoint
from resources.vllm.start_report import StartReport, server_name
from resources.vllm.supervisor.server_state import (
    POLL,
    Phase,
    ServerFolder,
    Specification,
    State,
    locked,
    no_runtime_folder,
    runtime_folder,
)
from resources.vllm.supervisor.supervisor import ANOTHER_RUNS

_STOP_SECONDS = 120.0
"""A server that is just being stopped gives the lease up well within this."""
_SPAWN_SECONDS = 60.0
"""For an interpreter to start on a busy machine."""
_SUPERVISORS = 3
"""Supervisors that one caller starts; when so many vanish, something kills them."""
_ENDED = (Phase.STOPPED, Phase.FAILED)
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class _Use:
    """A server that this process uses or has asked for.

    One that does not share its GPUs needs them for itself.
    """

    key: str
    gpus: frozenset[str]
    shares: bool

    def excludes(self, other: "_Use") -> bool:
        """Return whether the two cannot run at the same time."""
        return other.key != self.key and bool(other.gpus & self.gpus) and not (self.shares and other.shares)


@dataclass(frozen=True, slots=True)
class _EarlyLease:
    """A lease from before the first use.

    `boot` is the start that it caused or found, if any.
    """

    use: _Use
    held: ExitStack
    boot: Begun[int | None]


@dataclass(frozen=True, slots=True)
class _OfThisProcess:
    """The leases that this process holds."""

    uses: list[_Use] = field(default_factory=list)
    early: dict[str, _EarlyLease] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


_held = _OfThisProcess()


def ask_for_server(specification: Specification, key: str, log: logging.Logger) -> None:
    """Have the server of `key` started, if need be, and keep it until this process first leases it; returns at once.

    What goes wrong is told by that lease. A server that would have to wait for one that this process uses or has
    asked for is not asked for. Raises `EngineError` without a folder for its locks.
    """
    folder = _folder(key)
    use = _use(key, specification)
    with _held.lock:
        others = [*_held.uses, *(early.use for early in _held.early.values())]
        if key in _held.early or any(use == other or use.excludes(other) for other in others):
            return
        is_there, held = folder.supervised, ExitStack()
        _held.early[key] = _EarlyLease(use, held, Begun(lambda: _begin(folder, specification, held)))
    if not is_there:
        log.info("a server of %s is started meanwhile; where it is used, it is waited for", specification.model)


def release_server(key: str) -> None:
    """Give up what `ask_for_server` holds of a server that was not used."""
    with _held.lock:
        early = _held.early.pop(key, None)
    if early is not None:
        early.boot.when_done(early.held.close)


@contextmanager
def lease_server(specification: Specification, key: str, log: logging.Logger) -> Iterator[Endpoint]:
    """Use the server of `key`, started or waited for if need be.

    Raises `EngineError` when it cannot be had.
    """
    folder = _folder(key)
    use = _use(key, specification)
    with _held.lock:
        in_the_way = [other for other, early in _held.early.items() if use.excludes(early.use)]
    for other in in_the_way:
        release_server(other)
    _refuse_waiting_for_oneself(use, specification)
    with ExitStack() as held:
        held.enter_context(_kept(folder, specification))
        _held.uses.append(use)
        held.callback(_held.uses.remove, use)
        with _held.lock:
            early = _held.early.get(key)
        try:
            begun = early.boot.result() if early is not None else None
        finally:
            release_server(key)
        yield _ready(folder, specification, 0, begun, log)


def _begin(folder: ServerFolder, specification: Specification, held: ExitStack) -> int | None:
    """Keep a server and have it started.

    The boot whose end concerns whoever asked for it.
    """
    held.enter_context(_kept(folder, specification))
    begins = not folder.supervised
    if begins:
        _start_supervisor(folder, specification)
    state = folder.state
    return state.boot if state is not None and (begins or state.phase.lives) else None


@contextmanager
def _kept(folder: ServerFolder, specification: Specification) -> Iterator[None]:
    """Hold the lock that keeps a server from being stopped as unused."""
    with ExitStack() as held:
        try:
            held.enter_context(locked(folder.lease, fcntl.LOCK_SH, _STOP_SECONDS))
        except TimeoutError as error:
            raise EngineError(
                f"the server of {specification.model} is being stopped and does not end: {error}"
            ) from None
        held.callback(folder.lease.touch)  # the idle time begins
        yield


def _folder(key: str) -> ServerFolder:
    try:
        folder = ServerFolder(runtime_folder() / key)
        folder.path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise EngineError(no_runtime_folder(error)) from None
    return folder


def _use(key: str, specification: Specification) -> _Use:
    return _Use(key, frozenset(specification.gpus), specification.share_gpu)


def restart_server(endpoint: Endpoint, log: logging.Logger) -> Endpoint:
    """Return the server that replaces one that died or hangs.

    All callers of the same one get the same. The supervisor first makes sure that it does hang. Raises `EngineError`
    when it was restarted too often, was stopped on purpose, or does not come up again. The caller holds a lease.
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
    """Have the supervisor restart the replica at `url` if it hangs.

    Returns the endpoint as it is now. Does not wait. A server that is being restarted is left alone; one that is gone
    as a whole is for `restart_server`.
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
                server_name(folder),
                reason,
            )
            request.touch()
    return now


def _current(folder: ServerFolder) -> Endpoint | None:
    """Return the server's endpoint if it is ready now."""
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
    report = StartReport(folder, log, restart=after > 0)
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
                raise EngineError(
                    f"{started} supervisors of {server_name(folder)} vanished; see {folder.supervisor_log}"
                )
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


def _refuse_waiting_for_oneself(use: _Use, specification: Specification) -> None:
    for other in _held.uses:
        if use.excludes(other):
            raise EngineError(
                f"{specification.model} needs GPU {', '.join(sorted(use.gpus & other.gpus))}, which this process still "
                "uses for another server: end that use first, or set share_gpu for both when they fit side by side"
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
