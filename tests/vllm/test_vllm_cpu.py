"""GLM-OCR on a real vLLM on the CPU, a tiny random checkpoint: two half-minute starts through `VLLMServer`."""

import base64
import dataclasses
import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from kopub.config.profile_files import find_profile
from kopub.doctor.card_report import CardMeasurement
from kopub.embedding.hashed import HashedEmbedder
from kopub.errors import EngineError
from kopub.layout.cpu.engine import CpuLayout
from kopub.recognition.vlm.glm_ocr import GlmOcrRecognizer
from kopub.states import State
from kopub.vllm.endpoint import Endpoint, FirstRequests, Meter, warm_up
from kopub.vllm.lease import list_servers, stop_server
from kopub.vllm.server import VLLMServer
from kopub.vllm.server_fields import listed_flags, serve_arguments, unknown_flags
from kopub.vllm.supervisor.server_state import Phase, ServerFolder, ServerState
from tests.support.checkpoints.tiny_vlm import save_glm_ocr
from tests.support.harness import Platform
from tests.support.in_process import assert_as_here
from tests.support.installed import needs
from tests.support.processes.lease_client import CLIENT
from tests.support.processes.living import lives
from tests.support.real_readings import assert_whole, sample_work
from tests.support.sample_home import first_samples
from tests.support.servers.vllm_cpu import cpu_server, needs_vllm, program
from tests.support.sources.corpora import pages
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.vllm, needs_vllm, pytest.mark.timeout(900)]

SOON = 120.0
ROOT = Path(__file__).resolve().parents[2]
AT_ONCE = 256


class Warm:
    """A server shared by all tests that leave it running."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        self.server = VLLMServer(**fields)
        self._lease = ExitStack()
        self._endpoint: Endpoint | None = None

    @property
    def endpoint(self) -> Endpoint:
        if self._endpoint is None:
            self._endpoint = self._lease.enter_context(self.server.lease())
        return self._endpoint

    @property
    def state(self) -> ServerState:
        state = ServerFolder(self.endpoint.folder or Path()).state
        assert state is not None
        return state

    def restart(self) -> Endpoint:
        self._endpoint = self.server.restart(self.endpoint)
        return self._endpoint

    def release(self) -> None:
        self._lease.close()
        self._endpoint = None

    def processes(self) -> list[psutil.Process]:
        """Return the guard and its descendants."""
        guard = psutil.Process(self.state.sessions[0][0])
        return [guard, *guard.children(recursive=True)]


@pytest.fixture(scope="module", autouse=True)
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("runtime")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KOPUB_RUNTIME", str(folder))
        patch.setenv("no_proxy", "127.0.0.1")  # the tests' own requests
        yield folder


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    checkpoint = save_glm_ocr(tmp_path_factory.mktemp("glm-ocr"))
    warm = Warm(cpu_server(checkpoint, idle_seconds=3, max_image_tokens=1280, dtype="float32"))
    yield warm
    warm.release()


def picture(seed: int) -> str:
    """Return a unique PNG of 140 x 56 pixels as a data URL."""
    import cv2
    import numpy as np

    pixels = np.random.default_rng(seed).integers(0, 255, (56, 140, 3), np.uint8)
    return f"data:image/png;base64,{base64.b64encode(cv2.imencode('.png', pixels)[1].tobytes()).decode()}"


def ask(endpoint: Endpoint, path: str, body: dict[str, Any]) -> Any:
    """Return the server's answer to a POST; raise as urllib does."""
    data = json.dumps({"model": endpoint.model, **body}).encode()
    headers = {"Authorization": f"Bearer {endpoint.api_key}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(endpoint.urls[0] + path, data, headers), timeout=SOON) as answer:
        return json.loads(answer.read())


def read(endpoint: Endpoint, seed: int, tokens: int = 16, to_the_last: bool = False) -> dict[str, Any]:
    """Return the answer to one picture; `to_the_last` ignores the model's end token."""
    content = [
        {"type": "image_url", "image_url": {"url": picture(seed)}},
        {"type": "text", "text": "Text Recognition:"},
    ]
    messages = [{"role": "user", "content": content}]
    body = {"messages": messages, "max_tokens": tokens, "temperature": 0, "ignore_eos": to_the_last}
    return ask(endpoint, "/v1/chat/completions", body)["choices"][0]


def client(fields: dict[str, Any], seconds: float) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", CLIENT, json.dumps(fields), str(seconds)]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return process.stdout.readline().split()


def test_a_card_report_measures_it_from_its_start(warm: Warm, tmp_path: Path) -> None:
    warm.release()
    for server in list_servers():
        stop_server(server, force=True)
    platform = Platform.of(tmp_path, [pages("a_1")])
    reader = GlmOcrRecognizer(server=warm.server, processes=1, tries=1, sampling={"max_tokens": 16})
    platform.engines |= {"layout": CpuLayout(), "recognition": reader, "embedding": HashedEmbedder()}
    measurement = CardMeasurement(platform.settings, first_samples(1), {})
    list(measurement.run(lambda *_: None))
    _ = warm.endpoint  # the tests that follow use the same start
    report = measurement.report()
    (ocr,) = (stage for stage in report["stages"] if stage["stage"] == "recognition")
    assert (ocr["items"], ocr["problem"]) == (1, "")
    assert ocr["tokens_out"] >= ocr["regions"] > 0
    assert ocr["tokens_in"] > ocr["tokens_out"]
    assert ocr["ready_seconds"] > 5
    assert re.search(r"cache [\d,]+ tokens", ocr["chosen"])
    assert "its start: importing vLLM" in ocr["chosen"]
    assert warm.server.model.rpartition("/")[0] not in json.dumps(report)


def test_pages_are_read_and_not_a_second_time(warm: Warm, tmp_path: Path) -> None:
    reader = GlmOcrRecognizer(
        server=warm.server, processes=2, tries=2, sampling={"max_tokens": 24}, reuse_folder=str(tmp_path / "reuse")
    )
    work = sample_work(3)
    readings = list(reader.read(work))
    texts = assert_whole(work, readings)
    good = sum(text.state is not State.FAILED and text.finish_reason == "stop" for text in texts)
    again = {reading.page_id: reading for reading in reader.read(work)}
    assert reader.report().get("regions_reused", 0.0) == good
    for reading in readings:
        kept = [text for text in reading.regions if text.state is not State.FAILED]
        assert [text for text in again[reading.page_id].regions if text.state is not State.FAILED] == kept


@needs("torch", "transformers")
def test_without_a_server_the_same_words_are_read(warm: Warm) -> None:
    assert_as_here("glm_ocr", warm.server, GlmOcrRecognizer)


def test_the_first_requests_of_a_server_are_whole_pictures_and_answers(warm: Warm) -> None:
    before = warm.endpoint.samples()
    warm_up(warm.endpoint.targets[0], FirstRequests((10 * 28, 8 * 28), 0, 2), SOON)
    figures = warm.endpoint.samples()
    assert figures["vllm:prompt_tokens_total"] - before["vllm:prompt_tokens_total"] >= 2 * 80
    assert figures["vllm:generation_tokens_total"] - before["vllm:generation_tokens_total"] == 2 * 16


def test_256_pictures_at_once_are_all_read_and_told_in_the_figures(warm: Warm) -> None:
    endpoint = warm.endpoint
    meter = Meter(endpoint)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(lambda seed: read(endpoint, seed), range(AT_ONCE)))
    texts = [answer["message"]["content"] for answer in answers]
    assert all(texts)
    assert len(set(texts)) > AT_ONCE / 2  # most pictures have an answer of their own
    figures = meter.report(endpoint)
    finished = sum(float(value) for name, value in figures.items() if name.startswith("finished_"))
    assert finished == AT_ONCE
    assert figures["prefix_cache_hits"] == figures["image_cache_hits"] == 0
    assert float(figures["mean_in_server"]) > 1


def test_the_key_is_needed_and_is_told_to_nobody(warm: Warm) -> None:
    endpoint = warm.endpoint
    with pytest.raises(urllib.error.HTTPError, match="401"):
        read(dataclasses.replace(endpoint, api_key="guess"), 0)
    assert endpoint.folder is not None
    assert not any(endpoint.api_key in path.read_text() for path in endpoint.folder.glob("*.log*"))
    assert not any(endpoint.api_key in " ".join(process.cmdline()) for process in warm.processes())


def test_a_second_process_finds_it_warm_and_may_be_killed(warm: Warm) -> None:
    endpoint = warm.endpoint
    other = client(warm.fields, 3600)
    assert said(other) == [str(endpoint.boot), endpoint.urls[0]]
    other.kill()
    other.wait()
    assert read(endpoint, 1)


def test_a_stopped_engine_in_use_is_found_out_and_replaced_once_however_many_ask(warm: Warm) -> None:
    endpoint = warm.endpoint
    old = warm.processes()
    engine = next(process for process in old if "EngineCore" in process.name())
    with ThreadPoolExecutor(16) as pool:
        under_way = [pool.submit(read, endpoint, seed, 4000, True) for seed in range(8)]
        until(lambda: endpoint.samples()["vllm:num_requests_running"] > 0, SOON)
        engine.suspend()
        assert not endpoint.alive(3)
        renewed = list(pool.map(lambda _: warm.server.restart(endpoint), range(8)))
        assert all(request.exception() is not None for request in under_way)
    assert {one.boot for one in renewed} == {endpoint.boot + 1}
    assert not any(map(lives, old))
    assert read(warm.restart(), 2)


def test_a_killed_client_was_its_last_user_and_it_stops(warm: Warm) -> None:
    _ = warm.endpoint
    folder = ServerFolder(warm.endpoint.folder or Path())
    processes = warm.processes()
    other = client(warm.fields, 3600)
    said(other)
    warm.release()
    other.kill()
    other.wait()
    until(lambda: not any(map(lives, processes)), SOON)
    until(lambda: (state := folder.state) and state.phase is Phase.STOPPED, SOON)


def test_this_vllm_knows_every_flag_that_a_profile_leads_to() -> None:
    everything = {"quantization": "fp8", "kv_cache_dtype": "fp8", "kv_cache_memory": "1G", "speculative": {"a": 1}}
    everything |= {"gpu_memory_utilization": 0.9, "prefix_caching": True}
    sections = [everything, {}]
    for profile in sorted((ROOT / "profiles").glob("*.yaml")):
        for section in find_profile(str(profile)).sections.values():
            if isinstance(section, dict) and "server" in section:
                sections.append({key: value for key, value in section["server"].items() if key != "version"})
    pinned = [VLLMServer(**{"model": "org/model", "revision": "abc", **section}) for section in sections]
    arguments = [word for server in pinned for word in serve_arguments(server)]
    known = listed_flags([str(program()), "serve"])
    assert unknown_flags(arguments, known) == []
    assert unknown_flags([*arguments, "--no-such-flag.key=1", "--max_model_len"], known) == ["--no-such-flag"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"extra_flags": ["--no-such-flag"]}, r"does not know a flag.*--no-such-flag"),
        ({}, "cannot be found or read"),
    ],
)
def test_a_start_that_cannot_work_says_why(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=message):
        VLLMServer(**cpu_server(tmp_path, **changes)).lease().__enter__()
