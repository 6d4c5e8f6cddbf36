"""PaddleOCR-VL against a double that reads drawn lines: sizes, parts, retries, doubts, damaged answers."""

import json
from collections.abc import Sequence
from typing import Any

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
from kopub.pages.page import Page
from kopub.recognition.regions import PageReading
from kopub.recognition.vlm.client.answers import Problem, answers_agree, find_defect
from kopub.recognition.vlm.client.paddle import MAX_TOKENS, MIN_TOKENS, parts_needed, sized_image
from kopub.recognition.vlm.paddleocr_vl import PaddleOcrVlRecognizer
from kopub.states import State
from kopub.vllm.plugin import PADDLEOCR_VL
from kopub.vllm.server import VLLMServer
from tests.doubles.http_double import HttpDouble, SentRequest
from tests.doubles.paddle_reader import (
    SMALLEST,
    UNREADABLE,
    PaddleReader,
    drawn_lines,
    image_tokens,
    page_of_lines,
    read_lines,
    table_of,
    text_of,
    well,
)
from tests.recognition.test_glm_ocr import only

NUMBERS = list(range(3, 63))
SIDE = 28


def recognizer(double: HttpDouble, **fields: Any) -> PaddleOcrVlRecognizer:
    server = VLLMServer(model="paddle", revision="r1", mode="external", urls=[double.url], images_per_prompt=0)
    return PaddleOcrVlRecognizer(**{"server": server, "processes": 1, "in_flight": 8, "retry_seconds": 0.001, **fields})


def read(
    model: PaddleReader, image: np.ndarray, task: Task = Task.TEXT, label: str | None = None, **fields: Any
) -> tuple[PageReading, list[SentRequest]]:
    with HttpDouble(model) as double:
        page = page_of_lines("p_1", image, task, label or {Task.TABLE: "table"}.get(task, "text"))
        (reading,) = recognizer(double, **fields).read([page])
        return reading, double.asked


def dense() -> np.ndarray:
    """Return a page at 300 dpi full of 30-pixel lines, seven times the model's limit."""
    return drawn_lines(NUMBERS, 2000, 30, 46)


def small() -> np.ndarray:
    return drawn_lines([7], 800, 30, 40)


class TestSizes:
    @pytest.mark.parametrize(
        ("crop", "sent", "tokens"),
        [
            ((812, 422), (812, 420), 435),
            ((800, 40), (1512, 84), 162),
            ((300, 40), (924, 140), 165),
            ((1200, 60), (1512, 84), 162),
            ((400, 200), (476, 252), 153),
            ((1200, 900), (1148, 840), 1230),
            ((1654, 2339), (840, 1176), 1260),
        ],
    )
    def test_known_sizes(self, crop: tuple[int, int], sent: tuple[int, int], tokens: int) -> None:
        image = sized_image(np.zeros((crop[1], crop[0]), np.uint8))
        assert (image.width, image.height) == sent
        assert image.tokens == tokens

    @given(st.integers(1, 5000), st.integers(1, 5000), st.sampled_from((1.0, 0.5, 0.75, 0.8, 1.25, 1.5)))
    def test_the_model_s_preprocessor_leaves_every_picture_as_it_is(
        self, width: int, height: int, scale: float
    ) -> None:
        assume(width * height < 2_000_000)
        image = sized_image(np.zeros((height, width), np.uint8), scale)
        assert image.width % SIDE == image.height % SIDE == 0
        assert MIN_TOKENS <= image.tokens <= MAX_TOKENS
        assert image_tokens(image.width, image.height) == image.tokens
        assert max(image.width, image.height) / min(image.width, image.height) < 200

    @given(st.integers(20, 3000), st.integers(20, 3000), st.sampled_from((0.75, 0.8, 1.25, 1.5)))
    def test_another_size_is_really_another_one(self, width: int, height: int, scale: float) -> None:
        assume(width * height < 3_000_000 and max(width, height) <= 40 * min(width, height))
        crop = np.zeros((height, width), np.uint8)
        usual, other = sized_image(crop), sized_image(crop, scale)
        assert max(other.tokens, usual.tokens) > 1.2 * min(other.tokens, usual.tokens)

    def test_the_room_of_an_answer_is_that_of_the_print(self) -> None:
        line = sized_image(np.zeros((40, 800), np.uint8))
        assert line.patches == round(800 * 40 / SIDE**2)
        page = sized_image(np.zeros((2339, 1654), np.uint8))
        assert page.patches == page.tokens

    def test_what_a_server_takes_less_is_not_sent(self) -> None:
        assert sized_image(np.zeros((2000, 2000), np.uint8), max_tokens=600).tokens <= 600
        assert 144 <= sized_image(np.zeros((2000, 2000), np.uint8), 1.5, max_tokens=200).tokens <= 200

    def test_a_crop_scaled_down_to_its_lines_stays_within_the_limits(self) -> None:
        image = sized_image(np.zeros((422, 812), np.uint8), enough=0.5)
        assert (image.width, image.height) == (476, 252)
        image = sized_image(np.zeros((900, 1200), np.uint8), enough=0.5)
        assert (image.width, image.height) == (616, 476)
        assert sized_image(np.zeros((40, 800), np.uint8), enough=0.5).tokens >= MIN_TOKENS


class TestParts:
    def test_a_dense_page_wide_region_is_cut_between_lines(self) -> None:
        model = PaddleReader()
        reading, _ = read(model, dense())
        assert only(reading).content == text_of([str(number) for number in NUMBERS])
        assert len(model.sizes) > 1
        assert only(reading).attempts == 1

    def test_shrunk_it_could_not_be_read(self) -> None:
        model = PaddleReader()
        reading, _ = read(model, dense(), least_line_height=None, tries=1)
        assert len(model.sizes) == 1
        assert only(reading).state is State.FAILED
        assert only(reading).content == f"제{UNREADABLE}조"

    def test_the_parts_of_a_table_are_one_table(self) -> None:
        reading, _ = read(PaddleReader(), dense(), Task.TABLE)
        rows = "".join(f"<tr><td>{number}</td><td></td><td>원</td></tr>" for number in NUMBERS)
        assert only(reading).content == f"<table>{rows}</table>"

    @pytest.mark.parametrize(
        ("task", "label"), [(Task.FORMULA, "display_formula"), (Task.TABLE, "chart"), (Task.TEXT, "vertical_text")]
    )
    def test_what_is_one_picture_is_never_cut(self, task: Task, label: str) -> None:
        model = PaddleReader(lambda asked, lines: well(asked, lines) * 4000)
        read(model, dense(), task, label)
        assert min(height for _, height in model.sizes) > 900

    def test_as_many_parts_as_the_lines_need(self) -> None:
        assert parts_needed(drawn_lines(NUMBERS, 2000, 30, 46), least_line=24) == 4
        assert parts_needed(drawn_lines(NUMBERS[:30], 2000, 60, 92), least_line=24) == 1
        assert parts_needed(drawn_lines(NUMBERS[:30], 2000, 60, 92), least_line=40) == 3
        assert parts_needed(small(), least_line=24) == 1
        # Where no lines are found, print of 10 points is assumed.
        assert parts_needed(np.full((3508, 2480), 200, np.uint8), least_line=24) == 3
        assert parts_needed(np.full((3508, 2480), 200, np.uint8)) == 1

    def test_a_part_that_goes_wrong_has_the_region_read_again_in_smaller_ones(self) -> None:
        def says(asked: SentRequest, lines: Sequence[str]) -> str:
            return "같은 말입니다. " * 900 if len(lines) > 12 else well(asked, lines)

        model = PaddleReader(says)
        reading, asked = read(model, dense())
        assert only(reading).state is State.OK
        assert only(reading).content == text_of([str(number) for number in NUMBERS])
        # One of the four has 11 lines; the others are read at another size, at a temperature, and in two parts.
        assert len(asked) == 4 + 3 * (1 + 1 + 2)

    def test_a_part_that_is_empty_twice_leaves_the_others(self) -> None:
        # Such a strip holds a rule or a stain: there is ink but nothing to read.
        model = PaddleReader(lambda asked, lines: "" if str(NUMBERS[-1]) in lines else well(asked, lines))
        reading, asked = read(model, dense())
        text = only(reading)
        assert (text.state, text.attempts) == (State.OK, 2)
        assert text.content.startswith(text_of([str(number) for number in NUMBERS[:40]]))
        assert len(asked) == 4 + 1

    def test_a_part_that_is_empty_once_is_read(self) -> None:
        model = PaddleReader(lambda asked, lines: "" if asked.number == 2 else well(asked, lines))
        reading, _ = read(model, dense())
        assert only(reading).content == text_of([str(number) for number in NUMBERS])

    def test_only_the_part_that_went_wrong_is_read_again(self) -> None:
        def says(asked: SentRequest, lines: Sequence[str]) -> str:
            return "같은 말입니다. " * 900 if asked.number == 1 else well(asked, lines)

        reading, asked = read(PaddleReader(says), dense())
        assert only(reading).content == text_of([str(number) for number in NUMBERS])
        assert only(reading).attempts == 2
        assert len(asked) == 4 + 1

    def test_a_part_that_cannot_be_read_fails_the_region_and_the_others_are_kept(self) -> None:
        def says(asked: SentRequest, lines: Sequence[str]) -> str:
            return "같은 말입니다. " * 900 if str(NUMBERS[-1]) in lines else well(asked, lines)

        reading, _ = read(PaddleReader(says), dense())
        text = only(reading)
        assert text.state is State.FAILED
        assert str(text.reason).startswith("part 4 of 4: '같은 말입니다.' repeats without end")
        assert text.content.startswith(text_of([str(number) for number in NUMBERS[:40]]))

    @pytest.mark.parametrize("task", [Task.TEXT, Task.TABLE])
    def test_parts_that_are_all_empty_twice_are_a_blank_region(self, task: Task) -> None:
        reading, asked = read(PaddleReader(lambda asked, lines: ""), dense(), task)
        assert (only(reading).state, only(reading).reason) == (State.BLANK, "two attempts read nothing")
        assert len(asked) == 8

    def test_the_figures_count_them(self) -> None:
        with HttpDouble(PaddleReader()) as double:
            reader = recognizer(double)
            list(reader.read([page_of_lines("p_1", dense(), Task.TABLE, "table")]))
        assert reader.report()["regions_in_parts"] == 1


class TestPrompts:
    ASKED = (
        (Task.TEXT, "text", "OCR:"),
        (Task.TEXT, "seal", "Seal Recognition:"),
        (Task.TABLE, "table", "Table Recognition:"),
        (Task.TABLE, "chart", "Chart Recognition:"),
        (Task.FORMULA, "display_formula", "Formula Recognition:"),
        (Task.TEXT, "chart", "OCR:"),
    )

    @pytest.mark.parametrize(("task", "label", "prompt"), ASKED)
    def test_a_region_is_asked_by_its_task_or_its_label(self, task: Task, label: str, prompt: str) -> None:
        _, (asked,) = read(PaddleReader(), small(), task, label)
        assert asked.prompt == prompt

    def test_a_chart_that_is_read_is_a_table_and_a_picture(self) -> None:
        reading, _ = read(PaddleReader(), drawn_lines([7, 9], 800, 30, 60), Task.TABLE, "chart")
        assert only(reading).content == (
            "<table><tr><th>연도</th><th>값</th></tr><tr><td>7</td><td>70</td></tr><tr><td>9</td><td>90</td></tr></table>"
        )
        assert [crop.label for crop in reading.crops] == ["chart"]

    def test_the_whole_request(self) -> None:
        _, (asked,) = read(PaddleReader(), small())
        body = asked.body
        content = body["messages"][0]["content"]
        assert content[0]["image_url"].pop("url").startswith("data:image/png;base64,iVBOR")
        assert body == {
            "model": "paddle",
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {}}, {"type": "text", "text": "OCR:"}]}
            ],
            "max_tokens": 246,
            "temperature": 0.0,
        }

    def test_no_answer_takes_more_than_the_authors_let_it_at_first(self) -> None:
        _, asked = read(PaddleReader(), dense(), Task.TABLE)
        assert {each.body["max_tokens"] for each in asked} == {4096}

    def test_an_unknown_prompt_is_refused(self) -> None:
        server = VLLMServer(model="paddle", revision="r1", mode="external", urls=["http://x"])
        with pytest.raises(
            (ValidationError, dg.DagsterInvalidConfigError), match="for chart, formula, seal, table, text"
        ):
            PaddleOcrVlRecognizer(server=server, prompts={"stamp": "?"})


class TestSecondTries:
    @pytest.mark.parametrize("image", [small(), dense()[:1100, :1100]])
    @pytest.mark.parametrize("answer", ["", "같은 말입니다. " * 900, "これは日本語の文章です"])
    def test_they_see_another_picture(self, image: np.ndarray, answer: str) -> None:
        model = PaddleReader(lambda asked, lines: answer)
        read(model, image, tries=2, scripts=["HANGUL"])
        areas = [width * height for width, height in model.sizes[:2]]
        assert max(areas) > 1.3 * min(areas)

    def test_a_table_of_empty_cells_that_does_not_end_is_led_out_of(self) -> None:
        def says(asked: SentRequest, lines: Sequence[str]) -> str:
            return table_of(lines) + "<ecel>" * 30_000 if asked.number == 0 else table_of(lines)

        reading, asked = read(PaddleReader(says), drawn_lines(NUMBERS[:8], 900, 30, 60), Task.TABLE)
        assert only(reading).state is State.OK
        assert only(reading).attempts == 2
        assert only(reading).content.count("<tr>") == 8
        assert asked[0].body["max_tokens"] <= 4096

    def test_one_that_never_ends_fails_with_what_was_read_before(self) -> None:
        model = PaddleReader(lambda asked, lines: table_of(lines) + "<ecel>" * 30_000)
        reading, asked = read(model, drawn_lines(NUMBERS[:8], 900, 30, 60), Task.TABLE)
        text = only(reading)
        assert text.state is State.FAILED
        assert "repeats without end" in str(text.reason)
        assert text.content.count("원") == 8
        assert text.attempts == 4
        assert len(asked) == 5

    def test_an_answer_that_was_cut_off_gets_all_the_room_there_is(self) -> None:
        whole = "가나다라마바사아자차카타파하" * 40

        def says(asked: SentRequest, lines: Sequence[str]) -> str:
            return "".join(f"{n}{whole[n % 14 :]}"[:9] for n in range(200))

        reading, asked = read(PaddleReader(says), small())
        assert only(reading).state is State.OK
        assert [each.body["max_tokens"] > 10_000 for each in asked] == [False, True]


class TestDoubts:
    def test_multiplied_digits_are_read_again(self) -> None:
        def says(asked: SentRequest, lines: Sequence[str]) -> str:
            return (
                "합계 1,000,000,000,000,000,000,000,000,000,000,000,000,000원" if not asked.number else "합계 1,000원"
            )

        reading, asked = read(PaddleReader(says), small())
        assert (only(reading).content, only(reading).reason) == ("합계 1,000원", None)
        assert len(asked) == 2

    def test_digits_that_two_readings_agree_on_are_printed(self) -> None:
        reading, asked = read(PaddleReader(lambda asked, lines: "계좌 000000000000000"), small())
        text = only(reading)
        assert (text.state, text.content, text.reason) == (State.OK, "계좌 000000000000000", None)
        assert len(asked) == 2

    def test_readings_that_do_not_agree_stand_with_a_doubt(self) -> None:
        model = PaddleReader(lambda asked, lines: "합계 1" + "0" * (30 - 3 * asked.number))
        reading, asked = read(model, small())
        text = only(reading)
        assert reading.state is State.OK
        assert text.content == "합계 1" + "0" * 24
        assert text.reason == "the digits 000000000000… multiply, and no other reading agrees"
        assert len(asked) == text.attempts == 3

    def test_many_empty_cells_are_read_again(self) -> None:
        def says(asked: SentRequest, lines: Sequence[str]) -> str:
            return table_of(lines) + ("" if asked.number else "<ecel>" * 400 + "<nl>")

        reading, asked = read(PaddleReader(says), drawn_lines(NUMBERS[:8], 900, 30, 60), Task.TABLE)
        assert only(reading).content.count("<td>") == 8 * 3
        assert len(asked) == 2

    @pytest.mark.parametrize(
        ("text", "task"),
        [
            ("010-0000-0000", Task.TEXT),
            ("100,000,000,000원", Task.TEXT),
            ("3.141592653589793", Task.TEXT),
            ("0.13333333333333333", Task.TEXT),
            ("<table>" + "<tr><td></td><td></td></tr>" * 140 + "</table>", Task.TABLE),
            ("1000000000000000000000", Task.FORMULA),
        ],
    )
    def test_what_is_printed_often_is_no_doubt(self, text: str, task: Task) -> None:
        assert find_defect(text, "stop", task, ["HANGUL"]) is None

    def test_only_the_same_run_confirms(self) -> None:
        assert answers_agree(Problem.RUNAWAY, "합 " + "0" * 20, "함 " + "0" * 20, Task.TEXT)
        assert not answers_agree(Problem.RUNAWAY, "합 " + "0" * 20, "합 " + "0" * 21, Task.TEXT)


class TestDamagedAnswers:
    """A damaged answer keeps its text and has a state, with a reason unless OK."""

    @pytest.mark.parametrize(
        ("answer", "content"),
        [
            ("표 3\n<fcel>가<fcel>나<nl>", "<table><caption>표 3</caption><tr><td>가</td><td>나</td></tr></table>"),
            ("<fcel>가<fcel>나", "<table><tr><td>가</td><td>나</td></tr></table>"),
            ("가 나 다", "가 나 다"),
            ("<nl><nl><fcel>가<nl>", "<table><tr><td>가</td></tr></table>"),
            ("<lcel>가<ucel>나<xcel><nl>", '<table><tr><td>가</td><td colspan="2">나</td></tr></table>'),
        ],
    )
    def test_tables(self, answer: str, content: str) -> None:
        reading, _ = read(PaddleReader(lambda asked, lines: answer), small(), Task.TABLE)
        assert (only(reading).state, only(reading).content) == (State.OK, content)

    def test_a_server_with_other_sizes_is_found_out(self) -> None:
        class Resizing(PaddleReader):
            async def __call__(self, asked: SentRequest) -> Any:
                answer: Any = await super().__call__(asked)
                body = json.loads(answer.body)
                body["usage"]["prompt_tokens"] += 2000
                return web.json_response(body)

        with pytest.raises(EngineError, match="it resizes pictures or has another template"):
            read(Resizing(), dense())


class TestConfiguration:
    def server(self, **fields: Any) -> VLLMServer:
        return VLLMServer(**{"model": "paddle", "revision": "r1", "mode": "external", "urls": ["http://x"], **fields})

    @pytest.mark.parametrize(
        ("fields", "says"),
        [
            ({"max_image_tokens": 100}, "less than the 144 of the smallest picture"),
            ({"extra_flags": ["--trust-remote-code"]}, "leave it out"),
        ],
    )
    def test_a_server_that_cannot_read_is_refused(self, fields: dict[str, Any], says: str) -> None:
        with pytest.raises((ValidationError, dg.DagsterInvalidConfigError), match=says):
            PaddleOcrVlRecognizer(server=self.server(**fields))

    def test_the_recipe_follows_what_changes_results_only(self) -> None:
        def recipe(revision: str = "r1", server: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
            return PaddleOcrVlRecognizer(server=self.server(revision=revision, **server or {}), **fields).recipe()

        assert recipe() == recipe(processes=3, server={"max_num_seqs": 7, "max_image_tokens": 2000})
        for change in (
            {"revision": "r2"},
            {"prompts": {"seal": "OCR:"}},
            {"least_line_height": 30},
            {"least_line_height": None},
            {"server": {"max_image_tokens": 1000}},
            {"server": {"env": {PADDLEOCR_VL: "1"}}},
        ):
            assert recipe(**change) != recipe()  # type: ignore[arg-type]

    def test_a_change_of_the_seals_prompt_reads_the_seals_alone_again(self, tmp_path: Any) -> None:
        image = np.vstack([small(), drawn_lines([9], 800, 30, 40)])
        page = Page("p_1", cv2.imencode(".png", image)[1].tobytes())
        regions = [
            Region(0, "text", Task.TEXT, 0.9, (0, 0, 800, 40)),
            Region(1, "seal", Task.TEXT, 0.9, (0, 40, 800, 80)),
        ]
        with HttpDouble(PaddleReader()) as double:
            list(recognizer(double, reuse_folder=str(tmp_path)).read([(page, regions)]))
            again = {"prompts": {"seal": "OCR:"}, "reuse_folder": str(tmp_path)}
            list(recognizer(double, **again).read([(page, regions)]))
            assert [asked.prompt for asked in double.asked[2:]] == ["OCR:"]
            least = {"least_line_height": 30, "reuse_folder": str(tmp_path)}
            list(recognizer(double, **least).read([(page, regions)]))
            assert len(double.asked) == 5


def test_the_double_reads_what_is_drawn() -> None:
    assert read_lines(dense()) == [str(number) for number in NUMBERS]
    tiny = cv2.resize(dense(), None, fx=0.4, fy=0.4, interpolation=cv2.INTER_AREA)
    assert set(read_lines(tiny)) == {UNREADABLE}
    assert SMALLEST > 30 * 0.4
