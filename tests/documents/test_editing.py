"""Edited documents: nothing is lost or doubled, and only what is certain is changed."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import mean

import pytest
from docling_core.types.doc.document import DoclingDocument
from docling_core.types.doc.items.text import ListItem
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.reading.text_quality import read_pages
from kopub.documents.docling import document_json
from kopub.documents.document import Block, BlockKind, Document
from kopub.documents.joins import glue_lines
from kopub.documents.markdown import document_markdown
from kopub.documents.structure import structure_document
from kopub.folders import SAMPLES
from tests.support.sources.documents import Printed, document

HEAD, FOOT = (100, 30, 900, 45), (480, 960, 520, 975)
LAST, FIRST = (100, 800, 900, 900), (100, 80, 900, 180)
FULL = "데비안 설치 프로그램은 임베디드 장치와 노트북 컴퓨터와 데스크톱 컴퓨터 등 여러가지"
HANGUL = re.compile("[가-힣][가-힣]")
BODY = Printed("text", "본문이다.", (100, 80, 900, 900))


def markdown(of: Document) -> str:
    """Return the markdown of a document without its header comment."""
    return document_markdown(of, structure_document(of).blocks).split("\n", 2)[2].rstrip("\n")


def titles(*texts: str) -> list[tuple[int, str]]:
    of = document([Printed("text", "머리말."), *(Printed("paragraph_title", text) for text in texts)])
    return [(block.level, block.text) for block in structure_document(of).blocks if block.kind is BlockKind.TITLE]


def test_numbers_of_titles_are_levels_in_the_order_of_korean_documents() -> None:
    found = titles("제1장 총칙", "제1절 목적", "1. 개요", "가. 배경", "1) 현황", "(1) 인구", "① 남자")
    assert [level for level, _ in found] == [1, 2, 3, 4, 5, 6, 6]
    assert [level for level, _ in titles("제1장 총칙", "1.1 목적", "1.1.1 배경", "참고", "제2장 조직")] == [
        1,
        2,
        3,
        4,
        1,
    ]
    assert [level for level, _ in titles("1. 개요", "가. 배경", "Ⅰ. 서론")] == [3, 4, 2]


def test_a_year_or_a_month_is_no_number_of_a_title() -> None:
    assert [level for level, _ in titles("1. 개요", "2023년 실적", "3월 계획")] == [2, 3, 3]


def test_a_misread_number_makes_no_level_of_its_own() -> None:
    assert [level for level, _ in titles("제4장 역사", "4.7 6.x 릴리스", "48 7.x 릴리스", "4.9 8.x 릴리스")] == [
        1,
        2,
        2,
        2,
    ]


def test_the_title_of_a_document_is_above_its_chapters() -> None:
    of = document(
        [Printed("doc_title", "설치 안내서"), Printed("doc_title", "제1장"), Printed("doc_title", "데비안\n이란")]
    )
    assert markdown(of) == "<!-- page 1 -->\n\n# 설치 안내서\n\n## 제1장 데비안이란"


@pytest.mark.parametrize(
    ("title", "line"),
    [
        ("• 볼륨 그룹 만들기", "- 볼륨 그룹 만들기"),
        ("으로 충분하다.", "으로 충분하다."),
        ("표 1: 한글 카운터 목록", "표 1: 한글 카운터 목록"),
        ("## 개요", "## 개요"),
    ],
)
def test_what_layout_took_for_a_title(title: str, line: str) -> None:
    assert markdown(document([Printed("text", "앞."), Printed("paragraph_title", title)])).endswith("\n\n" + line)


def test_a_title_keeps_a_printed_number_sign_and_no_reader_s_mark() -> None:
    assert [title for _, title in titles("## C# 언어", "#1 과제", "### 6.3 점검")] == ["C# 언어", "#1 과제", "6.3 점검"]


def test_heads_feet_and_page_numbers_are_left_out() -> None:
    pages = [[Printed("header", f"제 1 장 {n}절", HEAD), BODY, Printed("number", str(n), FOOT)] for n in range(1, 4)]
    of = document(*pages)
    assert markdown(of) == "\n\n".join(f"<!-- page {n} -->\n\n본문이다." for n in range(1, 4))
    assert (structure_document(of).placed, structure_document(of).furniture, structure_document(of).regions) == (
        3,
        6,
        9,
    )


def test_a_line_that_is_called_a_head_on_one_page_only_stays() -> None:
    of = document([BODY, Printed("footer", "* GCC 4.7 on PCs", (100, 894, 400, 907))], [BODY])
    assert "- \\* GCC 4.7 on PCs" in markdown(of)


def test_a_head_that_layout_took_for_text_is_left_out_where_it_repeats() -> None:
    heads = ["옵션들", "옵션들", "보조 패키지"]
    of = document(*([Printed("text", head, HEAD), BODY] for head in heads))
    assert "옵션들" not in markdown(of)
    assert "보조 패키지" not in markdown(of)


@pytest.mark.timeout(30)
def test_a_rule_without_end_at_the_foot_of_a_page_is_judged_at_once() -> None:
    rule = 60_000 * "─"
    pages = [[BODY, Printed("text", rule, FOOT)], [BODY, Printed("number", "2", FOOT)]]
    assert rule in markdown(document(*pages))


def test_lines_of_print_are_one_paragraph_and_broken_words_are_whole() -> None:
    lines = f"{FULL} 데비안 시스\n템을 설치한다. {FULL} 종류의\n하드웨어를 지원한다."
    of = document([Printed("text", lines, (50, 400, 950, 430))])
    assert f"데비안 시스템을 설치한다. {FULL} 종류의 하드웨어를 지원한다." in markdown(of)


def test_joints_of_known_texts_are_right() -> None:
    """Korean print breaks lines anywhere; `Kiwi.glue` over 24 characters gets 97.2 % right."""
    right = []
    for line in (" ".join(line.split()) for row in read_pages(SAMPLES) for line in row["text"].split("\n")):
        for at in range(8, len(line) - 7, 3):
            left, begin = line[:at].strip(), line[at:].strip()
            if HANGUL.fullmatch(left[-1] + begin[0]):
                right.append(glue_lines(left, begin) == line)
    assert len(right) > 1000
    assert mean(right) >= 0.972


def test_lines_that_a_reader_set_stay() -> None:
    """The box is far higher than two lines, so the break is the reader's own."""
    of = document([Printed("text", f"{FULL} 지원\n{FULL} 설치", (300, 100, 700, 400))])
    assert f"{FULL} 지원  \n{FULL} 설치" in markdown(of)


def test_lists_and_code_keep_their_lines() -> None:
    of = document([Printed("text", "다음과 같다:\n• 첫째\nㆍ둘째"), Printed("algorithm", "```sh\n$ ls -l\n  a\n```")])
    assert markdown(of).endswith("다음과 같다:\n\n- 첫째\n- 둘째\n\n```sh\n$ ls -l\n  a\n```")


def over_the_page(end: str, begin: str, *foot: Printed) -> Document:
    head = Printed("header", "머리", HEAD)
    return document(
        [
            head,
            Printed("text", f"{FULL} 이다.", FIRST),
            Printed("text", end, LAST),
            *foot,
            Printed("number", "1", FOOT),
        ],
        [head, Printed("text", begin, FIRST), Printed("text", "끝이다.", LAST)],
    )


@pytest.mark.parametrize(
    ("end", "begin", "joined"),
    [
        (f"{FULL}", "종류의 하드웨어를 지원한다.", f"{FULL} <!-- page 2 -->종류의 하드웨어를 지원한다."),
        (f"{FULL} 데비안 시스", "템을 설치한다.", f"{FULL} 데비안 시스<!-- page 2 -->템을 설치한다."),
        (
            f"{FULL} 실패할 수도 있습니",
            "다. 텍스트 설치는 된다.",
            f"{FULL} 실패할 수도 있습니<!-- page 2 -->다. 텍스트 설치는 된다.",
        ),
    ],
)
def test_a_paragraph_goes_on_over_the_page(end: str, begin: str, joined: str) -> None:
    written = markdown(over_the_page(end, begin, Printed("footnote", "1) 각주이다.", (100, 910, 900, 930))))
    assert joined in written
    assert written.index("각주이다") < written.index("<!-- page 2 -->"), "a note stays on its page"


@pytest.mark.parametrize(
    ("end", "begin"),
    [
        (f"{FULL} 지원한다.", "종류의 하드웨어."),
        (f"{FULL} 지원한다", "다른 문단이다."),
        ("표 3.1", "종류의 하드웨어를 지원한다."),
        (FULL, "• 항목"),
        (FULL, "1. 항목"),
        (FULL, "(1) 항목"),
        (f"$ {FULL}", "종류의 하드웨어"),
        (FULL, "Next paragraph"),
        ("다음과 같은 종류의", "하드웨어를 지원한다."),
    ],
)
def test_what_may_be_another_paragraph_is_not_joined(end: str, begin: str) -> None:
    assert "<!-- page 2 -->\n\n" in markdown(over_the_page(end, begin))


def test_nothing_is_joined_over_a_page_that_is_missing_or_not_whole() -> None:
    lost = over_the_page(FULL, "종류의 하드웨어.", Printed("text", None, (100, 910, 900, 930)))
    written = markdown(lost)
    assert "> Region 3 (text) of page 1 could not be read\n\n<!-- page 2 -->\n\n종류의" in written
    assert structure_document(lost).lost == 1
    whole = over_the_page(FULL, "종류의 하드웨어.")
    assert structure_document(whole).joined == 1
    next_lost = document([Printed("text", FULL, LAST)], [Printed("text", "종류의", FIRST), Printed("text", None, LAST)])
    assert structure_document(next_lost).joined == 0
    far = replace(whole, pages=(whole.pages[0], replace(whole.pages[1], number=3)))
    assert structure_document(far).joined == 0


def test_a_paragraph_that_layout_parted_at_a_small_picture_is_one() -> None:
    parts = (FULL, (200, 100, 800, 130)), ("종류의 하드웨어를 지원한다.", (200, 135, 800, 150))
    of = document([Printed("text", text, box) for text, box in parts])
    assert f"{FULL} 종류의 하드웨어를 지원한다." in markdown(of)


HEADED = "<table><tr><td>이름</td><td>값</td></tr><tr><td>가</td><td>1</td></tr></table>"
GOES_ON = "<table><tr><td>나</td><td>2</td></tr></table>"


def tables(first: str, second: str, box: tuple[int, int, int, int] = FIRST, caption: str = "") -> str:
    captions = [Printed("figure_title", caption, (100, 60, 900, 75))] if caption else []
    return markdown(
        document(
            [Printed("text", "앞.", FIRST), Printed("table", first, LAST)], [*captions, Printed("table", second, box)]
        )
    )


def test_a_table_goes_on_over_the_page_and_its_heading_is_not_printed_twice() -> None:
    heading = "<tr><td>이름</td><td>값</td></tr>"
    rows = f"{heading}\n<tr><td>가</td><td>1</td></tr>\n<!-- page 2 -->\n<tr><td>나</td><td>2</td></tr>\n</table>"
    assert tables(HEADED, GOES_ON.replace("<table>", f"<table>{heading}")).endswith(rows)
    assert rows in tables(HEADED, GOES_ON, caption="표 1 (계속)")
    assert rows in tables(HEADED, GOES_ON.replace("<table>", "<table><caption>Table 1 (continued)</caption>"))


def test_a_table_with_another_in_its_last_cell_goes_on_over_the_page() -> None:
    inner = "<table><tr><td>코드</td><td>01</td></tr></table>"
    last, within = (100, 700, 900, 940), (300, 800, 600, 900)
    pages = [[Printed("table", HEADED, last), Printed("table", inner, within)], [Printed("table", HEADED, FIRST)]]
    joined = markdown(document([Printed("text", "앞.", FIRST)], *pages))
    assert joined.count("<table>") == 2
    assert "</tr>\n<!-- page 3 -->\n<tr><td>가</td>" in joined


def test_a_heading_of_two_rows_is_not_printed_twice() -> None:
    two = '<table><tr><td rowspan="2">이름</td><td>값</td></tr><tr><td>원</td></tr>'
    joined = tables(f"{two}<tr><td>가</td><td>1</td></tr></table>", f"{two}<tr><td>나</td><td></td></tr></table>")
    assert joined.count("<table>") == joined.count("이름") == joined.count("<td>원</td>") == 1
    assert "<tr><td>나</td><td></td></tr>" in joined


@pytest.mark.parametrize(
    ("second", "box", "caption"),
    [
        (GOES_ON, FIRST, ""),
        (HEADED, (100, 80, 700, 180), ""),
        (GOES_ON.replace("</tr>", "<td>3</td></tr>"), FIRST, "표 1 (계속)"),
        (GOES_ON.replace("td>", "th>"), FIRST, "표 1 (계속)"),
        (HEADED, FIRST, "표 2"),
        (HEADED.replace("<table>", "<table><caption>표 2</caption>"), FIRST, ""),
    ],
    ids=["no heading", "edges", "columns", "another heading", "caption", "caption within"],
)
def test_another_table_is_not_joined(second: str, box: tuple[int, int, int, int], caption: str) -> None:
    assert tables(HEADED, second, box, caption).count("<table>") == 2


def test_list_entries_keep_their_signs_and_have_levels() -> None:
    lines = (
        "□ 큰 항목\n○ 중간 항목\n- 작은 항목\n※ 참고\n- 다음\n□ 둘째\n1. 가\n가. 나\n① 다\n나. 라\n2. 마\n4. 바\n다. 사"
    )
    of = document([Printed("text", lines)])
    assert markdown(of).endswith(
        "- □ 큰 항목\n  - ○ 중간 항목\n    - 작은 항목\n      - ※ 참고\n    - 다음\n- □ 둘째\n  1. 가\n"
        "     - 가. 나\n       - ① 다\n     - 나. 라\n  2. 마\n\n4\\. 바\n\n다. 사"
    )
    made = DoclingDocument.model_validate_json(document_json(of, structure_document(of).blocks))
    entries = [(level, item.marker) for item, level in made.iterate_items() if isinstance(item, ListItem)]
    assert [marker for _, marker in entries] == ["□", "○", "-", "※", "-", "□", "1.", "가.", "①", "나.", "2."]
    assert [(level - entries[0][0]) // 2 for level, _ in entries] == [0, 1, 2, 3, 2, 0, 1, 2, 3, 2, 1]


def test_empty_cells_stay_empty_and_spans_stay() -> None:
    table = '<table><tr><td rowspan="2">가</td><td></td></tr><tr><td>-</td></tr></table>'
    assert '<tr><td rowspan="2">가</td><td></td></tr>\n<tr><td>-</td></tr>' in markdown(
        document([Printed("table", table)])
    )


@pytest.mark.parametrize(
    ("body", "note", "tied"),
    [
        ("정의4)가 있다.", "4) 한글 정의", "정의[^4]가 있다.\n\n[^4]: 한글 정의"),
        ("정의<sup>4</sup>가 있다.", "4 한글 정의", "정의[^4]가 있다.\n\n[^4]: 한글 정의"),
        ("정의$^{4}$가 있다.", "$^{4}$ 한글 정의", "정의[^4]가 있다.\n\n[^4]: 한글 정의"),
        ("정의*가 있다.", "* 한글 정의", "정의[^s]가 있다.\n\n[^s]: 한글 정의"),
        ("정의 4가 있다.", "4) 한글 정의", "정의 4가 있다.\n\n4\\) 한글 정의"),
        ("정의4)와 뜻4)가 있다.", "4) 한글 정의", "정의4)와 뜻4)가 있다.\n\n4\\) 한글 정의"),
    ],
)
def test_a_note_is_tied_to_the_one_place_that_refers_to_it(body: str, note: str, tied: str) -> None:
    of = document([Printed("text", body), Printed("footnote", note, LAST)])
    assert markdown(of).endswith(tied)


def test_every_note_of_a_page_is_tied_to_the_place_with_its_number() -> None:
    body = "본문<sup>71</sup>과 뜻<sup>72)</sup>, 그리고 값$^{73}$의 x<sup>2</sup>이며 끝⁷⁴."
    notes = "71) 첫째 각주\n이어지는 줄\n72) 둘째 각주\n73) 셋째\n74) 넷째"
    of = document([Printed("text", body), Printed("footnote", notes, LAST)])
    assert markdown(of).partition("\n\n")[2] == (
        "본문[^71]과 뜻[^72], 그리고 값[^73]의 x<sup>2</sup>이며 끝[^74].\n\n[^71]: 첫째 각주  \n이어지는 줄\n\n"
        "[^72]: 둘째 각주\n\n[^73]: 셋째\n\n[^74]: 넷째"
    )


def test_a_superscript_of_several_numbers_is_tied_to_all_of_them_or_to_none() -> None:
    of = document([Printed("text", "본문<sup>1, 2)</sup>이다."), Printed("footnote", "1) 가\n2) 나", LAST)])
    assert markdown(of).endswith("본문[^1][^2]이다.\n\n[^1]: 가\n\n[^2]: 나")
    of = document([Printed("text", "본문<sup>1,3</sup>이다."), Printed("footnote", "1) 가\n2) 나", LAST)])
    assert markdown(of).endswith("본문<sup>1,3</sup>이다.\n\n1\\) 가\n\n2\\) 나")


def test_an_exponent_is_no_reference_and_hides_none() -> None:
    of = document([Printed("text", "넓이 30m<sup>2</sup>는 뜻<sup>2</sup>이다."), Printed("footnote", "2) 나", LAST)])
    assert markdown(of).endswith("30m<sup>2</sup>는 뜻[^2]이다.\n\n[^2]: 나")


def test_notes_of_one_number_on_two_pages_have_the_number_of_the_page_in_their_mark() -> None:
    page = [Printed("text", "본문<sup>1</sup>이다."), Printed("footnote", "1) 각주이다.", LAST)]
    written = markdown(document(page, page))
    assert [mark in written for mark in ("[^1-1]: 각주", "[^2-1]: 각주", "[^1]")] == [True, True, False]


def test_a_line_of_a_note_that_begins_with_another_number_begins_no_note() -> None:
    of = document([Printed("text", "뜻1)이다."), Printed("footnote", "1) 지난\n10 년 동안\n2) 나", LAST)])
    notes = [block.text for block in structure_document(of).blocks if block.kind is BlockKind.FOOTNOTE]
    assert notes == ["1) 지난\n10 년 동안", "2) 나"]


def test_a_formula_has_its_number_and_a_title_no_markup() -> None:
    of = document(
        [Printed("display_formula", "$$a=b$$"), Printed("formula_number", "(3.1)"), Printed("text", "<b> a < b")]
    )
    assert markdown(of).endswith("$$\na=b \\tag{3.1}\n$$\n\n&lt;b> a < b")


WORDS = st.text(st.sampled_from("가나다라 abcXY12.,()*-\n•"), max_size=80)
REGIONS = st.builds(
    Printed,
    st.sampled_from(["text", "text", "paragraph_title", "header", "number", "footnote", "figure_title"]),
    WORDS,
    st.sampled_from([HEAD, FIRST, LAST, FOOT]),
)


def letters(text: str) -> Counter[str]:
    return Counter(re.sub(r"[\W_]", "", text))


def body_of(blocks: Sequence[Block]) -> str:
    return " ".join(block.text for block in blocks)


@settings(max_examples=60)
@given(st.lists(st.lists(REGIONS, max_size=4), min_size=1, max_size=4))
def test_no_letter_is_lost_or_doubled(pages: list[list[Printed]]) -> None:
    of = document(*pages)
    done = structure_document(of)
    printed = letters(" ".join(region.text or "" for page in pages for region in page))
    assert letters(body_of(done.blocks)) == printed
    assert done.regions == done.placed + done.furniture + done.empty + done.lost
    out = letters(body_of([block for block in done.blocks if block.kind is BlockKind.FURNITURE]))
    written = re.sub(r"<!--.*?-->", "", markdown(of))
    notes = sum(part.refers != () for block in done.blocks for part in block.parts)
    if not notes:
        assert letters(written) == printed - out
    assert [int(n) for n in re.findall(r"<!-- page (\d+) -->", markdown(of))] == list(range(1, len(pages) + 1))


CELLS = st.lists(st.lists(st.sampled_from(["", "가", "1,000", "-"]), min_size=2, max_size=2), min_size=1, max_size=4)


@settings(max_examples=60)
@given(CELLS, CELLS)
def test_no_cell_is_lost_or_doubled(first: list[list[str]], second: list[list[str]]) -> None:
    def html(rows: list[list[str]]) -> str:
        lines = ("".join(f"<td>{cell}</td>" for cell in row) for row in rows)
        return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"

    written = tables(html(first), html(second))
    repeated = len(second) > 1 and all(first[0]) and first[0] == second[0]
    cells = [cell for row in (*first, *second[repeated:]) for cell in row]
    assert re.findall(r"<td>(.*?)</td>", written) == cells


def test_a_chart_that_was_read_as_a_table_is_one() -> None:
    content = "<table><tr><td>2023</td><td>5</td></tr></table>"
    made = document([Printed("chart", content)])
    assert [(block.kind, block.text) for block in structure_document(made).blocks] == [(BlockKind.TABLE, content)]
    assert markdown(made).endswith("<table>\n<tr><td>2023</td><td>5</td></tr>\n</table>")
