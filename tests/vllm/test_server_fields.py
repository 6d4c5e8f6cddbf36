"""The managed server's fields, failed starts, external servers, figures and commands."""

import dataclasses
import json
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from aiohttp import web
from pydantic import ValidationError
from typer.testing import CliRunner

from kopub.cli.commands import serve
from kopub.cli.commands.serve import app
from kopub.errors import ConfigError, EngineError
from kopub.vllm.endpoint import Endpoint, Meter, parse_metrics, probe, summarize_metrics
from kopub.vllm.lease import list_servers, stop_server
from kopub.vllm.plugin import GLM_OCR as SWITCH
from kopub.vllm.server import VLLMServer
from kopub.vllm.server_fields import serve_arguments, serve_environment
from kopub.vllm.supervisor.server_log import LogTail, likely_cause
from kopub.vllm.supervisor.server_state import Phase
from tests.doubles.http_double import HttpDouble
from tests.support.processes.lease_client import LeaseClient
from tests.support.servers.postgres import free_port
from tests.support.servers.stub_server import needs_linux, processes, state_of
from tests.support.waiting import SOON, until

pytestmark = [pytest.mark.services, needs_linux, pytest.mark.usefixtures("runtime")]


def generate(endpoint: Endpoint, seconds: float = SOON, replica: int = 0) -> None:
    probe(endpoint.targets[replica], seconds)


# --- starts that fail ---------------------------------------------------------------------------


@pytest.mark.smoke
def test_a_failed_start_says_why_and_leaves_nothing(fields: dict[str, Any], tmp_path: Path) -> None:
    fields["env"]["STUB_LAST_WORDS"] = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    with pytest.raises(EngineError, match=r"memory does not suffice.*Tried to allocate 2\.00 GiB") as caught:
        VLLMServer(**fields).lease().__enter__()
    assert "\n" not in str(caught.value)
    until(lambda: not processes(tmp_path))


def test_of_several_replicas_the_log_of_the_failed_one_is_named(fields: dict[str, Any], tmp_path: Path) -> None:
    fields["env"]["STUB_GPU"] = str(tmp_path / "gpu")  # the GPU has room for one server
    with pytest.raises(EngineError, match="memory does not suffice") as caught:
        VLLMServer(**{**fields, "replicas": 2}).lease().__enter__()
    log = Path(str(caught.value).rpartition("its log is ")[2])
    assert "out of memory" in log.read_text()


def test_a_second_try_after_a_failed_start_really_tries(fields: dict[str, Any], tmp_path: Path) -> None:
    once = tmp_path / "lost"
    once.touch()
    fields["env"]["STUB_LOSE_PORT"] = str(once)
    once.unlink()
    server = VLLMServer(**{**fields, "port": free_port()})
    with pytest.raises(EngineError, match="the port is taken"):
        server.lease().__enter__()
    with server.lease() as endpoint:
        generate(endpoint)


def test_a_port_lost_between_choice_and_use_is_replaced(fields: dict[str, Any], tmp_path: Path) -> None:
    fields["env"]["STUB_LOSE_PORT"] = str(tmp_path / "lost")
    with VLLMServer(**fields).lease() as endpoint:
        generate(endpoint)
    assert (tmp_path / "lost").exists()


def test_a_fixed_port_that_is_taken_is_named(fields: dict[str, Any]) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(EngineError, match=f"port {port} is taken"):
            VLLMServer(**{**fields, "port": port}).lease().__enter__()


def test_a_start_that_takes_too_long_is_ended(fields: dict[str, Any], tmp_path: Path) -> None:
    fields["env"]["STUB_BOOT"] = "600"
    with pytest.raises(EngineError, match="not ready within 1 s"):
        VLLMServer(**{**fields, "start_timeout": 1}).lease().__enter__()
    until(lambda: not processes(tmp_path))


def test_another_version_than_the_pinned_one_is_refused(fields: dict[str, Any]) -> None:
    fields["env"]["STUB_VERSION"] = "0.26.0"
    with pytest.raises(EngineError, match=r"it is vLLM 0\.26\.0, the profile says 0\.32\.0"):
        VLLMServer(**{**fields, "version": "0.32.0"}).lease().__enter__()


def test_a_build_of_the_pinned_version_is_accepted(fields: dict[str, Any]) -> None:
    fields["env"]["STUB_VERSION"] = "0.32.0+cu130"
    with VLLMServer(**{**fields, "version": "0.32.0"}).lease() as endpoint:
        generate(endpoint)


def test_a_program_that_is_not_there_is_named(fields: dict[str, Any]) -> None:
    with pytest.raises(EngineError, match="no-such-vllm is not installed"):
        VLLMServer(**{**fields, "command": ["no-such-vllm", "serve"]}).lease().__enter__()


def test_stopping_during_the_start_leaves_nothing(fields: dict[str, Any], tmp_path: Path, runtime: Path) -> None:
    fields["env"]["STUB_BOOT"] = "600"
    server = VLLMServer(**fields)
    process = LeaseClient(fields, 0)
    until(lambda: (state := state_of(server, runtime)) and state.phase is Phase.STARTING)
    os.kill(state_of(server, runtime).supervisor, signal.SIGTERM)
    assert process.wait(SOON) == 1
    until(lambda: not processes(tmp_path))


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("OSError: [Errno 98] Address already in use", "port is taken"),
        ("(EngineCore pid=1) ERROR 11-21 12:00:00 [core.py:1] torch.OutOfMemoryError: CUDA out of memory.", "memory"),
        ("ValueError: Free memory on device (4.1/8.0 GiB) is less than desired GPU memory utilization", "memory"),
        ("RuntimeError: The NVIDIA driver on your system is too old (found version 11040).", "driver 580 or newer"),
        ("RuntimeError: No CUDA GPUs; Failed to infer device type", "no GPU that this build"),
        ("RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist", "nvcc"),
        ("RuntimeError: Failed to find C compiler. Please specify via CC environment variable.", "no C compiler"),
        ("/tmp/x/main.c:5:10: fatal error: Python.h: No such file or directory", "no Python headers"),
        (
            "ValueError: NGramPerReqLogitsProcessor is not a subclass of "
            "vllm.v1.worker.gpu.sample.logits_processor.LogitsProcessor",
            "VLLM_USE_V2_MODEL_RUNNER",
        ),
        (
            "RuntimeError: Failed to load 0th LogitsProcessor plugin kopub.vllm.plugin.ngram_guard:NGramGuard",
            "install kopub there too",
        ),
        ("huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error.", "cannot be found"),
        ("RuntimeError: Cannot find any model weights with `/models/x`", "cannot be found"),
        ("vllm: error: unrecognized arguments: --no-such-flag", "does not know a flag"),
        ("ValueError: Model architectures ['X'] are not supported for now.", "another version"),
        (
            "ValueError: To serve at least one request with the models's max seq len (16384), (1.00 GiB KV cache is "
            "needed, which is larger than the available KV cache memory (0.12 GiB).",
            "raise kv_cache_memory",
        ),
        ("OSError: [Errno 28] No space left on device", "disk is full"),
    ],
)
def test_the_log_tells_the_cause(line: str, cause: str) -> None:
    assert cause in likely_cause(["INFO started", line, "RuntimeError: Engine core initialization failed."])


def test_the_cause_lies_before_the_traceback_of_the_process_that_waited() -> None:
    waiting = [
        *['  File "x.py", line 1, in f'] * 80,
        "RuntimeError: Engine core initialization failed. See root cause above.",
    ]
    assert "memory does not suffice" in likely_cause(
        ["ValueError: No available memory for the cache blocks.", *waiting]
    )
    assert likely_cause(["ValueError: odd", *waiting]) == "ValueError: odd"


def test_an_unknown_cause_is_the_last_error_without_its_prefixes() -> None:
    lines = ["(APIServer pid=7) ERROR 11-21 12:00:00 [x.py:3] ValueError: odd", "bye"]
    assert likely_cause(lines) == "ValueError: odd"
    assert likely_cause([]) == "it printed nothing"
    assert "SIGKILL" in likely_cause(["INFO all is well"], status=137)


# --- external servers ---------------------------------------------------------------------------


def test_external_servers_are_used_and_silent_ones_left_out(fields: dict[str, Any], monkeypatch: Any) -> None:
    with VLLMServer(**fields).lease() as managed:
        monkeypatch.setenv("OUR_KEY", f"{managed.api_key}\n")  # with a newline, as read from a file
        external = {"mode": "external", "model": managed.model, "api_key_env": "OUR_KEY", "hang_seconds": 1.0}
        urls = [managed.urls[0], f"http://127.0.0.1:{free_port()}"]
        with VLLMServer(**external, urls=urls).lease() as endpoint:
            assert endpoint.urls == managed.urls
            generate(endpoint)
        with pytest.raises(EngineError, match=r"the profile says 0\.9"):
            VLLMServer(**external, urls=urls, version="0.9").lease().__enter__()
        with pytest.raises(EngineError, match=f"serves {managed.model}"):
            VLLMServer(**{**external, "model": "other/model", "revision": "abc"}, urls=urls).lease().__enter__()
    monkeypatch.delenv("OUR_KEY")
    with pytest.raises(EngineError, match=r"OUR_KEY.* is not set"):
        VLLMServer(**external, urls=urls).lease().__enter__()


@pytest.mark.parametrize("key", ["비밀", "se\ncret", "sk-1234\u2026"])
def test_a_key_that_no_request_can_carry_is_one_line(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_KEY", key)
    external: dict[str, Any] = {"model": "m", "revision": "r", "mode": "external", "api_key_env": "OUR_KEY"}
    with HttpDouble() as double, pytest.raises(EngineError, match="OUR_KEY has characters that no key has") as caught:
        VLLMServer(**external, urls=[double.url]).lease().__enter__()
    assert key not in str(caught.value)


def test_a_server_that_has_no_version_is_used_where_none_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none(request: web.Request) -> web.Response:
        return web.Response(status=404)

    monkeypatch.setattr("tests.doubles.http_double._version", none)
    with HttpDouble() as double:
        external: dict[str, Any] = {"model": "m", "revision": "r", "mode": "external", "images_per_prompt": 0}
        external["urls"] = [double.url]
        with VLLMServer(**external).lease() as endpoint:
            assert endpoint.urls == (double.url,)
        with pytest.raises(EngineError, match=r"does not say which vLLM it is .* leave `version` empty"):
            VLLMServer(**external, version="0.32.0").lease().__enter__()


# --- configuration ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "zai-org/GLM-OCR"}, "a commit of it must be pinned"),
        ({"max_image_tokens": 6144, "max_num_batched_tokens": 4096}, "6144 tokens exceeds"),
        ({"mode": "external"}, "at least one URL"),
        ({"mode": "external", "urls": ["localhost:8000"]}, "'localhost:8000' is no URL of a server"),
        ({"mode": "external", "urls": ["http://localhost:http"]}, "is no URL of a server"),
        ({"mode": "external", "urls": ["http://localhost:8000/모델"]}, "is no URL of a server"),
        ({"mode": "external", "urls": ["http://서버.example:8000"]}, "is no URL of a server"),
        ({"command": []}, "at least 1 item"),
        ({"gpu_memory_utilization": 1.5}, "less than or equal to 1"),
    ],
)
def test_impossible_values_are_refused_at_load(fields: dict[str, Any], change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        VLLMServer(**{**fields, **change})


def test_the_flags_say_what_the_fields_say(fields: dict[str, Any]) -> None:
    server = VLLMServer(
        **{**fields, "model": "org/model", "revision": "abc", "quantization": "fp8", "speculative": {"method": "mtp"}},
        extra_flags=["--enforce-eager"],
    )
    arguments = serve_arguments(server)
    assert arguments[0] == "org/model"
    flags = dict(zip(arguments, [*arguments[1:], ""], strict=True))
    assert flags["--revision"] == "abc"
    assert flags["--quantization"] == "fp8"
    assert json.loads(flags["--speculative-config"]) == {"method": "mtp"}
    assert json.loads(flags["--limit-mm-per-prompt"]) == {"image": 1, "video": 0}
    assert flags["--mm-processor-cache-gb"] == "0"
    assert "--no-enable-prefix-caching" in flags
    assert arguments[-1] == "--enforce-eager"
    assert not {"--api-key", "--port", "--convert"} & set(flags)
    pooling = serve_arguments(VLLMServer(**{**fields, "runner": "pooling"}))
    assert pooling[pooling.index("--convert") + 1] == "embed"
    assert json.loads(pooling[pooling.index("--pooler-config") + 1]) == {"seq_pooling_type": "LAST"}


def test_only_a_profile_turns_the_encoder_on(
    fields: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, "1")
    with VLLMServer(**fields).lease():
        assert {process.environ()[SWITCH] for process in processes(tmp_path)} == {"0"}
    assert serve_environment(VLLMServer(**{**fields, "env": {SWITCH: "1"}}))[SWITCH] == "1"


def test_weights_are_identified_by_commit_or_by_content(fields: dict[str, Any], checkpoint: Path) -> None:
    before = VLLMServer(**fields).recipe_parts()
    copy = checkpoint.with_name("copy")
    copy.mkdir()
    (copy / "config.json").write_text("{}")
    assert VLLMServer(**{**fields, "model": str(copy)}).recipe_parts() == before
    (copy / ".cache").mkdir()
    (copy / ".cache" / "downloaded").touch()
    assert VLLMServer(**{**fields, "model": str(copy)}).recipe_parts() == before
    (copy / "1_Pooling").mkdir()
    (copy / "1_Pooling" / "config.json").write_text("{}")
    assert VLLMServer(**{**fields, "model": str(copy)}).recipe_parts() != before
    assert VLLMServer(**{**fields, "model": "a/b", "revision": "c"}).recipe_parts()["revision"] == "c"
    assert VLLMServer(**{**fields, "dtype": "float16"}).recipe_parts() != before


# --- figures ------------------------------------------------------------------------------------

BEFORE = """
vllm:prompt_tokens_total{engine="0"} 100
vllm:generation_tokens_total{engine="0"} 50
vllm:request_success_total{engine="0",finished_reason="stop"} 3
vllm:request_success_total{engine="0",finished_reason="length"} 1
vllm:e2e_request_latency_seconds_sum{engine="0"} 10
vllm:prefix_cache_hits_total{engine="0"} 0
"""
AFTER = """
vllm:prompt_tokens_total{engine="0"} 400
vllm:generation_tokens_total{engine="0"} 20
vllm:request_success_total{engine="0",finished_reason="stop"} 9
vllm:request_success_total{engine="0",finished_reason="length"} 1
vllm:e2e_request_latency_seconds_sum{engine="0"} 50
vllm:prefix_cache_hits_total{engine="0"} 0
"""


def test_a_run_is_told_its_share_of_the_counters() -> None:
    figures = summarize_metrics(parse_metrics(BEFORE), parse_metrics(AFTER), 10)
    assert figures["prompt_tokens"] == 300
    assert figures["prompt_tokens_per_second"] == 30
    assert figures["generated_tokens"] == 20  # the server was restarted in between
    assert figures["finished_stop"] == 6
    assert "finished_length" not in figures
    assert figures["mean_in_server"] == 4
    assert figures["prefix_cache_hits"] == 0


def test_a_server_that_is_gone_costs_the_figures_only(fields: dict[str, Any]) -> None:
    with VLLMServer(**fields).lease() as endpoint:
        meter = Meter(endpoint)
        generate(endpoint)
        assert meter.report(endpoint)["generated_tokens"] == 1
        gone = dataclasses.replace(endpoint, urls=(f"http://127.0.0.1:{free_port()}",))
        assert "not available" in str(meter.report(gone)["server_metrics"])


def test_a_log_is_read_on_when_it_is_replaced(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tail = LogTail(log)
    assert tail.lines() == []
    log.write_text("(APIServer pid=1) INFO 11-21 12:00:00 [a.py:1] one\nhal")
    assert tail.lines() == ["one"]
    with log.open("a") as file:
        file.write("f\n")
    assert tail.lines() == ["half"]
    log.rename(tmp_path / "log.1")
    log.write_text("new\n")
    assert tail.lines() == ["new"]


# --- the command line ---------------------------------------------------------------------------


def test_the_command_line_lists_and_stops(fields: dict[str, Any], tmp_path: Path) -> None:
    run = CliRunner().invoke
    assert "No model server runs" in run(app, ["status"]).output
    server = VLLMServer(**{**fields, "idle_seconds": 3600})
    with server.lease() as endpoint:
        shown = run(app, ["status"], env={"COLUMNS": "300"}).output
        assert server.key[:6] in shown
        assert str(os.getpid()) in shown
        assert endpoint.api_key not in shown
        assert isinstance(run(app, ["stop", server.key[:6]]).exception, EngineError)
        generate(endpoint)
    assert "nobody" in run(app, ["status"], env={"COLUMNS": "300"}).output
    # An empty variable in a script looks like this.
    assert isinstance(run(app, ["stop", ""]).exception, ConfigError)
    assert processes(tmp_path)
    assert run(app, ["stop"]).exit_code == 0
    assert not processes(tmp_path)
    assert run(app, ["stop"]).stdout == "No model server runs.\n"


def test_a_server_in_use_keeps_no_other_running(fields: dict[str, Any]) -> None:
    run, stays = CliRunner().invoke, {**fields, "idle_seconds": 3600}
    busy, idle = sorted((VLLMServer(**stays), VLLMServer(**stays, port=free_port())), key=lambda server: server.key)
    with idle.lease():
        pass
    with busy.lease():
        stopped = run(app, ["stop"])
        assert f"stopped {idle.key[:6]}" in stopped.output
        assert f"is in use by process {os.getpid()}" in str(stopped.exception)
        assert [server.key for server in list_servers()] == [busy.key]
    assert run(app, ["stop"]).exit_code == 0


def test_a_server_in_use_is_not_stopped_where_the_system_lists_no_locks(
    fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kopub.vllm.lease.LOCKS", Path("/proc/no-such-file"))
    run = CliRunner().invoke
    with VLLMServer(**{**fields, "idle_seconds": 3600}).lease() as endpoint:
        assert str(run(app, ["stop"]).exception).endswith("is in use; --force stops it all the same")
        (status,) = json.loads(run(app, ["status", "--json"]).stdout)
        assert (status["in_use"], status["used_by"], status["idle_seconds_left"]) == (True, [], None)
        assert "somebody" in run(app, ["status"], env={"COLUMNS": "300"}).output
        generate(endpoint)
    assert "nobody" in run(app, ["status"], env={"COLUMNS": "300"}).output
    assert run(app, ["stop"]).exit_code == 0


def test_a_name_of_two_servers_stops_neither(fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with VLLMServer(**fields).lease():
        (server,) = list_servers()
        monkeypatch.setattr(serve, "list_servers", lambda: [server, server])
        stopped = CliRunner().invoke(app, ["stop", server.key[:1], "--force"])
        assert str(stopped.exception).startswith(f"2 servers have the name {server.key[:1]}")
        assert list_servers() == [server]


def test_a_runtime_folder_that_cannot_be_used_is_one_line(
    fields: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KOPUB_RUNTIME", str(tmp_path / "file"))
    with pytest.raises(EngineError, match="no folder for the servers' locks"):
        VLLMServer(**fields).lease().__enter__()
    assert isinstance(CliRunner().invoke(app, ["status"]).exception, EngineError)


def test_a_lock_of_the_same_number_on_another_disk_is_no_use_of_a_server(
    fields: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with VLLMServer(**{**fields, "idle_seconds": 60}).lease():
        (server,) = list_servers()
        assert server.users == (os.getpid(),)
    locks = tmp_path / "locks"
    inode = server.folder.lease.stat().st_ino
    locks.write_text(f"1: FLOCK  ADVISORY  WRITE {os.getpid()} 00:99:{inode} 0 EOF\n")
    monkeypatch.setattr("kopub.vllm.lease.LOCKS", locks)
    (server,) = list_servers()
    assert server.users == ()
    stop_server(server)
    assert not processes(tmp_path)


def test_a_server_that_stops_by_itself_meanwhile_is_stopped(fields: dict[str, Any], tmp_path: Path) -> None:
    with VLLMServer(**fields).lease():
        (server,) = list_servers()
    until(lambda: not psutil.pid_exists(server.state.supervisor))
    stop_server(server, force=True)  # its listed user has left since
    assert not processes(tmp_path)


def test_a_server_stopped_on_purpose_is_not_brought_back_by_its_user(fields: dict[str, Any], tmp_path: Path) -> None:
    server = VLLMServer(**fields)
    with server.lease() as endpoint:
        assert CliRunner().invoke(app, ["stop", "--force"]).exit_code == 0
        with pytest.raises(EngineError, match="was stopped: it was asked to stop"):
            server.restart(endpoint)
    assert not processes(tmp_path)
