"""Servers that start early, side by side, or as replicas under NVIDIA's Multi-Process Service."""

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest
from pydantic import ValidationError

from kopub.errors import EngineError
from kopub.recognition.vlm.glm_ocr import GlmOcrRecognizer
from kopub.vllm.endpoint import probe
from kopub.vllm.lease import list_servers
from kopub.vllm.server import VLLMServer
from kopub.vllm.server_fields import serve_arguments
from kopub.vllm.supervisor import replica
from kopub.vllm.supervisor.server_log import stages
from kopub.vllm.supervisor.server_state import Phase, ServerFolder
from resources.profile import dagster_resources
from tests.doubles.nvml_double import CardDouble, NvmlDouble
from tests.support.servers.stub_server import needs_linux, processes, state_of
from tests.support.waiting import SOON, until

pytestmark = [pytest.mark.services, needs_linux, pytest.mark.usefixtures("runtime")]


def boot_of(server: VLLMServer, runtime: Path) -> int:
    state = state_of(server, runtime)
    return 0 if state is None else state.boot


def ready(server: VLLMServer, runtime: Path) -> Callable[[], bool]:
    return lambda: (state := state_of(server, runtime)) is not None and state.phase is Phase.READY


# --- early starts -------------------------------------------------------------------------------


def test_a_prepared_server_starts_at_once_and_is_kept_until_its_first_use(
    fields: dict[str, Any], runtime: Path, tmp_path: Path
) -> None:
    server = VLLMServer(**{**fields, "idle_seconds": 0})
    server.prepare()
    server.prepare()
    until(ready(server, runtime))
    with server.lease() as endpoint:
        probe(endpoint.targets[0], SOON)
        assert endpoint.boot == 1
    until(lambda: not processes(tmp_path))


def test_a_failed_early_start_is_told_by_the_first_use_once(fields: dict[str, Any], runtime: Path) -> None:
    fields["env"]["STUB_LAST_WORDS"] = "vllm: error: unrecognized arguments: --no-such-flag"
    server = VLLMServer(**fields)
    server.prepare()
    until(lambda: (state := state_of(server, runtime)) and state.phase is Phase.FAILED)
    with pytest.raises(EngineError, match="does not know a flag"):
        server.lease().__enter__()
    assert boot_of(server, runtime) == 1  # nothing was retried before the error was reported
    with pytest.raises(EngineError, match="does not know a flag"):
        server.lease().__enter__()
    assert boot_of(server, runtime) == 2


def test_a_program_that_is_not_there_is_told_by_the_use_alone(fields: dict[str, Any]) -> None:
    server = VLLMServer(**{**fields, "command": ["no-such-vllm", "serve"]})
    server.prepare()
    with pytest.raises(EngineError, match="no-such-vllm is not installed"):
        server.lease().__enter__()


def test_of_two_servers_that_do_not_fit_the_first_is_prepared_and_gives_way_to_a_use_of_the_other(
    fields: dict[str, Any], runtime: Path
) -> None:
    ocr = VLLMServer(**{**fields, "gpus": [0], "idle_seconds": 3600, "yield_seconds": 0})
    embedding = VLLMServer(**{**fields, "gpus": [0], "idle_seconds": 3600, "yield_seconds": 0, "max_num_seqs": 8})
    ocr.prepare()
    embedding.prepare()
    until(ready(ocr, runtime))
    assert state_of(embedding, runtime) is None
    with embedding.lease() as endpoint:
        probe(endpoint.targets[0], SOON)
    with ocr.lease() as endpoint:
        assert endpoint.boot == 2


def test_a_run_gives_up_what_it_has_not_used(fields: dict[str, Any], tmp_path: Path) -> None:
    @dg.asset
    def texts(server: dg.ResourceParam[VLLMServer]) -> None:
        server.prepare()
        until(list_servers)

    server = VLLMServer(**{**fields, "idle_seconds": 0})
    assert dg.materialize([texts], resources=dagster_resources({"server": server})).success
    until(lambda: not list_servers())
    assert not processes(tmp_path)


@pytest.mark.parametrize(("runner", "kinds"), [("generate", 1), ("pooling", 2)])
def test_a_server_on_a_card_is_ready_once_it_has_met_requests_of_real_size(
    runner: str, kinds: int, fields: dict[str, Any], runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(5))
    server = VLLMServer(**{**fields, "gpus": [0], "runner": runner, "api_server_count": 4})
    specification = server._specification()
    assert specification.first_picture == ((29 * 28, 15 * 28) if runner == "generate" else (35 * 32, 49 * 32))
    with server.lease() as endpoint:
        assert endpoint.samples()["vllm:generation_tokens_total"] == 1 + kinds * 2 * 4
    assert ServerFolder(runtime / server.key).specification == specification


def test_first_pictures_are_no_larger_than_the_server_takes(fields: dict[str, Any]) -> None:
    small = VLLMServer(**{**fields, "gpus": [0], "max_image_tokens": 100})
    width, height = small._specification().first_picture
    assert 80 <= width * height / 28**2 <= 100
    assert VLLMServer(**{**fields, "gpus": [0], "images_per_prompt": 0})._specification().first_picture == (0, 0)


# --- starts side by side ------------------------------------------------------------------------


@pytest.mark.parametrize("times", [1, pytest.param(9, marks=pytest.mark.slow)])
def test_two_cold_starts_that_spoil_each_others_measurement_both_come_up(
    fields: dict[str, Any], tmp_path: Path, runtime: Path, times: int
) -> None:
    measures = tmp_path / "measures"
    measures.mkdir()
    fields["env"] |= {"STUB_MEASURES": str(measures), "STUB_BOOT": "0.4"}
    shared = {**fields, "gpus": [0], "share_gpu": True, "idle_seconds": 0}
    pair = [VLLMServer(**shared), VLLMServer(**{**shared, "max_num_seqs": 8, "runner": "pooling"})]

    def use(server: VLLMServer) -> str:
        with server.lease() as endpoint:
            probe(endpoint.targets[0], SOON)
            return endpoint.urls[0]

    for _ in range(times):
        with ThreadPoolExecutor(2) as pool:
            assert len(set(pool.map(use, pair))) == 2
        until(lambda: not processes(tmp_path))
    assert all(state.boot == times for server in pair if (state := state_of(server, runtime)))
    assert any((runtime / server.key / "server-0.log.1").exists() for server in pair)  # one start did fail


def test_replicas_that_spoil_each_others_measurement_come_up(fields: dict[str, Any], tmp_path: Path) -> None:
    measures = tmp_path / "measures"
    measures.mkdir()
    fields["env"] |= {"STUB_MEASURES": str(measures), "STUB_BOOT": "0.4"}
    with VLLMServer(**{**fields, "gpus": [0], "replicas": 2}).lease() as endpoint:
        assert endpoint.alive(SOON)


def test_memory_that_lacks_without_another_start_is_an_error_at_once(fields: dict[str, Any], runtime: Path) -> None:
    fields["env"]["STUB_LAST_WORDS"] = "ValueError: Free memory on device cuda:0 (4.1/8.0 GiB) on startup is less than"
    server = VLLMServer(**{**fields, "gpus": [0]})
    with pytest.raises(EngineError, match="memory does not suffice"):
        server.lease().__enter__()
    assert not (runtime / server.key / "server-0.log.1").exists()


# --- what a start takes, and what it need not make again ------------------------------------------


def test_a_log_tells_how_long_each_stage_took() -> None:
    began = time.mktime(time.strptime("2026-11-22 12:00:00", "%Y-%m-%d %H:%M:%S"))
    lines = [
        "(APIServer pid=1) INFO 11-22 12:00:08 [utils.py:286] non-default args: {'model_tag': 'm'}",
        "(APIServer pid=1) INFO 11-22 12:00:09 [model.py:2152] Using max model len 8192",
        "(EngineCore pid=2) INFO 11-22 12:00:20 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: ...",
        "(APIServer pid=3) INFO 11-22 12:00:21 [model.py:2152] Using max model len 8192",
        "(EngineCore pid=2) INFO 11-22 12:00:24 [model_runner.py:68] Starting to load model m...",
        "(EngineCore pid=2) INFO 11-22 12:00:28 [model_runner.py:425] Model loading took 4.3 GiB memory",
        "(APIServer pid=3) INFO 11-22 12:01:20 [entry.py:140] Starting vLLM server on http://127.0.0.1:8000",
    ]
    assert stages(lines, began, began + 82) == (
        "importing vLLM 8 s, reading the model's configuration 1 s, importing vLLM in the engine 11 s, "
        "preparing the device 4 s, loading the weights 4 s, compiling 52 s, answering a first request 2 s"
    )
    assert stages(["no time in it: non-default args"], began, began + 3) == "importing vLLM 3 s"


def test_a_start_may_last_into_the_next_year() -> None:
    began = time.mktime(time.strptime("2026-12-31 23:59:50", "%Y-%m-%d %H:%M:%S"))
    lines = [
        "(APIServer pid=1) INFO 12-31 23:59:58 [utils.py:286] non-default args: {'model_tag': 'm'}",
        "(APIServer pid=1) INFO 01-01 00:00:09 [model.py:2152] Using max model len 8192",
    ]
    assert stages(lines, began, began + 30) == (
        "importing vLLM 8 s, reading the model's configuration 11 s, importing vLLM in the engine 11 s"
    )


def test_the_stages_are_in_the_supervisor_s_log(fields: dict[str, Any], runtime: Path) -> None:
    server = VLLMServer(**fields)
    with server.lease():
        assert "replica 0 is ready: importing vLLM " in (runtime / server.key / "supervisor.log").read_text()


def test_a_server_may_keep_compiled_files(
    fields: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    with VLLMServer(**fields).lease():
        environments = [process.environ() for process in processes(tmp_path)]
    assert {environment["PYTHONDONTWRITEBYTECODE"] for environment in environments} == {""}


# --- all GPUs of a machine ----------------------------------------------------------------------


@pytest.fixture
def four_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let NVML report four GPUs."""
    NvmlDouble([CardDouble() for _ in range(4)]).install(monkeypatch)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def devices(tmp_path: Path) -> set[str]:
    return {process.environ()["CUDA_VISIBLE_DEVICES"] for process in processes(tmp_path)}


@pytest.mark.usefixtures("four_gpus")
def test_all_gpus_get_their_replicas_and_requests(fields: dict[str, Any], tmp_path: Path) -> None:
    server = VLLMServer(**{**fields, "gpus": "all", "replicas_per_gpu": 2})
    assert (server.gpus_held, server.replica_count) == (4, 8)
    with VLLMServer(**{**fields, "gpus": "all"}).lease() as endpoint:
        assert len(endpoint.urls) == 4
        assert devices(tmp_path) == {"0", "1", "2", "3"}


def test_all_are_those_that_the_environment_shows(
    fields: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, GPU-7f")
    with VLLMServer(**{**fields, "gpus": "all"}).lease():
        assert devices(tmp_path) == {"2", "GPU-7f"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(EngineError, match="CUDA_VISIBLE_DEVICES hides every one"):
        VLLMServer(**{**fields, "gpus": "all"}).lease().__enter__()


def test_all_gpus_where_nobody_tells_which_is_one_line(fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    NvmlDouble(driver=False).install(monkeypatch)
    server = VLLMServer(**{**fields, "gpus": "all"})
    assert server.gpus_held == 1  # plans are made on machines without GPUs too
    with pytest.raises(EngineError, match=r"are all, and no GPU answers here: .* list their indexes"):
        server.lease().__enter__()


def test_a_model_may_be_spread_over_gpus(fields: dict[str, Any], tmp_path: Path) -> None:
    spread = {**fields, "gpus": [0, 1, 2, 3], "tensor_parallel": 2, "mm_encoder_tp_mode": "data"}
    server = VLLMServer(**spread)
    arguments = serve_arguments(server)
    assert arguments[arguments.index("--tensor-parallel-size") + 1] == "2"
    assert arguments[arguments.index("--mm-encoder-tp-mode") + 1] == "data"
    with server.lease():
        assert devices(tmp_path) == {"0,1", "2,3"}
    with pytest.raises(ValidationError, match="3 GPUs do not make groups of 2"):
        VLLMServer(**{**spread, "gpus": [0, 1, 2]})


@pytest.mark.usefixtures("four_gpus")
def test_requests_in_flight_follow_the_gpus(fields: dict[str, Any]) -> None:
    def slots(server: dict[str, Any], **keys: Any) -> int:
        return GlmOcrRecognizer(server=VLLMServer(**{**fields, "max_num_seqs": 100, **server}), **keys).slots

    assert slots({"gpus": [0]}) == 150
    assert slots({"gpus": "all", "replicas_per_gpu": 2}) == 8 * 150
    assert slots({"gpus": "all"}, in_flight=1024) == 4096
    assert slots({"gpus": []}, in_flight=8) == 8


@pytest.mark.parametrize("gpus", ["al", [0, 0], [-1], [True], 1, {"a": 1}])
def test_other_gpus_are_refused(fields: dict[str, Any], gpus: Any) -> None:
    with pytest.raises(ValidationError, match="neither all nor a list of different indexes from 0 on"):
        VLLMServer(**{**fields, "gpus": gpus})


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
    """Return an installer of the control daemon's double, which runs `words` before it listens."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)

    def install(words: str = "true") -> None:
        program = folder / replica.PROGRAM
        program.write_text(DAEMON.replace("WORDS", words))
        program.chmod(0o755)

    return install


@pytest.fixture
def pair(fields: dict[str, Any]) -> VLLMServer:
    return VLLMServer(**{**fields, "replicas": 2, "mps": True})


def daemons(tmp_path: Path) -> list[psutil.Process]:
    return [process for process in processes(tmp_path) if process.name() == "sleep"]


def pipes(tmp_path: Path) -> set[str | None]:
    """Return where the processes of the servers look for a daemon."""
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
        # A daemon that sees only some GPUs renumbers them for its clients.
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
        # The restarts are separate if the supervisor looks between the two deaths.
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
