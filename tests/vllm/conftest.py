"""A managed server of a test's own: where its state lies, and the keys of its section."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from resources.vllm.supervisor.server_state import ServerFolder
from tests.support.servers.stub_server import STUB, processes
from tests.support.waiting import SOON, until


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime folder of the test's own, and none of its processes left after it."""
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
    """The model of the double; its path marks every process that belongs to this test."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture
def fields(checkpoint: Path, tmp_path: Path) -> dict[str, Any]:
    """Keys of a profile's `server` section."""
    return {
        "model": str(checkpoint),
        "command": STUB,
        "gpus": [],
        "env": {"OF_TEST": str(tmp_path)},
        "idle_seconds": 0.5,
        "hang_seconds": 1.0,
        "start_timeout": SOON,
    }
