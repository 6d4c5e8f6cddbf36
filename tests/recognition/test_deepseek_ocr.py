"""DeepSeek-OCR against a scripted server: its requests, and what becomes of its answers."""

from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kopub.config.settings import what_if
from kopub.errors import ConfigError
from kopub.layout.regions import Task
from kopub.recognition.vlm.client.answers import tidy
from kopub.recognition.vlm.client.deepseek import (
    OCR,
    TILE,
    TiledImage,
    clean,
    model_size,
    tiled_image,
    tiles,
)
from kopub.recognition.vlm.deepseek_ocr import LOGITS_PROCESSOR, VLLM_LOGITS_PROCESSOR, DeepSeekOcrRecognizer
from kopub.states import State
from kopub.vllm.server import VLLMServer
from tests.doubles.http_double import HttpDouble, SentRequest, says
from tests.recognition.test_glm_ocr import SIDE, always, decoded, in_turn, only, page_of
from tests.recognition.test_glm_ocr import read as read_by

TEXT, MARKDOWN = "Free OCR.", "<|grounding|>Convert the document to markdown."
BOX = "<|det|>[[12, 34, 567, 890]]<|/det|>"


def server_of(url: str = "http://x", **fields: Any) -> VLLMServer:
    given = {"model": "deepseek", "revision": "r1", "mode": "external", "urls": [url], "images_per_prompt": 0}
    return VLLMServer(**{**given, "max_model_len": 8192, **fields})


def recognizer(double: HttpDouble, **fields: Any) -> DeepSeekOcrRecognizer:
    server = server_of(double.url)
    return DeepSeekOcrRecognizer(**{"server": server, "processes": 1, "in_flight": 8, "retry_seconds": 0.001, **fields})


read = partial(read_by, reader=recognizer)


def test_each_task_has_its_prompt_and_its_answer_is_plain() -> None:
    tasks = [Task.TEXT, Task.SKIP, Task.TABLE, Task.FORMULA]

    async def reply(asked: SentRequest) -> web.StreamResponse:
        if asked.prompt == TEXT:
            return says("3.14 % 증가")
        return says(f"<|ref|>equation<|/ref|>{BOX}\n\\[x^2\\] ")

    reading, asked = read(reply, tasks)
    assert reading.state is State.OK
    assert sorted(each.prompt for each in asked) == sorted([TEXT, MARKDOWN, MARKDOWN])
    assert [text.content for text in reading.regions] == ["3.14 % 증가", "", "\\[x^2\\]", "x^2"]
    assert [text.finish_reason for text in reading.regions] == ["stop", "skipped", "stop", "stop"]
    assert [(crop.path, crop.label) for crop in reading.crops] == [("crops/p_1_1.jpg", "image")]


def test_every_request_keeps_special_tokens_and_sets_the_loop_guard() -> None:
    _, asked = read(always("가나", "length"))
    assert {each.body["temperature"] for each in asked} == {0}
    for each in asked:
        assert each.body["skip_special_tokens"] is False
        assert each.body["vllm_xargs"] == {
            "ngram_size": 30,
            "window_size": 90,
            "whitelist_token_ids": [128821, 128822],
        }


def test_sampling_of_a_profile_adds_to_it_and_has_the_last_word() -> None:
    _, (asked,) = read(always("가"), sampling={"top_k": 1, "vllm_xargs": {"ngram_size": 20}})
    assert asked.body["top_k"] == 1
    assert asked.body["vllm_xargs"] == {"ngram_size": 20}
    assert asked.body["skip_special_tokens"] is False


def test_the_model_gets_the_page_s_own_pixels() -> None:
    page, regions = page_of("p_1", [Task.TEXT], (301, 77))
    with HttpDouble(always("가")) as double:
        list(recognizer(double).read([(page, regions)]))
        assert np.array_equal(decoded(double.asked[0].image), page.image)


@pytest.mark.parametrize(
    ("size", "grid", "tokens"),
    [
        ((640, 640), (1, 1), 273),
        ((60, 20), (1, 1), 273),
        ((641, 640), (2, 2), 273 + 21 * 20),
        ((1280, 640), (2, 1), 273 + 21 * 10),
        ((2480, 3508), (2, 3), 273 + 21 * 30),
        ((4000, 500), (6, 1), 273 + 61 * 10),
        ((500, 4000), (1, 6), OCR.most_tokens),
        # The ratio is as near to two tiles as to three: a crop that fills half of three tiles takes three.
        ((700, 280), (2, 1), 273 + 21 * 10),
        ((2500, 1000), (3, 1), 273 + 31 * 10),
    ],
)
def test_known_tiles(size: tuple[int, int], grid: tuple[int, int], tokens: int) -> None:
    assert tiles(*size) == grid
    assert TiledImage(b"", "image/png", *size).tokens == tokens


@given(st.integers(1, 9000), st.integers(1, 9000))
def test_a_crop_is_never_enlarged_and_still_covers_its_tiles(width: int, height: int) -> None:
    size = model_size(width, height)
    assert size[0] <= width
    assert size[1] <= height
    assert TiledImage(b"", "image/png", *size).tokens <= OCR.most_tokens
    if size != (width, height):
        columns, rows = tiles(width, height)
        assert size[0] >= columns * TILE
        assert size[1] >= rows * TILE


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((40, 301), (301, 51)),
        ((8, 3000), (3000, 500)),
        ((40, 9000), (3840, 640)),
        ((900, 30, 3), (150, 900)),
        ((3508, 2480), (1357, 1920)),
    ],
)
def test_any_crop_becomes_a_picture_of_a_shape_that_tiles_have(shape: tuple[int, ...], size: tuple[int, int]) -> None:
    crop = np.full(shape, 230, np.uint8)
    crop[::7] = 0
    made = tiled_image(crop)
    assert (made.width, made.height) == size
    pixels = decoded(made.data)
    assert pixels.shape[:2] == (made.height, made.width)
    if size[0] == shape[1]:
        # The padding has the colour of the paper.
        assert np.all(np.abs(pixels[shape[0] :].astype(int) - 230) < 4)


def test_a_table_becomes_html_whichever_way_it_is_written() -> None:
    for written in (
        f"<|ref|>table<|/ref|>{BOX}\n<table><tr><td>연도</td><td>값<tr><td>2024</td><td>1 < 2</table>",
        "| 연도 | 값 |\n|:---|---:|\n| 2024 | 1 < 2 |",
    ):
        reading, _ = read(always(written), [Task.TABLE])
        content = only(reading).content
        assert reading.state is State.OK
        assert content.replace("th>", "td>") == (
            "<table><tr><td>연도</td><td>값</td></tr><tr><td>2024</td><td>1 &lt; 2</td></tr></table>"
        )


@pytest.mark.parametrize(
    ("written", "task", "content"),
    [
        (f"<|ref|>text<|/ref|>{BOX}\n가나\n\n<|ref|>text<|/ref|>{BOX}\n다라", Task.TEXT, "가나\n\n\n다라"),
        (f"<|ref|>title<|/ref|>{BOX}\n# 제목", Task.TEXT, "# 제목"),
        ("가나 <|ref|>text<|/ref|><|det|>[[12, 34", Task.TEXT, "가나"),
        ("가나 <|ref|>te", Task.TEXT, "가나"),
        ("<|det|>[[1, 2, 3, 4]]<|/det|>가<|/ref|> < 나 |ref|", Task.TEXT, "가 < 나 |ref|"),
        ("<center>표 1. 합계</center>", Task.TEXT, "표 1. 합계"),
        ("| 가 | 나 |\n|---|---|\n| 1 | 2 |", Task.TEXT, "| 가 | 나 |\n|---|---|\n| 1 | 2 |"),
        (
            f"<|ref|>table_caption<|/ref|>{BOX}\n<center>표 1</center>\n\n"
            "가 | 나\n--- | ---\na \\| b | x<sup>2</sup>\n\n주: 끝",
            Task.TABLE,
            "<table><caption>표 1</caption><tr><th>가</th><th>나</th></tr>"
            "<tr><td>a | b</td><td>x<sup>2</sup></td></tr></table>\n\n주: 끝",
        ),
        (
            "| 가 |\n|---|\n| 1 |\n\n| 나 |\n|---|\n| 2 |",
            Task.TABLE,
            "<table><tr><th>가</th></tr><tr><td>1</td></tr></table>\n\n"
            "<table><tr><th>나</th></tr><tr><td>2</td></tr></table>",
        ),
        ("값 | 없음", Task.TABLE, "값 | 없음"),
    ],
)
def test_answers_are_put_into_plain_words(written: str, task: Task, content: str) -> None:
    assert tidy(clean(written, task), task) == content
    assert clean(content, task) == content


def test_boxes_without_text_are_an_empty_answer() -> None:
    reading, asked = read(always(f"<|ref|>image<|/ref|>{BOX}"), tries=3)
    assert only(reading).state is State.BLANK
    assert only(reading).content == ""
    assert len({each.size for each in asked}) == 2


def test_a_loop_is_led_out_of_by_another_size_and_what_came_before_it_is_kept() -> None:
    loop = "머리 " + "같은 말입니다. " * 60
    reading, asked = read(in_turn((loop, "length"), ("머리 같은 말입니다.", "stop")))
    assert only(reading).content == "머리 같은 말입니다."
    assert asked[1].size[0] < asked[0].size[0]
    reading, asked = read(always(f"<|ref|>text<|/ref|>{BOX}\n{loop}", "length"), tries=3)
    assert only(reading).state is State.FAILED
    assert only(reading).content == "머리 같은 말입니다."
    assert any(each.body["temperature"] > 0 for each in asked)


def test_an_answer_that_was_cut_off_gets_all_the_room_and_then_is_asked_for_in_parts() -> None:
    reading, asked = read(in_turn(("가나", "length"), ("가나다라", "stop")))
    assert only(reading).content == "가나다라"
    # Of 8,192 positions, the picture takes 273 and the prompt around it 64.
    assert asked[0].body["max_tokens"] < asked[1].body["max_tokens"] == 8192 - 273 - 64

    async def whole_is_too_long(asked: SentRequest) -> web.StreamResponse:
        whole = asked.size[1] > SIDE // 2 + SIDE // 8
        row = f"| 가 | 나 |\n|---|---|\n| {asked.number} | 1 |"
        return says(row, "length" if whole else "stop")

    with HttpDouble(whole_is_too_long) as double:
        (reading,) = recognizer(double).read([page_of("p_1", [Task.TABLE], (SIDE, SIDE))])
    assert only(reading).state is State.OK
    assert only(reading).attempts == 3
    assert only(reading).content.count("<table>") == 1
    assert only(reading).content.count("<tr>") == 4


def test_the_room_of_an_answer_is_what_can_be_printed_on_the_crop() -> None:
    # Both crops take 273 image tokens, but a line of print holds less text than a page.
    _, (small,) = read(always("가"))
    with HttpDouble(always("가")) as double:
        list(recognizer(double).read([page_of("p_1", [Task.TEXT], (600, 600))]))
    assert small.body["max_tokens"] < double.asked[0].body["max_tokens"] < 8192 - 273 - 64


def test_what_is_kept_is_what_the_model_wrote_and_is_read_the_same_again(tmp_path: Path) -> None:
    tasks = [Task.TEXT, Task.TABLE]
    written = f"<|ref|>table<|/ref|>{BOX}\n| 가 |\n|---|\n| 1 |"
    first, asked = read(always(written), tasks, reuse_folder=str(tmp_path))
    assert len(asked) == 2
    second, asked = read(always("other"), tasks, reuse_folder=str(tmp_path))
    assert asked == []
    assert [text.content for text in second.regions] == [text.content for text in first.regions]
    assert "<table>" in second.regions[1].content
    _, asked = read(always(written), tasks, reuse_folder=str(tmp_path), prompts={"table": "Parse the figure."})
    assert [each.prompt for each in asked] == ["Parse the figure."]


def test_the_recipe_follows_what_changes_results_only() -> None:
    def recipe(server: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
        return DeepSeekOcrRecognizer(server=server_of(**(server or {})), **fields).recipe()

    assert recipe() == recipe({"max_num_seqs": 7, "max_image_tokens": 3000}, processes=3, reuse_folder="x")
    for change in ({"server": {"revision": "r2"}}, {"prompts": {"table": "?"}}, {"tries": 1}, {"sampling": {"n": 1}}):
        assert recipe(**change) != recipe()  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ({"max_model_len": 16384}, "server.max_model_len: DeepSeek-OCR takes 8192 tokens, not 16384"),
        ({"max_image_tokens": 600}, "server.max_image_tokens: 600 is less than the 933 of its images"),
        ({"mode": "managed"}, f"loops without --logits-processors={LOGITS_PROCESSOR}"),
        (
            {"mode": "managed", "extra_flags": [f"--logits-processors={LOGITS_PROCESSOR}"]},
            "newer model runner refuses .* set VLLM_USE_V2_MODEL_RUNNER",
        ),
    ],
)
def test_a_server_that_cannot_serve_it_is_refused(server: dict[str, Any], said: str) -> None:
    with pytest.raises((ValidationError, dg.DagsterInvalidConfigError), match=said):
        DeepSeekOcrRecognizer(server=server_of(**server))


@pytest.mark.parametrize("guard", [LOGITS_PROCESSOR, VLLM_LOGITS_PROCESSOR])
def test_a_managed_server_has_the_plugin_s_guard_or_vllm_s_own(guard: str) -> None:
    flags = [f"--logits-processors={guard}"]
    managed = server_of(mode="managed", extra_flags=flags, env={"VLLM_USE_V2_MODEL_RUNNER": "0"})
    assert DeepSeekOcrRecognizer(server=managed).recipe() == DeepSeekOcrRecognizer(server=server_of()).recipe()


class TestProfile:
    FLAG = f"max_model_len: 8192, extra_flags: ['--logits-processors={LOGITS_PROCESSOR}']"
    SERVER = f"{{{FLAG}, env: {{VLLM_USE_V2_MODEL_RUNNER: '0'}}}}"

    def load(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: str) -> Any:
        profile = tmp_path / "mine.yaml"
        profile.write_text(
            f"layout: {{engine: cpu}}\nrecognition: {{engine: deepseek_ocr, {keys}}}\nembedding: {{engine: hashed}}\n"
        )
        monkeypatch.setenv("KOPUB_PROFILE", str(profile))
        return what_if({}).recognition

    def test_a_profile_chooses_it_by_name_and_pin(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        engine = self.load(tmp_path, monkeypatch, f"model: deepseek_ocr, server: {self.SERVER}")
        assert isinstance(engine, DeepSeekOcrRecognizer)
        assert engine.weights()["model"] == "deepseek-ai/DeepSeek-OCR"
        assert len(engine.weights()["revision"]) == 40
        second = self.load(tmp_path, monkeypatch, f"model: deepseek_ocr_2, ocr2: true, server: {self.SERVER}")
        assert second.weights()["model"] == "deepseek-ai/DeepSeek-OCR-2"

    @pytest.mark.parametrize(
        ("keys", "said"),
        [
            ("server: {model: deepseek-ai/DeepSeek-OCR}", "revision: deepseek-ai/DeepSeek-OCR is no folder here"),
            ("model: deepseek_ocr", "server.max_model_len: DeepSeek-OCR takes 8192 tokens"),
            ("model: deepseek_ocr, server: {max_model_len: 8192}", f"--logits-processors={LOGITS_PROCESSOR}"),
            (f"model: deepseek_ocr, server: {{{FLAG}}}", 'set VLLM_USE_V2_MODEL_RUNNER: "0"'),
            (f"model: deepseek_ocr_2, server: {SERVER}", "ocr2: deepseek-ai/DeepSeek-OCR-2 .* set ocr2 to true"),
            (f"model: deepseek_ocr, ocr2: true, server: {SERVER}", "is the first DeepSeek-OCR; leave ocr2 out"),
        ],
    )
    def test_what_is_missing_is_one_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: str, said: str
    ) -> None:
        with pytest.raises(ConfigError, match=said) as raised:
            self.load(tmp_path, monkeypatch, keys)
        assert "\n" not in str(raised.value)
