"""Servers that start early, and side by side on one card."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from resources.errors import EngineError
from resources.vllm.running_servers import servers
from resources.vllm.server import VLLMServer
from resources.vllm.supervisor.probe import probe
from resources.vllm.supervisor.server_state import Phase, ServerFolder, State
from tests.support.stub_server import SOON, needs_linux, processes, until

pytestmark = [pytest.mark.services, needs_linux, pytest.mark.usefixtures("runtime")]


def state_of(server: VLLMServer, runtime: Path) -> State | None:
    return ServerFolder(runtime / server.key).state


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
    assert state_of(server, runtime).boot == 1  # nothing was tried again before the error was told
    with pytest.raises(EngineError, match="does not know a flag"):
        server.lease().__enter__()
    assert state_of(server, runtime).boot == 2


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
    class Reader(dg.ConfigurableResource):
        server: VLLMServer

    @dg.asset
    def texts(reader: Reader) -> None:
        reader.server.prepare()
        until(servers)

    server = VLLMServer(**{**fields, "idle_seconds": 0})
    assert dg.materialize([texts], resources={"reader": Reader(server=server)}).success
    until(lambda: not servers())
    assert not processes(tmp_path)


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
    assert any((runtime / server.key / "server-0.log.1").exists() for server in pair)  # one of them did fail


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
