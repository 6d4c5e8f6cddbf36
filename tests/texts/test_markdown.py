"""A page as markdown and as plain text."""

import pytest

from kopub.recognition.regions import Crop, RegionText
from kopub.states import State
from kopub.texts.markdown import page_markdown, page_text
from kopub.texts.markup import defuse

TABLE = '<table><tr><td rowspan="2">A &lt; B</td><td>1,000</td></tr><tr><td>3.14 %</td></tr></table>'


def regions(*parts: tuple[str, str]) -> list[RegionText]:
    return [RegionText(index, label, content) for index, (label, content) in enumerate(parts)]


def markdown(*parts: tuple[str, str]) -> str:
    return page_markdown(regions(*parts), ())


def test_titles_and_text_in_reading_order() -> None:
    parts = regions(("doc_title", "시스템\n요구 사항"), ("paragraph_title", "2.1 하드웨어"), ("text", "첫 줄\n둘째 줄"))
    assert page_markdown(parts[::-1], ()) == "# 시스템 요구 사항\n\n## 2.1 하드웨어\n\n첫 줄\n둘째 줄"


@pytest.mark.parametrize(
    "line",
    [
        "3.14 %",
        "2024.12.31. 기준",
        "A.I 시대",
        "(1) 첫째",
        "a) b",
        "…………",
        "12:30",
        "x*y",
        "-5 °C",
    ],
)
def test_numbers_dates_and_words_stay_as_they_were_read(line: str) -> None:
    assert markdown(("text", line)) == line


def test_printed_bullets_become_list_items() -> None:
    assert markdown(("text", "• 하나\n· 둘\n- 셋")) == "- 하나\n- 둘\n- 셋"


def test_heads_feet_and_numbers_are_kept_as_paragraphs() -> None:
    page = markdown(("header", "1장"), ("text", "본문"), ("footnote", "1 각주"), ("footer", "발행"), ("number", "7"))
    assert page == "1장\n\n본문\n\n1 각주\n\n발행\n\n7"


def test_a_table_stays_html() -> None:
    assert markdown(("table", TABLE)) == TABLE


def test_a_table_read_as_text_is_a_paragraph() -> None:
    assert markdown(("table", "이름 <b> 값")) == "이름 &lt;b> 값"


def test_printed_tags_are_not_html() -> None:
    page = markdown(("text", "<script>x</script> 1 < 2, a <- b, R&D"), ("paragraph_title", "<h1> 요소"))
    assert page == "&lt;script>x&lt;/script> 1 < 2, a <- b, R&D\n\n## &lt;h1> 요소"


def test_lines_that_would_be_markup_are_escaped() -> None:
    assert markdown(("text", "# 주석\n> 인용\n---\n#define")) == "\\# 주석\n\\> 인용\n\\---\n#define"


def test_a_title_loses_a_reader_s_mark_and_keeps_a_printed_number_sign() -> None:
    assert markdown(("doc_title", "## 개요"), ("paragraph_title", "#1 C# 과제")) == "# 개요\n\n## #1 C# 과제"


@pytest.mark.parametrize("content", ["E = mc^2", "$$E = mc^2$$", "\\[E = mc^2\\]", "$E = mc^2$"])
def test_a_formula_is_displayed_once(content: str) -> None:
    assert markdown(("display_formula", content)) == "$$\nE = mc^2\n$$"


@pytest.mark.parametrize("order", [1, -1])
def test_a_formula_takes_the_number_beside_it(order: int) -> None:
    parts = [("display_formula", "a = b"), ("formula_number", "(3.27)")][::order]
    assert markdown(("text", "식"), *parts) == "식\n\n$$\na = b \\tag{3.27}\n$$"


def test_a_formula_number_alone_is_kept() -> None:
    assert markdown(("formula_number", "(3.27)"), ("text", "식")) == "(3.27)\n\n식"


def test_two_formulas_keep_their_own_numbers() -> None:
    page = markdown(
        ("display_formula", "a"), ("formula_number", "(1)"), ("display_formula", "b"), ("formula_number", "(2)")
    )
    assert page == "$$\na \\tag{1}\n$$\n\n$$\nb \\tag{2}\n$$"


def test_pictures_link_to_their_crops() -> None:
    crops = [
        Crop("crops/문서 (1)_p_1.jpg", (0, 0, 9, 9), "image", b""),
        Crop("crops/a_2.jpg", (0, 0, 9, 9), "chart", b""),
    ]
    parts = regions(("text", "앞"), ("image", ""), ("chart", ""), ("figure_title", "그림 1"))
    assert page_markdown(parts, crops) == (
        "앞\n\n![image](<crops/문서 (1)_p_1.jpg>)\n\n![chart](crops/a_2.jpg)\n\n그림 1"
    )


def test_texts_of_a_page_are_made_from_the_regions_that_were_read() -> None:
    cut = RegionText(1, "table", "<table><tr><td>앞</td></tr></table>", State.FAILED, "cut off", "length")
    number = RegionText(3, "formula_number", "(1)", State.FAILED, "loop")
    parts = [RegionText(0, "text", "첫째"), cut, RegionText(2, "display_formula", "a"), number]
    assert page_markdown(parts, ()) == "첫째\n\n$$\na\n$$"
    assert page_text(parts) == "첫째\n\na"


def test_a_page_without_text_is_empty() -> None:
    assert markdown(("text", " \n"), ("image", "")) == ""
    assert page_text(regions(("text", " \n"), ("image", ""))) == ""


def test_page_text_has_no_markup() -> None:
    text = page_text(regions(("doc_title", "제목"), ("table", TABLE), ("text", "<b> 그대로"), ("number", "7")))
    assert text == "제목\n\nA < B\t1,000\n3.14 %\n\n<b> 그대로\n\n7"


def test_page_text_keeps_a_table_that_is_no_html() -> None:
    assert page_text(regions(("table", "a < b\nc"))) == "a < b\nc"


def test_text_between_and_below_tables_is_in_no_cell() -> None:
    tables = TABLE, "<table><caption>표 2</caption><tr><td>끝</td></tr></table>", "주: 잠정"
    assert page_text(regions(("table", "\n\n".join(tables)))) == "A < B\t1,000\n3.14 %\n표 2\n끝\n주: 잠정"


@pytest.mark.timeout(30)
def test_backslashes_without_end_are_looked_through_at_once() -> None:
    formula = 200_000 * "\\" + "[a](b.md)"
    assert defuse(formula) == formula
