"""A server that sees other pictures than were sent is found out by the tokens of its prompts."""

import json

import pytest
from aiohttp import web

from resources.errors import EngineError
from resources.layout.regions import Task
from resources.recognition.vlm.prompt_tokens import PromptTokens
from resources.recognition.vlm.region_images import PATCH
from resources.states import State
from tests.doubles.http_double import Asked, HttpDouble, Reply, says
from tests.recognition.glm.test_glm_ocr import TEXT, page_of, recognizer


def counting(patch: int) -> Reply:
    """A server that sees a picture in patches of `patch` pixels."""

    async def reply(asked: Asked) -> web.StreamResponse:
        width, height = asked.size
        answer = json.loads(says("가").body)  # type: ignore[arg-type]
        answer["usage"]["prompt_tokens"] = 12 + width * height // patch**2
        return web.json_response(answer)

    return reply


def test_a_server_that_sees_what_was_sent_is_believed() -> None:
    with HttpDouble(counting(PATCH)) as double:
        (reading,) = recognizer(double).read([page_of("p_1", [Task.TEXT] * 4)])
    assert reading.state is State.OK


def test_a_server_that_resizes_is_one_error() -> None:
    with HttpDouble(counting(4 * PATCH)) as double, pytest.raises(EngineError, match="it resizes pictures or has"):
        list(recognizer(double).read([page_of("p_1", [Task.TEXT] * 4, (1120, 560))]))


def test_prompts_of_one_template_have_the_same_tokens_around_their_pictures() -> None:
    tokens = PromptTokens()
    assert tokens.problem(TEXT, 100, 112) is None
    assert tokens.problem(TEXT, 6000, 6012) is None
    assert tokens.problem("Table Recognition:", 100, 114) is None
    assert "read 113 tokens where a picture of 100 was sent" in str(tokens.problem(TEXT, 100, 113))
    assert tokens.problem(TEXT, 100, None) is None
