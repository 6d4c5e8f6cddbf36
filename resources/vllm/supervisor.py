"""The detached process that owns one server: starts it, watches it, starts it again, and stops it when nobody uses it.

`python -m resources.vllm.supervisor FOLDER` returns once the supervisor runs on its own (status 0)
or another one was faster (status 3). Standard library only.
"""

import fcntl
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import IO

from resources.vllm import gpu
from resources.vllm.diagnosis import likely_cause, port_taken
from resources.vllm.folder import (
    POLL,
    Phase,
    ServerFolder,
    Specification,
    State,
    locked,
    moved,
    server_folders,
    try_lock,
)
from resources.vllm.processes import kill_orphans, kill_session, start_time
from resources.vllm.ready import BadProbe, NotListening, Target, answers, probe, version

ANOTHER_RUNS = 3
TAIL = 60
"""Lines at a log's end that are searched for the cause: a traceback and what led to it."""

_CLAIM_SECONDS = 2.0
"""Others look whether a supervisor lives by holding its lock for an instant."""
_RESTART_WINDOW = 3600.0
"""Restarts older than this say nothing about the server's health now."""
_PORTS_TRIED = 3
"""Free ports that another process may snatch away before the server binds one."""
_GUARD_SECONDS = 30.0
"""Longer than a guard takes at worst: its grace, then ten seconds of killing."""
_FAULT = 500
"""First HTTP status that is the server's fault and may pass; below, the probe itself was refused."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_ROOT = Path(__file__).resolve().parents[2]


class Stop(Exception):
    """The server is to be stopped; nothing is wrong."""


class ServerFailed(Exception):
    """The server cannot be brought to work."""


class PortLost(Exception):
    """Another process took the port between its choice and its use."""


class Replica:
    """One `vllm serve` with everything it starts, below a guard."""

    def __init__(self, folder: ServerFolder, specification: Specification, index: int, api_key: str) -> None:
        self._folder = folder
        self._specification = specification
        self._index = index
        self._api_key = api_key
        self._guard: subprocess.Popen[bytes] | None = None
        self.port = specification.port + index if specification.port else _free_port()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def target(self) -> Target:
        """What to probe."""
        specification = self._specification
        return Target(self.url, self._api_key, specification.model, specification.runner, specification.images)

    @property
    def session(self) -> tuple[int, int]:
        """Leader and its start time."""
        assert self._guard is not None
        return self._guard.pid, start_time(self._guard.pid) or 0

    @property
    def cause(self) -> str:
        """Why it ended, or does not come up, as far as its log and exit status tell."""
        return likely_cause(self._log_tail, self._guard.poll() if self._guard else None)

    @property
    def _log_tail(self) -> list[str]:
        return self._folder.log(self._index).read_text("utf-8", errors="replace").splitlines()[-TAIL:]

    def start(self, kept: tuple[int, ...]) -> None:
        """Start it; the locks `kept` stay held until its last process is gone."""
        if self._specification.port and not _is_free(self.port):
            raise ServerFailed(f"port {self.port} is taken; free it, or leave `port` at 0 for any free one")
        command = [sys.executable, "-m", "resources.vllm.guard", str(self._folder.path), *self._specification.command]
        with self._new_log() as log:
            self._guard = subprocess.Popen(
                [*command, "--port", str(self.port)],
                cwd=_ROOT,
                env=self._environment(),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=kept,
                start_new_session=True,
            )

    def ended(self) -> bool:
        return self._guard is not None and self._guard.poll() is not None

    def stop(self, at_once: bool = False) -> None:
        """Stop it and everything it started; SIGTERM first unless `at_once`."""
        if self._guard is None:
            return
        assert self._guard.stdin is not None
        with suppress(BrokenPipeError):
            if at_once:
                self._guard.stdin.write(b"!")
            self._guard.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._guard.wait(_GUARD_SECONDS)
        self._guard.kill()
        self._guard.wait()
        kill_session(self._guard.pid)
        self._guard = None

    def wait_ready(self, deadline: float) -> None:
        """Return when it has generated something; raises `PortLost` for a port that others took, or `ServerFailed`."""
        seconds = self._specification.start_timeout
        problem = "it did not open its port"
        while time.monotonic() < deadline:
            if self.ended():
                if port_taken(self._log_tail) and not self._specification.port:
                    raise PortLost
                raise ServerFailed(f"it ended during its start: {self.cause}")
            try:
                # A first answer may include minutes of compiling, so it gets all the time there is.
                probe(self.target, max(1.0, deadline - time.monotonic()))
            except NotListening:
                time.sleep(POLL)
            except BadProbe as error:
                if error.status < _FAULT:
                    raise ServerFailed(f"it refuses a plain request: {error}") from None
                problem = str(error)
                time.sleep(POLL)
            except TimeoutError as error:
                problem = str(error)
            else:
                self._check_version()
                return
        raise ServerFailed(f"it was not ready within {seconds:g} s ({problem}; {self.cause})")

    def new_port(self) -> None:
        self.port = _free_port()

    def _check_version(self) -> None:
        expected = self._specification.version
        running = version(self.target)
        # A local part (+cpu, +cu130) names the build, not the code.
        if expected and running.partition("+")[0] != expected.partition("+")[0]:
            raise ServerFailed(
                f"it is vLLM {running}, the profile says {expected}; install that, or change `version` "
                "(which makes the results of the other one outdated)"
            )

    def _environment(self) -> dict[str, str]:
        gpus = self._specification.gpus
        # Helpers that a server calls (compilers' front ends, ninja) lie beside its program.
        beside = str(Path(self._specification.command[0]).parent)
        return {
            **os.environ,
            "PATH": f"{beside}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            **self._specification.env,
            **({"CUDA_VISIBLE_DEVICES": gpus[self._index % len(gpus)]} if gpus else {}),
            "VLLM_API_KEY": self._api_key,
        }

    def _new_log(self) -> IO[bytes]:
        path = self._folder.log(self._index)
        if path.exists():
            path.replace(path.with_suffix(".log.1"))
        return path.open("ab")


class Supervisor:
    """One server's life, from its turn on the GPU to its stop. Its public state is in the folder."""

    def __init__(self, folder: ServerFolder) -> None:
        self._folder = folder
        self._specification = folder.specification
        self._kept: tuple[int, ...] = ()
        self._last_use = time.time()
        before = folder.state
        boot = before.boot + 1 if before else 1
        # A life that did not end by itself counts as a death of the server.
        restarts = (*before.restarts, time.time()) if before and before.phase.lives else ()
        sessions = before.sessions if before else ()
        self._state = State(Phase.WAITING, boot, os.getpid(), time.time(), restarts=restarts, sessions=sessions)
        self._replicas: list[Replica] = []
        self._publish(Phase.WAITING)

    def run(self) -> None:
        """Live until stopped; never raises for what the state can say."""
        self._publish(Phase.WAITING, supervisor=os.getpid())
        phase, reason = Phase.STOPPED, ""
        try:
            self._end_orphans()
            specification = self._specification
            with (
                locked(self._folder.processes, fcntl.LOCK_EX, _GUARD_SECONDS) as processes,
                gpu.turn(self._folder.path.parent, specification.gpus, specification.share_gpu, self._wait) as gpus,
            ):
                self._kept = (processes, *gpus)
                self._start()
                while True:
                    self._watch()
                    time.sleep(POLL)
        except Stop as stop:
            reason = str(stop)
        except ServerFailed as failed:
            phase, reason = Phase.FAILED, str(failed)
        except Exception as error:
            phase, reason = Phase.FAILED, f"the supervisor failed: {type(error).__name__}: {error}"
            raise
        finally:
            _ignore_signals()
            self._publish(Phase.STOPPING)
            for replica in self._replicas:
                replica.stop()
            self._publish(phase, reason=reason, urls=(), api_key="", sessions=())

    def _end_orphans(self) -> None:
        """End what supervisors left behind that were killed together with their guards: it may fill the GPU."""
        for folder in server_folders():
            state = folder.state
            if state is not None and (folder == self._folder or not folder.supervised):
                for leader, started in state.sessions:
                    kill_orphans(leader, started, "vllm")

    def _start(self) -> None:
        started = time.monotonic()
        key = secrets.token_urlsafe(32)
        count = self._specification.replicas
        self._replicas = [Replica(self._folder, self._specification, index, key) for index in range(count)]
        self._bring_up(self._replicas, api_key=key)
        self._folder.write_boot_seconds(time.monotonic() - started)

    def _bring_up(self, replicas: list[Replica], **changes: object) -> None:
        for replica in replicas:
            replica.start(self._kept)
        self._publish(Phase.STARTING, sessions=self._sessions(), **changes)
        deadline = time.monotonic() + self._specification.start_timeout
        for replica in replicas:
            for _ in range(_PORTS_TRIED):
                try:
                    replica.wait_ready(deadline)
                    break
                except PortLost:
                    replica.stop()
                    replica.new_port()
                    replica.start(self._kept)
                    self._publish(Phase.STARTING, sessions=self._sessions())
            else:
                raise ServerFailed(f"{_PORTS_TRIED} free ports were taken by others before it could use one")
        self._publish(Phase.READY, urls=tuple(replica.url for replica in self._replicas))

    def _sessions(self) -> tuple[tuple[int, int], ...]:
        return tuple(replica.session for replica in self._replicas)

    def _watch(self) -> None:
        """One look at the server, at its users and at who else wants the GPU."""
        unused = self._unused()
        broken = [replica for replica in self._replicas if replica.ended()]
        if broken and unused is not None:
            raise ServerFailed(f"it died while nobody used it: {broken[0].cause}")
        request = self._folder.restart_request(self._state.boot)
        if broken or request.exists():
            self._restart(broken)
            request.unlink(missing_ok=True)
        elif unused is not None:
            limit = self._specification.idle_seconds
            if gpu.wanted(self._folder.path.parent, self._specification.gpus):
                limit = min(limit, self._specification.yield_seconds)
            if unused >= limit:
                self._stop_unused(limit)

    def _restart(self, broken: list[Replica]) -> None:
        reason = f"it died: {broken[0].cause}" if broken else "it did not answer"
        for replica in self._replicas:
            if replica not in broken and not answers(replica.target, self._specification.hang_seconds):
                broken.append(replica)
        if not broken:  # whoever asked was mistaken, and now has an answer
            self._publish(Phase.READY, boot=self._state.boot + 1)
            return
        recent = tuple(at for at in self._state.restarts if time.time() - at < _RESTART_WINDOW)
        if len(recent) >= self._specification.max_restarts:
            raise ServerFailed(f"it was restarted {len(recent)} times within the hour, and {reason}")
        self._publish(Phase.STARTING, boot=self._state.boot + 1, reason=reason, restarts=(*recent, time.time()))
        for replica in broken:
            replica.stop(at_once=True)
        self._bring_up(broken)

    def _unused(self) -> float | None:
        """Seconds since the last use, None while someone holds a lease."""
        lease = try_lock(self._folder.lease, fcntl.LOCK_EX)
        if lease is None:
            self._last_use = time.time()
            return None
        os.close(lease)
        return time.time() - max(self._last_use, self._folder.lease.stat().st_mtime)

    def _stop_unused(self, limit: float) -> None:
        lease = try_lock(self._folder.lease, fcntl.LOCK_EX)
        if lease is not None:  # held until this process ends: who comes now waits, and then starts a new server
            raise Stop(f"nobody used it for {limit:g} s")

    def _wait(self, name: str) -> None:
        """Wait for a GPU that another server holds."""
        if self._unused() is not None and time.time() - self._state.since > self._specification.yield_seconds:
            raise Stop("nobody waits for it any more")
        if time.time() - self._state.since > self._specification.turn_timeout:
            raise ServerFailed(f"GPU {name} was not free within {self._specification.turn_timeout:g} s")
        time.sleep(POLL)

    def _publish(self, phase: Phase, **changes: object) -> None:
        self._state = moved(self._state, phase, **changes)
        self._folder.write_state(self._state)


def main(path: str) -> int:
    """Claim the folder, then live on as a process of one's own."""
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
        signal.signal(number, _asked_to_stop)
    supervisor.run()
    return 0


def _asked_to_stop(number: int, frame: FrameType | None) -> None:
    raise Stop("it was asked to stop")


def _ignore_signals() -> None:
    """One is enough; the clean-up must not be cut short."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _is_free(port: int) -> bool:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
