"""One `vllm serve` with its processes, and NVIDIA's MPS.

Replicas of a server share the Multi-Process Service. Without MPS, processes take turns on a GPU. With it, their kernels
run at the same time: one replica uses what another's step leaves free. The control daemon belongs to the supervisor: it
ends with the server, and has no other clients on the machine. This module uses only the standard library.
"""

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from kopub.processes import beside_program, lasting_caches
from kopub.vllm.endpoint import BadProbe, FirstRequests, Target, UnreachableServer, probe, version, warm_up
from kopub.vllm.supervisor.process_guard import GuardedProcess
from kopub.vllm.supervisor.server_log import MEMORY_LACKED, PORT_TAKEN, likely_cause, stages
from kopub.vllm.supervisor.server_state import POLL, ServerFolder, Specification

_TAIL = 400
"""Lines at a log's end that are searched for the cause: tracebacks of an engine and of processes that wait for it."""
_FAULT = 500
"""First HTTP status that is the server's fault and may be temporary; below, the probe itself was refused."""


class ServerFailure(Exception):
    """The error that a server does not work; the log of `replica` says most."""

    def __init__(self, reason: str, replica: int = 0) -> None:
        super().__init__(reason)
        self.replica = replica


class OutOfGpuMemory(ServerFailure):
    """The error that a replica ended for lack of GPU memory.

    A concurrent start may be the reason, because vLLM measures the free memory.
    """


class PortConflict(Exception):
    """The error that another process took the port between its choice and its use."""


class Replica:
    """One `vllm serve` with everything that it starts, under a guard.

    `beside` returns environment variables that may differ from start to start.
    """

    def __init__(
        self,
        folder: ServerFolder,
        specification: Specification,
        index: int,
        api_key: str,
        beside: Callable[[], Mapping[str, str]],
    ) -> None:
        self._folder = folder
        self._specification = specification
        self.index = index
        self._api_key = api_key
        self._beside = beside
        self._server: GuardedProcess | None = None
        self._began = 0.0
        self.port = specification.port + index if specification.port else _free_port()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def target(self) -> Target:
        """The target for probes."""
        specification = self._specification
        return Target(self.url, self._api_key, specification.model, specification.runner, specification.images)

    @property
    def gpus(self) -> tuple[str, ...]:
        """This replica's share of the server's GPUs; none for a CPU build."""
        gpus, group = self._specification.gpus, self._specification.tensor_parallel
        first = group * (self.index % max(1, len(gpus) // group))
        return gpus[first : first + group]

    @property
    def sessions(self) -> tuple[tuple[int, int], ...]:
        """Leader and start time of its session; none before its start."""
        return () if self._server is None else (self._server.session,)

    @property
    def cause(self) -> str:
        """The likely cause of its end, from its log and exit status."""
        return likely_cause(self._log_lines[-_TAIL:], self._server.status if self._server else None)

    @property
    def _log_lines(self) -> list[str]:
        return self._folder.log(self.index).read_text("utf-8", errors="replace").splitlines()

    def start(self, locks: tuple[int, ...]) -> None:
        """Start the replica; the `locks` are held until its last process ends."""
        specification = self._specification
        if specification.port:
            with socket.socket() as trial:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    trial.bind(("127.0.0.1", self.port))
                except OSError:
                    problem = f"port {self.port} is taken; free it, or leave `port` at 0 for any free one"
                    raise ServerFailure(problem, self.index) from None
        # Helpers that a server calls (compiler front ends, ninja) are beside its program.
        program = Path(specification.command[0])
        environment = {
            **os.environ,
            **lasting_caches(os.environ, beside_program(program, "vllm")),
            "PATH": f"{program.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            **specification.env,
            **self._beside(),
            **({"CUDA_VISIBLE_DEVICES": ",".join(self.gpus)} if self.gpus else {}),
            "VLLM_API_KEY": self._api_key,
        }
        command = [*specification.command, "--port", str(self.port)]
        self._began = time.time()
        path = self._folder.log(self.index)
        if path.exists():
            path.replace(path.with_suffix(".log.1"))
        with path.open("ab") as log:
            self._server = GuardedProcess(self._folder.path, command, environment, log, locks)

    def has_ended(self) -> bool:
        return self._server is not None and self._server.status is not None

    def stop(self, at_once: bool = False) -> None:
        """Stop the replica and everything it started, with SIGTERM first unless `at_once`."""
        if self._server is not None:
            self._server.stop(at_once)
            self._server = None

    def wait_ready(self, deadline: float) -> str:
        """Wait until it has generated something and is warm; return the seconds of each stage.

        Raises `PortConflict` if the port was taken by others, with another port for the next start, or `ServerFailure`,
        which is `OutOfGpuMemory` if memory was the cause.
        """
        specification = self._specification
        requests = FirstRequests(specification.first_picture, specification.first_text, specification.first_count)
        problem = "it did not open its port"
        while time.monotonic() < deadline:
            if self.has_ended():
                tail = "\n".join(self._log_lines[-_TAIL:])
                if re.search(PORT_TAKEN, tail) and not specification.port:
                    self.port = _free_port()
                    raise PortConflict
                failure = OutOfGpuMemory if re.search(MEMORY_LACKED, tail) else ServerFailure
                raise failure(f"it ended during its start: {self.cause}", self.index)
            try:
                # A first answer may include minutes of compiling, so it gets all the remaining time.
                probe(self.target, max(1.0, deadline - time.monotonic()))
                # To refuse these only delays the first page.
                with suppress(BadProbe):
                    warm_up(self.target, requests, max(1.0, deadline - time.monotonic()))
            except UnreachableServer:
                time.sleep(POLL)
            except BadProbe as error:
                if error.status < _FAULT:
                    raise ServerFailure(f"it refuses a plain request: {error}", self.index) from None
                problem = str(error)
                time.sleep(POLL)
            except TimeoutError as error:
                problem = str(error)
            else:
                expected, running = specification.version, version(self.target)
                # A local part (+cpu, +cu130) names the build, not the code.
                if expected and running.partition("+")[0] != expected.partition("+")[0]:
                    raise ServerFailure(
                        f"it is vLLM {running}, the profile says {expected}; install that, or change `version` "
                        "(which makes the results of the other one outdated)"
                    )
                return stages(self._log_lines, self._began, time.time())
        seconds = specification.start_timeout
        raise ServerFailure(f"it was not ready within {seconds:g} s ({problem}; {self.cause})", self.index)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


PROGRAM = "nvidia-cuda-mps-control"
_PIPES, _LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
_OF_MACHINE = Path("/tmp/nvidia-mps/control")
"""The control socket of the machine's own daemon, which processes use unless told otherwise."""
_START_SECONDS = 10.0
_QUIT_SECONDS = 10.0


class Mps:
    """The control daemon of one server; clients of several daemons on a GPU take turns."""

    def __init__(self, folder: ServerFolder, environment: Mapping[str, str]) -> None:
        self._folder = folder.path
        self._pipes = folder.path / "mps"
        self._places = {_PIPES: str(self._pipes), _LOGS: str(self._pipes)}
        self._environment = {**os.environ, **environment, **self._places}
        if "CUDA_VISIBLE_DEVICES" not in environment:
            # The daemon must see every GPU, because it renumbers the GPUs that it sees for its clients.
            self._environment.pop("CUDA_VISIBLE_DEVICES", None)
        self._daemon: GuardedProcess | None = None

    @property
    def environment(self) -> dict[str, str]:
        """The variables that make a process its client; none while the daemon is not running."""
        return self._places if self.runs else {}

    @property
    def runs(self) -> bool:
        return self._daemon is not None and self._daemon.status is None

    @property
    def sessions(self) -> tuple[tuple[int, int], ...]:
        """Leader and start time of the daemon's session; none while it is not running."""
        return (self._daemon.session,) if self._daemon is not None and self.runs else ()

    def start(self, locks: Sequence[int]) -> str:
        """Start the daemon unless there is one; return why it cannot run, else "".

        The `locks` are held until its last process ends.
        """
        if self.runs or _PIPES in os.environ or _OF_MACHINE.exists():
            return ""
        self.stop()
        program = shutil.which(PROGRAM)
        if program is None:
            return f"{PROGRAM} of NVIDIA's driver is not installed"
        shutil.rmtree(self._pipes, ignore_errors=True)
        self._pipes.mkdir(mode=0o700)
        log = self._folder / "mps.log"
        with log.open("wb") as output:
            self._daemon = GuardedProcess(self._folder, [program, "-f"], self._environment, output, locks)
        deadline = time.monotonic() + _START_SECONDS
        while not (self._pipes / "control").exists():
            if not self.runs or time.monotonic() > deadline:
                self.stop()
                lines = log.read_text("utf-8", errors="replace").split("\n")
                return f"{PROGRAM} did not start: {next(filter(None, reversed(lines)), 'it said nothing')}"
            time.sleep(POLL)
        return ""

    def stop(self) -> None:
        """Stop the daemon, whose clients have already ended."""
        if self._daemon is None:
            return
        if self.runs and (program := shutil.which(PROGRAM)) is not None:
            with suppress(subprocess.TimeoutExpired, OSError):
                subprocess.run(
                    [program],
                    input=b"quit\n",
                    env=self._environment,
                    timeout=_QUIT_SECONDS,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    check=False,
                )
        self._daemon.stop()
        self._daemon = None
