"""State and processes of a managed server that runs the double of `vllm serve`."""

import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from kopub.vllm.server import VLLMServer
from kopub.vllm.supervisor.server_state import ServerFolder

STUB = [sys.executable, str(Path(__file__).parents[2] / "doubles" / "stub_vllm.py")]

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="a managed server needs Linux")


def state_of(server: VLLMServer, runtime: Path) -> Any:
    """Return the `ServerState` of a server, or None before its first start."""
    return ServerFolder(runtime / server.key).state


def processes(tmp_path: Path) -> list[psutil.Process]:
    """Return all guard, server and engine processes of this test's servers, but no clients."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            if environment.get("OF_TEST") == str(tmp_path) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found
