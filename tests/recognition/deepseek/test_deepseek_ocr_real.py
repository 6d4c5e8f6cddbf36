"""DeepSeek-OCR read through a real vLLM on the CPU: its own classes and processor with small towers, real pages."""

import json
from collections import Counter
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest

from resources.recognition.vlm.chat_requests import PATH, request_body
from resources.recognition.vlm.deepseek.deepseek_images import TiledImage, tiled_image
from resources.recognition.vlm.deepseek.deepseek_ocr import DeepSeekOcrRecognizer
from resources.recognition.vlm.deepseek.deepseek_server import LOGITS_PROCESSOR, RUNNER, SAMPLING
from resources.states import State
from resources.vllm.endpoint import Endpoint
from resources.vllm.server import VLLMServer
from tests.support.checkpoints.tiny_deepseek import EOS, save_deepseek_ocr
from tests.support.real_readings import assert_whole, sample_work
from tests.support.servers.vllm_cpu import cpu_server, needs_vllm, program

ROOT = Path(__file__).resolve().parents[3]
SHAPES = ((300, 600), (641, 640), (1280, 640), (90, 1900), (1700, 210))


def server_of(folder: Path) -> VLLMServer:
    vllm = program()
    assert vllm is not None
    fields = cpu_server(folder, idle_seconds=2)
    serve = ROOT / "tests" / "support" / "checkpoints" / "tiny_deepseek_serve.py"
    own = ["--load-format", "dummy", f"--logits-processors={LOGITS_PROCESSOR}"]
    return VLLMServer(
        **{
            **fields,
            # The environment of this vLLM has not the project itself, whose guard it loads.
            "env": {**fields["env"], **RUNNER, "PYTHONPATH": str(ROOT)},
            "command": [str(vllm.with_name("python")), str(serve), "serve"],
            "extra_flags": [*fields["extra_flags"], *own],
        }
    )


def asked(endpoint: Endpoint, picture: TiledImage, **sampling: Any) -> dict[str, Any]:
    body = request_body(endpoint.model, "Free OCR.", picture, 200, {"temperature": 0, **sampling})
    headers = {"Authorization": f"Bearer {endpoint.api_key}", "Content-Type": "application/json"}
    request = Request(endpoint.urls[0] + PATH, body, headers)
    with urlopen(request, timeout=300) as response:
        return json.load(response)


def pairs(answer: dict[str, Any]) -> Counter[tuple[int, int]]:
    return Counter(pairwise(answer["choices"][0]["token_ids"]))


def longest_run(answer: dict[str, Any]) -> int:
    return max(len(list(same)) for _, same in groupby(answer["choices"][0]["token_ids"]))


@pytest.mark.slow
@pytest.mark.vllm
@needs_vllm
@pytest.mark.timeout(900)
def test_pages_are_read_by_the_real_model_s_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPUB_RUNTIME", str(tmp_path))
    monkeypatch.setenv("no_proxy", "127.0.0.1")  # the test's own requests
    server = server_of(save_deepseek_ocr(tmp_path / "deepseek-ocr"))
    reader = DeepSeekOcrRecognizer(
        server=server, processes=1, tries=2, sampling={"max_tokens": 24}, reuse_folder=str(tmp_path / "reuse")
    )
    work = sample_work(2)
    with server.lease() as endpoint:
        texts = assert_whole(work, list(reader.read(work)))
        assert not any(EOS in text.content for text in texts)
        good = sum(text.state is not State.FAILED and text.finish_reason == "stop" for text in texts)
        list(reader.read(work))
        assert reader.report().get("regions_reused", 0.0) == good

        # The prompt is <BOS><image>\nFree OCR. and the picture takes the tokens that it is said to.
        noise = np.random.default_rng(0)
        pictures = [tiled_image(noise.integers(0, 256, shape, np.uint8)) for shape in SHAPES]
        for picture in pictures:
            answer = asked(endpoint, picture, max_tokens=1)
            assert answer["usage"]["prompt_tokens"] == picture.tokens + len("<\nFree OCR.")

        # The logits processor is there, and a request sets it.
        free = asked(endpoint, pictures[0], ignore_eos=True, return_token_ids=True)
        guarded = {"ngram_size": 2, "window_size": 200, "whitelist_token_ids": []}
        never_twice = asked(endpoint, pictures[0], ignore_eos=True, return_token_ids=True, vllm_xargs=guarded)
        assert max(pairs(free).values()) > 1
        assert max(pairs(never_twice).values()) == 1

        # One token pushed before all others is a loop, which the setting of every request ends.
        (token, *_) = free["choices"][0]["token_ids"]
        pushed = {"ignore_eos": True, "return_token_ids": True, "logit_bias": {str(token): 100}}
        assert longest_run(asked(endpoint, pictures[0], **pushed)) == 200
        assert longest_run(asked(endpoint, pictures[0], **{**SAMPLING, **pushed})) == 30
