"""Parsing of grounded answers: all forms of tags, quirks of real answers, no lost letters."""

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopub.recognition.deepseek_layout.answer import _STRAY, _TAG, OURS, TITLES, UNKNOWN, LabelledText, parse


def tag(label: str, *box: int) -> str:
    return f"<|ref|>{label}<|/ref|><|det|>[[{', '.join(map(str, box))}]]<|/det|>"


def shares(*box: int) -> Any:
    return tuple(pytest.approx(edge / 999) for edge in box)


def written(answer: str) -> list[tuple[str, str]]:
    return [(block.label, block.text) for block in parse(answer)]


KOREAN = f"""이어지는 문단의 끝이다.

{tag("sub_title", 217, 209, 520, 225)}
## 2.1 지역별 인구

{tag("text", 217, 230, 785, 321)}
2023년 인구는 \\(5{{,}}132\\)만 명이다.

{tag("table", 225, 421, 777, 595)}
{tag("table_caption", 217, 342, 785, 413)}
표 1. 지역별 인구

<table><tr><td>서울</td><td>-</td></tr></table>

{tag("image", 100, 600, 500, 800)}
{tag("image_caption", 100, 810, 500, 830)}
<center>그림 1. 추이</center>
"""


def test_a_page_as_the_model_writes_it():
    assert written(KOREAN) == [
        ("", "이어지는 문단의 끝이다."),
        ("sub_title", "## 2.1 지역별 인구"),
        ("text", "2023년 인구는 \\(5{,}132\\)만 명이다."),
        # Printed above the table, although the table's tag comes first.
        ("table_caption", "표 1. 지역별 인구"),
        ("table", "<table><tr><td>서울</td><td>-</td></tr></table>"),
        ("image", ""),
        ("image_caption", "<center>그림 1. 추이</center>"),
    ]
    blocks = parse(KOREAN)
    assert blocks[0].boxes == ()
    assert blocks[1].boxes == (shares(217, 209, 520, 225),)
    assert [block.is_last for block in blocks] == [False] * 6 + [True]


@pytest.mark.parametrize(
    "answer",
    [
        tag("text", 0, 10, 999, 20) + "\n글",
        "<｜ref｜>text<｜/ref｜><｜det｜>[[0, 10, 999, 20]]<｜/det｜>\n글",
        "＜|ref|＞text＜|/ref|＞＜|det|＞[[0, 10, 999, 20]]＜|/det|＞\n글",
        "text[[0, 10, 999, 20]]\n글",
        "<|det|>text [0, 10, 999, 20]<|/det|>글",
        "<|ref|>Text<|/ref|> <|det|>[[ 0,10 ,999, 20 ]]<|/det|> 글",
        "<|ref|>text<|/ref|><|det|>[[999, 20, 0, 10]]<|/det|>\n글",
    ],
)
def test_every_form_of_a_tag(answer: str):
    assert parse(answer) == (LabelledText("text", (shares(0, 10, 999, 20),), "글", is_last=True),)


@pytest.mark.parametrize(
    ("boxes", "found"),
    [
        ("[[1, 2, 3, 4], [5, 6, 7, 8]]", 2),
        ("[[1, 2, 3, 4], [5, 6", 1),
        ("[[1, 2, 1, 4]]", 0),
        ("[[1, 2, 3]]", 0),
        ("[[-5, 2, 1500, 4]]", 1),
        ("[]", 0),
    ],
)
def test_boxes_that_can_be_used(boxes: str, found: int):
    (block,) = parse(f"<|ref|>text<|/ref|><|det|>{boxes}<|/det|>\n글")
    assert (block.label, block.text, len(block.boxes)) == ("text", "글", found)
    assert all(0 <= edge <= 1 for box in block.boxes for edge in box)


@pytest.mark.parametrize(
    ("answer", "blocks"),
    [
        ("", []),
        ("글", [("", "글")]),
        ("글 <|ref|>te", [("", "글")]),
        ("글 <|ref", [("", "글")]),
        ("글 <|ref|>text<|/ref|><|det|>[[12, 34", [("", "글")]),
        (f"{tag('text', 1, 2, 3, 4)}\n글 <|/ref|> 나 <|/det|>", [("text", "글  나")]),
        ("<|det|>[[1, 2, 3, 4]]<|/det|>글", [("", "글")]),
        ("<|ref|>text<|/ref|>글", [("text", "글")]),
        ("<|ref|>글과 그림<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>", [("", "글과 그림")]),
        ("a < b |ref| matrix[[1, 2, 3, 4]] c", [("", "a < b |ref| matrix[[1, 2, 3, 4]] c")]),
        ("x[[1, 2, 3, 4]]\n글", [("", "x[[1, 2, 3, 4]]\n글")]),
    ],
)
def test_cut_and_damaged_tags(answer: str, blocks: list[tuple[str, str]]):
    assert written(answer) == blocks


def test_html_under_notes_and_captions_goes_to_its_table_and_no_further():
    caption, note, table = tag("table_caption", 1, 1, 9, 2), tag("table_footnote", 1, 8, 9, 9), tag("table", 1, 3, 9, 7)
    html = "<table><tr><td>1</td></tr></table>"
    assert written(f"{table}\n{note}\n주\n{caption}\n표 1\n{html}\n뒤") == [
        ("table", f"{html}\n뒤"),
        ("table_footnote", "주"),
        ("table_caption", "표 1"),
    ]
    # The next table has its own HTML; text under a text's tag stays there.
    assert written(f"{table}\n{table}\n{html}") == [("table", ""), ("table", html)]
    assert written(f"{table}\n{tag('text', 1, 8, 9, 9)}\n{html}") == [("table", ""), ("text", html)]


PIECES = st.lists(
    st.one_of(
        st.text("가나다ab1 \n.#<>|", max_size=8),
        st.sampled_from(
            ["<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>", "[[1, 2, 3, 4]]", "text", "<table>", "｜", "＜"]
        ),
        st.sampled_from(sorted(OURS)).map(lambda label: tag(label, 1, 2, 30, 40)),
        st.sampled_from(sorted(OURS)).map(lambda label: f"\n{label}[[1, 2, 30, 40]]\n"),
    ),
    max_size=12,
).map("".join)


@given(st.one_of(PIECES, st.text()))
def test_no_letter_outside_of_tags_is_lost_and_nothing_raises(answer: str):
    found = "".join(block.text for block in parse(answer))
    kept, outside = (Counter(re.sub(r"[\W_]", "", text)) for text in (found, _STRAY.sub("", _TAG.sub("", answer))))
    # Words that stand in place of a label are kept too.
    assert outside <= kept


@given(st.lists(st.tuples(st.sampled_from(sorted(OURS)), st.text("가나다 .\n", max_size=9)), max_size=8))
def test_letters_of_a_whole_answer_are_those_of_its_blocks(parts: list[tuple[str, str]]):
    answer = "\n".join(f"{tag(label, 5, 5 * at, 900, 5 * at + 4)}\n{text}" for at, (label, text) in enumerate(parts))
    found = sorted("".join("".join(block.text for block in parse(answer)).split()))
    assert found == sorted("".join("".join(text for _, text in parts).split()))


@given(st.integers(1, 200))
def test_a_cut_anywhere_loses_no_block_before_it(length: int):
    whole, cut = parse(KOREAN), parse(KOREAN[:length])
    assert len(cut) <= len(whole)
    assert [block.label for block in cut[:-1]] == [block.label for block in whole[: max(0, len(cut) - 1)]]


# Answers from docling's tests, with the documents that docling makes of them (MIT).
REFERENCE = Path(os.environ.get("KOPUB_TEST_EVAL_REFERENCE", "")) / "deepseek_grounded"
ITS = {"title": "title", "section_header": "sub_title", "text": "text", "caption": "caption", "picture": "image"}


def in_order(document: dict[str, Any]) -> list[tuple[str, str, Any]]:
    """Return (label, text, box of shares) of docling's items in order, tables as joined cells."""
    size = next(iter(document["pages"].values()))["size"]
    items = []
    for child in document["body"]["children"]:
        _, kind, number = child["$ref"].split("/")
        item = document[kind][int(number)]
        box = item["prov"][0]["bbox"] if item["prov"] else {}
        edges = [box.get("l", 0) / size["width"], box.get("t", 0) / size["height"]]
        edges += [box.get("r", 0) / size["width"], box.get("b", 0) / size["height"]]
        text = " ".join(cell["text"] for cell in item["data"]["table_cells"]) if kind == "tables" else item.get("text")
        items.append((item["label"], text or "", edges))
    return items


@pytest.mark.skipif(
    not REFERENCE.is_dir(),
    reason="no answers of docling's tests: KOPUB_TEST_EVAL_REFERENCE=FOLDER make test",
)
@pytest.mark.parametrize("name", ["deepseek_example", "deepseek_simple", "deepseek_title"])
def test_real_answers_have_the_structure_that_docling_gives_them(name: str):
    answer = (REFERENCE / "sources" / f"{name}.md").read_text("utf-8")
    expected = in_order(json.loads((REFERENCE / "groundtruth" / f"{name}.md.json").read_text("utf-8")))
    blocks = list(parse(answer))
    if blocks[0].label == "":
        blocks = blocks[1:]  # docling drops what stands before the first tag
    found = []
    for block in blocks:
        text = re.sub(r"^#+\s*", "", block.text) if OURS.get(block.label, UNKNOWN) in TITLES else block.text
        if block.label == "table":
            text = " ".join(re.sub(r"</t[dh]>|<[^>]*>", "\0", text).replace("\0", " ").split())
        found.append(("caption" if block.label.endswith("caption") else block.label, " ".join(text.split()), block))
    wanted = [(ITS.get(label, label), " ".join(text.split()), edges) for label, text, edges in expected]
    # docling puts every caption before what it belongs to; a caption below stays below here.
    assert sorted(each[:2] for each in found) == sorted(each[:2] for each in wanted)
    without_captions = [[each[:2] for each in each_list if each[0] != "caption"] for each_list in (found, wanted)]
    assert without_captions[0] == without_captions[1]
    places = {each[:2]: each[2] for each in wanted}
    for label, text, block in found:
        # docling divides by 1,000 where the authors divide by 999.
        assert block.boxes[0] == pytest.approx(places[label, text], abs=2e-3)
