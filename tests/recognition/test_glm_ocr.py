"""GLM-OCR against a scripted server: every region ends once, in the right state."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import cv2
import dagster as dg
import numpy as np
import pytest
from aiohttp import web
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from kopub.errors import EngineError
from kopub.layout.regions import Region, Task
from kopub.pages.page import PackedPixels, Page
from kopub.recognition.base import STEP_TIMES
from kopub.recognition.regions import PageReading, RegionText, region_pixels
from kopub.recognition.step_times import step_times
from kopub.recognition.tables import clean_tables, join_tables
from kopub.recognition.vlm.client.answers import Problem, find_defect, loop_start, tidy
from kopub.recognition.vlm.client.chat_requests import answer_room, request_body
from kopub.recognition.vlm.client.region_images import (
    MAX_TOKENS,
    MIN_TOKENS,
    PATCH,
    CropImage,
    cut_strips,
    model_size,
    pack_pixels,
    region_image,
)
from kopub.recognition.vlm.glm_ocr import GlmOcrRecognizer
from kopub.states import TRIES_AGAIN, State
from kopub.texts.markdown import page_text
from kopub.vllm.plugin import GLM_OCR as SWITCH
from kopub.vllm.server import VLLMServer
from tests.doubles.http_double import HttpDouble, Reply, SentRequest, error, says, truncated

TEXT, TABLE, FORMULA = "Text Recognition:", "Table Recognition:", "Formula Recognition:"
SIDE = 280


def page_of(page_id: str, tasks: Sequence[Task], size: tuple[int, int] = (SIDE, 56)) -> tuple[Page, list[Region]]:
    """Return a page of distinct regions of `size` (width, height), one below the other."""
    width, height = size
    rng = np.random.default_rng(crc32(page_id.encode()))
    image = np.full((len(tasks) * height, width, 3), 255, np.uint8)
    regions = []
    for i, task in enumerate(tasks):
        top = i * height
        dots = rng.integers(0, 2, (height // 4, width // 4), np.uint8) * 255
        image[top : top + height, :, :] = cv2.resize(dots, size, interpolation=cv2.INTER_NEAREST)[..., None]
        label = {Task.TABLE: "table", Task.FORMULA: "display_formula", Task.SKIP: "image"}.get(task, "text")
        regions.append(Region(i, label, task, 0.9, (0.0, float(top), float(width), float(top + height))))
    return Page(page_id, cv2.imencode(".png", image)[1].tobytes()), regions


def decoded(data: bytes) -> np.ndarray:
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
    assert pixels is not None
    return pixels


def recognizer(double: HttpDouble, **fields: Any) -> GlmOcrRecognizer:
    server = VLLMServer(model="glm", revision="r1", mode="external", urls=[double.url], images_per_prompt=0)
    return GlmOcrRecognizer(**{"server": server, "processes": 1, "in_flight": 8, "retry_seconds": 0.001, **fields})


def read(
    reply: Reply, tasks: Sequence[Task] = (Task.TEXT,), reader: Callable[..., Any] = recognizer, **fields: Any
) -> tuple[PageReading, list[SentRequest]]:
    """Read one page with regions of `tasks`; the server answers with `reply`."""
    with HttpDouble(reply) as double:
        (reading,) = reader(double, **fields).read([page_of("p_1", tasks)])
        return reading, double.asked


def only(reading: PageReading) -> RegionText:
    (text,) = reading.regions
    return text


def always(text: str, finish_reason: str = "stop") -> Reply:
    async def reply(asked: SentRequest) -> web.StreamResponse:
        return says(text, finish_reason)

    return reply


def in_turn(*responses: tuple[str, str]) -> Reply:
    """Return a reply that gives the responses in order and then repeats the last one."""

    async def reply(asked: SentRequest) -> web.StreamResponse:
        return says(*responses[min(asked.number, len(responses) - 1)])

    return reply


def test_each_region_is_asked_by_its_task_and_answered_in_order() -> None:
    async def reply(asked: SentRequest) -> web.StreamResponse:
        return says({TEXT: "3.14 % 증가", TABLE: "<table><tr><td>1</table>", FORMULA: "\\[x^2\\]"}[asked.prompt])

    reading, asked = read(reply, [Task.TEXT, Task.SKIP, Task.TABLE, Task.FORMULA, Task.ABANDON])
    assert reading.state is State.OK
    assert [(text.index, text.content) for text in reading.regions] == [
        (0, "3.14 % 증가"),
        (1, ""),
        (2, "<table><tr><td>1</td></tr></table>"),
        (3, "x^2"),
        (4, ""),
    ]
    assert [text.finish_reason for text in reading.regions] == ["stop", "skipped", "stop", "stop", "skipped"]
    assert len(asked) == 3
    assert [(crop.path, crop.label) for crop in reading.crops] == [("crops/p_1_1.jpg", "image")]


def test_pixels_that_the_run_has_decoded_are_read_as_those_of_the_file() -> None:
    page, regions = page_of("p_1", [Task.TEXT, Task.SKIP], size=(1700, 1200))
    packed = PackedPixels.of(page.image)
    assert packed is not None
    bodies, crops = [], []
    for sent in (page, Page("p_1", b"no picture", packed=packed)):
        with HttpDouble(always("가")) as double:
            (reading,) = recognizer(double).read([(sent, regions)])
            bodies.append([asked.body for asked in double.asked])
            crops.append([crop.data for crop in reading.crops])
    assert bodies[0] == bodies[1] != []
    assert crops[0] == crops[1] != []


def test_sampling_is_greedy_without_penalties() -> None:
    _, (asked,) = read(always("가"))
    assert asked.body["temperature"] == 0
    assert "repetition_penalty" not in asked.body
    assert asked.body["model"] == "glm"


def test_the_model_gets_the_page_s_own_pixels() -> None:
    page, regions = page_of("p_1", [Task.TEXT])
    with HttpDouble(always("가")) as double:
        list(recognizer(double).read([(page, regions)]))
        sent = decoded(double.asked[0].image)
    assert np.array_equal(sent, page.image)


def test_paper_is_not_read() -> None:
    blank = np.full((100, 200, 3), 250, np.uint8)
    page = Page("p_1", cv2.imencode(".png", blank)[1].tobytes())
    with HttpDouble() as double:
        (reading,) = recognizer(double).read([(page, [Region(0, "text", Task.TEXT, 0.9, (0, 0, 200, 100))])])
        assert not double.asked
    assert reading.state is State.OK
    assert only(reading).state is State.BLANK


def test_pages_without_pixels_or_regions_end_as_what_they_are() -> None:
    page, _ = page_of("p_2", [Task.TEXT])
    with HttpDouble() as double:
        readings = list(recognizer(double).read([(Page("p_1", b"no image"), []), (page, [])]))
    assert {reading.page_id: reading.state for reading in readings} == {
        "p_1": State.QUARANTINED,
        "p_2": State.BLANK,
    }


def test_an_answer_that_was_cut_off_is_asked_for_with_more_room() -> None:
    reading, asked = read(in_turn(("가나", "length"), ("가나다라", "stop")))
    assert only(reading).content == "가나다라"
    assert only(reading).attempts == 2
    assert asked[1].body["max_tokens"] > asked[0].body["max_tokens"]


def test_an_answer_that_a_stopped_server_broke_off_is_asked_for_again() -> None:
    reading, asked = read(in_turn(("가나", "abort"), ("가나다라", "stop")))
    assert only(reading).content == "가나다라"
    assert only(reading).attempts == 1
    assert len(asked) == 2


def test_what_was_read_before_the_server_gave_up_is_kept() -> None:
    async def reply(asked: SentRequest) -> web.StreamResponse:
        return error(500, "no luck") if asked.number else says("가나다", "length")

    reading, _ = read(reply)
    assert only(reading).state is State.FAILED
    assert only(reading).content == "가나다"
    assert only(reading).attempts == 2


def test_a_page_is_done_when_its_last_request_is() -> None:
    async def reply(asked: SentRequest) -> web.StreamResponse:
        if asked.number < 2:
            return says("가", "length")
        if asked.number > 2:
            return error(500, "no luck")
        await asyncio.sleep(0.3)
        return says("가나다라")

    with HttpDouble(reply) as double:
        reader = recognizer(double)
        (reading,) = reader.read([page_of("p_1", [Task.TEXT])])
    assert only(reading).state is State.FAILED
    assert reader.report()["answer_tokens"] == 1 + 1 + 4


def test_text_that_stays_cut_off_is_kept_and_called_failed() -> None:
    reading, asked = read(always("가나다", "length"))
    assert reading.state is State.FAILED
    assert "1 of 1 regions failed; region 0 (text): the answer was cut off" in str(reading.reason)
    assert only(reading).finish_reason == "length"
    assert "가나다" in only(reading).content
    assert only(reading).attempts == 4
    assert len(asked) == 2 + 2 + 4


def test_a_region_of_fewer_rows_than_parts_stays_cut_off_alone() -> None:
    page, (text, _) = page_of("p_1", [Task.TEXT] * 2)
    rule = Region(1, "text", Task.TEXT, 0.9, (0.0, 55.0, float(SIDE), 58.0))

    async def reply(asked: SentRequest) -> web.StreamResponse:
        return says("가나다", "length" if asked.size[1] == PATCH else "stop")

    with HttpDouble(reply) as double:
        (reading,) = recognizer(double).read([(page, [text, rule])])
    assert [text.state for text in reading.regions] == [State.OK, State.FAILED]
    assert [text.content for text in reading.regions] == ["가나다", "\n".join(["가나다"] * 3)]


def test_a_loop_is_led_out_of_by_another_size() -> None:
    reading, asked = read(in_turn(("머리 " + "같은 말입니다. " * 60, "length"), ("머리 같은 말입니다.", "stop")))
    assert only(reading).content == "머리 같은 말입니다."
    assert asked[1].size != asked[0].size


def test_what_came_before_a_loop_is_kept() -> None:
    reading, asked = read(always("머리말 " + "같은 말입니다. " * 60, "length"), tries=3)
    assert only(reading).state is State.FAILED
    assert only(reading).content == "머리말 같은 말입니다."
    assert "repeats without end" in str(only(reading).reason)
    assert any(each.body["temperature"] > 0 for each in asked)


@pytest.mark.parametrize(
    "rows", ["<tr><td>가</td></tr>" * 60, "<tr><td>가</td><td row", "<tr><td>가</"], ids=["loop", "cell", "end"]
)
def test_what_is_kept_of_a_table_has_no_torn_tag(rows: str) -> None:
    reading, _ = read(always(f"<table>{rows}", "length"), [Task.TABLE], tries=1)
    assert only(reading).state is State.FAILED
    assert only(reading).content == "<table><tr><td>가</td></tr></table>"


@pytest.mark.parametrize(
    ("task", "first", "second"),
    [(Task.TEXT, " \n", ""), (Task.TABLE, "<table></table>", ""), (Task.FORMULA, "$$ $$", "\\[ \\]")],
)
def test_a_region_that_is_empty_twice_is_blank(task: Task, first: str, second: str) -> None:
    reading, asked = read(in_turn((first, "stop"), (second, "stop")), [task])
    assert reading.state is State.OK
    assert reading.reason is None
    assert only(reading).state is State.BLANK
    assert only(reading).reason == "two attempts read nothing"
    assert len({each.size for each in asked}) == len(asked) == 2


def test_a_region_that_is_empty_once_is_not_blank() -> None:
    reading, _ = read(always(""), tries=1)
    assert only(reading).state is State.FAILED
    assert only(reading).reason == "nothing was read although there is ink"
    reading, _ = read(in_turn(("", "stop"), ("글", "stop")))
    assert (only(reading).state, only(reading).content) == (State.OK, "글")


def test_white_space_without_end_is_a_loop_and_not_blank() -> None:
    reading, _ = read(always(" " * 50, "length"), tries=3)
    assert only(reading).state is State.FAILED
    assert only(reading).reason == "the answer is white space without end"


def test_a_part_of_a_region_without_ink_is_not_read() -> None:
    page, (region,) = page_of("p_1", [Task.TEXT])
    paper = np.full((SIDE, SIDE, 3), 255, np.uint8)
    tall = Page("p_1", cv2.imencode(".png", np.vstack([page.image, paper]))[1].tobytes())
    box = (0.0, 0.0, float(SIDE), float(SIDE + 56))

    async def reply(asked: SentRequest) -> web.StreamResponse:
        dark = (decoded(asked.image) < 128).any()
        return says("글", "length" if asked.size[1] > SIDE else "stop") if dark else says("")

    with HttpDouble(reply) as double:
        (reading,) = recognizer(double).read([(tall, [Region(0, region.label, region.task, 0.9, box)])])
    assert (only(reading).state, only(reading).content) == (State.OK, "글")


HANJA = "大韓民國憲法前文悠久歷史傳統"


def test_another_script_stands_when_two_attempts_read_nearly_the_same() -> None:
    same, asked = read(always(HANJA))
    assert (only(same).state, only(same).content, only(same).attempts) == (State.OK, HANJA, 2)
    assert len({each.size for each in asked}) == 2
    nearly, _ = read(in_turn((HANJA, "stop"), (f"{HANJA[:7]} {HANJA[7:]}.", "stop")))
    assert (only(nearly).state, only(nearly).content) == (State.OK, f"{HANJA[:7]} {HANJA[7:]}.")
    assert only(nearly).attempts == 2
    hangul, _ = read(in_turn((HANJA, "stop"), ("인민공화국 중앙정부", "stop")))
    assert only(hangul).content == "인민공화국 중앙정부"


def test_another_script_fails_when_no_two_attempts_agree() -> None:
    answers = ((HANJA, "stop"), (HANJA[::-1], "stop"), ("これは日本語の文章です", "stop"))
    reading, asked = read(in_turn(*answers))
    assert only(reading).state is State.FAILED
    assert only(reading).reason == "14 of 14 letters are CJK, which `scripts` does not expect"
    assert len(asked) == 3


def test_an_expected_script_is_read_once() -> None:
    reading, asked = read(always(HANJA), scripts=["HANGUL", "CJK"])
    assert only(reading).state is State.OK
    assert len(asked) == 1


def refusing(prompt: str) -> Reply:
    """Return a reply that refuses every request with this prompt and answers the others."""

    async def reply(asked: SentRequest) -> web.StreamResponse:
        return error(400, "unknown field") if asked.prompt == prompt else says(f"글 {asked.prompt}")

    return reply


def test_a_page_is_partial_when_some_of_its_regions_fail() -> None:
    reading, asked = read(refusing(TABLE), [Task.TEXT, Task.SKIP, Task.TABLE, Task.FORMULA, Task.TABLE])
    assert reading.state is State.PARTIAL
    reason = "2 of 4 regions failed; region 2 (table): the server refused it: HTTP 400: unknown field"
    assert str(reading.reason).startswith(reason)
    assert [text.state for text in reading.regions] == ["ok", "ok", "failed", "ok", "failed"]
    assert [crop.path for crop in reading.crops] == ["crops/p_1_1.jpg"]
    assert page_text(reading.regions) == f"글 {TEXT}\n\n글 {FORMULA}"
    assert len(asked) == 4, "no other size would help"


def test_a_page_is_failed_when_no_region_gives_text() -> None:
    reading, _ = read(refusing(TABLE), [Task.TABLE, Task.SKIP])
    assert reading.state is State.FAILED
    assert str(reading.reason).startswith("1 of 1 regions failed; region 0 (table)")

    async def empty_or_refused(asked: SentRequest) -> web.StreamResponse:
        return says("") if asked.prompt == TEXT else error(400, "unknown field")

    reading, _ = read(empty_or_refused, [Task.TEXT, Task.TABLE])
    assert [text.state for text in reading.regions] == [State.BLANK, State.FAILED]
    assert reading.state is State.FAILED


def test_a_table_that_is_refused_is_sent_smaller_and_then_in_parts() -> None:
    page, regions = page_of("p_1", [Task.TABLE], (SIDE, SIDE))

    async def reply(asked: SentRequest) -> web.StreamResponse:
        if asked.size[0] * asked.size[1] > 0.45 * SIDE * SIDE:
            return error(400, "exceeds the pre-allocated encoder cache size")
        return says(f"<table><tr><td>{asked.number}</td></tr></table>")

    with HttpDouble(reply) as double:
        (reading,) = recognizer(double).read([(page, regions)])
    assert only(reading).state is State.OK
    assert only(reading).attempts == 4
    assert only(reading).content.count("<table>") == 1
    assert only(reading).content.count("<tr>") == 4
    assert [asked.size for asked in double.asked[:2]] == [(SIDE, SIDE), (196, 196)]


def test_a_formula_too_large_for_the_server_is_sent_smaller() -> None:
    async def reply(asked: SentRequest) -> web.StreamResponse:
        if asked.size[0] == SIDE:
            return error(400, "The decoder prompt is longer than the maximum model length of 512.")
        return says("x")

    reading, asked = read(reply, [Task.FORMULA])
    assert only(reading).state is State.OK
    assert [each.size[0] for each in asked] == [SIDE, 196]


def test_a_server_full_of_faults_loses_no_region_and_answers_none_twice() -> None:
    seen: Counter[bytes] = Counter()

    async def faulty(asked: SentRequest) -> web.StreamResponse:
        seen[asked.image] += 1
        if seen[asked.image] > 1:
            return says(f"글 {len(seen)}")
        faults = [
            lambda: error(429, headers={"Retry-After": "0.01"}),
            lambda: error(500),
            lambda: error(503),
            asked.cut,
            truncated,
            lambda: says("가나", "length"),
            lambda: says("되풀이되는 말. " * 40, "length"),
        ]
        return faults[asked.number % len(faults)]() or says("never seen")

    pages = [page_of(f"p_{n}", [Task.TEXT] * 9) for n in range(6)]
    with HttpDouble(faulty) as double:
        readings = list(recognizer(double).read(pages))
    assert Counter(reading.page_id for reading in readings) == Counter(page.page_id for page, _ in pages)
    assert all(reading.state is State.OK for reading in readings)
    assert all([text.index for text in reading.regions] == list(range(9)) for reading in readings)
    assert all(text.content.startswith("글") for reading in readings for text in reading.regions)


def test_a_region_that_a_busy_server_did_not_answer_in_time_is_read_again_by_the_next_run() -> None:
    async def busy(asked: SentRequest) -> web.StreamResponse:
        if asked.image == first.get("image", asked.image):
            first["image"] = asked.image
            await asyncio.sleep(60)
        return says("글")

    first: dict[str, bytes] = {}
    with HttpDouble(busy) as double:
        (reading,) = recognizer(double, request_seconds=0.5).read([page_of("p_1", [Task.TEXT] * 2)])
    assert reading.state is State.PARTIAL
    (lost,) = [text for text in reading.regions if text.state is State.FAILED]
    assert TRIES_AGAIN in (lost.reason or "")


def test_a_server_that_comes_back_gets_only_what_was_in_flight_again() -> None:
    died = []

    async def reply(asked: SentRequest) -> web.StreamResponse:
        if asked.number == 20 and not died:
            died.append(asked)
            asked.double.die_and_come_back()
            await asyncio.sleep(60)
        return says("글")

    pages = [page_of(f"p_{n}", [Task.TEXT] * 4) for n in range(10)]
    with HttpDouble(reply) as double:
        readings = list(recognizer(double, in_flight=4).read(pages))
        assert 41 <= len(double.asked) <= 44
    assert len(readings) == 10
    assert all(reading.state is State.OK for reading in readings)


def test_a_slow_table_holds_up_no_other_page() -> None:
    table_may_end = asyncio.Event()

    async def reply(asked: SentRequest) -> web.StreamResponse:
        if asked.prompt == TABLE:
            await table_may_end.wait()
        return says("글")

    pages = [page_of("slow_1", [Task.TABLE, *[Task.TEXT] * 3]), *(page_of(f"p_{n}", [Task.TEXT] * 3) for n in range(8))]
    with HttpDouble(reply) as double:
        readings = recognizer(double, in_flight=2).read(pages)
        first = [next(readings).page_id for _ in range(8)]
        assert "slow_1" not in first
        double.call(table_may_end.set)
        assert [reading.page_id for reading in readings] == ["slow_1"]


def test_pages_are_taken_lazily_and_come_out_as_they_are_read() -> None:
    taken = []

    def stream() -> Iterator[tuple[Page, list[Region]]]:
        for n in range(60):
            taken.append(n)
            yield page_of(f"p_{n}", [Task.TEXT] * 4)

    with HttpDouble(always("글")) as double:
        readings = recognizer(double, in_flight=4).read(stream())
        next(readings)
        assert len(taken) < 12
        assert len(list(readings)) == 59


def test_several_processes_read_every_page_once() -> None:
    pages = [page_of(f"p_{n}", [Task.TEXT, Task.SKIP]) for n in range(8)]
    with HttpDouble(always("글")) as double:
        readings = list(recognizer(double, processes=2).read(pages))
        assert len(double.asked) == 8
    assert sorted(reading.page_id for reading in readings) == sorted(page.page_id for page, _ in pages)


class TestAnswerCache:
    TASKS = (Task.TEXT, Task.TABLE, Task.FORMULA)

    def asked(self, folder: Path, reply: Reply = always("글"), **fields: Any) -> tuple[PageReading, list[str]]:  # noqa: B008
        reading, asked = read(reply, self.TASKS, reuse_folder=str(folder), **fields)
        return reading, sorted(each.prompt for each in asked)

    def test_an_unchanged_region_is_not_read_again(self, tmp_path: Path) -> None:
        first, asked = self.asked(tmp_path)
        assert len(asked) == 3
        second, asked = self.asked(tmp_path, always("other"))
        assert asked == []
        assert second.regions == first.regions

    def test_another_table_prompt_redoes_the_tables_alone(self, tmp_path: Path) -> None:
        self.asked(tmp_path)
        _, asked = self.asked(tmp_path, prompts={"table": "Table Recognition, with spans:"})
        assert asked == ["Table Recognition, with spans:"]

    def test_another_revision_or_sampling_redoes_everything(self, tmp_path: Path) -> None:
        self.asked(tmp_path)
        assert len(self.asked(tmp_path, sampling={"top_k": 1})[1]) == 3
        with HttpDouble(always("글")) as double:
            server = VLLMServer(model="glm", revision="r2", mode="external", urls=[double.url], images_per_prompt=0)
            reader = recognizer(double, server=server, reuse_folder=str(tmp_path))
            list(reader.read([page_of("p_1", self.TASKS)]))
            assert len(double.asked) == 3

    def test_another_reading_of_a_partial_page_requests_its_failed_regions_alone(self, tmp_path: Path) -> None:
        async def reply(asked: SentRequest) -> web.StreamResponse:
            return says({TEXT: "", TABLE: "같은 말 " * 60, FORMULA: "x"}[asked.prompt])

        first, _ = self.asked(tmp_path, reply, tries=2)
        assert [text.state for text in first.regions] == [State.BLANK, State.FAILED, State.OK]
        again, asked = self.asked(tmp_path, reply, tries=2)
        assert set(asked) == {TABLE}
        assert again.regions[::2] == first.regions[::2]
        mended, asked = self.asked(tmp_path, always("글"))
        assert asked == [TABLE]
        assert mended.state is State.OK

    def test_a_confirmed_script_is_not_read_again_and_an_unconfirmed_one_is(self, tmp_path: Path) -> None:
        for folder, scripts, requests in (("expected", ["CJK"], 4), ("confirmed", ["HANGUL"], 0)):
            self.asked(tmp_path / folder, always(HANJA), scripts=scripts)
            _, asked = self.asked(tmp_path / folder, always(HANJA), scripts=["HANGUL"])
            assert len(asked) == requests

    def test_what_failed_is_read_again(self, tmp_path: Path) -> None:
        self.asked(tmp_path, always("가나", "length"), tries=1)
        reading, asked = self.asked(tmp_path)
        assert len(asked) == 3
        assert reading.state is State.OK

    def test_a_moved_region_is_the_same_region(self, tmp_path: Path) -> None:
        page, regions = page_of("p_1", [Task.TEXT, Task.TEXT])
        moved = Page("p_2", cv2.imencode(".png", page.image[56:])[1].tobytes())
        with HttpDouble(always("글")) as double:
            list(recognizer(double, reuse_folder=str(tmp_path)).read([(page, regions)]))
            list(recognizer(double, reuse_folder=str(tmp_path)).read([(moved, regions[:1])]))
            assert len(double.asked) == 2

    def test_what_was_not_used_for_the_longest_time_goes_first(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        today = 20_000
        monkeypatch.setattr("kopub.recognition.vlm.client.chat_requests._today", lambda: today)
        pages = [page_of(f"p_{number}", [Task.TEXT]) for number in range(3)]

        def asked_for(page: tuple[Page, list[Region]]) -> int:
            with HttpDouble(always("글")) as double:
                list(recognizer(double, reuse_folder=str(tmp_path), reuse_answers=2).read([page]))
                return len(double.asked)

        for page in (pages[0], pages[1], pages[0], pages[2]):
            asked_for(page)
            today += 1
        # The second page was evicted, since the first was used again after it.
        assert asked_for(pages[0]) == 0
        assert asked_for(pages[1]) == 1

    def test_a_damaged_file_is_one_line(self, tmp_path: Path) -> None:
        (tmp_path / "answers.sqlite").write_bytes(b"no database" * 1000)
        with pytest.raises(EngineError, match="delete it"):
            self.asked(tmp_path)


def test_no_server_is_asked_for_when_everything_is_known(tmp_path: Path) -> None:
    with HttpDouble(always("글")) as double:
        reader = recognizer(double, reuse_folder=str(tmp_path))
        list(reader.read([page_of("p_1", [Task.TEXT])]))
    # The server is gone by now.
    assert len(list(reader.read([page_of("p_1", [Task.TEXT])]))) == 1
    assert reader.report()["regions_reused"] == 1


def test_the_figures_tell_what_was_asked_and_what_the_server_says() -> None:
    with HttpDouble(in_turn(("가", "length"), ("가나", "stop"))) as double:
        reader = recognizer(double)
        list(reader.read([page_of("p_1", [Task.TEXT])]))
    figures = reader.report()
    assert figures["requests"] == 2
    assert figures["answers_cut"] == 1
    assert figures["regions_blank"] == 0
    with HttpDouble(always("")) as double:
        reader = recognizer(double)
        list(reader.read([page_of("p_1", [Task.TEXT, Task.TABLE])]))
    assert reader.report()["regions_blank"] == 2
    assert figures["generated_tokens"] == 0


def test_the_recipe_follows_what_changes_results_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def recipe(revision: str = "r1", **fields: Any) -> dict[str, Any]:
        server = VLLMServer(
            model="glm", revision=revision, mode="external", urls=["http://x"], **fields.pop("server", {})
        )
        return GlmOcrRecognizer(server=server, **fields).recipe()

    assert recipe() == recipe(processes=3, reuse_folder="x", server={"max_num_seqs": 7, "env": {SWITCH: "0"}})
    for change in (
        {"revision": "r2"},
        {"prompts": {"table": "?"}},
        {"tries": 1},
        {"sampling": {"top_k": 1}},
        {"server": {"max_image_tokens": 3000}},
        {"server": {"max_model_len": 9000}},
        {"server": {"mm_processor": {"max_pixels": 10_000}}},
        {"server": {"env": {SWITCH: "1"}}},
    ):
        assert recipe(**change) != recipe()  # type: ignore[arg-type]
    before = recipe()
    monkeypatch.setattr("kopub.engine.version", lambda package: "0")
    assert recipe() != before


def test_a_prompt_for_what_is_not_read_is_refused() -> None:
    server = VLLMServer(model="glm", revision="r1", mode="external", urls=["http://x"])
    with pytest.raises((ValidationError, dg.DagsterInvalidConfigError), match="'chart' is not read"):
        GlmOcrRecognizer(server=server, prompts={"chart": "?"})


@given(st.integers(1, 9000), st.integers(1, 9000))
def test_a_crop_is_sized_as_the_model_s_own_preprocessor_leaves_it(width: int, height: int) -> None:
    assume(max(width, height) / min(width, height) <= 150)
    size = model_size(width, height)
    tokens = size[0] * size[1] // PATCH**2
    assert size[0] % PATCH == size[1] % PATCH == 0
    assert tokens <= MAX_TOKENS
    assert tokens >= MIN_TOKENS
    assert model_size(*size) == size


@pytest.mark.parametrize(
    ("crop", "sized"), [((812, 422), (812, 420)), ((2000, 250), (1988, 252)), ((2200, 1500), (2212, 1512))]
)
def test_known_sizes(crop: tuple[int, int], sized: tuple[int, int]) -> None:
    assert model_size(*crop) == sized


@pytest.mark.parametrize("shape", [(8, 4000), (4000, 8), (30, 30, 3), (3508, 2480)])
def test_any_crop_becomes_a_picture_the_model_takes(shape: tuple[int, ...]) -> None:
    made = region_image(np.zeros(shape, np.uint8))
    assert decoded(made.data).shape[:2] == (made.height, made.width)
    assert max(made.width, made.height) / min(made.width, made.height) < 200


def test_a_second_size_is_relative_to_what_was_sent() -> None:
    page = np.zeros((3508, 2480), np.uint8)
    assert region_image(page).tokens <= MAX_TOKENS
    assert region_image(page, scale=0.7).tokens <= MAX_TOKENS / 2


def test_boxes_are_cut_outwards_and_grey_is_kept_grey() -> None:
    image = np.dstack([np.arange(200, dtype=np.uint8).reshape(10, 20)] * 3)
    region = Region(0, "text", Task.TEXT, 1.0, (1.2, 2.7, 5.1, 6.0))
    assert pack_pixels(region_pixels(image, region)).tolist() == image[2:6, 1:6, 0].tolist()
    image[3, 3, 0] += 1
    assert pack_pixels(region_pixels(image, region)).shape == (4, 5, 3)


def test_strips_are_cut_between_lines() -> None:
    page = np.full((100, 60), 255, np.uint8)
    for top in (5, 25, 44, 66, 85):
        page[top : top + 10, ::2] = 0
    parts = cut_strips(page, 2)
    assert len(parts[0]) in range(54, 67)
    assert np.array_equal(np.vstack(parts), page)


def test_room_grows_with_the_picture_and_stays_in_the_context() -> None:
    assert answer_room(Task.TEXT, 8, 16384)[0] == 128
    assert answer_room(Task.TEXT, 435, 16384)[0] < answer_room(Task.TABLE, 435, 16384)[0]
    assert answer_room(Task.TABLE, 6144, 8192) == (8192 - 6144 - 64, 8192 - 6144 - 64)


def test_a_request_is_valid_json_whatever_the_prompt() -> None:
    body = json.loads(
        request_body("m", '따옴표 " \\ {}', CropImage(b"\x00\xff", "image/png", 28, 28), 7, {"max_tokens": 9})
    )
    image, text = body["messages"][0]["content"]
    assert image["image_url"]["url"] == "data:image/png;base64,AP8="
    assert text["text"] == '따옴표 " \\ {}'
    assert body["max_tokens"] == 9


KOREAN = ["HANGUL", "LATIN", "GREEK"]


@pytest.mark.parametrize(
    ("text", "finish_reason", "task", "problem"),
    [
        ("대한민국 2024.12.31.", "stop", Task.TEXT, None),
        ("목차 " + "." * 300 + " 12", "stop", Task.TEXT, None),
        ("_" * 400, "stop", Task.TEXT, None),
        ("<table>" + "<tr><td>-</td><td></td></tr>" * 20 + "</table>", "stop", Task.TABLE, None),
        ("<table>" + "<tr><td></td></tr>" * 200 + "</table>", "stop", Task.TABLE, None),
        ("대한민국(大韓民國)의 영토", "stop", Task.TEXT, None),
        ("x^2 + \\alpha", "stop", Task.FORMULA, None),
        ("α β γ δ ε ζ", "stop", Task.TEXT, None),
        ("", "stop", Task.TEXT, Problem.EMPTY),
        ("글", "length", Task.TEXT, Problem.CUT),
        ("가나다 " * 50, "stop", Task.TEXT, Problem.LOOP),
        ("<table>" + "<tr><td>가</td></tr>" * 60, "length", Task.TABLE, Problem.LOOP),
        ("<table>" + "<tr><td>가격</td></tr>" * 60 + "</table>", "stop", Task.TABLE, Problem.LOOP),
        ("." * 500, "length", Task.TEXT, Problem.LOOP),
        ("\n".join(f"{n}. 같은 말이 계속 나옵니다." for n in range(200)), "stop", Task.TEXT, Problem.LOOP),
        ("これは日本語の文章です", "stop", Task.TEXT, Problem.SCRIPT),
        ("中华人民共和国国务院", "stop", Task.TEXT, Problem.SCRIPT),
    ],
)
def test_answers_are_judged(text: str, finish_reason: str, task: Task, problem: Problem | None) -> None:
    defect = find_defect(text, finish_reason, task, KOREAN)
    assert (defect and defect.problem) == problem


@given(st.text("가나다 ", max_size=30), st.text("라마바", min_size=1, max_size=12), st.integers(20, 40))
def test_a_loop_is_found_where_it_begins(before: str, unit: str, repeats: int) -> None:
    text = before + unit * repeats
    start, found = loop_start(text, 4)
    if len(unit) * repeats >= 100 + len(unit):
        assert start <= len(before)
        assert len(found) <= len(unit)
        assert (text[start:] + found).startswith(found * 2)


@pytest.mark.parametrize(
    ("dirty", "clean"),
    [
        ("plain text", "plain text"),
        ("<table><tr><td>가<td>나<tr><td>다", "<table><tr><td>가</td><td>나</td></tr><tr><td>다</td></tr></table>"),
        (
            '<table border="1"><thead><tr><th colspan="2">A</th></tr></thead></table>',
            '<table><tr><th colspan="2">A</th></tr></table>',
        ),
        ("<table><tr><td>a < b & c</td></tr></table>", "<table><tr><td>a &lt; b &amp; c</td></tr></table>"),
        ("<table><tr><td>n<N</td><td>가</td></tr></table>", "<table><tr><td>n&lt;N</td><td>가</td></tr></table>"),
        (
            "<table><tr><td><!-- 주</td><td>가</td></tr></table>",
            "<table><tr><td>&lt;!-- 주</td><td>가</td></tr></table>",
        ),
        (
            "<table><tr><td>A<B and C>D</td><td>i<I 이고 j>J</td></tr></table>",
            "<table><tr><td>A&lt;B and C&gt;D</td><td>i&lt;I 이고 j&gt;J</td></tr></table>",
        ),
        ("<table><tr><td><USB> 3.0</td></tr></table>", "<table><tr><td>&lt;USB&gt; 3.0</td></tr></table>"),
        (
            "<table><tr><td><script></td><td>가</td></tr><tr><td><style></td><td>나</td></tr></table>",
            "<table><tr><td>&lt;script&gt;</td><td>가</td></tr><tr><td>&lt;style&gt;</td><td>나</td></tr></table>",
        ),
        ("표 1\n<table><tr><td>1</td></tr></table>", "<table><caption>표 1</caption><tr><td>1</td></tr></table>"),
        ("<table><tr><td>1</td></tr></table>\n주: 끝", "<table><tr><td>1</td></tr></table>\n\n주: 끝"),
        ("<table><tr><td>x<sup>2</td></tr></table>", "<table><tr><td>x<sup>2</sup></td></tr></table>"),
        (
            "<table><tr><td>1<table><tr><td>2</td></tr></table></td></tr></table>",
            "<table><tr><td>1 2</td></tr></table>",
        ),
        ("<table><tr><td rowspan=99999999>1</td></tr></table>", '<table><tr><td rowspan="1000">1</td></tr></table>'),
        (
            f"<table><tr><td colspan={'12345' * 1000}>1</td></tr></table>",
            '<table><tr><td colspan="1000">1</td></tr></table>',
        ),
        (
            f"<table><tr><td>&#{'12345' * 1000};</td></tr></table>",
            f"<table><tr><td>&amp;#{'12345' * 1000};</td></tr></table>",
        ),
        ("<table><tr><td>1<![가", "<table><tr><td>1&lt;![가</td></tr></table>"),
        ("<table><tr><td><![CDATA[1]]></td></tr></table>", "<table><tr><td>&lt;![CDATA[1]]&gt;</td></tr></table>"),
        (
            '<table><tr></tr><tr><td rowspan="2">구분</td></tr><tr></tr><tr></tr><tr><td>서울</td></tr></table>',
            '<table><tr><td rowspan="2">구분</td></tr><tr></tr><tr><td>서울</td></tr></table>',
        ),
        ("<table>loose<tr><td>1</td></tr></table>", "<table><tr><td>loose</td></tr><tr><td>1</td></tr></table>"),
        ("<table></table>", ""),
        (
            "<table><tr><td>1</td></tr></table><table><tr><td>2</td></tr></table>",
            "<table><tr><td>1</td></tr></table>\n\n<table><tr><td>2</td></tr></table>",
        ),
    ],
)
def test_tables_are_made_valid(dirty: str, clean: str) -> None:
    assert clean_tables(dirty) == clean


@given(
    st.lists(
        st.sampled_from(
            [
                "<table>",
                "</table>",
                "<tr>",
                "</tr>",
                "<td>",
                "</td>",
                "<th>",
                "<sup>",
                "</sup>",
                "<style>",
                "가",
                "1",
                "b",
            ]
        )
    )
)
def test_cleaning_is_final_and_loses_no_text(parts: list[str]) -> None:
    text = "<table>" + "".join(parts)
    clean = clean_tables(text)
    assert clean_tables(clean) == clean
    letters = [part for part in parts if not part.startswith("<")]
    assert sorted(char for char in clean if char in "가1") == sorted(char for char in "".join(letters) if char in "가1")


def test_parts_of_a_table_become_one_table() -> None:
    part = "<table><tr><td>1</td></tr></table>"
    assert join_tables([part, part]) == "<table><tr><td>1</td></tr><tr><td>1</td></tr></table>"
    spanning = '<table><tr><td rowspan="3">1</td><td>rowspan="3"</td></tr><tr><td rowspan="2">2</td></tr></table>'
    assert join_tables([spanning, part]) == (
        '<table><tr><td rowspan="2">1</td><td>rowspan="3"</td></tr><tr><td>2</td></tr><tr><td>1</td></tr></table>'
    )
    assert join_tables([part, "no table"]) == f"{part}\n\nno table"


def test_captions_of_the_parts_of_a_table_are_words_apart() -> None:
    parts = [f"<table><caption>{title}</caption><tr><td>1</td></tr></table>" for title in ("표 1", "계속")]
    row = "<tr><td>1</td></tr>"
    assert tidy(join_tables(parts), Task.TABLE) == f"<table><caption>표 1 계속</caption>{row}{row}</table>"


def test_formulas_lose_their_delimiters() -> None:
    assert tidy("$$x$$", Task.FORMULA) == tidy("\\[x\\]", Task.FORMULA) == tidy(" x ", Task.FORMULA) == "x"
    assert tidy("$$x$$\n$$y$$", Task.FORMULA) == tidy("\\[ x \\]\n\n\\[ y \\]", Task.FORMULA) == "x \\\\\ny"
    assert tidy("$$$$", Task.FORMULA) == tidy("\\(\\)", Task.FORMULA) == ""


def test_what_each_step_takes_is_kept_where_somebody_asks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The client processes record it, as they do in a run under `kopub profile`."""
    monkeypatch.setenv(STEP_TIMES, str(tmp_path / "steps"))
    tasks = [Task.TEXT, Task.SKIP, Task.TABLE]
    reading, _ = read(always("<table><tr><td>하나</td></tr></table>"), tasks, processes=2)
    assert reading.state is State.OK
    calls = {step.step: step.calls for step in step_times(tmp_path / "steps")}
    assert calls == {"decode": 1, "crop": 3, "encode": 2, "request": 2, "answer": 2}
