"""Fixtures for a test's own managed server: its runtime folder, model and profile keys."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from kopub.vllm.supervisor.server_state import ServerFolder
from tests.support.servers.stub_server import STUB, processes
from tests.support.waiting import SOON, until


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a runtime folder, and end all its processes after the test."""
    folder = tmp_path / "run"
    monkeypatch.setenv("KOPUB_RUNTIME", str(folder))
    monkeypatch.setenv("no_proxy", "127.0.0.1")  # the tests' own requests
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    yield folder
    for path in folder.glob("*/state.json"):
        state = ServerFolder(path.parent).state
        if state is not None and psutil.pid_exists(state.supervisor):
            os.kill(state.supervisor, signal.SIGTERM)
    until(lambda: not processes(tmp_path))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Return the double's model folder, whose path marks all processes of this test."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture
def fields(checkpoint: Path, tmp_path: Path) -> dict[str, Any]:
    """Return the keys of a profile's `server` section."""
    return {
        "model": str(checkpoint),
        "command": STUB,
        "gpus": [],
        "env": {"OF_TEST": str(tmp_path)},
        "idle_seconds": 0.5,
        "hang_seconds": 1.0,
        "start_timeout": SOON,
    }
