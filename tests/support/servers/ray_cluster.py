"""A local Ray cluster: a head without GPUs, and nodes that claim one each."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil

from tests.support.processes.living import kill_together
from tests.support.servers.postgres import free_port
from tests.support.waiting import until

PATIENCE = 120.0
"""Seconds until the head answers, and until a node has joined."""
_JOINED = "Ray runtime started."
_MEMORY = 80 * 1024**2
"""Bytes of a node's object store, about Ray's minimum; runs put nothing into it."""


class Cluster:
    """Processes of `ray start`, one for each node."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._folder = folder
        self._log = folder / "log"
        self._port, dashboard = free_port(), free_port()
        self.url = f"http://127.0.0.1:{dashboard}"
        head = ("--head", f"--port={self._port}", "--include-dashboard=true", f"--dashboard-port={dashboard}")
        self.nodes = [self._start(0, *head, f"--temp-dir={folder}")]
        self._until(self._answers)

    def add_node(self) -> psutil.Process:
        """Start a node with one GPU, and return its first process once it has joined.

        Two nodes that start on one machine at the same moment would use the same sockets.
        """
        self.nodes.append(self._start(1, f"--address=127.0.0.1:{self._port}"))
        self._until(lambda: self._log.read_text().count(_JOINED) == len(self.nodes))
        return self.nodes[-1]

    def kill(self, node: psutil.Process) -> None:
        """Kill all processes of a node at once."""
        if node.is_running():
            kill_together([node, *node.children(recursive=True)])

    def close(self) -> None:
        for node in reversed(self.nodes):
            self.kill(node)

    def _start(self, gpus: int, *options: str) -> psutil.Process:
        command = [str(Path(sys.executable).with_name("ray")), "start", "--block", "--disable-usage-stats"]
        command += ["--node-ip-address=127.0.0.1", "--num-cpus=2", f"--num-gpus={gpus}"]
        command += [f"--object-store-memory={_MEMORY}", f"--dashboard-agent-listen-port={free_port()}", *options]
        with self._log.open("a") as log:
            return psutil.Popen(command, cwd=self._folder, env=self._environment, stdout=log, stderr=subprocess.STDOUT)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/api/version", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def _until(self, condition: Callable[[], bool]) -> None:
        until(condition, PATIENCE, 0.5, lambda: self._log.read_text()[-3000:])


@contextmanager
def cluster(environment: Mapping[str, str]) -> Iterator[Cluster]:
    """Yield a cluster whose head runs until the context ends."""
    # The path must be short, because Ray makes sockets in it.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        made = Cluster(Path(folder), environment)
        try:
            yield made
        finally:
            made.close()
