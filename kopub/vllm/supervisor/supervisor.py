"""The detached process that owns one server: it starts, watches, restarts and stops it.

`python -m kopub.vllm.supervisor.supervisor FOLDER` returns once the supervisor runs on its own (status 0), or if
another one was faster (status 3). This module uses only the standard library.
"""

import fcntl
import os
import secrets
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from kopub.vllm.endpoint import is_alive
from kopub.vllm.supervisor.process_guard import GUARD_SECONDS, kill_orphans
from kopub.vllm.supervisor.replica import Mps, OutOfGpuMemory, PortConflict, Replica, ServerFailure
from kopub.vllm.supervisor.server_state import (
    POLL,
    Phase,
    ServerFolder,
    ServerState,
    hold_gpus,
    hold_starts,
    is_requested,
    locked,
    server_folders,
    try_lock,
)

ANOTHER_RUNS = 3

_CLAIM_SECONDS = 2.0
"""Seconds to try for the lock, which other processes hold for an instant to check whether a supervisor is alive."""
_RESTART_WINDOW = 3600.0
"""Age in seconds beyond which restarts say nothing about the server's present health."""
_PORTS_TRIED = 3
"""Free ports to try, because another process may take one before the server binds it."""

_CROWDED = "the GPU's memory did not suffice while another server started on it"

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Stop(Exception):
    """The signal to stop the server although nothing is wrong."""


class Supervisor:
    """The owner of one server, from the lock on its GPU until it is stopped."""

    def __init__(self, folder: ServerFolder) -> None:
        self._folder = folder
        self._specification = folder.specification
        self._locks: tuple[int, ...] = ()
        self._last_use = time.time()
        before = folder.state
        boot = before.boot + 1 if before else 1
        # A previous life that did not end properly counts as a death of the server.
        restarts = (*before.restarts, time.time()) if before and before.phase.is_live else ()
        sessions = before.sessions if before else ()
        self._state = ServerState(Phase.WAITING, boot, os.getpid(), time.time(), restarts=restarts, sessions=sessions)
        self._replicas: list[Replica] = []
        self._mps = Mps(folder, self._specification.env)
        self._publish(Phase.WAITING)

    def run(self) -> None:
        """Run until stopped; a failure is written to the state, not raised."""
        self._publish(Phase.WAITING, supervisor=os.getpid())
        phase, reason, failed = Phase.STOPPED, "", 0
        try:
            # What dead supervisors and guards left behind may fill the GPU.
            for folder in server_folders():
                state = folder.state
                if state is not None and (folder == self._folder or not folder.is_supervised):
                    for leader, started in state.sessions:
                        kill_orphans(leader, started, ("vllm", "mps"))
            specification = self._specification
            with (
                locked(self._folder.processes, fcntl.LOCK_EX, GUARD_SECONDS) as processes,
                hold_gpus(
                    self._folder.path.parent, specification.gpus, specification.share_gpu, self._wait_for_gpu
                ) as gpus,
            ):
                self._locks = (processes, *gpus)
                began, key = time.monotonic(), secrets.token_urlsafe(32)
                for index in range(specification.replicas):
                    # The daemon of MPS may be another one at each start of a replica.
                    replica = Replica(self._folder, specification, index, key, lambda: self._mps.environment)
                    self._replicas.append(replica)
                self._bring_up(self._replicas, api_key=key)
                self._folder.write_boot_seconds(time.monotonic() - began)
                while True:
                    self._watch()
                    time.sleep(POLL)
        except Stop as stop:
            reason = str(stop)
        except ServerFailure as failure:
            phase, reason, failed = Phase.FAILED, str(failure), failure.replica
        except Exception as error:
            phase, reason = Phase.FAILED, f"the supervisor failed: {type(error).__name__}: {error}"
            raise
        finally:
            for number in _SIGNALS:  # one signal is enough, and the clean-up must not be interrupted
                signal.signal(number, signal.SIG_IGN)
            self._publish(Phase.STOPPING)
            for replica in self._replicas:
                replica.stop()
            self._mps.stop()
            self._publish(phase, reason=reason, failed=failed, urls=(), api_key="", sessions=())

    def _bring_up(self, replicas: list[Replica], **changes: Any) -> None:
        """Start replicas side by side, then those that lacked memory again, each alone."""
        late: list[Replica] = []
        runtime, gpus = self._folder.path.parent, self._specification.gpus
        with hold_starts(runtime, gpus, alone=False, wait=self._wait_for_starts):
            if self._specification.mps and (problem := self._mps.start(self._locks)):
                self._say(f"its replicas take turns on the GPU: {problem}")
            began = time.time()
            for replica in replicas:
                replica.start(self._locks)
            self._publish(Phase.STARTING, **changes)
            deadline = time.monotonic() + self._specification.start_timeout
            for replica in replicas:
                try:
                    self._wait_ready(replica, deadline)
                except OutOfGpuMemory as failure:
                    if not self._is_gpu_shared(replica, replicas, began):
                        raise
                    replica.stop()
                    self._publish(Phase.STARTING, reason=f"{_CROWDED} ({failure})")
                    self._say(f"replica {replica.index} starts again alone: {self._state.reason}")
                    late.append(replica)
        for replica in late:
            with hold_starts(runtime, gpus, alone=True, wait=self._wait_for_starts):
                replica.start(self._locks)
                self._publish(Phase.STARTING)
                self._wait_ready(replica, time.monotonic() + self._specification.start_timeout)
        self._publish(Phase.READY, urls=tuple(replica.url for replica in self._replicas))

    def _wait_ready(self, replica: Replica, deadline: float) -> None:
        for _ in range(_PORTS_TRIED):
            try:
                stages = replica.wait_ready(deadline)
                self._folder.write_stages(stages)
                return self._say(f"replica {replica.index} is ready: {stages}")
            except PortConflict:
                replica.stop()
                replica.start(self._locks)
                self._publish(Phase.STARTING)
        raise ServerFailure(f"{_PORTS_TRIED} free ports were taken by others before it could use one", replica.index)

    def _is_gpu_shared(self, replica: Replica, beside: list[Replica], since: float) -> bool:
        """Return whether another replica or server has started on a replica's GPU since a time."""
        if any(other is not replica and set(other.gpus) & set(replica.gpus) for other in beside):
            return True
        for folder in server_folders():
            if folder != self._folder and set(folder.specification.gpus) & set(replica.gpus):
                state = folder.state
                if state is not None and (state.since >= since or state.phase is Phase.STARTING):
                    return True
        return False

    def _watch(self) -> None:
        """Check the server, its users and other requests for the GPU once."""
        unused = self._idle_seconds()
        broken = [replica for replica in self._replicas if replica.has_ended()]
        if broken and unused is not None:
            raise ServerFailure(f"it died while nobody used it: {broken[0].cause}", broken[0].index)
        # Clients report the whole server as hanging, or single replicas.
        boot = self._state.boot
        requests = [self._folder.restart_request(boot)]
        everyone = requests[0].exists()
        reported: list[Replica] = []
        for replica in self._replicas:
            requests.append(self._folder.restart_request(boot, replica.index))
            if everyone or requests[-1].exists():
                reported.append(replica)
        if broken or reported:
            self._restart(broken, reported)
            for request in requests:
                request.unlink(missing_ok=True)
        elif unused is not None:
            limit = self._specification.idle_seconds
            if is_requested(self._folder.path.parent, self._specification.gpus):
                limit = min(limit, self._specification.yield_seconds)
            # A lease acquired here is held until this process ends, so newcomers wait and then start a new server.
            if unused >= limit and try_lock(self._folder.lease, fcntl.LOCK_EX) is not None:
                raise Stop(f"nobody used it for {limit:g} s")

    def _restart(self, broken: list[Replica], reported: list[Replica]) -> None:
        """Restart the broken replicas, and those reported ones that a probe finds hanging."""
        reason = f"it died: {broken[0].cause}" if broken else "it did not answer"
        for replica in reported:
            if replica not in broken and not is_alive(replica.target, self._specification.hang_seconds):
                broken.append(replica)
        if not broken:  # the report was a mistake, which the new boot shows to the client
            self._publish(Phase.READY, boot=self._state.boot + 1)
            return
        recent = tuple(at for at in self._state.restarts if time.time() - at < _RESTART_WINDOW)
        if len(recent) >= self._specification.max_restarts:
            raise ServerFailure(f"it was restarted {len(recent)} times within the hour, and {reason}", broken[0].index)
        self._publish(Phase.STARTING, boot=self._state.boot + 1, reason=reason, restarts=(*recent, time.time()))
        for replica in broken:
            replica.stop(at_once=True)
        self._bring_up(broken)

    def _idle_seconds(self) -> float | None:
        """Return the seconds since the last use, or None while anyone holds a lease."""
        lease = try_lock(self._folder.lease, fcntl.LOCK_EX)
        if lease is None:
            self._last_use = time.time()
            return None
        os.close(lease)
        return time.time() - max(self._last_use, self._folder.lease.stat().st_mtime)

    def _wait_for_gpu(self, name: str) -> None:
        """Wait for a GPU that another server holds."""
        if self._idle_seconds() is not None and time.time() - self._state.since > self._specification.yield_seconds:
            raise Stop("nobody waits for it any more")
        if time.time() - self._state.since > self._specification.turn_timeout:
            raise ServerFailure(f"GPU {name} was not free within {self._specification.turn_timeout:g} s")
        time.sleep(POLL)

    def _wait_for_starts(self, name: str) -> None:
        """Wait for servers that are starting on a GPU, each with its own time limit."""
        if self._idle_seconds() is not None and time.time() - self._last_use > self._specification.yield_seconds:
            raise Stop("nobody waits for it any more")
        time.sleep(POLL)

    def _say(self, message: str) -> None:
        """Write a line to the supervisor's log."""
        sys.stdout.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {message}\n")
        sys.stdout.flush()

    def _publish(self, phase: Phase, **changes: Any) -> None:
        """Write the state: the phase, which begins now, and what else changes."""
        if phase is Phase.STARTING:
            # What a later supervisor has to end if this one is killed.
            sessions: list[tuple[int, int]] = []
            for replica in self._replicas:
                sessions += replica.sessions
            changes["sessions"] = (*sessions, *self._mps.sessions)
        self._state = replace(self._state, phase=phase, since=time.time(), **changes)
        self._folder.write_state(self._state)


def main(path: str) -> int:
    """Claim the folder, then continue as a detached process."""
    folder = ServerFolder(Path(path))
    deadline = time.monotonic() + _CLAIM_SECONDS
    while try_lock(folder.supervisor, fcntl.LOCK_EX) is None:  # its descriptor is kept open to the end
        if time.monotonic() > deadline:
            return ANOTHER_RUNS
        time.sleep(POLL / 10)
    supervisor = Supervisor(folder)
    if os.fork():
        os._exit(0)  # the lock lives on in the child
    for number in _SIGNALS:
        signal.signal(number, _stop)
    supervisor.run()
    return 0


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stop("it was asked to stop")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
