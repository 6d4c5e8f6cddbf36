"""NVIDIA's Multi-Process Service (MPS) for the replicas of one server. Standard library only.

Without it, processes take turns on a GPU. With it, their kernels run there at the same time: what a replica's step
leaves free, the other's takes. The control daemon is the supervisor's own: it ends with the server, and no other
process of the machine is its client.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from resources.vllm.supervisor.guard import GuardedProcess
from resources.vllm.supervisor.server_state import POLL, ServerFolder

PROGRAM = "nvidia-cuda-mps-control"
_PIPES, _LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
_OF_MACHINE = Path("/tmp/nvidia-mps/control")
"""Where the daemon of a whole machine listens; processes that are told nothing else use it."""
_START_SECONDS = 10.0
_QUIT_SECONDS = 10.0


class Mps:
    """The control daemon of one server. Several of them may share a GPU.

    Their clients take turns.
    """

    def __init__(self, folder: ServerFolder, environment: Mapping[str, str]) -> None:
        self._folder = folder.path
        self._pipes = folder.path / "mps"
        self._given = environment
        self._daemon: GuardedProcess | None = None

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which a process becomes its client; none while it does not run."""
        return self._places if self.runs else {}

    @property
    def runs(self) -> bool:
        return self._daemon is not None and self._daemon.status is None

    @property
    def sessions(self) -> tuple[tuple[int, int], ...]:
        """Leader and start time of its processes' session; none while it does not run."""
        return (self._daemon.session,) if self._daemon is not None and self.runs else ()

    @property
    def _places(self) -> dict[str, str]:
        return {_PIPES: str(self._pipes), _LOGS: str(self._pipes)}

    def start(self, kept: Sequence[int]) -> str:
        """Start it unless it runs, or another one is there to be used.

        Why it cannot be had, else an empty text. The locks `kept` stay held until its last process is gone.
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
            self._daemon = GuardedProcess(self._folder, [program, "-f"], self._environment(), output, kept)
        deadline = time.monotonic() + _START_SECONDS
        while not (self._pipes / "control").exists():
            if not self.runs or time.monotonic() > deadline:
                self.stop()
                said = log.read_text("utf-8", errors="replace").split("\n")
                return f"{PROGRAM} did not start: {next(filter(None, reversed(said)), 'it said nothing')}"
            time.sleep(POLL)
        return ""

    def stop(self) -> None:
        """Stop it; its clients have ended before."""
        if self._daemon is None:
            return
        if self.runs and (program := shutil.which(PROGRAM)) is not None:
            with suppress(subprocess.TimeoutExpired, OSError):
                subprocess.run(
                    [program],
                    input=b"quit\n",
                    env=self._environment(),
                    timeout=_QUIT_SECONDS,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    check=False,
                )
        self._daemon.stop()
        self._daemon = None

    def _environment(self) -> dict[str, str]:
        # It is to see every GPU: those that it sees it would number anew for its clients.
        seen = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
        return {**seen, **self._given, **self._places}
