"""Scores of a tiny random Qwen3-VL-Reranker on a CPU vLLM, compared with transformers'."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kopub.errors import EngineError
from kopub.reranking.pairs import SYSTEM, Pair
from kopub.reranking.qwen3_vl import Qwen3VLReranker
from kopub.vllm.server import VLLMServer
from tests.support import reranker_scores
from tests.support.checkpoints.tiny_vlm import save_qwen3_vl
from tests.support.servers.vllm_cpu import cpu_server, held_server, needs_vllm, program

pytestmark = [pytest.mark.slow, pytest.mark.vllm, needs_vllm, pytest.mark.timeout(900)]

QUESTIONS = ("올해 예산의 합계는 얼마인가?", "목차는 어디에 있는가?")
SEEN = ("image", "text", "both")
SMALL = 49 * 32 * 32
"""Pixels: a picture on the CPU takes a second for each thousand tokens."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_qwen3_vl(tmp_path_factory.mktemp("qwen3-vl") / "reranker", reranker=True)


@pytest.fixture(scope="module")
def server(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VLLMServer]:
    own = {"runner": "pooling", "convert": "classify", "dtype": "float32", "max_image_tokens": 1280}
    fields = cpu_server(checkpoint, **own, idle_seconds=2, max_num_seqs=64)
    with held_server(tmp_path_factory.mktemp("runtime"), fields) as server:
        yield server


def reranker(server: VLLMServer, **fields: Any) -> Qwen3VLReranker:
    return Qwen3VLReranker(server=server, **{"processes": 1, "max_pixels": SMALL, **fields})


def pairs(sees: str) -> list[Pair]:
    """Return twenty pages with texts and unscaled pictures, paired alternately with two questions."""
    import cv2

    rng = np.random.default_rng(5)
    made = []
    for at in range(20):
        shape = (32 * int(rng.integers(2, 5)), 32 * int(rng.integers(2, 5)), 3)
        picture = cv2.imencode(".png", rng.integers(0, 256, shape, np.uint8))[1].tobytes()
        text = "\n".join(f"{at}-{n}. 합계 {rng.integers(10**6)} 원" for n in range(int(rng.integers(1, 12))))
        pair = Pair(f"p{at:02}", QUESTIONS[at % 2], text, picture)
        blind = pair if sees != "text" else replace(pair, picture=None)
        made.append(blind if sees != "image" else replace(blind, text=""))
    return made


@pytest.fixture(scope="module")
def expected(server: VLLMServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """Return the scores of transformers of all pairs, by what is seen."""
    folder = tmp_path_factory.mktemp("reference")
    items = []
    for pair in chain.from_iterable(map(pairs, SEEN)):
        item = {"system": SYSTEM, "instruction": reranker(server).instruction}
        if pair.picture:
            path = folder / f"{pair.id}.png"
            path.write_bytes(pair.picture)
            item["image"] = str(path)
        items.append(item | {"question": pair.question} | ({"text": pair.text} if pair.text else {}))
    inputs, output = folder / "inputs.json", folder / "scores.npy"
    inputs.write_text(json.dumps(items), "utf-8")
    python = (program() or Path()).with_name("python")
    subprocess.run([python, reranker_scores.__file__, server.model, inputs, output], check=True)
    return dict(zip(SEEN, np.split(np.load(output), len(SEEN)), strict=True))


def scores(engine: Qwen3VLReranker, asked: list[Pair]) -> np.ndarray:
    found = {made.id: made for made in engine.score(asked)}
    assert [made.reason for made in found.values() if made.score is None] == []
    return np.array([found[pair.id].score for pair in asked])


@pytest.mark.parametrize("sees", SEEN)
def test_scores_and_order_are_those_of_transformers_in_any_batch(
    server: VLLMServer, expected: dict[str, np.ndarray], sees: Any
) -> None:
    asked, theirs = pairs(sees), expected[sees]
    engine = reranker(server, sees=sees)
    assert theirs.std() > 0.01  # scores differ, so there is an order to compare
    for at_once in (1, 7, 20):
        made = scores(engine.model_copy(update={"in_flight": at_once}), asked)
        assert np.abs(made - theirs).max() < 1e-2
        apart = np.diff(theirs[np.argsort(theirs)]) > 2e-5
        same = np.argsort(made, kind="stable") == np.argsort(theirs, kind="stable")
        assert same[1:][apart].all(), at_once


def test_another_template_is_one_line(server: VLLMServer, tmp_path: Path) -> None:
    with server.lease() as endpoint, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KEY_OF_TEST", endpoint.api_key)
        same: dict[str, Any] = {"mode": "external", "urls": list(endpoint.urls), "api_key_env": "KEY_OF_TEST"}
        believed = VLLMServer(model=server.model, runner="pooling", convert="classify", max_image_tokens=1280, **same)
        # Another model's tokenizer gives other token counts, as another template would.
        other = tmp_path / "tokenizer.json"
        own = (Path(server.model) / "tokenizer.json").read_text("utf-8")
        other.write_text(own.replace('"<|im_start|>"', '"<|im_begin|>"'), "utf-8")
        with pytest.raises(EngineError, match=r"has another template.*check which model it serves"):
            list(reranker(believed, tokenizer=str(other)).score(pairs("text")))
