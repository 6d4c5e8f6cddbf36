"""PaddleOCR-VL's markup (OTSL, charts, formulas) becomes a region's content without losing a letter."""

from html.parser import HTMLParser

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kopub.layout.regions import Task
from kopub.recognition.regions import RegionText
from kopub.recognition.tables import clean_tables
from kopub.recognition.vlm.client.answers import tidy
from kopub.recognition.vlm.client.paddle import clean
from kopub.texts.markdown import page_markdown, page_text


def table(answer: str) -> str:
    return tidy(clean(answer, Task.TABLE), Task.TABLE)


@pytest.mark.parametrize(
    ("otsl", "html"),
    [
        ("<fcel>a<fcel>b<nl><fcel>1<ecel><nl>", "<tr><td>a</td><td>b</td></tr><tr><td>1</td><td></td></tr>"),
        # Spans to the right, downwards and both.
        (
            "<fcel>구분<lcel><fcel>비고<nl><ucel><xcel><fcel>계<nl><fcel>1<fcel>2<fcel>3<nl>",
            '<tr><td rowspan="2" colspan="2">구분</td><td>비고</td></tr><tr><td>계</td></tr>'
            "<tr><td>1</td><td>2</td><td>3</td></tr>",
        ),
        (
            "<fcel>a<fcel>b<nl><ucel><fcel>c<nl><ucel><fcel>d<nl>",
            '<tr><td rowspan="3">a</td><td>b</td></tr><tr><td>c</td></tr><tr><td>d</td></tr>',
        ),
        # An empty corner cell can span too.
        ("<ecel><fcel>a<nl><ucel><fcel>b<nl>", '<tr><td rowspan="2"></td><td>a</td></tr><tr><td>b</td></tr>'),
        # A row without cells of its own: cells above span all of it.
        (
            "<fcel>a<fcel>b<nl><ucel><ucel><nl><fcel>c<fcel>d<nl>",
            "<tr><td>a</td><td>b</td></tr><tr><td>c</td><td>d</td></tr>",
        ),
        (
            "<fcel>a<fcel>b<nl><ucel><ucel><nl><ucel><fcel>d<nl>",
            '<tr><td rowspan="2">a</td><td>b</td></tr><tr><td>d</td></tr>',
        ),
        # Rows of different lengths: none is cut, the shorter one is padded.
        (
            "<fcel>a<fcel>b<fcel>c<nl><fcel>1<nl>",
            "<tr><td>a</td><td>b</td><td>c</td></tr>" + "<tr><td>1</td><td></td><td></td></tr>",
        ),
        ("<fcel>a<fcel>b<ecel><ecel><nl>", "<tr><td>a</td><td>b</td><td></td><td></td></tr>"),
        # A span that has nothing to extend or is no rectangle becomes cells of its own.
        ("<lcel><fcel>a<nl><xcel><ucel><nl>", '<tr><td></td><td rowspan="2">a</td></tr><tr><td></td></tr>'),
        ("<fcel>a<lcel><nl><ucel><fcel>b<nl>", '<tr><td colspan="2">a</td></tr><tr><td></td><td>b</td></tr>'),
        # Text after a tag that takes none.
        ("<fcel>a<lcel>b<nl>", "<tr><td>a</td><td>b</td></tr>"),
        ("<fcel>a<nl>b<fcel>c<nl>", "<tr><td>a</td><td></td></tr><tr><td>b</td><td>c</td></tr>"),
        # Cut off within a row, and two tags without text between them.
        ("<fcel>a<fcel>b<nl><fcel>c", "<tr><td>a</td><td>b</td></tr><tr><td>c</td><td></td></tr>"),
        ("<fcel><fcel>a<nl>", "<tr><td></td><td>a</td></tr>"),
        # Printed signs are text, not markup.
        ("<fcel>a < b & <b>c</b><nl>", "<tr><td>a &lt; b &amp; &lt;b&gt;c&lt;/b&gt;</td></tr>"),
        ("<fcel>서울\n 부산<nl>", "<tr><td>서울<br>부산</td></tr>"),
        ("<fcel>\\( x^2 \\)<nl>", "<tr><td>$x^2$</td></tr>"),
        ("<fcel>-<fcel>·<nl>", "<tr><td>-</td><td>·</td></tr>"),
    ],
)
def test_otsl_becomes_html(otsl: str, html: str) -> None:
    assert table(otsl) == f"<table>{html}</table>"


def test_text_before_and_after_the_rows_is_kept() -> None:
    answer = "표 1. <수출> (단위: 억)\n<fcel>a<fcel>b<nl>주) 잠정치"
    assert table(answer) == (
        "<table><caption>표 1. &lt;수출&gt; (단위: 억)</caption><tr><td>a</td><td>b</td></tr></table>\n\n주) 잠정치"
    )
    assert table("표가 아닌 글") == "표가 아닌 글"
    assert table("a & b<nl>") == "a & b"


def test_a_row_that_ran_away_does_not_widen_the_others() -> None:
    html = table("<fcel>a<nl>" * 50 + "<fcel>b" + "<ecel>" * 2000 + "<nl>")
    assert html.count("<td>") == 50 + 2001


def test_html_is_left_to_its_own_cleaning() -> None:
    answer = "<table><tr><td>값<td>1</table>"
    assert clean(answer, Task.TABLE) == answer
    assert table(answer) == "<table><tr><td>값</td><td>1</td></tr></table>"


@pytest.mark.parametrize(
    ("answer", "html"),
    [
        (
            "연도 | 수출 | 수입\n2020 | 3 | 4\n2021 | | 5",
            "<table><tr><th>연도</th><th>수출</th><th>수입</th></tr>"
            "<tr><td>2020</td><td>3</td><td>4</td></tr><tr><td>2021</td><td></td><td>5</td></tr></table>",
        ),
        (
            "그림 2\n| a | b |\n|---|---|\n| 1 | 2 |\n자료: 통계청",
            "<table><caption>그림 2</caption><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>"
            "\n\n자료: 통계청",
        ),
        (
            "a | b\n소계\n1 | 2",
            "<table><tr><th>a</th><th>b</th></tr><tr><td>소계</td></tr><tr><td>1</td><td>2</td></tr></table>",
        ),
        ("값 | 하나", "값 | 하나"),
    ],
)
def test_a_chart_becomes_a_table(answer: str, html: str) -> None:
    assert table(answer) == html


@pytest.mark.timeout(30)
def test_a_chart_with_dashes_without_end_is_judged_at_once() -> None:
    dashes = 200_000 * "-"
    assert dashes in table(f"연도 | 값\n{dashes}2020 | 3")


def test_a_chart_s_table_is_one_in_markdown_and_text() -> None:
    chart = RegionText(0, "chart", table("연도 | 값\n2020 | 3"))
    assert page_markdown([chart], ()) == chart.content
    assert page_text([chart]) == "연도\t값\n2020\t3"


@pytest.mark.parametrize(
    ("answer", "content"),
    [
        ("값 \\( x^2 \\)는 $5이다.", "값 $x^2$는 $5이다."),
        ("\\[ E = mc^2 \\]\n이다.", "$$E = mc^2$$\n이다."),
        ("\\( a \\( b \\) \\)", "$a $b$$"),
        ("열린 \\( 괄호", "열린 \\( 괄호"),
        ("US$ 5", "US$ 5"),
    ],
)
def test_formulas_stand_between_dollars_and_printed_dollars_stay(answer: str, content: str) -> None:
    assert clean(answer, Task.TEXT) == content


@pytest.mark.parametrize("answer", ["\\[ x^2 \\]", "$$x^2$$", "x^2", "\\(x^2\\)"])
def test_a_formula_has_no_delimiters(answer: str) -> None:
    assert tidy(clean(answer, Task.FORMULA), Task.FORMULA) == "x^2"


class Grid(HTMLParser):
    """A parser that asserts that cells are closed and that no two overlap."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.covered: set[tuple[int, int]] = set()
        self.text = ""
        self.row = -1

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "br":
            return
        self.open.append(tag)
        if tag == "tr":
            self.row += 1
        elif tag in ("td", "th"):
            spans = {name: int(value or 1) for name, value in attrs}
            left = next(n for n in range(10_000) if (self.row, n) not in self.covered)
            for row in range(self.row, self.row + spans.get("rowspan", 1)):
                for column in range(left, left + spans.get("colspan", 1)):
                    assert (row, column) not in self.covered
                    self.covered.add((row, column))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def followed(html: str) -> Grid:
    grid = Grid()
    grid.feed(html)
    grid.close()
    assert not grid.open
    assert max((row for row, _ in grid.covered), default=-1) == grid.row
    return grid


TAGS = ("<fcel>", "<ecel>", "<lcel>", "<ucel>", "<xcel>", "<nl>")
PIECES = st.one_of(
    st.sampled_from((*TAGS, *TAGS, "<table>", "</td>", "<br>", "\n", "|", "\\(", "\\)", "<", "&", "$")),
    st.text("가나다라ABC 019.-·", max_size=4),
    st.text(max_size=3),
)


@settings(max_examples=300)
@given(st.lists(PIECES, max_size=40))
def test_any_answer_becomes_a_valid_table_with_every_letter(pieces: list[str]) -> None:
    answer = "".join(pieces)
    assume("<td" not in answer and "<th" not in answer)  # HTML is not read as OTSL
    once = clean(answer, Task.TABLE)
    assert clean(once, Task.TABLE) == once
    html = tidy(once, Task.TABLE)
    letters = [char for char in answer.replace("<br>", "") if char in "가나다라ABC019"]
    assert not any(tag in html for tag in TAGS)
    text = followed(html).text if html.startswith("<table") else html
    assert [char for char in text if char in "가나다라ABC019"] == letters


@given(st.text())
def test_any_text_is_cleaned_once(text: str) -> None:
    for task in (Task.TEXT, Task.TABLE, Task.FORMULA):
        once = clean(text, task)
        assert clean(once, task) == once


@given(st.lists(st.lists(st.sampled_from(("가", "", *TAGS[2:5])), min_size=1, max_size=6), min_size=1, max_size=8))
def test_spans_cover_every_place_of_a_table_once(rows: list[list[str]]) -> None:
    otsl = "".join("".join(cell if cell in TAGS else f"<fcel>{cell}" for cell in row) + "<nl>" for row in rows)
    html = clean(otsl, Task.TABLE)
    covered = followed(html).covered
    widths = {row: {column for each, column in covered if each == row} for row, _ in covered}
    assert all(columns == set(range(len(columns))) for columns in widths.values())
    if max(map(len, rows)) * len(rows) <= 2 * sum(map(len, rows)):
        assert len({len(columns) for columns in widths.values()}) == 1
    assert clean_tables(html) == html
