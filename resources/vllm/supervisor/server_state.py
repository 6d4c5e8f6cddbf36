"""The state of a server that all processes of a machine share: a folder with its specification, state, locks and logs.

The kernel drops a lock with the last process that holds it, however that one ends, so a lock is
the only proof of life here. Standard library only.
"""

import fcntl
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

POLL = 0.1
"""Seconds between two reads of a lock or a state; a read is two system calls."""


class Phase(StrEnum):
    """Where a server is in its life."""

    WAITING = "waiting"
    """For the GPU."""
    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def lives(self) -> bool:
        """Whether it answers or is about to."""
        return self not in (Phase.STOPPING, Phase.STOPPED, Phase.FAILED)


@dataclass(frozen=True, slots=True)
class Specification:
    """Everything a supervisor needs to run a server. Times are seconds.

    `command` lacks the port; `gpus` are as in CUDA_VISIBLE_DEVICES, given to the replicas by turns, in groups of
    `tensor_parallel`;
    `port` 0 is any free one; `images` tells whether a readiness probe may carry a picture;
    `version` is what /version must answer, "" for any.
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
    version: str = ""
    start_timeout: float = 1800.0
    turn_timeout: float = 86_400.0
    idle_seconds: float = 600.0
    yield_seconds: float = 20.0
    hang_seconds: float = 30.0
    max_restarts: int = 3


@dataclass(frozen=True, slots=True)
class State:
    """`boot` counts every start of a server of this specification.

    `since` and `restarts` are Unix times. `sessions` are (leader, its start time) of the sessions that the server's
    processes live in; `failed` is the replica whose log tells most about a failure.
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
        """Locked shared by everyone who uses the server; its time stamp is the last use."""
        return self.path / "lease"

    @property
    def supervisor(self) -> Path:
        """Locked by the supervisor as long as it lives."""
        return self.path / "supervisor"

    @property
    def processes(self) -> Path:
        """Locked by the supervisor and its guards: until the last process is gone, also when one of them was killed."""
        return self.path / "processes"

    @property
    def starting(self) -> Path:
        """Locked by who starts a supervisor."""
        return self.path / "starting"

    @property
    def supervisor_log(self) -> Path:
        return self.path / "supervisor.log"

    def log(self, replica: int) -> Path:
        """Return what a replica printed since its last start; the start before is in `.1`."""
        return self.path / f"server-{replica}.log"

    def restart_request(self, boot: int, replica: int | None = None) -> Path:
        """Exists when a client found the server of that boot, or one replica of it, dead or hanging."""
        return self.path / (f"restart-{boot}" if replica is None else f"restart-{boot}-{replica}")

    @property
    def supervised(self) -> bool:
        """Whether a supervisor is alive."""
        fd = try_lock(self.supervisor, fcntl.LOCK_SH)
        if fd is not None:
            os.close(fd)
        return fd is None

    @property
    def specification(self) -> Specification:
        known = {field.name for field in fields(Specification)}
        stored = json.loads((self.path / "specification.json").read_text("utf-8"))
        # A supervisor of another version of this code may have written more.
        values = {name: value for name, value in stored.items() if name in known}
        return Specification(**{**values, "command": tuple(values["command"]), "gpus": tuple(values["gpus"])})

    def write_specification(self, specification: Specification) -> None:
        self._write("specification.json", asdict(specification))

    @property
    def state(self) -> State | None:
        """None before the first start."""
        try:
            values = json.loads((self.path / "state.json").read_text("utf-8"))
        except FileNotFoundError:
            return None
        lists = {key: tuple(values[key]) for key in ("urls", "restarts")}
        sessions = tuple((leader, started) for leader, started in values["sessions"])
        return State(**{**values, **lists, "phase": Phase(values["phase"]), "sessions": sessions})

    def write_state(self, state: State) -> None:
        self._write("state.json", asdict(state))

    @property
    def boot_seconds(self) -> float | None:
        """How long the last start took; None when there was none."""
        try:
            return float((self.path / "boot_seconds").read_text())
        except FileNotFoundError:
            return None

    def write_boot_seconds(self, seconds: float) -> None:
        self._write("boot_seconds", round(seconds, 1))

    @property
    def stages(self) -> str:
        """How long each stage of a replica's last start took; empty when there was none."""
        try:
            return str(json.loads((self.path / "stages").read_text("utf-8")))
        except FileNotFoundError:
            return ""

    def write_stages(self, stages: str) -> None:
        self._write("stages", stages)

    def _write(self, name: str, value: Any) -> None:
        descriptor, scratch = tempfile.mkstemp(dir=self.path, prefix=name)  # of mode 0600: a state holds a key
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(value, file, ensure_ascii=False)
        os.replace(scratch, self.path / name)


def runtime_folder() -> Path:
    """The folder of this user's servers on this machine, made if need be: $KOPUB_RUNTIME, else in the system's /tmp.

    It belongs to the machine, as GPUs do, and to no session or checkout: a daemon and a command
    line must find the same servers. Raises `PermissionError` for a folder that others could have put there.
    """
    chosen = os.environ.get("KOPUB_RUNTIME")
    folder = Path(chosen) if chosen else Path("/tmp") / f"kopub-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(f"{folder} must belong to you alone (mode 0700); set KOPUB_RUNTIME to another folder")
    return folder


def no_runtime_folder(error: OSError) -> str:
    """Return the message for a person when `runtime_folder` fails."""
    return f"no folder for the servers' locks: {error}"


def server_folders() -> Iterator[ServerFolder]:
    """Yield the folders of all servers that were ever started on this machine."""
    for path in sorted(runtime_folder().glob("*/specification.json")):
        yield ServerFolder(path.parent)


def try_lock(path: Path, kind: int) -> int | None:
    """A descriptor that holds a lock of `kind` (LOCK_SH or LOCK_EX) until it is closed; None when others hold it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


@contextmanager
def locked(path: Path, kind: int, seconds: float) -> Iterator[int]:
    """Hold a lock; raises `TimeoutError` when it is not to be had in time."""
    deadline = time.monotonic() + seconds
    while (fd := try_lock(path, kind)) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} was held by others for {seconds:g} s")
        time.sleep(POLL)
    try:
        yield fd
    finally:
        os.close(fd)


def moved(state: State, phase: Phase, **changes: Any) -> State:
    """`state` in another phase, from now on."""
    return replace(state, phase=phase, since=time.time(), **changes)
