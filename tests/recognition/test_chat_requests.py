"""Requests to a model server: token counts of prompts, and reuse of earlier answers."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from kopub.errors import EngineError
from kopub.layout.regions import Task
from kopub.recognition.vlm.client.chat_requests import PromptTokens
from kopub.recognition.vlm.client.region_images import PATCH
from kopub.states import State
from tests.doubles.http_double import HttpDouble, Reply, SentRequest, says
from tests.recognition.test_glm_ocr import TEXT, page_of, recognizer


def counting(patch: int) -> Reply:
    """Return a reply that counts one token for each square of `patch` pixels."""

    async def reply(asked: SentRequest) -> web.StreamResponse:
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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"choices": [{"message": {"content": [{"text": "나"}]}, "finish_reason": "stop"}]},
            "no text but of type list",
        ),
        ({"choices": [{"message": {"content": 7}, "finish_reason": "stop"}]}, "no text but of type int"),
        ({"usage": [1, 2]}, '"usage": [1, 2]'),
        ({"choices": None, "error": {"message": "no GPU is left"}}, "no GPU is left"),
    ],
    ids=["parts", "number", "usage", "error"],
)
def test_an_answer_of_another_form_fails_its_region_alone(change: dict[str, Any], said: str) -> None:
    async def reply(asked: SentRequest) -> web.StreamResponse:
        answer = json.loads(says("가").body)  # type: ignore[arg-type]
        return web.json_response(answer if asked.prompt == TEXT else answer | change)

    with HttpDouble(reply) as double:
        (reading,) = recognizer(double).read([page_of("p_1", [Task.TEXT, Task.TABLE])])
    text, table = reading.regions
    assert (text.state, text.content) == (State.OK, "가")
    assert table.state is State.FAILED
    assert re.search(f"the answer is not whole: .*{re.escape(said)}", str(table.reason))


def test_half_of_a_character_in_an_answer_is_a_mark_for_it(tmp_path: Path) -> None:
    async def reply(asked: SentRequest) -> web.StreamResponse:
        return says("가나\ud83d")

    with HttpDouble(reply) as double:
        (reading,) = recognizer(double, reuse_folder=str(tmp_path)).read([page_of("p_1", [Task.TEXT])])
    assert [(text.state, text.content) for text in reading.regions] == [(State.OK, "가나\ufffd")]


ROOT = Path(__file__).resolve().parents[2]
OPENER = """
import sys, time
from pathlib import Path
from kopub.recognition.vlm.client.chat_requests import AnswerCache
for line in sys.stdin:
    folder, moment = line.split()
    while time.time() < float(moment):
        pass
    try:
        AnswerCache(Path(folder), 10).close()
        print("opened", flush=True)
    except Exception as error:
        print(error, flush=True)
"""
PROCESSES, ROUNDS = 6, 60


@pytest.mark.services
def test_processes_that_open_a_new_cache_at_the_same_moment_all_get_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OPENER]
    openers = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    try:
        said = {line for at in range(ROUNDS) for line in opened_at_once(openers, tmp_path / str(at))}
    finally:
        for opener in openers:
            opener.communicate()
    assert said == {"opened\n"}


def opened_at_once(openers: "list[subprocess.Popen[str]]", folder: Path) -> list[str]:
    moment = time.time() + 0.01
    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.write(f"{folder} {moment}\n")
        opener.stdin.flush()
    return [opener.stdout.readline() for opener in openers if opener.stdout is not None]
