"""PaddleOCR-VL through a real, managed vLLM on the CPU: own classes and processor, real pages."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest

from kopub.pages.page import Page
from kopub.recognition.vlm.client.chat_requests import PATH, request_body
from kopub.recognition.vlm.client.paddle import PaddleImage, sized_image
from kopub.recognition.vlm.client.region_images import CropImage, encode_image
from kopub.recognition.vlm.paddleocr_vl import PaddleOcrVlRecognizer
from kopub.states import State
from kopub.vllm.endpoint import Endpoint
from kopub.vllm.server import VLLMServer
from tests.support.checkpoints.tiny_paddleocr_vl import save_paddleocr_vl
from tests.support.in_process import assert_as_here
from tests.support.installed import needs
from tests.support.real_readings import assert_whole, sample_work
from tests.support.servers.vllm_cpu import cpu_server, held_server, needs_vllm

pytestmark = [pytest.mark.slow, pytest.mark.vllm, needs_vllm, pytest.mark.timeout(900)]

SIZES = {(812, 422): 435, (800, 40): 162, (300, 40): 165, (400, 200): 153, (1200, 900): 1230, (1654, 2339): 1260}
"""Width and height of crops, and the image tokens that the model's preprocessor makes of them."""
AROUND = len("<User: <") + len(">") + len("OCR:\nAssistant:\n")
"""Tokens of the tiny tokenizer around the picture: special ones and bytes."""


def asked(endpoint: Endpoint, picture: CropImage, **sampling: Any) -> dict[str, Any]:
    body = request_body(endpoint.model, "OCR:", picture, 8, {"temperature": 0, **sampling})
    headers = {"Authorization": f"Bearer {endpoint.api_key}", "Content-Type": "application/json"}
    with urlopen(Request(endpoint.urls[0] + PATH, body, headers), timeout=300) as response:
        return json.load(response)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VLLMServer]:
    checkpoint = save_paddleocr_vl(tmp_path_factory.mktemp("paddleocr-vl") / "model")
    fields = cpu_server(checkpoint, idle_seconds=2, max_image_tokens=1280, dtype="float32")
    with held_server(tmp_path_factory.mktemp("runtime"), fields) as server:
        yield server


@needs("torch", "transformers")
def test_without_a_server_the_same_is_read(server: VLLMServer) -> None:
    # Later tokens of its tiny checkpoint are near ties, which the server's kernels may break differently.
    assert_as_here("paddleocr_vl", server, PaddleOcrVlRecognizer, 1)


def test_pages_are_read_by_the_real_model_s_classes(server: VLLMServer, tmp_path: Path) -> None:
    reader = PaddleOcrVlRecognizer(
        server=server, processes=1, tries=2, sampling={"max_tokens": 24}, reuse_folder=str(tmp_path / "reuse")
    )
    work = sample_work(2)
    with server.lease() as endpoint:
        # The guard counts the tokens of every prompt: a picture resized by the server would fail its region.
        texts = assert_whole(work, list(reader.read(work)))
        assert any(text.content.startswith("<table>") for text in texts)
        good = sum(text.state is not State.FAILED and text.finish_reason == "stop" for text in texts)
        list(reader.read(work))
        assert reader.report().get("regions_reused", 0.0) == good

        noise = np.random.default_rng(0)
        for (width, height), tokens in SIZES.items():
            crop = noise.integers(0, 256, (height, width), np.uint8)
            picture = sized_image(crop)
            assert picture.tokens == tokens
            assert asked(endpoint, picture)["usage"]["prompt_tokens"] == tokens + AROUND
            # The picture has the size that the preprocessor would choose for the crop itself.
            whole = PaddleImage(*encode_image(crop), width, height)
            assert asked(endpoint, whole)["usage"]["prompt_tokens"] == tokens + AROUND

        # PaddleX's own client sends sizes with every request; this server refuses them.
        square = sized_image(noise.integers(0, 256, (400, 400), np.uint8))
        with pytest.raises(HTTPError) as error:
            asked(endpoint, square, mm_processor_kwargs={"max_pixels": 1_605_632})
        assert "mm_processor_kwargs" in error.value.read().decode()

        # A prompt longer than the context fails its region with the server's message.
        long = PaddleOcrVlRecognizer(server=server, processes=1, tries=2, prompts={"text": "O" * 9000})
        page, regions = work[0]
        (reading,) = long.read([(Page(page.page_id, page.data), regions)])
        refused = [text for text in reading.regions if text.attempts and text.native_label == "text"]
        assert refused
        assert all(text.state is State.FAILED and text.attempts == 2 for text in refused)
        assert all("maximum" in str(text.reason) for text in refused)
