"""DeepSeek-OCR through a real vLLM on the CPU: own classes, small towers, real regions and whole pages.

A tiny model writes random text without boxes, so every whole page ends with a reason.
"""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest

from kopub.recognition.deepseek_layout.detector import DeepSeekOcrLayout
from kopub.recognition.vlm.client.chat_requests import PATH, request_body
from kopub.recognition.vlm.client.deepseek import TiledImage, TiledImage2, tiled_image
from kopub.recognition.vlm.client.region_images import pack_pixels
from kopub.recognition.vlm.deepseek_ocr import LOGITS_PROCESSOR, MARKDOWN, RUNNER, SAMPLING, DeepSeekOcrRecognizer
from kopub.states import State
from kopub.vllm.endpoint import Endpoint
from kopub.vllm.server import VLLMServer
from tests.support.checkpoints.tiny_deepseek import EOS, save_deepseek_ocr
from tests.support.real_readings import assert_whole, sample_work
from tests.support.servers.vllm_cpu import cpu_server, held_server, needs_vllm, program
from tests.support.sources.grounded_pages import drawn_page

pytestmark = [pytest.mark.slow, pytest.mark.vllm, needs_vllm, pytest.mark.timeout(900)]

CONTEXT = 2048
ROOT = Path(__file__).resolve().parents[2]
SHAPES = ((300, 600), (641, 640), (1280, 640), (90, 1900), (1700, 210))


def fields_of(folder: Path) -> dict[str, Any]:
    vllm = program()
    assert vllm is not None
    fields = cpu_server(folder, idle_seconds=2, max_image_tokens=1280, max_model_len=CONTEXT)
    serve = ROOT / "tests" / "support" / "checkpoints" / "tiny_deepseek_serve.py"
    own = ["--load-format", "dummy", f"--logits-processors={LOGITS_PROCESSOR}"]
    return {
        **fields,
        # This vLLM's environment lacks the project, whose loop guard it loads.
        "env": {**fields["env"], **RUNNER, "PYTHONPATH": str(ROOT)},
        "command": [str(vllm.with_name("python")), str(serve), "serve"],
        "extra_flags": [*fields["extra_flags"], *own],
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VLLMServer]:
    """Return one server for all tests of the first generation."""
    fields = fields_of(save_deepseek_ocr(tmp_path_factory.mktemp("deepseek-ocr") / "model"))
    with held_server(tmp_path_factory.mktemp("runtime"), fields) as server:
        yield server


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


def test_pages_are_read_by_the_real_model_s_classes(server: VLLMServer, tmp_path: Path) -> None:
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

        # The prompt is <BOS><image>\nFree OCR. and the picture takes as many tokens as computed.
        noise = np.random.default_rng(0)
        pictures = [tiled_image(noise.integers(0, 256, shape, np.uint8)) for shape in SHAPES]
        for picture in pictures:
            answer = asked(endpoint, picture, max_tokens=1)
            assert answer["usage"]["prompt_tokens"] == picture.tokens + len("<\nFree OCR.")

        # The logits processor is loaded, and a request configures it.
        free = asked(endpoint, pictures[0], ignore_eos=True, return_token_ids=True)
        guarded = {"ngram_size": 2, "window_size": 200, "whitelist_token_ids": []}
        never_twice = asked(endpoint, pictures[0], ignore_eos=True, return_token_ids=True, vllm_xargs=guarded)
        assert max(pairs(free).values()) > 1
        assert max(pairs(never_twice).values()) == 1

        # A bias towards one token makes a loop, which the settings of every request end.
        (token, *_) = free["choices"][0]["token_ids"]
        pushed = {"ignore_eos": True, "return_token_ids": True, "logit_bias": {str(token): 100}}
        assert longest_run(asked(endpoint, pictures[0], **pushed)) == 200
        assert longest_run(asked(endpoint, pictures[0], **{**SAMPLING, **pushed})) == 30


def test_whole_pages_are_asked_for_as_the_real_model_s_classes_take_them(server: VLLMServer) -> None:
    page = drawn_page()
    picture = tiled_image(pack_pixels(page.image))
    with server.lease() as endpoint:
        detector = DeepSeekOcrLayout(server=server, processes=1, sampling={"max_tokens": 24})
        (layout,) = detector.detect([page])
        figures = detector.take_figures()
        assert layout.state in (State.PARTIAL, State.FAILED)
        assert layout.reason
        assert not any(EOS in (region.text or "") for region in layout.regions)
        # An A4 page and its two parts, of four and two tiles; with another token count the server would be refused.
        assert figures["requests"] == 3
        assert figures["image_tokens"] == 903 + 693 + 483
        assert figures.get("answers_refused", 0) == 0

        # The guard is set as the engine sets it, with the tokens of a table's cells as exceptions.
        answer = asked(endpoint, picture, **{**SAMPLING, "max_tokens": 200}, return_token_ids=True)
        assert answer["usage"]["prompt_tokens"] == 903 + len("<\nFree OCR.")
        guard = {**SAMPLING["vllm_xargs"], "ngram_size": 2, "window_size": 200}
        never_twice = asked(endpoint, picture, ignore_eos=True, return_token_ids=True, vllm_xargs=guard)
        assert max(pairs(never_twice).values()) == 1

        # An answer may take all that the context leaves, and is then cut off.
        assert len(MARKDOWN) < 64
        full = DeepSeekOcrLayout(server=server, processes=1, sampling={"ignore_eos": True}, halves_share=0.0)
        (cut,) = full.detect([page])
        assert full.take_figures()["answer_tokens"] == CONTEXT - 903 - 64
        assert cut.state in (State.PARTIAL, State.FAILED)


def test_the_second_generation_takes_whole_pages_too(tmp_path: Path) -> None:
    fields = fields_of(save_deepseek_ocr(tmp_path / "deepseek-ocr-2", ocr2=True))
    with held_server(tmp_path / "runtime", fields) as server:
        detector = DeepSeekOcrLayout(server=server, processes=1, sampling={"max_tokens": 24}, ocr2=True)
        (layout,) = detector.detect([drawn_page()])
        figures = detector.take_figures()
    assert layout.state in (State.PARTIAL, State.FAILED)
    assert layout.reason
    # A4 has six tiles of 768, of 144 tokens each, and its parts have four and two.
    assert figures["requests"] == 3
    assert figures["image_tokens"] == 1121 + 833 + 545
    assert figures.get("answers_refused", 0) == 0


SIZES = [(1357, 1920), (2480, 3508), (640, 640), (641, 640), (768, 700), (769, 768), (4000, 500), (500, 4000), (90, 60)]
COUNT = """
import json, sys
from vllm.model_executor.models.deepseek_ocr import DeepseekOCRProcessingInfo as first
from vllm.model_executor.models.deepseek_ocr2 import DeepseekOCR2ProcessingInfo as second
sizes = json.loads(sys.argv[1])
counts = [
    [info.get_num_image_tokens(None, image_width=w, image_height=h, cropping=True) for w, h in sizes]
    for info in (first, second)
]
print(json.dumps(counts))
"""


def test_pictures_have_the_tokens_that_vllm_counts():
    vllm = program()
    assert vllm is not None
    command = [str(vllm.with_name("python")), "-c", COUNT, json.dumps(SIZES)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    theirs = json.loads(done.stdout.splitlines()[-1])
    for kind, counted in zip((TiledImage, TiledImage2), theirs, strict=True):
        assert [kind(b"", "image/png", *size).tokens for size in SIZES] == counted
