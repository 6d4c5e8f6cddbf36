"""Readings completed by what a text layer has of their regions."""

import pytest

from kopub.pages.nameless import nameless
from kopub.recognition.printed_parts import with_print
from kopub.recognition.regions import RegionText, TextOrigin
from kopub.states import State

OPEN, CLOSE, PER_CENT = map(nameless, (0x33D6, 0x33D7, 0x369C))
TABLE = "<table><tr><td>{}</td><td>{}</td></tr><tr><td>{}</td><td>{}</td></tr></table>"


@pytest.mark.parametrize(
    ("label", "read", "printed", "content"),
    [
        ("text", "계약 금액은 A48,163원", "계약 금액은 △48,163원", "계약 금액은 △48,163원"),
        ("text", "", "빈 구역의 글자", "빈 구역의 글자"),
        ("text", "사진 속에 쓰인 긴 글이 여기에 있다 그림 1", "그림 1", "사진 속에 쓰인 긴 글이 여기에 있다 그림 1"),
        ("text", "사진 속에 쓰인 긴 글이 여기에 있다", "표 12", "사진 속에 쓰인 긴 글이 여기에 있다\n표 12"),
        ("text", ": _ 『 」 『「 :", "연평균 상승률 15.2", "연평균 상승률 15.2"),
        ("display_formula", r"x^{2} + \frac{y}{z}", "x2 + yz", r"x^{2} + \frac{y}{z}"),
        ("display_formula", "개 = Wz — mtd 는", "ωzh,t − mzh,t = 0 (33)", "ωzh,t − mzh,t = 0 (33)"),
        ("table", TABLE.format("가나다", "1,204", "라마바", "3I0"), "가나다 1,204 라마바 310",
         TABLE.format("가나다", "1,204", "라마바", "310")),
        ("table", TABLE.format("가 나", "A1,2O4", "", "<b"), TABLE.format("가나", "△1,204", "", "b&amp;c"),
         TABLE.format("가나", "△1,204", "", "b&amp;c")),
        ("table", TABLE.format("가나다", "1,204", "라마바", "310"), "라마바 310 가나다 1,204",
         TABLE.format("가나다", "1,204", "라마바", "310")),
        ("table", TABLE.format("성 명", "1,204", "금액", "1,237"), "1,237",
         TABLE.format("성 명", "1,204", "금액", "1,237")),
        ("table", TABLE.format("유지와 보수에 드는 경비", "12 (3)", "1,204", "3"),
         "유지와 12 1,204 보수에 드는 경비 (3) 3", TABLE.format("유지와 보수에 드는 경비", "12 (3)", "1,204", "3")),
        ("table", "품목 : 수량\n제 …1품목 16", TABLE.format("품목", "수량", "제1품목", "△6"),
         TABLE.format("품목", "수량", "제1품목", "△6")),
        ("table", TABLE.format(". . . . . .", "peccee . .", "", ". . ."), "사과 배 감자 오이", "사과 배 감자 오이"),
        ("table", TABLE.format("02040", ". : ~ . e", "~ = - - e", "… @ …"), TABLE.format("0", "20", "40", ""),
         TABLE.format("0", "20", "40", "")),
        ("table", TABLE.format("사진에 쓰인 글", "80", "그림에 쓰인 글", "20"), "0 20",
         TABLE.format("사진에 쓰인 글", "80", "그림에 쓰인 글", "20") + "\n0 20"),
        ("text", "(69.3%) 88.1l", f"{OPEN}69.3{PER_CENT}{CLOSE} 88.1{PER_CENT}", "(69.3%) 88.1%"),
        ("table", TABLE.format("(1)", "(2)", "(3l", "(4)"),
         TABLE.format(*(f"{OPEN}{at}{CLOSE}" for at in range(1, 5))), TABLE.format("(1)", "(2)", "(3)", "(4)")),
        ("text", "차례 . . . . . . 3", "", "차례 … 3"),
        ("paragraph_title", "고", "", ""),
        ("paragraph_title", "| [", "", ""),
        ("number", "7", "", "7"),
    ],
)  # fmt: skip
def test_what_is_printed_stays_and_what_is_no_text_goes(label: str, read: str, printed: str, content: str):
    assert with_print(RegionText(0, label, read), printed).content == content


def test_a_failed_region_has_what_its_layer_has():
    found = with_print(RegionText(0, "text", "", State.FAILED, "no answer"), "글자는 있다")
    assert (found.content, found.state, found.reason) == ("글자는 있다", State.OK, None)
    assert found.origin is TextOrigin.TEXT_LAYER
    failed = RegionText(0, "text", "", State.FAILED, "no answer")
    assert with_print(failed, "").state is State.FAILED


def test_letters_that_only_the_picture_names_are_read_in_doubt():
    found = with_print(RegionText(0, "text", "a1 b1 c"), f"a{OPEN} b{OPEN} c")
    assert (found.content, found.reason) == (
        "a1 b1 c",
        "2 letters whose font does not name them were read from the picture",
    )
    assert with_print(RegionText(0, "text", "a( b( c"), f"a{OPEN} b{OPEN} c").reason is None
    assert with_print(RegionText(0, "text", "a b c"), f"a{OPEN} b{OPEN} c").content == "a\ufffd b\ufffd c"
