"""The folder of a server that processes share: specification, state, locks and logs.

GPUs are locked here too, for one server at a time or for all that fit side by side. The kernel releases a lock with the
last process that holds it, however it ends, so a lock is the only proof of life. This module uses only the standard
library.
"""

import fcntl
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from kopub.folders import runtime_folder
from kopub.states import phrase

POLL = 0.1
"""Seconds between two reads of a lock or state; a read takes two system calls."""


class Phase(StrEnum):
    """A phase of a server's life."""

    WAITING = "waiting"
    """It waits for the GPU."""
    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def is_live(self) -> bool:
        """True if the server answers or is about to."""
        return self not in (Phase.STOPPING, Phase.STOPPED, Phase.FAILED)


@dataclass(frozen=True, slots=True)
class Specification:
    """Everything a supervisor needs to run a server. Times are seconds.

    `command` lacks the port; `gpus` are as in CUDA_VISIBLE_DEVICES, assigned to the replicas in turn, in groups of
    `tensor_parallel`; `port` 0 means any free one; `images` says whether a readiness probe may contain a picture;
    `first_picture` and `first_text` are the sizes of the `first_count` requests that it answers before it counts as
    ready; `version` is what /version must answer, "" for any.
    """

    model: str
    command: tuple[str, ...]
    env: dict[str, str]
    gpus: tuple[str, ...] = ()
    tensor_parallel: int = 1
    share_gpu: bool = False
    replicas: int = 1
    mps: bool = False
    port: int = 0
    runner: str = "generate"
    images: bool = True
    first_picture: tuple[int, int] = (0, 0)
    first_text: int = 0
    first_count: int = 0
    version: str = ""
    start_timeout: float = 1800.0
    turn_timeout: float = 86_400.0
    idle_seconds: float = 600.0
    yield_seconds: float = 20.0
    hang_seconds: float = 30.0
    max_restarts: int = 3


@dataclass(frozen=True, slots=True)
class ServerState:
    """The state of a server, as last written by its supervisor.

    `boot` counts every start of a server with this specification. `since` and `restarts` are Unix times. `sessions` are
    (leader, its start time) of the sessions of the server's processes; `failed` is the replica whose log says most
    about a failure.
    """

    phase: Phase
    boot: int
    supervisor: int
    since: float
    reason: str = ""
    failed: int = 0
    urls: tuple[str, ...] = ()
    api_key: str = ""
    restarts: tuple[float, ...] = ()
    sessions: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ServerFolder:
    """The files of one server specification."""

    path: Path

    @property
    def lease(self) -> Path:
        """The file that users of the server lock (shared); its time is the last use."""
        return self.path / "lease"

    @property
    def supervisor(self) -> Path:
        """The file that the supervisor locks as long as it lives."""
        return self.path / "supervisor"

    @property
    def processes(self) -> Path:
        """The file locked by the supervisor and its guards until the last process ends."""
        return self.path / "processes"

    @property
    def starting(self) -> Path:
        """The file locked by a process that starts a supervisor."""
        return self.path / "starting"

    @property
    def supervisor_log(self) -> Path:
        return self.path / "supervisor.log"

    def log(self, replica: int) -> Path:
        """Return the log of a replica's last start; the previous start is in `.1`."""
        return self.path / f"server-{replica}.log"

    def restart_request(self, boot: int, replica: int | None = None) -> Path:
        """Return the file by which a client reports a boot, or a replica, as dead."""
        return self.path / (f"restart-{boot}" if replica is None else f"restart-{boot}-{replica}")

    @property
    def is_supervised(self) -> bool:
        """True if a supervisor is alive."""
        fd = try_lock(self.supervisor, fcntl.LOCK_SH)
        if fd is not None:
            os.close(fd)
        return fd is None

    @property
    def specification(self) -> Specification:
        values = _known_fields(Specification, json.loads((self.path / "specification.json").read_text("utf-8")))
        lists = {name: tuple(values[name]) for name in ("command", "gpus", "first_picture") if name in values}
        return Specification(**{**values, **lists})

    def write_specification(self, specification: Specification) -> None:
        self._write("specification.json", asdict(specification))

    @property
    def state(self) -> ServerState | None:
        """The state of the server; None before the first start, or if damaged."""
        try:
            values = _known_fields(ServerState, json.loads((self.path / "state.json").read_text("utf-8")))
            lists = {key: tuple(values[key]) for key in ("urls", "restarts")}
            sessions = tuple((leader, started) for leader, started in values["sessions"])
            return ServerState(**{**values, **lists, "phase": Phase(values["phase"]), "sessions": sessions})
        except (FileNotFoundError, ValueError, LookupError, TypeError):
            # Every start reads the states of all servers, so one that cannot be read must not stop it.
            return None

    def write_state(self, state: ServerState) -> None:
        self._write("state.json", asdict(state))

    @property
    def boot_seconds(self) -> float | None:
        """Seconds of the last start, or None if there was none."""
        try:
            return float((self.path / "boot_seconds").read_text())
        except FileNotFoundError:
            return None

    def write_boot_seconds(self, seconds: float) -> None:
        self._write("boot_seconds", round(seconds, 1))

    @property
    def stages(self) -> str:
        """Seconds of each stage of a replica's last start; empty if there was none."""
        try:
            return str(json.loads((self.path / "stages").read_text("utf-8")))
        except FileNotFoundError:
            return ""

    def write_stages(self, stages: str) -> None:
        self._write("stages", stages)

    def _write(self, name: str, value: Any) -> None:
        descriptor, scratch = tempfile.mkstemp(dir=self.path, prefix=name)  # mode 0600, because a state holds a key
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(value, file, ensure_ascii=False)
        os.replace(scratch, self.path / name)


def _known_fields(kind: type[Specification] | type[ServerState], values: Any) -> dict[str, Any]:
    """Return the stored values that `kind` has: another version of this code may write more."""
    return {field.name: values[field.name] for field in fields(kind) if field.name in values}


def no_runtime_folder(error: OSError) -> str:
    """Return the message for a person if `runtime_folder` fails."""
    return phrase("no folder for the servers' locks: {error}", error)


def server_folders() -> Iterator[ServerFolder]:
    """Yield the folders of all servers ever started on this machine."""
    for path in sorted(runtime_folder().glob("*/specification.json")):
        yield ServerFolder(path.parent)


def try_lock(path: Path, kind: int) -> int | None:
    """Return a descriptor that holds a lock (LOCK_SH or LOCK_EX) until closed, else None."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


@contextmanager
def locked(path: Path, kind: int, seconds: float) -> Iterator[int]:
    """Hold a lock. Raises `TimeoutError` if it is not free in time."""
    deadline = time.monotonic() + seconds
    while (fd := try_lock(path, kind)) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} was held by others for {seconds:g} s")
        time.sleep(POLL)
    try:
        yield fd
    finally:
        os.close(fd)


_REQUEST_SECONDS = 5.0
"""Age in seconds of an abandoned request; a waiting supervisor renews its request every `POLL` seconds."""
_REQUEST = "gpu-{}.wanted"
"""The file by which a server asks for a GPU that another one holds."""


@contextmanager
def hold_gpus(
    runtime: Path, gpus: Sequence[str], share: bool, wait: Callable[[str], None]
) -> Iterator[tuple[int, ...]]:
    """Hold the locks of `gpus`; yields their descriptors, which child processes may inherit.

    `wait(gpu)` is called until the GPU is free, and ends the wait by raising. There are no deadlocks, because all
    supervisors lock their GPUs in the same order, and one that nobody uses gives way to a request.
    """
    locks: list[int] = []
    with ExitStack() as closing:
        for gpu in sorted(set(gpus)):
            while (lock := try_lock(runtime / f"gpu-{gpu}", fcntl.LOCK_SH if share else fcntl.LOCK_EX)) is None:
                (runtime / _REQUEST.format(gpu)).touch()
                wait(gpu)
            locks.append(lock)
            closing.callback(os.close, lock)
        yield tuple(locks)


@contextmanager
def hold_starts(runtime: Path, gpus: Sequence[str], alone: bool, wait: Callable[[str], None]) -> Iterator[None]:
    """Hold the right to start on `gpus`, beside other starts or `alone`.

    `wait(gpu)` is called as in `hold_gpus`.
    """
    with ExitStack() as closing:
        for gpu in sorted(set(gpus)):
            while (
                lock := try_lock(runtime / f"gpu-{gpu}.starting", fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            ) is None:
                wait(gpu)
            closing.callback(os.close, lock)
        yield


def is_requested(runtime: Path, gpus: Sequence[str]) -> bool:
    """Return whether another server waits for one of the GPUs."""
    for gpu in gpus:
        try:
            if time.time() - (runtime / _REQUEST.format(gpu)).stat().st_mtime < _REQUEST_SECONDS:
                return True
        except FileNotFoundError:
            continue
    return False
