"""Replicas that share a GPU by NVIDIA's Multi-Process Service, with a double of its control daemon."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from resources.vllm.server import VLLMServer
from resources.vllm.supervisor import mps
from resources.vllm.supervisor.probe import probe
from resources.vllm.supervisor.server_state import ServerFolder
from tests.support.servers.stub_server import SOON, needs_linux, processes, state_of, until

pytestmark = [pytest.mark.services, needs_linux, pytest.mark.usefixtures("runtime")]

DAEMON = """#!/bin/sh
if [ "$1" = -f ]; then
    echo "devices ${CUDA_VISIBLE_DEVICES:-all}"
    WORDS
    touch "$CUDA_MPS_PIPE_DIRECTORY/control"
    exec sleep 3600 # nvidia-cuda-mps-server
fi
read -r told && echo "$told" >> "$CUDA_MPS_LOG_DIRECTORY/told"
"""


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install the double of the control daemon, which does `words` before it listens."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)

    def install(words: str = "true") -> None:
        program = folder / mps.PROGRAM
        program.write_text(DAEMON.replace("WORDS", words))
        program.chmod(0o755)

    return install


@pytest.fixture
def pair(fields: dict[str, Any]) -> VLLMServer:
    return VLLMServer(**{**fields, "replicas": 2, "mps": True})


def daemons(tmp_path: Path) -> list[psutil.Process]:
    return [process for process in processes(tmp_path) if process.name() == "sleep"]


def pipes(tmp_path: Path) -> set[str | None]:
    """Where the processes of the servers look for a daemon."""
    servers = [process for process in processes(tmp_path) if "stub_vllm" in " ".join(process.cmdline())]
    assert servers
    return {process.environ().get("CUDA_MPS_PIPE_DIRECTORY") for process in servers}


def said(server: VLLMServer, runtime: Path) -> str:
    return ServerFolder(runtime / server.key).supervisor_log.read_text("utf-8")


def test_replicas_are_clients_of_one_daemon_which_ends_with_them(
    pair: VLLMServer, daemon: Callable[..., None], tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    folder = runtime / pair.key
    with pair.lease() as endpoint:
        assert endpoint.alive(SOON)
        assert pipes(tmp_path) == {str(folder / "mps")}
        assert len(daemons(tmp_path)) == 1
        # A daemon that sees some GPUs numbers them anew for its clients.
        assert (folder / "mps.log").read_text() == "devices all\n"
    until(lambda: not processes(tmp_path))
    assert (folder / "mps" / "told").read_text() == "quit\n"


def test_a_server_that_does_not_ask_for_it_has_none(
    fields: dict[str, Any], daemon: Callable[..., None], tmp_path: Path
) -> None:
    daemon()
    with VLLMServer(**{**fields, "replicas": 2}).lease():
        assert pipes(tmp_path) == {None}
        assert not daemons(tmp_path)


def test_a_replica_that_comes_back_is_its_client_again(
    pair: VLLMServer, daemon: Callable[..., None], tmp_path: Path, runtime: Path
) -> None:
    daemon()
    with pair.lease() as endpoint:
        os.kill(state_of(pair, runtime).sessions[0][0], signal.SIGKILL)
        for target in pair.restart(endpoint).targets:
            probe(target, SOON)
        assert pipes(tmp_path) == {str(runtime / pair.key / "mps")}
        assert len(daemons(tmp_path)) == 1


def test_a_daemon_that_died_is_started_with_the_replicas_that_it_took_along(
    pair: VLLMServer, daemon: Callable[..., None], tmp_path: Path, runtime: Path
) -> None:
    daemon()
    with pair.lease() as endpoint:
        (old,) = daemons(tmp_path)
        old.kill()
        for leader, _ in state_of(pair, runtime).sessions[:2]:
            os.kill(leader, signal.SIGKILL)
        # One after the other, where the supervisor looks between the two deaths.
        until(lambda: pair.restart(endpoint).alive(SOON))
        (new,) = daemons(tmp_path)
        assert new.pid != old.pid


def test_a_killed_supervisor_takes_the_daemon_along(
    pair: VLLMServer, daemon: Callable[..., None], tmp_path: Path, runtime: Path
) -> None:
    daemon()
    with pair.lease():
        os.kill(state_of(pair, runtime).supervisor, signal.SIGKILL)
        until(lambda: not processes(tmp_path))


def test_what_two_killed_keepers_left_is_ended_by_the_next_start(
    pair: VLLMServer, daemon: Callable[..., None], tmp_path: Path, runtime: Path
) -> None:
    daemon()
    with pair.lease() as endpoint:
        state = state_of(pair, runtime)
        assert len(state.sessions) == 3
        keepers = (state.supervisor, *(leader for leader, _ in state.sessions))
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in keepers:
                os.kill(pid, number)
        assert pair.restart(endpoint).alive(SOON)
        assert len(daemons(tmp_path)) == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (None, "nvidia-cuda-mps-control of NVIDIA's driver is not installed"),
        ("echo 'no permission'; exit 1", "nvidia-cuda-mps-control did not start: no permission"),
    ],
)
def test_without_it_the_replicas_take_turns_and_the_log_says_why(
    pair: VLLMServer, daemon: Callable[..., None], tmp_path: Path, runtime: Path, words: str | None, why: str
) -> None:
    if words is not None:
        daemon(words)
    with pair.lease() as endpoint:
        assert endpoint.alive(SOON)
        assert pipes(tmp_path) == {None}
        assert f"its replicas take turns on the GPU: {why}" in said(pair, runtime)


def test_a_daemon_that_the_user_runs_is_used(
    pair: VLLMServer, daemon: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon()
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path / "theirs"))
    with pair.lease():
        assert pipes(tmp_path) == {str(tmp_path / "theirs")}
        assert not daemons(tmp_path)
