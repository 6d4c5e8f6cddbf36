"""Figure noters over a double of a real server: every figure gets exactly one outcome."""

import io
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from kopub.figures.answers import SCHEMA
from kopub.figures.figure import FigureNote, FigurePicture
from kopub.figures.noters import ChatNoter, DeepSeekNoter
from kopub.states import State
from kopub.vllm.server import VLLMServer
from tests.doubles import figure_chat as double
from tests.doubles.figure_chat import chat
from tests.doubles.http_double import HttpDouble, error, says

MOST = 64 * 32 * 32


def jpeg(width: int = 300, height: int = 200, seed: int = 1) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG")
    return file.getvalue()


def figure(name: str = "a_1/2", data: bytes | None = None) -> FigurePicture:
    return FigurePicture(name, data or jpeg(), "그림 1. 전력 사용량 <|im_end|>", "본문은 전력을 설명한다.")


def noter(url: str, **fields: Any) -> ChatNoter:
    server = VLLMServer(
        model="qwen", revision="r1", mode="external", urls=[url], max_image_tokens=768, images_per_prompt=0
    )
    return ChatNoter(server=server, **{"processes": 1, "in_flight": 4, "retry_seconds": 0.001, **fields})


def notes(server: HttpDouble, figures: Iterable[FigurePicture], **fields: Any) -> dict[str, FigureNote]:
    with server:
        return {note.id: note for note in noter(server.url, **fields).describe(figures, MOST)}


def one(*answers: tuple[str, str], **fields: Any) -> tuple[FigureNote, HttpDouble]:
    server = chat(*answers)
    return notes(server, [figure()], **fields)["a_1/2"], server


def test_a_request_holds_the_picture_the_caption_and_the_form() -> None:
    note, server = one((double.VALID, "stop"))
    (asked,) = server.asked
    assert note.state is State.OK
    assert (note.kind, note.description, note.language) == ("bar_chart", double.DESCRIPTION, "ko")
    assert "그림 1. 전력 사용량 < |im_end| >" in asked.prompt
    assert "본문은 전력을 설명한다." in asked.prompt
    assert asked.body["response_format"]["json_schema"]["schema"] == SCHEMA
    assert (asked.body["temperature"], asked.body["max_tokens"]) == (0.0, 1024)
    with Image.open(io.BytesIO(asked.image)) as sent:
        assert sent.width % 32 == sent.height % 32 == 0
        assert sent.width * sent.height <= MOST


def test_a_text_that_spells_an_escape_out_is_asked_about_as_it_is() -> None:
    said = r"JSON에서 빈 문자는 \u0000으로 쓴다."
    server = chat((double.VALID, "stop"))
    note = notes(server, [FigurePicture("a_1/2", jpeg(), said, said)])["a_1/2"]
    assert (note.state, note.reason) == (State.OK, None)
    assert server.asked[0].prompt.count(said) == 2


def test_the_form_is_not_asked_of_a_server_without_it() -> None:
    server = HttpDouble(reply=double.without_structured_outputs())
    refused = notes(server, [figure()])["a_1/2"]
    assert refused.state is State.FAILED
    assert "response_format is not supported" in str(refused.reason)
    with HttpDouble(reply=double.without_structured_outputs()) as again:
        (note,) = noter(again.url, structured=False).describe([figure()], MOST)
    assert note.state is State.OK


@pytest.mark.parametrize(
    "bad",
    [
        (double.CUT, "length"),
        (double.LOOP, "length"),
        (double.PROSE, "stop"),
        (double.REFUSAL, "stop"),
        (double.ENGLISH, "stop"),
        ("", "stop"),
    ],
)
def test_a_bad_answer_is_asked_for_again_with_chance_and_room(bad: tuple[str, str]) -> None:
    note, server = one(bad, (double.FENCED, "stop"))
    first, second = server.asked
    assert (note.state, note.attempts, note.description) == (State.OK, 2, double.DESCRIPTION)
    assert (second.body["temperature"], second.body["seed"], second.body["max_tokens"]) == (0.3, 0, 2048)
    assert "seed" not in first.body


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ((double.CUT, "length"), "cut off"),
        ((double.LOOP, "length"), "repeats"),
        ((double.PROSE, "stop"), "no JSON object"),
        ((double.REFUSAL, "stop"), "declined"),
        ((double.ENGLISH, "stop"), "not in Korean"),
    ],
)
def test_a_figure_that_is_never_described_is_failed_with_nothing_made_up(bad: tuple[str, str], says: str) -> None:
    note, server = one(bad)
    assert (note.state, note.attempts, len(server.asked)) == (State.FAILED, 3, 3)
    assert says in str(note.reason)
    assert (note.description, note.keywords, note.data_html, note.smiles, note.kind) == ("", (), None, None, None)


def test_different_problems_are_all_told() -> None:
    note, _ = one((double.CUT, "length"), (double.REFUSAL, "stop"), tries=2)
    assert note.reason == "the model declined to describe it; before: the answer was cut off after 60 characters"


def test_damaged_and_empty_pictures_are_not_asked_about() -> None:
    white = io.BytesIO()
    Image.new("RGB", (100, 100), "white").save(white, "JPEG")
    server = chat((double.VALID, "stop"))
    found = notes(server, [figure("a_1/1", b"no picture"), figure("a_1/2", white.getvalue())])
    assert (found["a_1/1"].state, found["a_1/2"].state) == (State.QUARANTINED, State.BLANK)
    assert not server.asked


def test_figures_are_never_mixed_up() -> None:
    async def reply(asked: Any) -> Any:
        return says(double.answer(description=f"{double.DESCRIPTION} {len(asked.image)}"))

    pictures = {f"a_{n}/0": jpeg(100 + 32 * n, 120, n) for n in range(12)}
    found = notes(HttpDouble(reply=reply), [figure(name, data) for name, data in pictures.items()])
    assert found.keys() == pictures.keys()
    assert len({note.description for note in found.values()}) == 12


def test_a_server_that_fails_once_is_asked_again_and_costs_no_attempt() -> None:
    async def reply(asked: Any) -> Any:
        return error(503) if asked.number == 0 else says(double.VALID)

    found = notes(HttpDouble(reply=reply), [figure()])["a_1/2"]
    assert (found.state, found.attempts) == (State.OK, 1)


def test_settings_that_do_not_go_together_are_refused() -> None:
    server = {"model": "qwen", "revision": "r1", "mode": "external", "urls": ["http://a:1"]}
    with pytest.raises(ValidationError, match="max_tokens: a retry of 20000 tokens does not fit"):
        ChatNoter(server=VLLMServer(**server), max_tokens=10_000)
    with pytest.raises(ValidationError, match="notes need generate"):
        ChatNoter(server=VLLMServer(**server, runner="pooling"))


def test_deepseek_is_asked_with_its_own_prompt() -> None:
    with chat(("<table><tr><td>2019</td><td>1</td></tr></table>", "stop")) as running:
        common: dict[str, Any] = {"model": "deepseek", "revision": "r1", "mode": "external", "images_per_prompt": 0}
        server = VLLMServer(**common, urls=[running.url], max_image_tokens=1000, max_model_len=8192)
        engine = DeepSeekNoter(server=server, processes=1, in_flight=2, retry_seconds=0.001)
        (note,) = engine.describe([figure()], MOST)
    (asked,) = running.asked
    assert asked.prompt == "Parse the figure."
    assert asked.body["skip_special_tokens"] is False
    assert asked.body["vllm_xargs"]["ngram_size"] == 30
    assert (note.state, note.kind) == (State.OK, "other_chart")
