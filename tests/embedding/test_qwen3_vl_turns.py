"""Reading and embedding in one run on one GPU, with a double of `vllm serve`: by turns, and side by side."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from resources.embedding.qwen3_vl.embedder import Qwen3VLEmbedder
from resources.recognition.vlm.glm.glm_ocr import GlmOcrRecognizer
from resources.vllm.server import VLLMServer
from resources.vllm.supervisor.server_state import Phase, ServerFolder
from tests.support.checkpoints.tiny_vlm import qwen_tokenizer
from tests.support.harness import Platform
from tests.support.installed import imported
from tests.support.servers.stub_server import until
from tests.support.sources import corpora

imported("torch")
imported("tokenizers")
pytestmark = [pytest.mark.services, pytest.mark.skipif(sys.platform != "linux", reason="a managed server needs Linux")]

STUB = [sys.executable, str(Path(__file__).parents[1] / "doubles" / "stub_vllm.py")]
ROOT = Path(__file__).resolve().parents[2]
DIM = 64
TABLES = ("ocr_results", "corpus_image_embeddings", "corpus_text_embeddings", "query_embeddings")
RUN = """
import json, sys
from pathlib import Path
from tests.embedding.test_qwen3_vl_turns import run
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
    """What both servers have in common; the double dies of memory when two run on a GPU that is not shared."""
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
    """Every asset of a corpus of two shards, in one run."""
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
