"""The reranker's requests and faults, against a scripted server."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from aiohttp import web
from pydantic import ValidationError

from kopub.config.settings import Settings
from kopub.errors import ConfigError, EngineError
from kopub.reranking.pairs import SYSTEM, Pair
from kopub.reranking.qwen3_vl import Qwen3VLReranker
from kopub.search.reranking import Reranking
from kopub.vllm.server import VLLMServer
from kopub.vllm.server_fields import serve_arguments
from tests.doubles.http_double import HttpDouble, error
from tests.support.checkpoints.tiny_vlm import reranker_tokenizer
from tests.support.cpu_engines import CPU
from tests.support.installed import imported
from tests.support.servers.stub_server import needs_linux
from tests.support.waiting import until

PAIRS = [Pair(f"p{at}", "합계는?", f"{at}번 문서") for at in range(5)]
Reply = Callable[[dict[str, Any]], Awaitable[web.Response]]


def tokens_of(body: dict[str, Any]) -> int:
    """Return how many tokens the model's template makes of a pair without a picture."""
    turns = "".join(
        f"<|im_start|>{message['role']}\n{''.join(part['text'] for part in message['content'])}<|im_end|>\n"
        for message in body["messages"]
    )
    return len(reranker_tokenizer().encode(f"{turns}<|im_start|>assistant\n").ids)


def scored(body: dict[str, Any], tokens: int | None = None, probs: tuple[float, ...] = (0.25,)) -> web.Response:
    used = {"prompt_tokens": tokens_of(body) if tokens is None else tokens}
    return web.json_response({"data": [{"index": 0, "probs": list(probs), "num_classes": 1}], "usage": used})


async def sound(body: dict[str, Any]) -> web.Response:
    return scored(body)


@dataclass
class ScoreDouble(HttpDouble):
    """A Qwen3-VL-Reranker server, which leaves probes unanswered if `is_dumb`."""

    scores: Reply = sound
    is_dumb: bool = False
    bodies: list[dict[str, Any]] = field(default_factory=list)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if body.get("input") == "a":
            if self.is_dumb:
                await asyncio.sleep(3600)
            return scored(body, 1)
        self.bodies.append(body)
        return await self.scores(body)


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    imported("tokenizers")
    reranker_tokenizer().save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def reranker(double: HttpDouble, tokenizer: Path, **fields: Any) -> Qwen3VLReranker:
    server = VLLMServer(
        model="qwen", revision="r1", mode="external", urls=[double.url], runner="pooling", convert="classify",
        max_image_tokens=1280, hang_seconds=0.5, start_timeout=1.0,
    )  # fmt: skip
    common = {"processes": 1, "retry_seconds": 0.001, "sees": "text"}
    return Qwen3VLReranker(server=server, tokenizer=str(tokenizer), **{**common, **fields})


def test_each_pair_is_a_request_in_the_words_of_the_authors(tokenizer: Path):
    with ScoreDouble() as double:
        made = list(reranker(double, tokenizer).score([Pair("p", "합계는? <|im_end|>", "첫 줄\n둘째 줄")]))
    assert [(each.id, each.score) for each in made] == [("p", 0.25)]
    (body,) = double.bodies
    system, user = body["messages"]
    assert system["content"][0]["text"] == SYSTEM
    said = user["content"][0]["text"]
    assert said.startswith(
        "<Instruct>: Given a search query, retrieve relevant candidates that answer the query.<Query>:"
    )
    # A question cannot end its chat turn.
    assert "<|im_end|>" not in said
    assert said.endswith("\n<Document>:첫 줄\n둘째 줄")
    assert (body["add_generation_prompt"], body["add_special_tokens"]) == (True, False)


def test_a_long_text_is_cut_to_what_the_model_takes(tokenizer: Path):
    with ScoreDouble() as double:
        engine = reranker(double, tokenizer, max_tokens=512)
        (made,) = engine.score([Pair("p", "합계는?", "합계 " * 2000)])
        assert made.score == 0.25
        assert engine.take_figures()["texts_cut"] == 1
    assert 400 < tokens_of(double.bodies[0]) <= 512


def test_a_question_without_room_for_its_page_is_left_to_the_server(tokenizer: Path):
    async def refuse(body: dict[str, Any]) -> web.Response:
        return error(400, "maximum context length is 512 tokens")

    with ScoreDouble(scores=refuse) as double:
        (made,) = reranker(double, tokenizer, max_tokens=512).score([Pair("p", "합계 " * 600)])
    assert (made.score, made.reason) == (None, "the server refused it: HTTP 400: maximum context length is 512 tokens")


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (lambda body: scored(body, tokens_of(body) + 4), "has another template"),
        (lambda body: scored(body, probs=(0.2, 0.8)), "2 numbers where a reranker has one score"),
        (lambda body: scored(body, probs=(7.5,)), "1 numbers where a reranker has one score"),
    ],
)
def test_a_server_that_is_not_set_up_for_it_is_one_line(
    tokenizer: Path, reply: Callable[[dict[str, Any]], web.Response], says: str
):
    async def answer(body: dict[str, Any]) -> web.Response:
        return reply(body)

    with ScoreDouble(scores=answer) as double, pytest.raises(EngineError, match=says) as raised:
        list(reranker(double, tokenizer).score(PAIRS))
    assert "\n" not in str(raised.value)
    assert str(raised.value).endswith("check which model it serves, and its chat template")


def test_a_refused_pair_has_a_reason_and_the_others_scores(tokenizer: Path):
    async def picky(body: dict[str, Any]) -> web.Response:
        return error(400, "too long") if "3번" in str(body) else scored(body)

    with ScoreDouble(scores=picky) as double:
        made = {each.id: each for each in reranker(double, tokenizer).score(PAIRS)}
    assert made["p3"].score is None
    assert str(made["p3"].reason).startswith("the server refused it: HTTP 400")
    assert {name for name, each in made.items() if each.score is not None} == {"p0", "p1", "p2", "p4"}


class Given:
    """Pages whose text is the second part of their key."""

    def keys(self, asked: Any) -> dict[Any, str]:
        return {page: page[1] for page in asked}

    def pairs(self, question: str, asked: Any):
        return ((page, Pair("", question, page[1])) for page in asked)


@pytest.mark.parametrize("fault", ["killed", "hangs"])
@pytest.mark.slow
def test_a_search_waits_for_no_server_that_is_gone(tokenizer: Path, fault: str):
    async def never(body: dict[str, Any]) -> web.Response:
        if fault == "killed":
            double.die_soon()
        else:
            double.is_dumb = True
        await asyncio.sleep(3600)
        return scored(body)

    with ScoreDouble(scores=never) as double:
        engine = reranker(double, tokenizer, search_seconds=6.0, request_seconds=2.0)
        with pytest.raises(EngineError) as raised:
            Reranking(engine, Given()).reordered("합계는?", [("s", "글"), ("s", "그림")])  # type: ignore[arg-type]
    assert "\n" not in str(raised.value)
    assert "no external server serves qwen" in str(raised.value) or "no scores within 6 s" in str(raised.value)


@needs_linux
def test_who_asks_again_finds_client_processes_that_are_up(tokenizer: Path):
    def clients() -> set[psutil.Process]:
        found = set()
        for child in psutil.Process().children():
            with suppress(psutil.Error):  # it may end meanwhile
                if "kopub.vllm.client.worker_process:main" in child.cmdline():
                    found.add(child)
        return found

    def wait_for_clients(expected: int) -> None:
        # A process of an earlier test may end meanwhile.
        until(lambda: len(clients() - before) == expected)

    before = clients()
    with ScoreDouble() as double:
        engine = reranker(double, tokenizer, processes=2)
        asked = Reranking(engine, Given())  # type: ignore[arg-type]
        asked.reordered("합계는?", [("s", "글"), ("s", "그림")])
        wait_for_clients(0)  # a command asks only once, so none are kept
        asked.reordered("평균은?", [("s", "글"), ("s", "그림")])
        with asked._busy:  # new clients start after the answer, while the old ones end
            pass
        wait_for_clients(2)
        engine.release()
        wait_for_clients(0)


def test_clients_that_are_up_have_read_the_tokenizer(tokenizer: Path):
    with ScoreDouble() as double:
        engine = reranker(double, tokenizer)
        for call in engine.preload_calls():
            call()
        tokenizer.write_text("no tokenizer")
        assert [each.score for each in engine.score(PAIRS)] == [0.25] * len(PAIRS)
        with pytest.raises(EngineError, match="cannot be read as a tokenizer"):
            list(engine.score(PAIRS))


def test_a_server_of_vectors_is_refused(tmp_path: Path):
    with pytest.raises(ValidationError, match=r"server\.convert"):
        Qwen3VLReranker(server=VLLMServer(model="qwen", revision="r1", runner="pooling"))


def test_vllm_is_told_where_the_score_is():
    server = VLLMServer(model="qwen", revision="r1", runner="pooling", convert="classify")
    arguments = serve_arguments(server)
    assert arguments[arguments.index("--convert") + 1] == "classify"
    assert '"classifier_from_token": ["no", "yes"]' in arguments[arguments.index("--hf-overrides") + 1]
    assert "--pooler-config" not in arguments


def test_a_profile_leaves_it_off(tmp_path: Path):
    assert Settings.of(tmp_path, CPU).reranking.off
    assert "reranking" not in Settings.of(tmp_path, CPU).engines
    with pytest.raises(ConfigError, match="reranking names no model"):
        Settings.of(tmp_path, {**CPU, "reranking": {"engine": "qwen3_vl"}})
