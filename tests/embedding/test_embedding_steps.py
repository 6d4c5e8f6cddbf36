"""Embedding steps of a run: processes and servers start ahead, take turns and end."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import psutil
import pytest
from aiohttp import web

from kopub.embedding.qwen3_vl import Qwen3VLEmbedder
from kopub.recognition.vlm.glm_ocr import GlmOcrRecognizer
from kopub.states import State
from kopub.vllm import served_engine
from kopub.vllm.client import worker_pool
from kopub.vllm.server import VLLMServer
from kopub.vllm.supervisor.server_state import Phase, ServerFolder
from tests.doubles.engines import SlowReader
from tests.doubles.vector_double import Request, VectorDouble, embedder, embedder_at, sound
from tests.support.checkpoints.tiny_vlm import qwen_tokenizer
from tests.support.harness import Platform, failure
from tests.support.installed import imported
from tests.support.sources import corpora
from tests.support.sources.corpora import page_image
from tests.support.waiting import until

imported("torch")
imported("tokenizers")
pytestmark = [pytest.mark.services, pytest.mark.skipif(sys.platform != "linux", reason="a managed server needs Linux")]

BEFORE = "raw_pages,layout_regions,ocr_results,parsed_texts"
IMAGES, TEXTS = "corpus_image_embeddings", "corpus_text_embeddings"
PROCESSES = 2
HANDLERS = "kopub.embedding.qwen3_vl_handlers"
SOON = 20.0
"""Seconds for what takes about one on an idle machine."""


def corpus(*numbers: int) -> list[tuple[str, bytes]]:
    """Return pages that go to the server unchanged."""
    return [(f"p_{place}", page_image(number, (320, 320))) for place, number in enumerate(numbers)]


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    """Return a platform with everything made that comes before the vectors."""
    built = Platform.of(tmp_path, [corpus(0, 1)])
    built.make(*BEFORE.split(","))
    return built


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes for pages import no more than those for texts: PyTorch takes two seconds."""
    monkeypatch.setattr(Qwen3VLEmbedder, "worker_modules", (HANDLERS,))


def served(platform: Platform, url: str) -> None:
    tokenizer = platform.home / "tokenizer.json"
    qwen_tokenizer().save(str(tokenizer))
    platform.engines["embedding"] = embedder_at(url, tokenizer, processes=PROCESSES)


def clients() -> list[psutil.Process]:
    """Return the running client processes."""
    found: list[psutil.Process] = []
    for process in psutil.Process().children():
        with suppress(psutil.Error):  # it has ended
            found += [process] if "worker_process" in " ".join(process.cmdline()) else []
    return found


class LastPages:
    """A reply that holds pages until both steps' processes run or `SOON`, then calls `then`."""

    def __init__(self, then: Callable[[Request], object] = lambda _: None) -> None:
        self.up: set[int] = set()
        """Numbers of running client processes, counted while pages waited for their answers."""
        self._then = then

    async def __call__(self, asked: Request) -> web.Response:
        deadline = time.monotonic() + SOON
        while "messages" in asked.body and time.monotonic() < deadline:
            self.up.add(len(clients()))
            if len(clients()) == 2 * PROCESSES:
                break
            await asyncio.sleep(0.02)
        self._then(asked)
        return await sound(asked)


def test_the_text_step_finds_its_processes_up_without_what_only_pages_need(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    booted: list[worker_pool.Worker] = []
    boot = worker_pool.boot_process

    def noted() -> worker_pool.Worker:
        booted.append(boot())
        return booted[-1]

    monkeypatch.setattr(worker_pool, "boot_process", noted)
    monkeypatch.setattr(served_engine, "boot_process", noted)
    with_torch: list[bool] = []

    def look(asked: Request) -> None:
        if "input" in asked.body:
            # A process of the step before may still be exiting.
            of_texts = {_pid(each) for each in booted[PROCESSES:]}
            with_torch.extend(_maps(process, "libtorch") for process in clients() if process.pid in of_texts)

    last_pages = LastPages(look)
    with VectorDouble(vectors=last_pages) as double:
        served(platform, double.url)
        assert platform.run(f"{IMAGES},{TEXTS}").success
    assert set(platform.states(TEXTS).values()) == {State.OK}
    assert max(last_pages.up) == len(booted) == 2 * PROCESSES
    assert with_torch
    assert not any(with_torch)
    assert clients() == []


def test_processes_for_texts_read_the_tokenizer_while_they_wait(tmp_path: Path) -> None:
    tokenizer, through = tmp_path / "tokenizer.json", tmp_path / "through"
    qwen_tokenizer().save(str(tokenizer))
    through.mkdir()
    with VectorDouble() as double:
        engine = embedder(double, tokenizer, processes=PROCESSES)
        engine.prepare_texts()
        engine.prepare_workers((), partial(mkdtemp, dir=str(through)))
        until(lambda: len(list(through.iterdir())) == PROCESSES)
        tokenizer.write_text("{}")
        (made,) = engine.embed_texts([("t", "글")])
    assert made.state is State.OK


def _pid(booted: worker_pool.Worker) -> int:
    assert isinstance(booted._runner, subprocess.Popen)
    return booted._runner.pid


def _maps(process: psutil.Process, library: str) -> bool:
    with suppress(psutil.Error):  # it has ended
        return any(library in mapped.path for mapped in process.memory_maps())
    return False


def test_nothing_is_left_when_the_first_of_two_steps_fails(platform: Platform, light: None) -> None:
    platform.reindex([corpus(0, 2)])
    last_pages = LastPages()
    with VectorDouble(vectors=last_pages) as double:
        served(platform, double.url)
        result = platform.run(f"{IMAGES},{TEXTS}")
    assert max(last_pages.up) == 2 * PROCESSES
    assert "does not hold the bytes" in failure(result)
    assert set(platform.states(TEXTS).values()) == {State.OK}
    assert clients() == []


def test_nothing_is_left_when_the_step_that_would_need_it_is_skipped(tmp_path: Path, light: None) -> None:
    platform = Platform.of(tmp_path, [corpus(0)])
    platform.engines["recognition"] = SlowReader(diary=str(tmp_path / "diary"), die_on="p_0")
    with VectorDouble() as double:
        served(platform, double.url)
        assert "out of order" in failure(platform.run(f"{BEFORE},{TEXTS}"))
    assert clients() == []


def test_nothing_is_left_after_an_interrupt(platform: Platform, light: None) -> None:
    last_pages = LastPages(lambda asked: asked.number or os.kill(os.getpid(), signal.SIGINT))
    with VectorDouble(vectors=last_pages) as double:
        served(platform, double.url)
        assert not platform.run(f"{IMAGES},{TEXTS}").success
        assert all("messages" in asked.body for asked in double.requests)
    assert max(last_pages.up) == 2 * PROCESSES
    assert clients() == []


imported("torch")
imported("tokenizers")

STUB = [sys.executable, str(Path(__file__).parents[1] / "doubles" / "stub_vllm.py")]
ROOT = Path(__file__).resolve().parents[2]
DIM = 64
TABLES = ("ocr_results", "corpus_image_embeddings", "corpus_text_embeddings", "query_embeddings")
RUN = """
import json, sys
from pathlib import Path
from tests.embedding.test_embedding_steps import run
assert run(Path(sys.argv[1]), json.loads(sys.argv[2])).success
"""


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "run"
    monkeypatch.setenv("KOPUB_RUNTIME", str(folder))
    yield folder
    for path in folder.glob("*/state.json"):
        state = ServerFolder(path.parent).state
        if state is not None and psutil.pid_exists(state.supervisor):
            os.kill(state.supervisor, signal.SIGTERM)


@pytest.fixture
def fields(tmp_path: Path) -> dict[str, Any]:
    """Return common fields of both servers; two doubles at once run out of GPU memory."""
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    tokenizer = qwen_tokenizer()
    tokenizer.save(str(checkpoint / "tokenizer.json"))
    system = "<|im_start|>system\nRepresent the user's input.<|im_end|>\n"
    frame = f"{system}<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n"
    env = {"STUB_WIDTH": str(DIM), "STUB_FRAME": str(len(tokenizer.encode(frame).ids) + 2)}
    return {
        "model": str(checkpoint),
        "command": STUB,
        "gpus": [0],
        "env": {**env, "STUB_GPU": str(tmp_path / "the-gpu")},
        "yield_seconds": 0.2,
        "start_timeout": 60,
    }


def run(home: Path, fields: dict[str, Any]) -> Any:
    """Make every asset of a corpus of two shards in one run."""
    queries = [corpora.query("q1", "질문", "a_1"), corpora.query("q2", "물음", "b_1")]
    platform = Platform.of(home, [corpora.pages("a_1", "a_2"), corpora.pages("b_1")], queries)
    common: dict[str, Any] = {"processes": 1, "in_flight": 4}
    pooling = VLLMServer(**fields, runner="pooling", max_image_tokens=1800)
    platform.engines = {
        "recognition": GlmOcrRecognizer(server=VLLMServer(**fields), **common),
        "embedding": Qwen3VLEmbedder(server=pooling, dim=DIM, width=DIM, **common),
    }
    return platform.run(",".join(["raw_pages", "layout_regions", "parsed_texts", *TABLES]), last="shard_01")


def check(home: Path) -> None:
    platform = Platform(home)
    for asset in TABLES:
        for shard in ("shard_00", "shard_01"):
            states = platform.states(asset, shard)
            assert states
            assert set(states.values()) == {"ok"}


def test_one_run_reads_and_embeds_by_turns(fields: dict[str, Any], tmp_path: Path, runtime: Path) -> None:
    assert run(tmp_path / "home", fields).success
    check(tmp_path / "home")
    states = [ServerFolder(path.parent).state for path in runtime.glob("*/state.json")]
    assert len([state for state in states if state]) == 2


def test_two_runs_at_once_both_end(fields: dict[str, Any], tmp_path: Path) -> None:
    homes = [tmp_path / name for name in ("one", "two")]
    words = json.dumps(fields)
    runs = [
        subprocess.Popen([sys.executable, "-c", RUN, str(home), words], cwd=ROOT, env={**os.environ, "PYTHONPATH": "."})
        for home in homes
    ]
    assert [process.wait(240) for process in runs] == [0, 0]
    for home in homes:
        check(home)


def test_both_servers_start_before_either_is_needed(fields: dict[str, Any], tmp_path: Path, runtime: Path) -> None:
    held = tmp_path / "held"
    held.touch()
    del fields["env"]["STUB_GPU"]
    fields["env"]["STUB_HELD"] = str(held)

    def both_start() -> bool:
        states = [ServerFolder(path.parent).state for path in runtime.glob("*/state.json")]
        return [state.phase for state in states if state] == [Phase.STARTING] * 2

    def release() -> None:
        until(both_start)
        held.unlink()

    with ThreadPoolExecutor(1) as pool:
        released = pool.submit(release)
        assert run(tmp_path / "home", {**fields, "share_gpu": True}).success
        released.result()
    check(tmp_path / "home")


def test_servers_that_fit_stay_side_by_side(fields: dict[str, Any], tmp_path: Path, runtime: Path) -> None:
    del fields["env"]["STUB_GPU"]
    assert run(tmp_path / "home", {**fields, "share_gpu": True, "yield_seconds": 0}).success
    check(tmp_path / "home")
    states = [ServerFolder(path.parent).state for path in runtime.glob("*/state.json")]
    assert [(state.phase, state.boot) for state in states if state] == [(Phase.READY, 1)] * 2
