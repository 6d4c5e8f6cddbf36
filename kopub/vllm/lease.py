"""The lease on a managed server, shared by processes, and the list of running servers."""

import fcntl
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from kopub.errors import EngineError
from kopub.folders import runtime_folder
from kopub.parallel import BackgroundTask
from kopub.vllm.endpoint import Endpoint
from kopub.vllm.supervisor.server_log import StartReport, server_name
from kopub.vllm.supervisor.server_state import (
    POLL,
    Phase,
    ServerFolder,
    ServerState,
    Specification,
    locked,
    no_runtime_folder,
    server_folders,
)
from kopub.vllm.supervisor.supervisor import ANOTHER_RUNS

_STOP_SECONDS = 120.0
"""Seconds to wait for a lease; a server that is just being stopped gives it up well within this time."""
_SPAWN_SECONDS = 60.0
"""Seconds for an interpreter to start on a busy machine."""
_SUPERVISORS = 3
"""Most supervisors that one caller starts; if so many vanish, something kills them."""
_ENDED = (Phase.STOPPED, Phase.FAILED)
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class _ServerUse:
    """A server that this process uses or has requested, with its GPUs."""

    key: str
    gpus: frozenset[str]
    shares: bool

    def excludes(self, other: "_ServerUse") -> bool:
        """Return whether the two cannot run at the same time."""
        return other.key != self.key and bool(other.gpus & self.gpus) and not (self.shares and other.shares)


@dataclass(frozen=True, slots=True)
class _EarlyLease:
    """A lease taken before the first use, and the boot that it caused or found."""

    use: _ServerUse
    locks: ExitStack
    boot: BackgroundTask[int | None]


@dataclass(frozen=True, slots=True)
class _ProcessLeases:
    """The leases that this process holds."""

    uses: list[_ServerUse] = field(default_factory=list)
    early: dict[str, _EarlyLease] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


_leases = _ProcessLeases()


def ask_for_server(specification: Specification, key: str, log: logging.Logger) -> None:
    """Request the start of the server of `key`, and keep it until it is leased.

    Returns at once; errors are reported by that lease. Nothing is requested for a server that would have to wait for
    one that this process already uses or has requested. Raises `EngineError` without a folder for its locks.
    """
    folder = _folder(key)
    use = _ServerUse(key, frozenset(specification.gpus), specification.share_gpu)
    with _leases.lock:
        others = [*_leases.uses, *(early.use for early in _leases.early.values())]
        if key in _leases.early or any(use == other or use.excludes(other) for other in others):
            return
        is_there, locks = folder.is_supervised, ExitStack()
        _leases.early[key] = _EarlyLease(use, locks, BackgroundTask(lambda: _start_early(folder, specification, locks)))
    if not is_there:
        log.info("a server of %s is started meanwhile; where it is used, it is waited for", specification.model)


def release_server(key: str) -> None:
    """Give up the lease that `ask_for_server` holds on an unused server."""
    with _leases.lock:
        early = _leases.early.pop(key, None)
    if early is not None:
        early.boot.when_done(early.locks.close)


@contextmanager
def lease_server(specification: Specification, key: str, log: logging.Logger) -> Iterator[Endpoint]:
    """Use the server of `key`, after starting or awaiting it if needed. Raises `EngineError`."""
    folder = _folder(key)
    use = _ServerUse(key, frozenset(specification.gpus), specification.share_gpu)
    with _leases.lock:
        in_the_way = [other_key for other_key, early in _leases.early.items() if use.excludes(early.use)]
    for other_key in in_the_way:
        release_server(other_key)
    for other in _leases.uses:
        if use.excludes(other):
            # It would wait for the end of a use by this very process.
            form = (
                "{model} needs GPU {gpus}, which this process still uses for another server: end that use first, or "
                "set share_gpu for both when they fit side by side"
            )
            raise EngineError(form, specification.model, ", ".join(sorted(use.gpus & other.gpus)))
    with ExitStack() as lease:
        lease.enter_context(_hold_lease(folder, specification))
        _leases.uses.append(use)
        lease.callback(_leases.uses.remove, use)
        with _leases.lock:
            early = _leases.early.get(key)
        try:
            boot = early.boot.result() if early is not None else None
        finally:
            release_server(key)
        yield _wait_ready(folder, specification, 0, boot, log)


def _start_early(folder: ServerFolder, specification: Specification, locks: ExitStack) -> int | None:
    """Hold a server's lease, start it if needed, and return the boot to wait for."""
    locks.enter_context(_hold_lease(folder, specification))
    begins = not folder.is_supervised
    if begins:
        _start_supervisor(folder, specification)
    state = folder.state
    return state.boot if state is not None and (begins or state.phase.is_live) else None


@contextmanager
def _hold_lease(folder: ServerFolder, specification: Specification) -> Iterator[None]:
    """Hold the lock that prevents a server from being stopped as unused."""
    with ExitStack() as lease:
        try:
            lease.enter_context(locked(folder.lease, fcntl.LOCK_SH, _STOP_SECONDS))
        except TimeoutError as error:
            form = "the server of {model} is being stopped and does not end: {reason}"
            raise EngineError(form, specification.model, error) from None
        lease.callback(folder.lease.touch)  # the idle time begins when the lease ends
        yield


def _folder(key: str) -> ServerFolder:
    try:
        folder = ServerFolder(runtime_folder() / key)
        folder.path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise EngineError(no_runtime_folder(error)) from None
    return folder


def restart_server(endpoint: Endpoint, log: logging.Logger) -> Endpoint:
    """Return the server that replaces one that died or hangs; the caller holds a lease.

    All callers get the same one, and the supervisor first checks that the server does hang. Raises `EngineError` if it
    was restarted too often, was stopped on purpose, or does not come up again.
    """
    assert endpoint.folder is not None
    folder = ServerFolder(endpoint.folder)
    boot, now = endpoint.boot, _current(folder)
    if now is not None and now.boot > boot:
        # This boot may be older than the death, because restarting one replica also makes a boot but keeps its URL.
        if now.targets != endpoint.targets or now.alive(folder.specification.hang_seconds):
            return now
        boot = now.boot
    folder.restart_request(boot).touch()
    return _wait_ready(folder, None, boot, boot, log)


def restart_replica(endpoint: Endpoint, url: str, reason: str, log: logging.Logger) -> Endpoint:
    """Request a restart of the replica at `url` if it hangs; return the present endpoint.

    A server that is being restarted is left alone; one that is lost as a whole is a case for `restart_server`.
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
    """Return the server's endpoint if the server is ready now."""
    if not folder.is_supervised:
        return None
    state = folder.state
    return _endpoint(folder, state) if state is not None and state.phase is Phase.READY else None


def _wait_ready(
    folder: ServerFolder, specification: Specification | None, after: int, joined: int | None, log: logging.Logger
) -> Endpoint:
    """Wait for a ready server of a boot after `after`, starting supervisors as needed.

    `joined` is the boot whose end the caller must notice, or None until there is one.
    """
    report = StartReport(folder, log, restart=after > 0)
    started = 0
    while True:
        supervised = folder.is_supervised
        state = folder.state
        if state is not None and supervised and state.phase.is_live:
            joined = state.boot if joined is None else joined
            if state.phase is Phase.READY and state.boot > after:
                report.ready(state)
                return _endpoint(folder, state)
            report.progress(state)
        elif state is not None and joined is not None and state.boot >= joined and state.phase in _ENDED:
            raise report.failure(state)
        elif not supervised:  # this includes a supervisor killed while it stopped the server
            if started == _SUPERVISORS:
                form = "{count} supervisors of {server} vanished; see {log}"
                raise EngineError(form, started, server_name(folder), folder.supervisor_log)
            _start_supervisor(folder, specification)
            started += 1
            # The state read before the start is outdated.
            after_start = folder.state
            joined = after_start.boot if after_start else joined
            continue
        time.sleep(POLL)


def _start_supervisor(folder: ServerFolder, specification: Specification | None) -> None:
    try:
        with locked(folder.starting, fcntl.LOCK_EX, _SPAWN_SECONDS), folder.supervisor_log.open("ab") as output:
            if folder.is_supervised:
                return
            if specification is not None:
                folder.write_specification(specification)
            status = subprocess.run(
                [sys.executable, "-m", "kopub.vllm.supervisor.supervisor", str(folder.path)],
                cwd=_ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                timeout=_SPAWN_SECONDS,
                check=False,
            ).returncode
    except (TimeoutError, subprocess.TimeoutExpired) as error:
        raise EngineError("the supervisor of the server could not be started in time: {error}", error) from None
    if status not in (0, ANOTHER_RUNS):
        lines = folder.supervisor_log.read_text("utf-8", errors="replace").splitlines()
        raise EngineError("the supervisor of the server did not start: {error}", lines[-1] if lines else "no message")


def _endpoint(folder: ServerFolder, state: ServerState) -> Endpoint:
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


LOCKS = Path("/proc/locks")
"""The kernel's list of locks, which some containers (gVisor) lack."""
_STOPPED_SECONDS = 60.0
"""Seconds for a server's grace period, and for killing one that does not end in it."""


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A running server's present state, and whether it is used.

    `users` are the processes that hold a lease on it, as far as the kernel lists them.
    """

    folder: ServerFolder
    specification: Specification
    state: ServerState
    in_use: bool
    users: tuple[int, ...]

    @property
    def key(self) -> str:
        return self.folder.path.name

    @property
    def idle_left(self) -> float | None:
        """Seconds until the server is stopped; None while it is used or not ready."""
        if self.in_use or self.state.phase is not Phase.READY:
            return None
        last_use = max(self.folder.lease.stat().st_mtime, self.state.since)
        return max(0.0, last_use + self.specification.idle_seconds - time.time())


def list_servers() -> list[RunningServer]:
    """Return this user's servers that run or are starting. Raises `EngineError`."""
    try:
        folders = list(server_folders())
    except OSError as error:
        raise EngineError(no_runtime_folder(error)) from None
    servers: list[RunningServer] = []
    for folder in folders:
        state = folder.state
        if state is None or state.phase in _ENDED or not folder.is_supervised:
            continue
        users = _lock_holders(folder.lease) - {state.supervisor}
        in_use = bool(users)
        if not users and state.phase.is_live:
            # The kernel may list no locks, or only those of this container; the lock itself tells without names.
            try:
                with locked(folder.lease, fcntl.LOCK_EX, POLL):  # for an instant, the supervisor has the same lock
                    pass
            except TimeoutError:
                in_use = True
        servers.append(RunningServer(folder, folder.specification, state, in_use, tuple(sorted(users))))
    return servers


def stop_server(server: RunningServer, force: bool = False) -> None:
    """Stop a server, and return once its last process is gone.

    Raises `EngineError` if the server is in use, unless forced.
    """
    if server.in_use and not force:
        if not server.users:
            raise EngineError("{model} is in use; --force stops it all the same", server.specification.model)
        form = "{model} is in use by process {users}; --force stops it all the same"
        raise EngineError(form, server.specification.model, ", ".join(map(str, server.users)))
    with suppress(ProcessLookupError):  # the server may have just stopped on its own
        os.kill(server.state.supervisor, signal.SIGTERM)
    deadline = time.monotonic() + _STOPPED_SECONDS
    while server.folder.is_supervised:
        if time.monotonic() > deadline:
            form = "{model} does not stop; see {log}"
            raise EngineError(form, server.specification.model, server.folder.supervisor_log)
        time.sleep(POLL)


def _lock_holders(path: Path) -> set[int]:
    """Return the processes that lock a file, as far as the kernel lists them."""
    holders: set[int] = set()
    if not path.exists() or not LOCKS.exists():
        return holders
    inode = str(path.stat().st_ino)
    for line in LOCKS.read_text().splitlines():
        # 1: FLOCK  ADVISORY  READ 1234 08:01:5678 0 EOF
        row = line.split()
        if row[1] != "FLOCK" or row[5].rpartition(":")[2] != inode:
            continue
        # A file on another disk may have the same inode, and the device listed is not always that of `stat`, so the
        # process must have this one open; if its files may not be looked at, it counts.
        is_holder = True
        with suppress(OSError):
            is_holder = any(file.exists() and file.samefile(path) for file in Path(f"/proc/{row[4]}/fd").iterdir())
        if is_holder:
            holders.add(int(row[4]))
    return holders
