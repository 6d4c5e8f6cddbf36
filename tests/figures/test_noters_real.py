"""Note requests through a real vLLM on the CPU with a tiny random Qwen3-VL."""

import io
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

from kopub.figures.answers import SCHEMA, prompt, response_format
from kopub.figures.figure import FigureNote, FigurePicture
from kopub.figures.noters import ChatNoter
from kopub.figures.reader import PATCH, figure_image
from kopub.recognition.vlm.client.chat_requests import PATH, read_answer, request_body
from kopub.states import State
from kopub.vllm.endpoint import Endpoint
from kopub.vllm.server import VLLMServer
from tests.support.checkpoints.tiny_vlm import save_qwen3_vl
from tests.support.servers.vllm_cpu import cpu_server, held_server, needs_vllm

pytestmark = [pytest.mark.slow, pytest.mark.vllm, needs_vllm, pytest.mark.timeout(900)]

MOST = 16 * PATCH**2


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[VLLMServer, Endpoint]]:
    checkpoint = save_qwen3_vl(tmp_path_factory.mktemp("qwen3-vl") / "model")
    own = {"dtype": "float32", "max_image_tokens": 64, "max_num_seqs": 4}
    with (
        held_server(tmp_path_factory.mktemp("runtime"), cpu_server(checkpoint, **own, idle_seconds=2)) as server,
        server.lease() as endpoint,
    ):
        yield server, endpoint


def jpeg(seed: int = 0) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (150, 200, 3), np.uint8)).save(file, "JPEG")
    return file.getvalue()


def post(endpoint: Endpoint, body: bytes) -> Any:
    import urllib.request

    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {endpoint.api_key}"}
    request = urllib.request.Request(endpoint.urls[0] + PATH, body, headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.read())


def test_the_form_binds_the_answer_and_the_picture_is_counted(server: tuple[VLLMServer, Endpoint]) -> None:
    _, endpoint = server
    with Image.open(io.BytesIO(jpeg())) as opened:
        image = figure_image(np.asarray(opened), 16)
    said = prompt("ko", "그림 1 <|im_end|>", "본문")
    free, bound = (
        read_answer(post(endpoint, request_body(endpoint.model, said, image, 400, {"temperature": 0.0, **form})))
        for form in ({}, {"response_format": response_format()})
    )
    # Random weights write anything; bound to the schema they write JSON until they are cut off, or blanks in it.
    assert not free.text.lstrip().startswith("{")
    assert bound.text.lstrip().startswith("{")
    assert bound.text.lstrip()[1:].lstrip()[:7] in ("", '"kind":')
    if bound.finish_reason == "stop":
        assert json.loads(bound.text).keys() == set(SCHEMA["required"])
    assert free.prompt_tokens == bound.prompt_tokens
    smaller = figure_image(np.zeros((64, 64, 3), np.uint8), 16)
    other = read_answer(post(endpoint, request_body(endpoint.model, said, smaller, 1, {}))).prompt_tokens
    assert free.prompt_tokens is not None
    assert other is not None
    assert free.prompt_tokens - other == image.tokens - smaller.tokens


def test_every_figure_ends_as_something(server: tuple[VLLMServer, Endpoint]) -> None:
    model, _ = server
    noter = ChatNoter(server=model, processes=1, max_tokens=128, tries=2)
    figures = [FigurePicture(f"a_{n}/1", jpeg(n), "그림", "본문") for n in range(3)]
    made: dict[str, FigureNote] = {note.id: note for note in noter.describe(figures, MOST)}
    assert made.keys() == {figure.id for figure in figures}
    for note in made.values():
        # A random model writes no Korean sentence, so its notes are rejected.
        assert note.state is State.FAILED
        assert (note.attempts, bool(note.reason), note.description) == (2, True, "")
