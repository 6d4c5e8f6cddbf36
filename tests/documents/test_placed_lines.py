"""Placement of the lines of a text over its picture."""

from itertools import pairwise

import pytest

from kopub.boxes import Box
from kopub.documents.searchable_pdf import placed_lines

WORDS = "화면 밝기를 조절하려면 시스템 메뉴를 누릅니다. " * 8


@pytest.mark.parametrize(
    ("text", "box", "lines"),
    [
        ("첫째 줄\n\n둘째", (10.0, 20.0, 110.0, 60.0), ["첫째 줄", "둘째"]),
        ("한 줄", (0.0, 0.0, 100.0, 20.0), ["한 줄"]),
        ("세로 쓴 글", (0.0, 0.0, 20.0, 300.0), ["세로", "쓴", "글"]),
        (" \n\t", (0.0, 0.0, 1.0, 1.0), []),
    ],
)
def test_lines_of_a_text_lie_below_each_other(
    text: str, box: tuple[float, float, float, float], lines: list[str]
) -> None:
    assert [line.text for line in placed_lines(text, Box(*box))] == lines


@pytest.mark.parametrize("text", [WORDS, "x" * 500, "가" * 40 + " b"])
@pytest.mark.parametrize("box", [(100.0, 100.0, 900.0, 300.0), (0.0, 0.0, 10.0, 900.0), (5.0, 5.0, 5.0, 5.0)])
def test_a_paragraph_fills_its_box_and_no_word_is_cut(text: str, box: tuple[float, float, float, float]) -> None:
    placed = placed_lines(text, Box(*box))
    assert " ".join(line.text for line in placed).split() == text.split()
    boxes = [line.box for line in placed]
    assert (boxes[0].y1, boxes[-1].y2) == (box[1], pytest.approx(max(box[3], box[1] + 1)))
    assert all(above.y2 == pytest.approx(below.y1) for above, below in pairwise(boxes))
    assert max(each.x2 for each in boxes) == pytest.approx(max(box[2], box[0] + 1))
    assert {each.x1 for each in boxes} == {box[0]}


def test_a_paragraph_has_as_many_lines_as_its_box_has_room_for() -> None:
    assert len(placed_lines(WORDS, Box(0.0, 0.0, 800.0, 200.0))) < len(placed_lines(WORDS, Box(0.0, 0.0, 200.0, 800.0)))
