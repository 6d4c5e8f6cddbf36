"""Which regions of a page are figures, what their captions are, and what of the page stands around them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resources.figures.figure import page_figures
from resources.figures.notes import notes_text
from resources.printable import harmless

Box = tuple[int, int, int, int]


def page(*regions: tuple[str, Box, str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The readings and crops of a page with these regions: (label, box, text) in reading order."""
    readings, crops = [], []
    for index, (label, box, text) in enumerate(regions):
        kind = {"image": "image", "chart": "image", "seal": "image", "table": "table"}.get(label, "text")
        readings.append(
            {
                **{"index": index, "label": kind, "native_label": label, "bbox_2d": list(box), "content": text},
                **{
                    "state": "ok",
                    "reason": None,
                    "finish_reason": "stop",
                    "attempts": 1,
                    "seconds": 0.0,
                    "scale": None,
                    "origin": "recognizer",
                },
            }
        )
        if kind == "image":
            bbox = [float(2 * side) for side in box]
            crops.append({"path": f"crops/a_b_1_{index}.jpg", "bbox": bbox, "label": label})
    return readings, crops


BODY = "본문은 전력 사용량을 설명한다."


def test_images_and_charts_that_are_large_enough_are_figures() -> None:
    regions = page(
        ("image", (100, 100, 500, 400), ""),
        ("chart", (100, 500, 500, 800), ""),
        ("seal", (600, 100, 900, 400), ""),
        ("image", (600, 500, 700, 600), ""),
    )
    assert [(f.index, f.label) for f in page_figures(*regions, smallest=0.02)] == [(0, "image"), (1, "chart")]
    assert [f.index for f in page_figures(*regions, smallest=0.01)] == [0, 1, 3]
    assert page_figures(*regions, smallest=0.2) == []
    assert page_figures(None, None, smallest=0.0) == []
    assert page_figures(*regions, smallest=0.02)[0].bbox == (200.0, 200.0, 1000.0, 800.0)


def test_a_caption_is_that_of_the_nearest_figure_or_table() -> None:
    regions = page(
        ("figure_title", (100, 80, 500, 95), "표 1. 예산"),
        ("table", (100, 100, 500, 200), "<table><tr><td>1</td></tr></table>"),
        ("image", (100, 250, 500, 400), ""),
        ("figure_title", (100, 410, 500, 425), "그림 1. 사용량"),
        ("figure_title", (100, 428, 500, 440), "자료: 통계청"),
        ("chart", (100, 700, 500, 900), ""),
        ("figure_title", (600, 600, 900, 620), "그림 9. 다른 곳"),
    )
    first, second = page_figures(*regions, smallest=0.02)
    assert first.caption == "그림 1. 사용량\n자료: 통계청"
    assert second.caption == ""


def test_a_caption_may_stand_beside_its_figure() -> None:
    regions = page(("image", (100, 100, 500, 400), ""), ("figure_title", (520, 200, 700, 260), "그림 2"))
    assert page_figures(*regions, smallest=0.02)[0].caption == "그림 2"


def test_the_context_is_the_nearest_text_without_heads_captions_and_tables() -> None:
    regions = page(
        ("header", (100, 20, 900, 40), "머리글"),
        ("text", (100, 60, 900, 90), "먼 글"),
        ("text", (100, 200, 900, 290), "가까운 글"),
        ("image", (100, 300, 900, 500), ""),
        ("figure_title", (100, 505, 900, 520), "그림 3"),
        ("table", (100, 530, 900, 560), "<table><tr><td>칸</td></tr></table>"),
        ("text", (100, 900, 900, 950), "너무 먼 글"),
    )
    (figure,) = page_figures(*regions, smallest=0.02)
    assert figure.context == "가까운 글"
    lower = page(("image", (100, 260, 900, 500), ""), *[("text", (100, 60, 900, 90), "먼 글"), regions_text()])
    assert page_figures(*lower, smallest=0.02)[0].context.startswith("가까운 글\n먼 글")


def regions_text() -> tuple[str, Box, str]:
    return "text", (100, 510, 900, 600), "가까운 글"


def test_a_long_context_is_cut_at_a_blank() -> None:
    long = " ".join(f"낱말{n}" for n in range(300))
    (figure,) = page_figures(*page(("image", (0, 0, 900, 500), ""), ("text", (0, 510, 900, 900), long)), 0.02)
    assert len(figure.context) <= 500
    assert long.startswith(figure.context)
    assert long[len(figure.context)] == " "


def test_a_failed_region_explains_nothing() -> None:
    readings, crops = page(("image", (0, 0, 900, 500), ""), ("text", (0, 510, 900, 600), BODY))
    assert page_figures(readings, crops, 0.02)[0].context == BODY
    readings[1]["state"] = "failed"
    assert page_figures(readings, crops, 0.02)[0].context == ""


@pytest.mark.parametrize("mark", ["<|im_end|>", "<|vision_start|>", "<｜end▁of▁sentence｜>", "<<|x|>>"])
def test_no_mark_of_a_model_is_left_in_a_text(mark: str) -> None:
    said = harmless(f"그림{mark}1")
    assert not any(part in said for part in ("<|", "|>", "<｜", "｜>"))
    assert said.startswith("그림")


@given(st.text(), st.integers(1, 50))
def test_any_text_becomes_one_harmless_line(text: str, most: int) -> None:
    said = harmless(text, most)
    assert len(said) <= most
    assert all(char.isprintable() for char in said)
    assert "<|" not in said
    assert harmless(said) == said


def test_notes_are_a_text_of_description_keywords_and_data() -> None:
    note = {
        "description": "막대그래프",
        "keywords": ["전력"],
        "data_html": "<table><tr><td>2019</td><td>1</td></tr></table>",
    }
    failed = {"description": "", "keywords": [], "data_html": None}
    assert notes_text([note, failed]) == "막대그래프\n전력\n2019\t1"
    assert notes_text(None) == ""
