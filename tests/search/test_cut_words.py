"""Words that a line's end cuts are whole in page texts, the index of words, vectors and passages."""

from pathlib import Path

import pytest

from kopub.documents.page_text import text_of_page
from kopub.search.morphemes import query_tokens, tokens
from kopub.search.options import Mode
from tests.search.test_search import made, searcher

FILLER = "데비안은 누구나 자유롭게 쓰고 고칠 수 있는 배포판이다."
CUT = "이 배포판에는 현재 오만 구천 개가 넘는 자유로운 소\n프트웨어 패키지가 있으며 그 목록을 아래에서 설명합\n니다."
WHOLE = "이 배포판에는 현재 오만 구천 개가 넘는 자유로운 소프트웨어\n패키지가 있으며 그 목록을 아래에서 설명합니다."


def region(content: str, label: str = "text", **values: object) -> dict:
    box = [100, 100, 900, 100 + 25 * len(content.split("\n"))]
    known = {"index": 0, "native_label": label, "content": content, "state": "ok", "bbox_2d": box, "origin": None}
    return {**known, **dict.fromkeys(("reason", "finish_reason", "attempts", "seconds", "scale")), **values}


def text(content: str, label: str = "text") -> str:
    return text_of_page([region(content, label)], 1654, 2339)


@pytest.mark.parametrize(
    ("printed", "is_read"),
    [
        (CUT, WHOLE),
        (
            "The configuration of every package is an exam-\nple of what the installer does",
            "The configuration of every package is an example\nof what the installer does",
        ),
        ("제목:\n" + CUT, "제목:\n" + WHOLE),
        ("```\n" + CUT + "\n```", CUT),
        ("짧은 줄\n들이다", "짧은 줄\n들이다"),
    ],
)
def test_a_word_that_a_line_s_end_cuts_is_whole_in_its_line(printed: str, is_read: str):
    assert text(printed) == is_read


def test_titles_continue_over_short_lines_and_tables_stay():
    assert text("데비\n안이란", "paragraph_title") == "데비안이란"
    assert text("<table><tr><td>소\n프트웨어</td></tr></table>", "table") == "소 프트웨어"


def test_a_line_that_the_reader_set_is_no_line_of_print():
    tall = region(CUT, bbox_2d=[100, 100, 900, 900])
    assert text_of_page([tall], 1654, 2339) == CUT


def test_search_finds_and_shows_the_whole_word(tmp_path: Path):
    printed = "\n".join([FILLER, CUT.replace("니다.", "니다.\n" + FILLER), *[FILLER] * 20])
    platform = made(tmp_path, a_2=printed)
    assert "소프트웨어" in platform.rows("parsed_texts")["a_2"]["text"]
    for mode in (Mode.BM25, Mode.TEXT):
        best = searcher(platform).search("소프트웨어", mode=mode).hits[0]
        assert best.page.page_id == "a_2"
        assert "소프트웨어" in best.match.passage.text


@pytest.mark.parametrize(
    ("page", "query"),
    [
        ("모두 2,310건을 처리했다", "2310"),
        ("모두 2310건을 처리했다", "2,310건"),
        ("넓이는 25㎡이다", "25m2"),
        ("넓이는 25 ㎡이다", "25㎡"),
        ("무게는 3.5kg이다", "3.5 kg"),
        ("\u1112\u116c\u110b\u1174\u1105\u1169\u11a8을 보냈다", "회의록"),
        ("회의록을 보냈다", "\u1112\u116c\u110b\u1174\u1105\u1169\u11a8"),
        ("정보 공개 청구를 받았다", "정보공개청구"),
        ("정보공개청구를 받았다", "정보 공개 청구"),
        ("ＫＯＰＵＢ ２０２４년 보고", "kopub 2024"),
        ("대한민국(大韓民國)의 헌법(憲法)", "大韓民國 憲法"),
        ("대한민국(大韓民國)의 헌법(憲法)", "대한민국 헌법"),
        ("憲法(헌법)을 고쳤다", "헌법"),
    ],
)
def test_a_query_in_another_form_has_the_words_of_the_page(page: str, query: str):
    (found,), (asked,) = tokens([page]), query_tokens([query])
    assert asked
    # A compound that the page writes apart has its parts there.
    assert set(asked) - {query} <= set(found)
