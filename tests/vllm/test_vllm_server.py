"""The managed server's life cycle with a double of `vllm serve`; test_vllm_cpu.py uses vLLM itself."""

import dataclasses
import itertools
import json
import os
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from typer.testing import CliRunner

from kopub.cli.commands.serve import app
from kopub.errors import EngineError
from kopub.gpu import named_gpus
from kopub.vllm.client.client import Client, RetryPolicy
from kopub.vllm.client.worker_pool import WorkerPool
from kopub.vllm.endpoint import Endpoint, Meter, probe
from kopub.vllm.lease import list_servers
from kopub.vllm.server import VLLMServer
from kopub.vllm.supervisor.server_state import Phase, ServerFolder
from resources.profile import dagster_resources
from tests.support.processes.lease_client import LeaseClient
from tests.support.servers.stub_server import needs_linux, processes, state_of
from tests.support.waiting import SOON, until

pytestmark = [pytest.mark.services, needs_linux, pytest.mark.usefixtures("runtime")]


def get(endpoint: Endpoint, path: str, replica: int = 0) -> Any:
    with urllib.request.urlopen(endpoint.urls[replica] + path, timeout=SOON) as response:
        return json.loads(response.read())


def generate(endpoint: Endpoint, seconds: float = SOON, replica: int = 0) -> None:
    probe(endpoint.targets[replica], seconds)


# --- a start and an end -------------------------------------------------------------------------


@pytest.mark.smoke
def test_nothing_starts_before_the_lease_and_nothing_stays_after_the_idle_time(
    fields: dict[str, Any], tmp_path: Path, runtime: Path
) -> None:
    server = VLLMServer(**fields)
    server.recipe_parts()
    assert not processes(tmp_path)
    with server.lease() as endpoint:
        generate(endpoint)
        server_pid, engine_pid = get(endpoint, "/processes")
        assert {server_pid, engine_pid} <= {process.pid for process in processes(tmp_path)}
    until(lambda: not processes(tmp_path))
    until(lambda: state_of(server, runtime).phase is Phase.STOPPED)
    assert "nobody used it" in state_of(server, runtime).reason


@pytest.mark.smoke
def test_only_loopback_listens_and_the_key_is_in_no_argument_and_no_log(
    fields: dict[str, Any], tmp_path: Path, runtime: Path
) -> None:
    server = VLLMServer(**fields)
    with server.lease() as endpoint:
        assert endpoint.urls[0].startswith("http://127.0.0.1:")
        assert len(endpoint.api_key) > 30
        assert endpoint.api_key not in repr(endpoint)
        assert not any(endpoint.api_key in " ".join(process.cmdline()) for process in processes(tmp_path))
        logs = [path.read_text() for path in (runtime / server.key).glob("*.log*")]
        assert logs
        assert not any(endpoint.api_key in log for log in logs)
        assert (runtime / server.key / "state.json").stat().st_mode & 0o077 == 0
        with pytest.raises(Exception, match="401"):
            generate(dataclasses.replace(endpoint, api_key="guess"))


def test_a_second_process_finds_the_server_warm(fields: dict[str, Any]) -> None:
    with VLLMServer(**fields).lease() as endpoint:
        other = LeaseClient(fields, 0)
        assert other.said == [str(endpoint.boot), endpoint.urls[0]]
        assert other.wait(SOON) == 0
    with VLLMServer(**fields).lease() as again:
        assert again == endpoint


def test_processes_that_come_at_once_start_one_server(fields: dict[str, Any]) -> None:
    fields["env"]["STUB_BOOT"] = "1"
    clients = [LeaseClient(fields, 0) for _ in range(3)]
    assert len({tuple(process.said) for process in clients}) == 1
    assert [process.wait(SOON) for process in clients] == [0, 0, 0]


def test_who_comes_while_it_stops_gets_a_new_one(fields: dict[str, Any]) -> None:
    server = VLLMServer(**{**fields, "idle_seconds": 0})
    boots: list[int] = []
    for _ in range(3):
        with server.lease() as endpoint:
            generate(endpoint)
            boots.append(endpoint.boot)
    assert boots == sorted(boots)


def test_another_model_or_another_content_is_another_server(fields: dict[str, Any], checkpoint: Path) -> None:
    server = VLLMServer(**fields)
    assert server.key == VLLMServer(**{**fields, "idle_seconds": 99}).key
    assert server.key != VLLMServer(**{**fields, "max_num_seqs": 8}).key
    before = server.key, server.recipe_parts()
    (checkpoint / "config.json").write_text('{"new": 1}')
    after = VLLMServer(**fields)
    assert after.key != before[0]


@pytest.mark.parametrize("damage", [lambda state: state.replace("{", '{"newer": 1, ', 1), lambda state: state[:20]])
def test_a_state_of_another_release_or_a_damaged_one_keeps_no_server_from_starting(
    damage: Callable[[str], str], fields: dict[str, Any], tmp_path: Path, runtime: Path
) -> None:
    server = VLLMServer(**fields)
    with server.lease():
        other = ServerFolder(runtime / "other")
        other.path.mkdir()
        other.write_specification(ServerFolder(runtime / server.key).specification)
        other.write_state(dataclasses.replace(state_of(server, runtime), phase=Phase.STOPPED, sessions=()))
        stored = other.path / "state.json"
        stored.write_text(damage(stored.read_text()))
        assert [each.key for each in list_servers()] == [server.key]
    with VLLMServer(**fields, max_num_seqs=2).lease() as endpoint:
        generate(endpoint)


def test_an_error_of_its_user_stays_what_it_is(fields: dict[str, Any]) -> None:
    with pytest.raises(TimeoutError, match="mine"), VLLMServer(**fields).lease():
        raise TimeoutError("mine")


def test_a_lease_in_a_run_is_told_in_dagsters_log(fields: dict[str, Any]) -> None:
    @dg.asset
    def texts(server: dg.ResourceParam[VLLMServer]) -> dg.MaterializeResult:
        with server.lease() as endpoint:
            meter = Meter(endpoint)
            generate(endpoint)
            return dg.MaterializeResult(metadata=meter.report(endpoint))

    instance = dg.DagsterInstance.ephemeral()
    result = dg.materialize([texts], resources=dagster_resources({"server": VLLMServer(**fields)}), instance=instance)
    metadata = result.asset_materializations_for_node("texts")[0].metadata
    assert metadata["generated_tokens"].value == 1
    messages = [record.user_message for record in instance.all_logs(result.run_id)]
    assert any("is ready after" in message for message in messages)


def test_a_relative_folder_is_found_by_a_server_that_runs_elsewhere(
    fields: dict[str, Any], checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkpoint.parent)
    with VLLMServer(**{**fields, "model": checkpoint.name}).lease() as endpoint:
        assert endpoint.model == str(checkpoint)
        generate(endpoint)


def test_replicas_have_a_url_each(fields: dict[str, Any], tmp_path: Path) -> None:
    with VLLMServer(**{**fields, "replicas": 2, "gpus": [1, 3]}).lease() as endpoint:
        assert len(set(endpoint.urls)) == 2
        assert endpoint.alive(SOON)
        gpus = [process.environ().get("CUDA_VISIBLE_DEVICES") for process in processes(tmp_path)]
        assert set(gpus) == {"1", "3"}


# --- deaths -------------------------------------------------------------------------------------


def test_a_killed_client_does_not_keep_the_server(fields: dict[str, Any], tmp_path: Path) -> None:
    process = LeaseClient(fields, 3600)
    assert process.said
    assert processes(tmp_path)
    process.kill()
    process.wait(SOON)
    until(lambda: not processes(tmp_path))


def test_a_killed_supervisor_takes_the_server_along_and_a_restart_replaces_both(
    fields: dict[str, Any], tmp_path: Path, runtime: Path
) -> None:
    server = VLLMServer(**fields)
    with server.lease() as endpoint:
        os.kill(state_of(server, runtime).supervisor, signal.SIGKILL)
        until(lambda: not processes(tmp_path))
        renewed = server.restart(endpoint)
        assert renewed.boot > endpoint.boot
        generate(renewed)


def test_a_supervisor_killed_while_it_stops_is_replaced(fields: dict[str, Any], tmp_path: Path, runtime: Path) -> None:
    server = VLLMServer(**fields)
    with server.lease() as endpoint:
        os.kill(state_of(server, runtime).supervisor, signal.SIGKILL)
        until(lambda: not processes(tmp_path))
        folder = ServerFolder(runtime / server.key)
        folder.write_state(dataclasses.replace(state_of(server, runtime), phase=Phase.STOPPING))
        generate(server.restart(endpoint))


def test_a_killed_guard_takes_the_server_along(fields: dict[str, Any], tmp_path: Path, runtime: Path) -> None:
    server = VLLMServer(**fields)
    with server.lease() as endpoint:
        old = processes(tmp_path)
        os.kill(state_of(server, runtime).sessions[0][0], signal.SIGKILL)
        generate(server.restart(endpoint))
        assert not set(old) & set(processes(tmp_path))


def test_what_two_killed_keepers_left_is_ended_by_the_next_start(
    fields: dict[str, Any], tmp_path: Path, runtime: Path
) -> None:
    server = VLLMServer(**fields)
    with server.lease() as endpoint:
        old = processes(tmp_path)
        state = state_of(server, runtime)
        for pid in (state.supervisor, state.sessions[0][0]):
            os.kill(pid, signal.SIGSTOP)  # so that neither notices the other's end
        for pid in (state.supervisor, state.sessions[0][0]):
            os.kill(pid, signal.SIGKILL)
        generate(server.restart(endpoint))
        assert not set(old) & set(processes(tmp_path))


def test_a_server_killed_in_use_is_started_once_however_many_ask(fields: dict[str, Any]) -> None:
    server = VLLMServer(**fields)
    with server.lease() as endpoint:
        os.kill(get(endpoint, "/processes")[0], signal.SIGKILL)
        with ThreadPoolExecutor(8) as pool:
            renewed = list(pool.map(server.restart, [endpoint] * 8))
        assert {one.boot for one in renewed} == {endpoint.boot + 1}
        generate(renewed[0])


@pytest.mark.smoke
def test_a_hanging_engine_is_found_out_and_replaced(fields: dict[str, Any], tmp_path: Path) -> None:
    server = VLLMServer(**fields)
    with server.lease() as endpoint:
        assert endpoint.alive(SOON)
        old = processes(tmp_path)
        os.kill(get(endpoint, "/processes")[1], signal.SIGSTOP)
        assert not endpoint.alive(1.0)
        renewed = server.restart(endpoint)
        assert renewed.boot == endpoint.boot + 1
        generate(renewed)
        assert not set(old) & set(processes(tmp_path))


def test_a_busy_server_is_not_taken_for_a_hanging_one(fields: dict[str, Any]) -> None:
    fields["env"]["STUB_STEP"] = "0.2"
    server = VLLMServer(**fields)
    with server.lease() as endpoint, ThreadPoolExecutor(30) as pool:
        before = get(endpoint, "/processes")
        queue = [pool.submit(generate, endpoint) for _ in range(30)]
        until(lambda: endpoint.samples()["vllm:generation_tokens_total"] > 1)
        assert endpoint.alive(1.0)
        mistaken = server.restart(endpoint)
        assert mistaken.boot == endpoint.boot + 1
        assert get(mistaken, "/processes") == before
        for request in queue:
            request.result()


def test_restarts_are_bounded(fields: dict[str, Any], tmp_path: Path) -> None:
    server = VLLMServer(**{**fields, "max_restarts": 1})
    with server.lease() as endpoint:
        os.kill(get(endpoint, "/processes")[0], signal.SIGKILL)
        second = server.restart(endpoint)
        os.kill(get(second, "/processes")[0], signal.SIGKILL)
        with pytest.raises(EngineError, match="restarted 1 times within the hour"):
            server.restart(second)
    until(lambda: not processes(tmp_path))
    with server.lease() as fresh:  # a new user starts with no restarts counted
        generate(fresh)


# --- one replica of several ---------------------------------------------------------------------


@pytest.fixture
def pair(fields: dict[str, Any]) -> VLLMServer:
    return VLLMServer(**{**fields, "replicas": 2})


def ready(server: VLLMServer, runtime: Path, boot: int) -> Callable[[], bool]:
    return lambda: (state := state_of(server, runtime)).phase is Phase.READY and state.boot == boot


class OneRequest:
    """A handler that sends its job as the text of one request."""

    def prepare(self, job: str) -> str:
        return job

    async def finish(self, ready: str, client: Client) -> str:
        content = [{"type": "text", "text": ready}]
        body = json.dumps({"model": await client.model(), "messages": [{"role": "user", "content": content}]})
        answer = await client.post("/v1/chat/completions", body.encode(), lambda said: said["choices"], ready, 1.0)
        return f"{ready} {answer[0][0]['message']['content']}"

    def close(self) -> None:
        pass


def test_a_replica_that_hangs_is_restarted_by_itself_while_a_run_goes_on(fields: dict[str, Any], runtime: Path) -> None:
    fields["env"]["STUB_STEP"] = "0.02"
    server = VLLMServer(**{**fields, "replicas": 2})
    with server.lease() as endpoint:
        before = [get(endpoint, "/processes", replica) for replica in (0, 1)]
        given: list[str] = []

        def used_again() -> bool:
            if not ready(server, runtime, endpoint.boot + 1)():
                return False
            # The readiness check and a probe alone generate two.
            return dataclasses.replace(endpoint, urls=endpoint.urls[1:]).samples()["vllm:generation_tokens_total"] > 9

        def stream() -> Iterator[str]:
            deadline = time.monotonic() + SOON
            for number in itertools.count():
                if number == 10:
                    os.kill(before[1][1], signal.SIGSTOP)
                elif number > 10 and used_again():
                    return
                assert time.monotonic() < deadline, "it was never used again"
                given.append(str(number))
                yield given[-1]

        pool = WorkerPool(
            server, OneRequest, lambda job, reason: f"{job} lost: {reason}", 8, RetryPolicy(1.0, 4, 0.01), 1
        )
        results = list(pool.run(stream()))
        assert sorted(results) == sorted(f"{text} read" for text in given)
        assert get(endpoint, "/processes", 0) == before[0]
        assert not set(get(endpoint, "/processes", 1)) & set(before[1])


def test_only_the_reported_replica_is_probed(pair: VLLMServer, runtime: Path) -> None:
    with pair.lease() as endpoint:
        before = [get(endpoint, "/processes", replica) for replica in (0, 1)]
        for _, engine in before:
            os.kill(engine, signal.SIGSTOP)  # the first looks like a replica with a long request
        assert pair.restart_replica(endpoint, endpoint.urls[1], "it hangs") == endpoint
        until(ready(pair, runtime, endpoint.boot + 1))
        os.kill(before[0][1], signal.SIGCONT)
        generate(endpoint)
        generate(endpoint, replica=1)
        assert get(endpoint, "/processes", 0) == before[0]
        assert get(endpoint, "/processes", 1) != before[1]


def test_a_replica_reported_without_reason_or_too_late_lives_on(pair: VLLMServer, runtime: Path) -> None:
    with pair.lease() as endpoint:
        before = get(endpoint, "/processes", 1)
        os.kill(before[1], signal.SIGSTOP)
        pair.restart_replica(endpoint, endpoint.urls[1], "it hangs")
        until(ready(pair, runtime, endpoint.boot + 1))
        healed = get(endpoint, "/processes", 1)
        assert healed != before
        ServerFolder(runtime / pair.key).restart_request(endpoint.boot, 1).touch()  # a request about the old one
        now = pair.restart_replica(endpoint, endpoint.urls[1], "it hung")  # from a client unaware of the restart
        assert (now.boot, now.urls) == (endpoint.boot + 1, endpoint.urls)
        until(ready(pair, runtime, endpoint.boot + 2))
        assert get(endpoint, "/processes", 1) == healed
        assert len(state_of(pair, runtime).restarts) == 1


def test_who_comes_while_a_replica_is_restarted_waits_for_it(
    fields: dict[str, Any], tmp_path: Path, runtime: Path
) -> None:
    held = tmp_path / "held"
    fields["env"]["STUB_HELD"] = str(held)
    fields["replicas"] = 2
    server = VLLMServer(**fields)
    with server.lease() as endpoint:
        held.touch()
        os.kill(get(endpoint, "/processes", 1)[1], signal.SIGSTOP)
        server.restart_replica(endpoint, endpoint.urls[1], "it hangs")
        until(lambda: state_of(server, runtime).phase is Phase.STARTING)
        assert server.restart_replica(endpoint, endpoint.urls[1], "it hangs") == endpoint  # returns at once
        assert "starting, 1 restart" in CliRunner().invoke(app, ["status"], env={"COLUMNS": "300"}).output
        generate(endpoint)
        other = LeaseClient(fields, 0)
        held.unlink()
        assert other.said == [str(endpoint.boot + 1), endpoint.urls[0]]
        assert other.wait(SOON) == 0
        assert endpoint.alive(SOON)


def test_a_replica_that_lost_its_port_is_found_at_the_new_one(
    fields: dict[str, Any], tmp_path: Path, runtime: Path
) -> None:
    lost = tmp_path / "lost"
    lost.touch()
    fields["env"]["STUB_LOSE_PORT"] = str(lost)
    server = VLLMServer(**{**fields, "replicas": 2})
    with server.lease() as endpoint:
        lost.unlink()
        os.kill(get(endpoint, "/processes", 1)[1], signal.SIGSTOP)
        server.restart_replica(endpoint, endpoint.urls[1], "it hangs")
        until(ready(server, runtime, endpoint.boot + 1))
        now = server.restart_replica(endpoint, endpoint.urls[1], "nobody listens")
        assert now.urls[0] == endpoint.urls[0]
        assert now.urls[1] != endpoint.urls[1]
        generate(now, replica=1)
        assert server.restart(endpoint) == now
        assert now.alive(SOON)


def test_a_server_that_hangs_after_one_of_its_replicas_did_is_replaced(pair: VLLMServer, runtime: Path) -> None:
    with pair.lease() as endpoint:
        pair.restart_replica(endpoint, endpoint.urls[1], "it hangs")
        until(ready(pair, runtime, endpoint.boot + 1))
        for replica in (0, 1):
            os.kill(get(endpoint, "/processes", replica)[1], signal.SIGSTOP)
        renewed = pair.restart(endpoint)
        assert renewed.boot == endpoint.boot + 2
        assert renewed.alive(SOON)


def test_nothing_is_done_for_a_replica_of_external_servers(fields: dict[str, Any], runtime: Path) -> None:
    with VLLMServer(**fields).lease() as managed:
        external = VLLMServer(mode="external", model="m", revision="r", urls=list(managed.urls))
        assert external.restart_replica(managed, managed.urls[0], "it hangs") == managed
        assert not list(runtime.glob("*/restart-*"))


# --- servers that share a GPU -----------------------------------------------------------------------------


def test_a_waiting_server_gets_the_gpu_of_one_that_nobody_uses(fields: dict[str, Any], tmp_path: Path) -> None:
    ocr = {**fields, "gpus": [0], "idle_seconds": 3600, "yield_seconds": 0.2}
    embedding = {**ocr, "max_num_seqs": 8}
    with VLLMServer(**ocr).lease() as endpoint:
        other = LeaseClient(embedding, 0)
        until(lambda: any(server.state.phase is Phase.WAITING for server in list_servers()))
        generate(endpoint)  # it is not disturbed while in use
        pids = {process.pid for process in processes(tmp_path)}
    assert other.said
    assert other.wait(SOON) == 0
    assert not pids & {process.pid for process in processes(tmp_path)}


def test_one_process_cannot_wait_for_itself(fields: dict[str, Any]) -> None:
    ocr = {**fields, "gpus": [0]}
    with (
        VLLMServer(**ocr).lease(),
        pytest.raises(EngineError, match="this process still uses"),
        VLLMServer(**{**ocr, "max_num_seqs": 8}).lease(),
    ):
        pass


def test_servers_that_fit_share_a_gpu(fields: dict[str, Any]) -> None:
    ocr = {**fields, "gpus": [0], "share_gpu": True}
    with VLLMServer(**ocr).lease() as one, VLLMServer(**{**ocr, "max_num_seqs": 8}).lease() as other:
        generate(one)
        generate(other)
        assert one.urls != other.urls


def test_a_gpu_is_an_index_among_the_visible_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert named_gpus([0, 1]) == ("0", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-7f")
    assert named_gpus([1]) == ("GPU-7f",)
    with pytest.raises(EngineError, match="GPU 2 is asked for"):
        named_gpus([2])
