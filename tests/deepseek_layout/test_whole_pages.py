"""Whole pages read through a scripted server: regions, texts, retries and losses."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from kopub.errors import ConfigError, EngineError
from kopub.layout.regions import Layout, Task
from kopub.pages.page import Batch, Page
from kopub.recognition.deepseek_layout.answer import page_answer
from kopub.recognition.deepseek_layout.detector import DeepSeekOcrLayout, RetryBudget
from kopub.recognition.vlm.client.chat_requests import ChatAnswer
from kopub.states import State
from tests.deepseek_layout.test_blocks import PIECES
from tests.doubles.http_double import HttpDouble, Reply, SentRequest, error, says
from tests.recognition.test_deepseek_ocr import server_of
from tests.recognition.test_glm_ocr import always
from tests.support.sources.drawn import Sheet
from tests.support.sources.grounded_pages import (
    HEIGHT,
    HTML,
    LAST,
    TABLE,
    TEXTS,
    TITLE,
    WHOLE,
    WIDTH,
    drawn_page,
    last,
    table,
    tag,
    upper,
)

LOOP = "같은 말입니다. " * 60


def engine(double: HttpDouble, **fields: Any) -> DeepSeekOcrLayout:
    given = {"server": server_of(double.url), "processes": 1, "in_flight": 8, "retry_seconds": 0.001}
    return DeepSeekOcrLayout(**{**given, **fields})


def laid_out(reply: Reply, *pages: Page, **fields: Any) -> tuple[list[Layout], list[SentRequest], dict[str, float]]:
    with HttpDouble(reply) as double:
        detector = engine(double, **fields)
        found = list(detector.detect(pages or (drawn_page(),)))
        return found, double.asked, dict(detector.take_figures())


def one(reply: Reply, **fields: Any) -> tuple[Layout, list[SentRequest], dict[str, float]]:
    (layout,), asked, figures = laid_out(reply, **fields)
    return layout, asked, figures


def begins_with_title(image: bytes) -> bool:
    """Return whether a half is the upper one, whose margin is wider than a cut's."""
    pixels = cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_GRAYSCALE)
    assert pixels is not None
    return int(np.argmax((pixels < 128).any(axis=1))) < 120 and bool((pixels[700] < 128).any())


def texts(layout: Layout) -> list[tuple[str, str | None]]:
    return [(region.label, region.text) for region in layout.regions]


GOOD = [
    ("doc_title", TEXTS["title"]),
    ("text", TEXTS["first"]),
    ("figure_title", TEXTS["caption"]),
    ("table", HTML),
    ("text", TEXTS["last"]),
]


def near(box: Sequence[float], expected: Sequence[float]) -> bool:
    return all(abs(edge - other) < 3 for edge, other in zip(box, expected, strict=True))


def test_a_page_is_asked_for_once_and_its_regions_have_their_texts():
    layout, (asked,), figures = one(always(WHOLE))
    assert (layout.state, layout.reason) == (State.OK, None)
    assert texts(layout) == GOOD
    assert [region.index for region in layout.regions] == [0, 1, 2, 3, 4]
    assert [region.task for region in layout.regions] == [Task.TEXT, Task.TEXT, Task.TEXT, Task.TABLE, Task.TEXT]
    assert near(layout.regions[0].bbox, TITLE)
    assert near(layout.regions[3].bbox, TABLE)
    assert asked.prompt == "<|grounding|>Convert the document to markdown."
    assert asked.body["temperature"] == 0
    assert asked.body["skip_special_tokens"] is False
    assert asked.body["vllm_xargs"]["whitelist_token_ids"] == [128821, 128822]
    # 8,192 positions less 903 for an A4 page and 64 for the prompt around it.
    assert asked.body["max_tokens"] == 8192 - 903 - 64
    assert (figures["requests"], figures["image_tokens"], figures.get("second_tries", 0)) == (1, 903, 0)


@pytest.mark.parametrize(("ocr2", "tokens"), [(False, 903), (True, 256 + 6 * 144 + 1)])
def test_the_tokens_of_a_page(ocr2: bool, tokens: int):
    _, _, figures = one(always(WHOLE), ocr2=ocr2)
    assert figures["image_tokens"] == tokens


@pytest.mark.parametrize("bad", [(upper() + tag("text", LAST) + LOOP, "length"), (upper(), "length"), ("", "stop")])
def test_a_page_whose_answer_is_not_good_is_read_in_halves(bad: tuple[str, str]):
    cuts: list[int] = []

    async def reply(asked: SentRequest) -> web.StreamResponse:
        width, height = asked.size
        if height > width:
            return says(*bad)
        if begins_with_title(asked.image):
            cuts.append(height)
            return says(upper(height) + table(height))
        return says(last(HEIGHT - height))

    layout, asked, figures = one(reply)
    assert len(asked) == 3
    # The cut is between the table and the last paragraph.
    assert 1003 < cuts[0] < 1195
    assert layout.state is State.OK
    assert texts(layout) == GOOD
    assert near(layout.regions[0].bbox, TITLE)
    assert near(layout.regions[-1].bbox, LAST)
    assert (figures["second_tries"], figures["second_tries_taken"]) == (1, 1)


@pytest.mark.parametrize("seen", [True, False])
def test_a_page_without_a_label_that_asks_for_a_second_look_is_read_in_halves(seen: bool):
    async def reply(asked: SentRequest) -> web.StreamResponse:
        width, height = asked.size
        if height > width:
            return says(WHOLE)
        if begins_with_title(asked.image):
            return says(upper(height) + table(height))
        return says(last(HEIGHT - height).replace("text", "chart") if seen else last(HEIGHT - height))

    layout, asked, figures = one(reply, second_look=["table", "chart"])
    assert len(asked) == 3
    assert layout.state is State.OK
    assert [region.label for region in layout.regions].count("chart") == seen
    assert figures.get("second_tries_taken", 0) == seen
    _, asked, _ = one(reply, second_look=["table"])
    assert len(asked) == 1


def test_a_list_of_labels_is_in_the_recipe_where_there_is_one():
    with HttpDouble(always(WHOLE)) as double:
        assert "second_look" not in engine(double).recipe()["parameters"]
        assert engine(double, second_look=["table"]).recipe()["parameters"]["second_look"] == ["table"]
        with pytest.raises(ConfigError, match=r"layout\.second_look: tabel is no label"):
            engine(double, second_look=["tabel"])


def test_what_is_sound_of_an_answer_is_kept_and_the_rest_is_said():
    layout, asked, figures = one(always(upper() + tag("text", LAST) + "\n다음 " + LOOP, "length"))
    assert len(asked) == 3
    assert layout.state is State.PARTIAL
    assert "repeats without end" in str(layout.reason)
    # The recognizer reads the doubtful text from its crop.
    assert texts(layout)[:3] == [*GOOD[:2], ("text", None)]
    assert figures["texts_in_doubt"] >= 1
    layout, _, _ = one(always(upper() + tag("text", LAST) + "\n다음", "length"), halves_share=0.0)
    assert layout.state is State.PARTIAL
    assert "cut off" in str(layout.reason)
    assert texts(layout)[2] == ("text", None)


def test_equal_blocks_without_end_are_a_loop():
    layout, _, _ = one(always(WHOLE + f"{tag('text', LAST)}\n끝\n" * 30, "length"), halves_share=0.0)
    assert "equal blocks" in str(layout.reason)
    assert texts(layout)[:6] == [*GOOD, ("text", "끝")]
    assert len(layout.regions) == 6


LEFT_OUT = "not read in halves, which 40% of the pages of a shard may be"


def left_out(found: Sequence[Layout]) -> set[str]:
    return {layout.page_id for layout in found if LEFT_OUT in str(layout.reason)}


def test_second_tries_are_capped_and_no_page_is_dropped():
    pages = [replace(drawn_page(), page_id=f"p_{at}", batch=Batch("shard_00", 6)) for at in range(6)]
    found, asked, figures = laid_out(always(upper(), "length"), *pages, halves_share=0.4)
    assert len(found) == 6
    assert (figures["second_tries"], figures["second_tries_left_out"]) == (2, 4)
    assert len(asked) == figures["requests"] == 6 + 2 * 2
    assert figures["answers_cut"] == 6 + 2
    assert all(layout.state is State.PARTIAL and layout.regions for layout in found)
    assert left_out(found) == {"p_2", "p_3", "p_4", "p_5"}


@pytest.mark.services
def test_the_cap_is_one_for_a_shard_however_many_client_processes_read_it():
    shards = [Batch("shard_00", 6), Batch("shard_01", 3)]
    of = [batch for batch in shards for _ in range(batch.pages)]
    pages = [replace(drawn_page(), page_id=f"p_{at}", batch=batch) for at, batch in enumerate(of)]

    async def reply(asked: SentRequest) -> web.StreamResponse:
        # The page that is asked for first is answered last.
        await asyncio.sleep(0.3 if asked.number == 0 else 0.0)
        return says(upper(), "length")

    found, asked, figures = laid_out(reply, *pages, halves_share=0.4, processes=2)
    assert sorted(layout.page_id for layout in found) == [page.page_id for page in pages]
    assert left_out(found) == {"p_2", "p_3", "p_4", "p_5", "p_7", "p_8"}
    assert (figures["second_tries"], figures["second_tries_left_out"]) == (3, 6)
    assert len(asked) == figures["requests"] == 9 + 3 * 2


def test_no_second_try_where_none_is_wanted():
    _, asked, figures = one(always(""), halves_share=0.0)
    assert (len(asked), figures["second_tries_left_out"]) == (1, 1)


def test_paper_and_what_is_no_picture_are_not_asked_for():
    paper = Page("p_2", cv2.imencode(".png", np.full((300, 200, 3), 250, np.uint8))[1].tobytes())
    found, asked, _ = laid_out(always(WHOLE), Page("p_1", b"no picture"), paper)
    assert asked == []
    assert {layout.page_id: layout.state for layout in found} == {"p_1": State.QUARANTINED, "p_2": State.BLANK}


def test_a_page_with_ink_of_which_nothing_is_read_failed():
    layout, asked, _ = one(always(""))
    assert len(asked) == 3
    assert (layout.state, layout.reason) == (
        State.FAILED,
        "nothing was read although there is ink; 100% of the page's ink is outside of all regions",
    )


def test_a_page_that_is_refused_failed_with_the_server_s_words():
    async def refuse(asked: SentRequest) -> web.StreamResponse:
        return error(400, "unknown field")

    layout, asked, _ = one(refuse)
    assert len(asked) == 1
    assert layout.state is State.FAILED
    assert "HTTP 400: unknown field" in str(layout.reason)


def test_a_ruled_table_that_no_box_covers_becomes_a_region_to_be_read():
    without = upper() + tag("text", LAST) + "\n" + TEXTS["last"]
    layout, asked, figures = one(always(without), most_outside=1.0)
    assert len(asked) == 3
    assert layout.state is State.OK
    added = layout.regions[-1]
    assert (added.label, added.task, added.text) == ("table", Task.TABLE, None)
    assert near(added.bbox, (99, 699, 1103, 1003))
    assert figures["tables_added"] == 1


def test_a_table_that_was_read_as_text_is_not_read_twice():
    as_text = upper() + tag("text", TABLE) + "\n서울 12\n\n" + tag("text", LAST) + "\n" + TEXTS["last"]
    layout, asked, figures = one(always(as_text), most_outside=1.0)
    assert len(asked) == 3
    assert [region.label for region in layout.regions] == ["doc_title", "text", "text", "text"]
    assert figures["tables_added"] == 0


def test_ink_outside_of_all_regions_makes_a_page_partial():
    layout, asked, _ = one(always(f"{tag('table', TABLE)}\n{HTML}"))
    assert len(asked) == 3
    assert layout.state is State.PARTIAL
    assert "of the page's ink is outside of all regions" in str(layout.reason)


def test_an_answer_without_places_is_a_text_whose_place_nobody_knows():
    layout, _, _ = one(always("인구 통계\n2023년"))
    assert texts(layout) == [("text", "인구 통계\n2023년")]
    assert layout.state is State.PARTIAL
    assert layout.regions[0].bbox == (0, 0, WIDTH, HEIGHT)


def test_text_before_the_first_tag_has_the_strip_above_it():
    layout, _, _ = one(always(f"이어진 문단\n\n{WHOLE}"))
    assert texts(layout) == [("text", "이어진 문단"), *GOOD]
    x1, y1, x2, y2 = layout.regions[0].bbox
    assert (x1, y1, x2) == (0, 0, WIDTH)
    assert y2 == pytest.approx(TITLE[1], abs=3)


def test_another_script_is_read_from_the_crop_unless_two_answers_agree():
    foreign = "人口统计数据显示全国人口继续减少" * 2
    chinese = WHOLE.replace(TEXTS["first"], foreign)
    layout, _, figures = one(always(chinese))
    assert layout.state is State.OK
    assert texts(layout) == [GOOD[0], ("text", None), *GOOD[2:]]
    assert figures["texts_in_doubt"] == 1

    async def agree(asked: SentRequest) -> web.StreamResponse:
        width, height = asked.size
        if height > width:
            return says(chinese)
        if begins_with_title(asked.image):
            return says((upper(height) + table(height)).replace(TEXTS["first"], foreign))
        return says(last(HEIGHT - height))

    layout, asked, _ = one(agree, most_outside=1.0)
    assert len(asked) == 3
    assert [region.text is None for region in layout.regions] == [False] * len(layout.regions)


def test_what_a_picture_says_is_a_text_and_unknown_labels_are_text_and_counted():
    sheet = Sheet(WIDTH, HEIGHT)
    sheet.picture(100, 100, 600, 400)
    sheet.paragraph(100, 700, 900, 4)
    answer = f"{tag('image', (100, 100, 700, 500))}\n그림 속 글\n{tag('stamp', (95, 695, 1050, 860))}\n본문"
    (layout,), _, figures = laid_out(always(answer), sheet.page())
    assert texts(layout) == [("image", None), ("text", "그림 속 글"), ("text", "본문")]
    assert layout.regions[0].task is Task.SKIP
    assert figures["labels_unknown"] == 1


def test_a_text_where_nothing_is_printed_is_not_taken():
    layout, _, figures = one(always(WHOLE + tag("text", (100, 1600, 1100, 1700)) + "\n지어낸 글"))
    assert texts(layout) == [*GOOD, ("text", None)]
    assert figures["texts_without_ink"] == 1


def test_several_boxes_are_one_text_or_several_pictures():
    both = "<|ref|>text<|/ref|><|det|>[[80, 50, 900, 300], [80, 680, 900, 860]]<|/det|>\n두 단에 걸친 글"
    pictures = "<|ref|>image<|/ref|><|det|>[[80, 50, 400, 300], [500, 50, 900, 300]]<|/det|>"
    layout, _, _ = one(always(f"{both}\n{pictures}"), most_outside=1.0, halves_share=0.0)
    assert [region.label for region in layout.regions][:3] == ["text", "image", "image"]
    assert layout.regions[0].bbox[1] < 100
    assert layout.regions[0].bbox[3] > 1500


def test_placeholders_are_pruned_and_counted():
    layout, _, figures = one(always(WHOLE.replace("<td>-</td>", "<td>-</td><td>None</td><td>N/A</td>")))
    assert texts(layout)[3] == ("table", HTML.replace("<td>-</td>", "<td>-</td><td></td><td></td>"))
    assert figures["cells_pruned"] == 2


def test_a_server_that_resizes_pages_is_an_error():
    async def reply(asked: SentRequest) -> web.StreamResponse:
        choice = {"index": 0, "message": {"role": "assistant", "content": WHOLE}, "finish_reason": "stop"}
        return web.json_response({"choices": [choice], "usage": {"prompt_tokens": 273, "completion_tokens": 9}})

    pages = [replace(drawn_page(), page_id=f"p_{at}") for at in range(4)]
    with pytest.raises(EngineError, match="it resizes pictures or has another template"):
        laid_out(reply, *pages)


def test_the_recipe_follows_what_changes_results_only():
    def recipe(server: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
        return DeepSeekOcrLayout(server=server_of(**(server or {})), **fields).recipe()

    assert recipe() == recipe({"max_num_seqs": 7}, processes=3)
    for change in (
        {"prompt": "?"},
        {"halves_share": 0.5},
        {"tasks": {"header": "text"}},
        {"server": {"revision": "r2"}},
    ):
        assert recipe(**change) != recipe()  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tasks": {"blob": "text"}}, "layout.tasks: blob is no label"),
        ({"server": server_of(max_model_len=16384)}, "takes 8192 tokens"),
        ({"server": server_of(max_image_tokens=1000), "ocr2": True}, "less than the 1121"),
    ],
)
def test_what_cannot_work_is_refused(fields: dict[str, Any], said: str):
    with pytest.raises(Exception, match=said):
        DeepSeekOcrLayout(**{"server": server_of(), **fields})


@given(st.one_of(PIECES, st.text()), st.sampled_from(["stop", "length"]))
def test_any_answer_gives_regions_inside_the_page(answer: str, finish_reason: str):
    found = page_answer(
        ChatAnswer(answer, finish_reason, 1), (0.0, 100.0, 200.0, 300.0), frozenset({"HANGUL", "LATIN"})
    )
    for region in found.regions:
        x1, y1, x2, y2 = region.bbox
        assert 0 <= x1 < x2 <= 200
        assert 100 <= y1 < y2 <= 300


def granted(tries: RetryBudget, wanted: dict[int, bool], order: list[int]) -> set[int]:
    """Return the pages that get a retry, after checking that each is decided once."""
    decided = [decision for number in order for decision in tries.note_answer(number, wanted[number])]
    assert sorted(number for number, _ in decided) == sorted(number for number in wanted if wanted[number])
    return {number for number, yes in decided if yes}


@given(st.data())
def test_the_first_pages_of_each_shard_get_them_in_any_order_of_answers(data: st.DataObject):
    shards = data.draw(st.lists(st.lists(st.booleans(), min_size=1, max_size=12), min_size=1, max_size=3))
    share = data.draw(st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]))
    tries, wanted, expected = RetryBudget(share), dict[int, bool](), set[int]()
    for at, pages in enumerate(shards):
        numbers = range(len(wanted), len(wanted) + len(pages))
        for number, wants in zip(numbers, pages, strict=True):
            tries.note_request(number, Batch(f"shard_{at}", len(pages)))
            wanted[number] = wants
        most = max(1, int(share * len(pages))) if share else 0
        expected |= set([number for number in numbers if wanted[number]][:most])
    assert granted(tries, wanted, data.draw(st.permutations(list(wanted)))) == expected


@given(st.permutations(range(30)))
def test_pages_of_no_shard_count_those_before_them(order: list[int]):
    tries = RetryBudget(0.1)
    for number in range(30):
        tries.note_request(number, None)
    assert granted(tries, dict.fromkeys(order, True), order) == {0, 19, 29}


def test_a_page_waits_only_for_what_can_change_its_turn():
    tries, batch = RetryBudget(0.5), Batch("shard_00", 4)
    for number in range(4):
        tries.note_request(number, batch)
    assert tries.note_answer(1, True) == [(1, True)]  # it gets one of the two retries whatever page 0 answers
    assert tries.note_answer(3, True) == []
    assert tries.note_answer(2, False) == []
    assert tries.note_answer(0, False) == [(3, True)]
