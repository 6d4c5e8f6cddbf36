"""One `vllm serve` with everything it starts, as its supervisor handles it. Standard library only."""

import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from resources.lasting_caches import beside_program, lasting_caches
from resources.vllm.supervisor.guard import GuardedProcess
from resources.vllm.supervisor.probe import BadProbe, NotListening, Target, probe, version
from resources.vllm.supervisor.server_log import likely_cause, memory_lacked, port_taken, stages
from resources.vllm.supervisor.server_state import POLL, ServerFolder, Specification

_TAIL = 400
"""Lines at a log's end that are searched for the cause: the tracebacks of an engine and of those that wait for it."""
_FAULT = 500
"""First HTTP status that is the server's fault and may pass; below, the probe itself was refused."""


class ServerFailed(Exception):
    """The server cannot be brought to work; the log of `replica` tells most about it."""

    def __init__(self, reason: str, replica: int = 0) -> None:
        super().__init__(reason)
        self.replica = replica


class MemoryLacked(ServerFailed):
    """It ended for want of GPU memory, which may be another start's doing: vLLM measures what is free."""


class PortLost(Exception):
    """Another process took the port between its choice and its use."""


class Replica:
    """One `vllm serve` with everything it starts, below a guard.

    `beside` gives variables of its environment that may differ from start to start.
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
        """What to probe."""
        specification = self._specification
        return Target(self.url, self._api_key, specification.model, specification.runner, specification.images)

    @property
    def gpus(self) -> tuple[str, ...]:
        """Its own of the server's GPUs; none for a CPU build."""
        gpus, group = self._specification.gpus, self._specification.tensor_parallel
        first = group * (self.index % max(1, len(gpus) // group))
        return gpus[first : first + group]

    @property
    def started(self) -> bool:
        return self._server is not None

    @property
    def session(self) -> tuple[int, int]:
        """Leader and its start time."""
        assert self._server is not None
        return self._server.session

    @property
    def cause(self) -> str:
        """Why it ended, or does not come up, as far as its log and exit status tell."""
        return likely_cause(self._log_tail, self._server.status if self._server else None)

    @property
    def stages(self) -> str:
        """How long each stage of its start took that has just ended."""
        return stages(self._log_lines, self._began, time.time())

    @property
    def _log_tail(self) -> list[str]:
        return self._log_lines[-_TAIL:]

    @property
    def _log_lines(self) -> list[str]:
        return self._folder.log(self.index).read_text("utf-8", errors="replace").splitlines()

    def start(self, kept: tuple[int, ...]) -> None:
        """Start it; the locks `kept` stay held until its last process is gone."""
        if self._specification.port and not _is_free(self.port):
            raise ServerFailed(f"port {self.port} is taken; free it, or leave `port` at 0 for any free one", self.index)
        command = [*self._specification.command, "--port", str(self.port)]
        self._began = time.time()
        with self._new_log() as log:
            self._server = GuardedProcess(self._folder.path, command, self._environment(), log, kept)

    def ended(self) -> bool:
        return self._server is not None and self._server.status is not None

    def stop(self, at_once: bool = False) -> None:
        """Stop it and everything it started; SIGTERM first unless `at_once`."""
        if self._server is not None:
            self._server.stop(at_once)
            self._server = None

    def wait_ready(self, deadline: float) -> None:
        """Return when it has generated something.

        Raises `PortLost` for a port that others took, or `ServerFailed`, which is `MemoryLacked` for that cause.
        """
        seconds = self._specification.start_timeout
        problem = "it did not open its port"
        while time.monotonic() < deadline:
            if self.ended():
                if port_taken(self._log_tail) and not self._specification.port:
                    raise PortLost
                failure = MemoryLacked if memory_lacked(self._log_tail) else ServerFailed
                raise failure(f"it ended during its start: {self.cause}", self.index)
            try:
                # A first answer may include minutes of compiling, so it gets all the time there is.
                probe(self.target, max(1.0, deadline - time.monotonic()))
            except NotListening:
                time.sleep(POLL)
            except BadProbe as error:
                if error.status < _FAULT:
                    raise ServerFailed(f"it refuses a plain request: {error}", self.index) from None
                problem = str(error)
                time.sleep(POLL)
            except TimeoutError as error:
                problem = str(error)
            else:
                self._check_version()
                return
        raise ServerFailed(f"it was not ready within {seconds:g} s ({problem}; {self.cause})", self.index)

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
        # Helpers that a server calls (compilers' front ends, ninja) lie beside its program.
        program = Path(self._specification.command[0])
        return {
            **os.environ,
            **lasting_caches(os.environ, beside_program(program, "vllm")),
            "PATH": f"{program.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            **self._specification.env,
            **self._beside(),
            **({"CUDA_VISIBLE_DEVICES": ",".join(self.gpus)} if self.gpus else {}),
            "VLLM_API_KEY": self._api_key,
        }

    def _new_log(self) -> IO[bytes]:
        path = self._folder.log(self.index)
        if path.exists():
            path.replace(path.with_suffix(".log.1"))
        return path.open("ab")


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
