"""The managed servers that run on this machine."""

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from resources.errors import EngineError
from resources.vllm.supervisor.server_state import (
    POLL,
    Phase,
    ServerFolder,
    Specification,
    State,
    no_runtime_folder,
    server_folders,
)

LOCKS = Path("/proc/locks")
"""What the kernel says of locks; containers of some kinds (gVisor) lack it."""
_STOP_SECONDS = 60.0
"""A server's grace, and the killing of one that does not use it."""


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server as it is now.

    `users` are the processes that hold a lease on it.
    """

    folder: ServerFolder
    specification: Specification
    state: State
    users: tuple[int, ...]

    @property
    def key(self) -> str:
        return self.folder.path.name

    @property
    def idle_left(self) -> float | None:
        """Seconds until it is stopped; None while it is used or not ready."""
        if self.users or self.state.phase is not Phase.READY:
            return None
        last_use = max(self.folder.lease.stat().st_mtime, self.state.since)
        return max(0.0, last_use + self.specification.idle_seconds - time.time())


def servers() -> list[RunningServer]:
    """Return every server of this user that runs or is about to.

    Raises `EngineError` without a folder to look in.
    """
    try:
        folders = list(server_folders())
    except OSError as error:
        raise EngineError(no_runtime_folder(error)) from None
    found: list[RunningServer] = []
    for folder in folders:
        state = folder.state
        if state is not None and folder.supervised and state.phase not in (Phase.STOPPED, Phase.FAILED):
            found.append(RunningServer(folder, folder.specification, state, _lock_holders(folder.lease)))
    return found


def stop(server: RunningServer, force: bool = False) -> None:
    """Stop a server and return when its last process is gone.

    Raises `EngineError` for one in use, unless forced.
    """
    if server.users and not force:
        users = ", ".join(map(str, server.users))
        raise EngineError(f"{server.specification.model} is in use by process {users}; --force stops it all the same")
    with suppress(ProcessLookupError):  # it has just stopped by itself
        os.kill(server.state.supervisor, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_SECONDS
    while server.folder.supervised:
        if time.monotonic() > deadline:
            raise EngineError(f"{server.specification.model} does not stop; see {server.folder.supervisor_log}")
        time.sleep(POLL)


def _lock_holders(path: Path) -> tuple[int, ...]:
    """Processes that hold a lock on a file, as the kernel tells.

    Looking does not disturb the lock. None where the kernel does not tell.
    """
    if not path.exists() or not LOCKS.exists():
        return ()
    inode = str(path.stat().st_ino)
    # 1: FLOCK  ADVISORY  READ 1234 08:01:5678 0 EOF
    rows = (line.split() for line in LOCKS.read_text().splitlines())
    return tuple(sorted({int(row[4]) for row in rows if row[1] == "FLOCK" and row[5].rpartition(":")[2] == inode}))
