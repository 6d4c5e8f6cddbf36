"""Known texts are taken, the others are read, and every region comes out once."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopub.layout.regions import Region, Task
from kopub.pages.page import Page
from kopub.recognition import known_texts as module
from kopub.recognition.known_texts import KnownText, LineSample, PageToRead, agree, known_texts, read_unknown
from kopub.recognition.regions import Crop, PageReading, RegionText, TextOrigin, page_reading, skipped
from kopub.states import State

BOX = (0.0, 0.0, 10.0, 10.0)
SentRequest = list[tuple[str, list[int]]]


def region(index: int, text: str | None = None, task: Task = Task.TEXT) -> Region:
    label = {Task.TABLE: "table", Task.SKIP: "image", Task.ABANDON: "header"}.get(task, "text")
    return Region(index, label, task, 1.0, BOX, text=text)


def page(page_id: str, *regions: Region, reread: Sequence[Task] = ()) -> PageToRead:
    return PageToRead(Page(page_id, b""), regions, known_texts(regions, reread))


class Reader:
    """A recognizer that cuts pictures and answers two pages late; `lost` pages fail."""

    def __init__(self, *lost: str) -> None:
        self.asked: SentRequest = []
        self.calls = 0
        self._lost = lost

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        self.calls += 1
        held: list[PageReading] = []
        for taken, regions in pages:
            self.asked.append((taken.page_id, [region.index for region in regions]))
            held.append(self._reading(taken.page_id, regions))
            if len(held) > 2:
                yield held.pop(0)
        yield from held

    def _reading(self, page_id: str, regions: Sequence[Region]) -> PageReading:
        if page_id in self._lost:
            return PageReading(page_id, State.FAILED, "no answer")
        if not regions:
            return PageReading(page_id, State.BLANK)
        texts = [
            skipped(each.index, each.label) if each.task is Task.SKIP else RegionText(each.index, each.label, "read")
            for each in regions
        ]
        crops = [
            Crop(f"crops/{page_id}_{each.index}.jpg", BOX, "image", b"") for each in regions if each.label == "image"
        ]
        return page_reading(page_id, texts, crops)


def test_only_what_is_not_known_is_asked_for_and_each_text_says_where_it_is_from():
    reader = Reader()
    given_page = page("p", region(0, "제목"), region(1), region(2, task=Task.SKIP), region(3, "끝"))
    (reading,) = read_unknown(reader.read, [given_page])
    assert reader.asked == [("p", [1, 2])]
    assert [(text.index, text.content, text.origin) for text in reading.regions] == [
        (0, "제목", TextOrigin.LAYOUT),
        (1, "read", TextOrigin.RECOGNIZER),
        (2, "", None),
        (3, "끝", TextOrigin.LAYOUT),
    ]
    assert [text.finish_reason for text in reading.regions] == ["given", "stop", "skipped", "given"]
    assert (reading.state, len(reading.crops)) == (State.OK, 1)


def test_a_page_of_which_everything_is_known_goes_past_the_recognizer():
    reader = Reader()
    (reading,) = read_unknown(reader.read, [page("p", region(0, "가"))])
    assert (reading.state, reader.calls) == (State.OK, 0)


def test_named_tasks_are_read_again_and_blank_texts_and_what_nobody_reads_are_not_known():
    regions = [region(0, "가"), region(1, "<table>", Task.TABLE), region(2, " "), region(3, "머리", Task.ABANDON)]
    assert known_texts(regions) == {0: KnownText("가", TextOrigin.LAYOUT), 1: KnownText("<table>", TextOrigin.LAYOUT)}
    assert list(known_texts(regions, {Task.TABLE})) == [0]


def test_other_origins_keep_their_name():
    pages = [PageToRead(Page("p", b""), [region(0)], {0: KnownText("글", TextOrigin.TEXT_LAYER)})]
    (reading,) = read_unknown(Reader().read, pages)
    assert [text.origin for text in reading.regions] == [TextOrigin.TEXT_LAYER]


def test_a_page_that_the_recognizer_lost_is_lost_and_one_with_a_lost_region_is_partial():
    (lost,) = read_unknown(Reader("p").read, [page("p", region(0, "가"), region(1))])
    assert (lost.state, lost.reason) == (State.FAILED, "no answer")

    def one_fails(pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        for taken, _ in pages:
            yield page_reading(taken.page_id, [RegionText(1, "text", "", State.FAILED, "loop")], ())

    (partial,) = read_unknown(one_fails, [page("p", region(0, "가"), region(1))])
    assert (partial.state, len(partial.regions)) == (State.PARTIAL, 2)
    assert "region 1 (text): loop" in str(partial.reason)


KINDS = st.sampled_from(["known", "mixed", "unknown", "bare"])


@given(st.lists(KINDS, max_size=40), st.integers(1, 5))
def test_every_page_comes_out_once_with_all_its_regions(kinds: list[str], most: int):
    made = {
        "known": [region(0, "가"), region(1, "나")],
        "mixed": [region(0, "가"), region(1)],
        "unknown": [region(0), region(1)],
        "bare": [],
    }
    pages = [page(f"p_{at}", *made[kind]) for at, kind in enumerate(kinds)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MOST_WAITING", most)
        reader = Reader()
        readings = {reading.page_id: reading for reading in read_unknown(reader.read, iter(pages))}
    assert sorted(readings) == sorted(each.page.page_id for each in pages)
    for at, kind in enumerate(kinds):
        texts = readings[f"p_{at}"].regions
        assert [text.index for text in texts] == ([] if kind == "bare" else [0, 1])
        from_layout = {"known": 2, "mixed": 1}.get(kind, 0)
        assert sum(text.origin is TextOrigin.LAYOUT for text in texts) == from_layout
    assert len(reader.asked) == sum(kind != "known" for kind in kinds)


def test_pages_are_taken_lazily_and_known_ones_do_not_pile_up():
    taken = 0

    def endless() -> Iterator[PageToRead]:
        nonlocal taken
        while True:
            taken += 1
            yield page(f"p_{taken}", region(0, "가" if taken > 1 else None))

    readings = read_unknown(Reader().read, endless())
    for _ in range(200):
        next(readings)
    assert taken <= 200 + module._MOST_WAITING + 1


def test_a_recognizer_that_ends_early_ends_it():
    def gives_up(pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        return iter(())

    assert list(read_unknown(gives_up, [page("p", region(0))])) == []


# Claimed texts


def with_layer(*samples: str) -> PageToRead:
    claimed = {at: KnownText(text, TextOrigin.TEXT_LAYER) for at, text in ((0, "read!"), (1, "something else"))}
    regions = [region(0), region(1), region(2, task=Task.SKIP)]
    return PageToRead(Page("p", b""), regions, claimed=claimed, samples=[LineSample(text, BOX) for text in samples])


def test_claimed_texts_are_taken_where_every_sample_reads_as_it_should():
    reader = Reader()
    (reading,) = read_unknown(reader.read, [with_layer("Re ad.", "rea")])
    assert reader.asked == [("p", [2, 3, 4])], "no claimed region, the picture, and two samples"
    assert [text.content for text in reading.regions] == ["read!", "something else", ""]
    assert reading.crops


@pytest.mark.parametrize("samples", [["something else"], ["read", "something else"]])
def test_a_page_with_a_sample_that_reads_otherwise_is_read_and_keeps_what_its_readings_agree_with(samples: list[str]):
    reader = Reader()
    found = {
        reading.page_id: reading for reading in read_unknown(reader.read, [with_layer(*samples), page("q", region(0))])
    }
    assert len(reader.asked) == 3
    assert reader.asked[-1] == ("p", [0, 1, 2])
    texts = found["p"].regions
    assert [(text.index, text.content, text.origin) for text in texts] == [
        (0, "read!", TextOrigin.TEXT_LAYER),
        (1, "read", TextOrigin.RECOGNIZER),
        (2, "", None),
    ]
    assert len(found["p"].crops) == 1


def test_a_page_with_such_a_sample_has_the_parts_that_its_readings_agree_with():
    parts = {0: "re△d", 1: "something else"}
    page = replace(with_layer("something else"), claimed={}, parts=parts)
    (reading,) = read_unknown(Reader().read, [page])
    assert [text.content for text in reading.regions] == ["re△d", "read", ""]


def test_faint_print_that_is_read_as_nothing_keeps_its_claimed_text():
    def read(pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        for taken, regions in pages:
            yield page_reading(taken.page_id, [RegionText(each.index, each.label, " ") for each in regions], ())

    (reading,) = read_unknown(read, [with_layer("read")])
    assert [text.content for text in reading.regions] == ["read!", "something else", " "]


@pytest.mark.parametrize("failing", [(3,), (0, 3), ()], ids=["its sample", "its sample and a region", "left out"])
def test_a_sample_that_failed_or_was_left_out_proves_nothing(failing: tuple[int, ...]):
    def read(pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        for taken, regions in pages:
            texts = [
                RegionText(each.index, each.label, "read", State.FAILED if each.index in failing else State.OK)
                for each in regions
                if failing or each.index != 3
            ]
            yield page_reading(taken.page_id, texts, ())

    (reading,) = read_unknown(read, [with_layer("read")])
    contents = {text.index: (text.state, text.origin) for text in reading.regions}
    assert contents[1] == (State.OK, TextOrigin.RECOGNIZER), "the layer claims something else"
    own = (State.FAILED, TextOrigin.RECOGNIZER) if 0 in failing else (State.OK, TextOrigin.TEXT_LAYER)
    assert contents[0] == own


@pytest.mark.parametrize(
    ("told", "read", "agrees"),
    [
        ("이 문서는 데비안을 설치하는", "이 문 서는 데비안올 설치하는", True),
        ("이 문서는 데비안을 설치하는", "나의 집은 바닷가에 있습니다", False),
        ("12,500 won on 3 May", "12,500 won on 8 May", True),
        ("12,500 won on 3 May", "98,411 won on 7 May", False),
        ("a reader", "", False),
        ("...", "", True),
    ],
)
def test_a_reading_of_the_same_print_agrees_in_spite_of_mistakes(told: str, read: str, agrees: bool):
    assert agree(told, read) is agrees
