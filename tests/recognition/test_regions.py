"""Regions of a page are joined with readings by index and determine its state."""

from typing import Any

import cv2
import numpy as np
import pytest

from kopub.boxes import Box
from kopub.errors import StoreError
from kopub.layout import regions as layout
from kopub.layout.regions import Task
from kopub.pages.page import Page, decode
from kopub.recognition.regions import RegionText, TextOrigin, cut_pictures, page_reading, region_texts, skipped
from kopub.states import State
from kopub.texts.regions import Region, join_regions


def region(index: int, label: str = "text", task: str = "text", at: int = 0) -> dict[str, Any]:
    box = [float(at), 0.0, 10.0, 10.0]
    return {
        "index": index, "label": label, "task": task, "score": 0.5, "bbox": box, "bbox_2d": [at, 0, 10, 10],
        "polygon": [[0.0, 0.0], [1.0, 1.0]],
    }  # fmt: skip


def reading(index: int, content: str = "글", at: int = 0) -> dict[str, Any]:
    return {
        "index": index, "label": "text", "native_label": "text", "bbox_2d": [at, 0, 10, 10], "content": content,
        "state": "ok", "reason": None, "finish_reason": "stop", "attempts": 2, "seconds": 0.5,
        "scale": 0.7, "origin": "recognizer",
    }  # fmt: skip


def test_regions_come_by_index_with_their_readings():
    first, second = join_regions("p", [region(1, "table", "table"), region(0)], [reading(1, "표"), reading(0)])
    assert (first.index, first.content, first.kind) == (0, "글", "text")
    assert second == Region(
        1, "table", Task.TABLE, 0.5, Box(0.0, 0.0, 10.0, 10.0), Box(0, 0, 10, 10), ((0.0, 0.0), (1.0, 1.0)),
        "표", State.OK, None, "stop", 2, 0.5, 0.7, TextOrigin.RECOGNIZER,
    )  # fmt: skip
    assert second.kind == "table"
    assert (second.finish_reason, second.attempts, second.seconds, second.scale) == ("stop", 2, 0.5, 0.7)


def test_a_region_without_a_reading_has_no_content():
    (unread,) = join_regions("p", [region(0)], None)
    assert (unread.content, unread.kind, unread.state, unread.attempts) == (None, None, None, None)
    assert join_regions("p", None, None) == []


@pytest.mark.parametrize(
    ("layout", "readings"),
    [([region(0)], [reading(0), reading(7)]), ([region(0, at=5)], [reading(0)]), (None, [reading(0)])],
    ids=["an index too many", "another place", "no layout"],
)
def test_a_reading_of_an_older_layout_is_an_error(layout: Any, readings: Any):
    with pytest.raises(StoreError, match=r"ocr_results of p read another region \d than layout_regions has: "):
        join_regions("p", layout, readings)


@pytest.mark.parametrize(
    ("layout", "readings", "table"),
    [
        ([region(0), region(0)], [], "layout_regions"),
        ([region(0)], [reading(0), reading(0)], "ocr_results"),
    ],
)
def test_an_index_that_stands_twice_is_an_error(layout: Any, readings: Any, table: str):
    with pytest.raises(StoreError, match=f"{table} of p has two regions of one index"):
        join_regions("p", layout, readings)


def test_the_texts_of_a_stored_page_are_those_that_were_read():
    known = {**reading(4, "표"), "origin": "layout"}
    skipped = {**reading(5, ""), "origin": None}
    text, *others = region_texts([reading(3, "글"), known, skipped])
    assert [other.origin for other in others] == [TextOrigin.LAYOUT, None]
    assert (text.index, text.native_label, text.content, text.state, text.attempts) == (3, "text", "글", State.OK, 2)
    assert region_texts(None) == []


OK = RegionText(0, "text", "글")
EMPTY = RegionText(1, "text", "")
BLANK = RegionText(2, "text", "", State.BLANK, "two attempts read nothing")
FAILED = RegionText(3, "table", "앞부분", State.FAILED, "cut off")
PICTURE = skipped(4, "image")


@pytest.mark.parametrize(
    ("texts", "state", "reason"),
    [
        ([], State.OK, None),
        ([OK, BLANK, PICTURE], State.OK, None),
        ([BLANK], State.OK, None),
        ([PICTURE], State.OK, None),
        ([OK, FAILED, PICTURE], State.PARTIAL, "1 of 2 regions failed; region 3 (table): cut off"),
        ([OK, BLANK, FAILED, FAILED], State.PARTIAL, "2 of 4 regions failed; region 3 (table): cut off"),
        ([FAILED], State.FAILED, "1 of 1 regions failed; region 3 (table): cut off"),
        ([FAILED, PICTURE], State.FAILED, "1 of 1 regions failed; region 3 (table): cut off"),
        ([EMPTY, BLANK, FAILED], State.FAILED, "1 of 3 regions failed; region 3 (table): cut off"),
    ],
)
def test_the_state_of_a_page(texts: list[RegionText], state: State, reason: str | None) -> None:
    reading = page_reading("p_1", texts, ())
    assert (reading.state, reading.reason, list(reading.regions)) == (state, reason, texts)


def test_a_picture_longer_than_a_jpeg_may_be_is_kept_smaller() -> None:
    strip = np.tile(np.arange(70_000, dtype=np.uint8)[:, None, None], (1, 20, 3))
    page = Page("comic", cv2.imencode(".png", strip)[1].tobytes())
    (crop,) = cut_pictures(page, [layout.Region(0, "image", Task.SKIP, 0.9, (0.0, 0.0, 20.0, 70_000.0))])
    assert decode(crop.data).shape == (65_500, 18, 3)
