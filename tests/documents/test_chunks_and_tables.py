"""Chunks and data tables of documents lose and double nothing and keep page and box."""

import re
from collections import Counter
from html import escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kopub.documents.chunks import Chunk, chunk_document, estimate_tokens
from kopub.documents.document import BlockKind, Document
from kopub.documents.structure import structure_document
from kopub.documents.tables import DataTable, document_tables
from tests.support.sources.documents import Printed, document

SENTENCE = "데비안은 자유 운영 체제입니다. "
EDGES = (100, 700, 900, 950)
NEXT_EDGES = (100, 60, 900, 300)


def chunks(made: Document, max_tokens: int = 512) -> list[Chunk]:
    return list(chunk_document(made, structure_document(made).blocks, max_tokens))


def tables(made: Document) -> list[DataTable]:
    return list(document_tables(made, structure_document(made).blocks))


def table(*rows: list[str], heading: bool = True) -> str:
    html = ""
    for at, row in enumerate(rows):
        tag = "th" if heading and not at else "td"
        html += "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row) + "</tr>"
    return f"<table>{html}</table>"


def letters(text: str) -> Counter[str]:
    return Counter(re.sub(r"</?(?:table|tr|td|th)\b[^>]*>|\s", "", text))


def test_a_chunk_has_the_titles_above_it_and_its_regions() -> None:
    made = document(
        [
            Printed("paragraph_title", "제1장 개요"),
            Printed("text", SENTENCE * 12),
            Printed("paragraph_title", "1.1 배경"),
            Printed("text", SENTENCE * 12, (10, 20, 30, 40)),
        ],
        [Printed("text", "두 번째 쪽이다.")],
    )
    first, second = chunks(made, 160)
    assert (first.headings, first.text.split("\n")[0]) == ((), "제1장 개요")
    assert (second.headings, second.text.split("\n")[0]) == (("제1장 개요",), "1.1 배경")
    assert [(place.page_id, place.region) for place in second.places] == [("d_1", 2), ("d_1", 3), ("d_2", 0)]
    assert second.places[1].bbox_2d == (10, 20, 30, 40)
    assert second.text_with_headings.startswith("제1장 개요\n1.1 배경")
    assert (second.index, second.tokens) == (1, estimate_tokens(second.text))


def test_code_keeps_its_indents_in_chunks() -> None:
    listing = "\n".join(f"    step_{at} = {at}" for at in range(30))
    first, *more = chunks(document([Printed("algorithm", f"```\n{listing}\nend\n```")]), 60)
    assert first.text.startswith("    step_0 = 0\n    step_1")
    assert all(re.match("    step|end", chunk.text) for chunk in more)


def test_a_small_section_and_the_next_one_are_one_chunk_below_what_both_have_above() -> None:
    made = document([
        Printed("paragraph_title", "제1장 개요"), Printed("text", SENTENCE * 12),
        Printed("paragraph_title", "1.1 배경"), Printed("text", "짧다."),
        Printed("paragraph_title", "1.2 목적"), Printed("text", "이것도."),
    ])  # fmt: skip
    assert [chunk.headings for chunk in chunks(made, 160)] == [(), ("제1장 개요",)]


def test_a_paragraph_over_two_pages_is_in_one_chunk_with_both_boxes() -> None:
    full = "데비안 설치 프로그램은 임베디드 장치와 노트북 컴퓨터와 데스크톱 컴퓨터 등 여러가지"
    made = document([Printed("text", full, (100, 800, 900, 880))], [Printed("text", "장치를 지원한다.", NEXT_EDGES)])
    (chunk,) = chunks(made)
    assert f"{full} 장치를" in chunk.text
    assert [place.page for place in chunk.places] == [1, 2]


def test_a_long_paragraph_is_cut_between_sentences_and_each_piece_has_the_page_it_is_of() -> None:
    made = document([Printed("text", SENTENCE * 20)])
    pieces = chunks(made, 100)
    assert len(pieces) > 2
    assert all(piece.text.endswith("입니다.") and piece.tokens <= 100 for piece in pieces)
    assert {place.page for piece in pieces for place in piece.places} == {1}


@pytest.mark.parametrize(
    "regions",
    [
        [Printed("text", "• " + "abc " * 31 + "abcd")],
        [Printed("display_formula", "x " * 63 + "xy"), Printed("formula_number", "(1)")],
        [Printed("text", "[a](javascript:x) " * 7)],
    ],
)
def test_the_marks_of_an_entry_a_formula_and_a_link_count_as_tokens(regions: list[Printed]) -> None:
    pieces = chunks(document(regions), 32)
    assert len(pieces) > 1
    assert all(piece.tokens <= 32 for piece in pieces)


def test_a_long_table_is_cut_between_rows_and_keeps_its_caption_and_heading() -> None:
    rows = [[f"{at}", f"값 {at}"] for at in range(60)]
    content = table(["번호", "값"], *rows).replace("<table>", "<table><caption>표 1</caption>")
    pieces = chunks(document([Printed("table", content)]), 200)
    assert len(pieces) > 2
    head = "<table><caption>표 1</caption>\n<tr><th>번호</th><th>값</th></tr>"
    assert all(piece.text.startswith(head) and piece.tokens <= 200 for piece in pieces)
    assert [piece.repeated for piece in pieces] == [0, *[len(head)] * (len(pieces) - 1)]
    assert [*map(int, re.findall(r"<td>(\d+)</td>", "".join(piece.text for piece in pieces)))] == [*range(60)]


def test_a_caption_goes_with_every_piece_of_its_table() -> None:
    rows = [[f"{at}", f"값 {at}"] for at in range(60)]
    caption = Printed("figure_title", "사업 목록", (100, 380, 900, 395))
    pieces = chunks(document([caption, Printed("table", table(["번호", "값"], *rows))]), 200)
    assert len(pieces) > 2
    assert all(piece.text.startswith("사업 목록\n<table>\n<tr><th>번호</th>") for piece in pieces)
    assert [len(piece.places) for piece in pieces] == [2, *[1] * (len(pieces) - 1)]


@pytest.mark.parametrize("max_tokens", [512, 30])
def test_a_heading_alone_on_its_page_is_a_place_of_the_table_that_goes_on(max_tokens: int) -> None:
    made = document(
        [Printed("table", table(["번호", "값"]), EDGES)],
        [Printed("table", table(["1", "가"], ["2", "나"], ["3", "다"], heading=False), NEXT_EDGES)],
    )
    first, *others = chunks(made, max_tokens)
    assert [place.page for place in first.places] == [1, 2]
    assert all(place.page == 2 for piece in others for place in piece.places)


def test_the_first_row_heads_a_table_that_marks_none() -> None:
    rows = [[f"{at}", "값"] for at in range(60)]
    pieces = chunks(document([Printed("table", table(["번호", "값"], *rows, heading=False))]), 200)
    assert all(piece.text.startswith("<table>\n<tr><td>번호</td>") for piece in pieces)


def test_a_table_whose_every_row_is_a_heading_is_cut_below_the_first() -> None:
    rows = [["이름", "값"], *([f"행 {n}", f"{n * 7919}"] for n in range(60))]
    whole = "<table>" + "".join(f"<tr><th>{name}</th><th>{value}</th></tr>" for name, value in rows) + "</table>"
    made = chunks(document([Printed("table", whole)]), 80)
    assert len(made) > 5
    assert all(chunk.tokens <= 80 and "<th>이름</th>" in chunk.text for chunk in made)
    assert [row for chunk in made for row in re.findall(r"행 \d+", chunk.text)] == [name for name, _ in rows[1:]]


def test_a_first_row_that_spans_others_heads_a_table_with_them() -> None:
    head = '<tr><td rowspan="2">이름</td><td>값</td></tr><tr><td>원</td></tr>'
    rows = "".join(f"<tr><td>행 {n}</td><td>{n * 7919}</td></tr>" for n in range(60))
    made = chunks(document([Printed("table", f"<table>{head}{rows}</table>")]), 80)
    assert len(made) > 5
    assert all(piece.text.replace("\n", "").startswith(f"<table>{head}<tr><td>행") for piece in made)


def test_rows_that_a_cell_spans_are_not_parted() -> None:
    group = '<tr><td rowspan="3">가</td><td>1</td></tr><tr><td>2</td></tr><tr><td>3</td></tr>'
    pieces = chunks(document([Printed("table", f"<table><tr><th>이름</th><th>값</th></tr>{group * 10}</table>")]), 60)
    assert len(pieces) > 3
    assert all(piece.text.count("<td>3</td>") == piece.text.count("rowspan") for piece in pieces)


def test_heads_page_numbers_pictures_and_lost_regions_are_in_no_chunk() -> None:
    head = Printed("header", "머리말", (100, 30, 900, 45))
    made = document(*[[head, Printed("text", f"본문 {at}."), Printed("text", None)] for at in range(3)])
    assert "머리말" not in "".join(chunk.text for chunk in chunks(made))
    assert all(kind is BlockKind.TEXT for chunk in chunks(made) for kind in chunk.kinds)


def test_no_chunk_links_to_a_script() -> None:
    made = document([Printed("paragraph_title", "[제목](javascript:x)"), Printed("text", "[여기](javascript:x) " * 90)])
    said = [line for chunk in chunks(made, 64) for line in (*chunk.headings, chunk.text)]
    assert not any(re.search(r"(?<!\\)\]\(javascript", line) for line in said)


WORDS = st.text("가나다abc .!\n<&", min_size=1, max_size=200)
CELLS = st.lists(st.lists(st.text("가나a1<& ", max_size=12), min_size=2, max_size=2), min_size=1, max_size=12)
REGIONS = st.one_of(
    st.builds(Printed, st.sampled_from(["text", "paragraph_title", "footnote", "algorithm", "figure_title"]), WORDS),
    st.builds(lambda rows, heading: Printed("table", table(*rows, heading=heading)), CELLS, st.booleans()),
)


@settings(max_examples=150)
@given(st.lists(st.lists(REGIONS, max_size=5), min_size=1, max_size=3), st.integers(4, 120))
def test_every_character_of_the_body_is_in_exactly_one_chunk(pages: list[list[Printed]], max_tokens: int) -> None:
    made = document(*pages)
    blocks = [
        block
        for block in structure_document(made).blocks
        if block.kind not in (BlockKind.FURNITURE, BlockKind.LOST, BlockKind.PICTURE)
    ]
    body: Counter[str] = Counter()
    for block in blocks:
        body += letters("- " if block.kind is BlockKind.ITEM else "")
        for part in block.parts:
            first = part.text.index("</tr>") + len("</tr>") if part.repeated else 0
            body += letters(part.joint + part.text[first:])
    found: Counter[str] = Counter()
    for chunk in chunk_document(made, structure_document(made).blocks, max_tokens):
        found += letters(chunk.text[chunk.repeated :])
        assert BlockKind.TABLE in chunk.kinds or chunk.tokens <= max_tokens
    assert found == body


def test_a_table_as_data_has_names_of_columns_resolved_spans_caption_and_places() -> None:
    content = (
        '<table><tr><th rowspan="2">구분</th><th colspan="2">2024</th></tr><tr><th>상</th><th>하</th></tr>'
        '<tr><td rowspan="2">가</td><td>1,000</td><td>2</td></tr><tr><td colspan="2">없음, 또는 "0"</td></tr></table>'
    )
    made = document([
        Printed("paragraph_title", "제1장 개요"), Printed("figure_title", "표 1. 현황", (100, 380, 900, 395)),
        Printed("table", content),
    ])  # fmt: skip
    (found,) = tables(made)
    assert (found.caption, found.headings, found.number) == ("표 1. 현황", ("제1장 개요",), 1)
    assert found.columns == ("구분", "2024 / 상", "2024 / 하")
    assert found.rows == (("가", "1,000", "2"), ("가", '없음, 또는 "0"', '없음, 또는 "0"'))
    assert [(place.page_id, place.region) for place in found.places] == [("d_1", 2)]
    assert found.to_csv().splitlines()[0] == "구분,2024 / 상,2024 / 하"
    frame = found.to_pandas()
    assert (frame["2024 / 상"].tolist(), frame.shape) == (["1,000", '없음, 또는 "0"'], (2, 3))


def test_a_cell_ends_where_one_from_a_row_above_stands() -> None:
    content = (
        '<table><tr><td>가</td><td rowspan="2">나</td><td>다</td></tr>'
        '<tr><td colspan="3">라</td><td>마</td></tr></table>'
    )
    (found,) = tables(document([Printed("table", content)]))
    assert found.rows == (("가", "나", "다"), ("라", "나", "마"))


def test_a_table_over_two_pages_is_one_and_its_heading_is_no_row() -> None:
    made = document(
        [Printed("table", table(["번호", "값"], ["1", "가"]), EDGES)],
        [Printed("table", table(["번호", "값"], ["2", "나"]), NEXT_EDGES)],
    )
    (found,) = tables(made)
    assert found.rows == (("1", "가"), ("2", "나"))
    assert [place.page for place in found.places] == [1, 2]


@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        (table(["값", "값", ""], ["1", "2", "3"]), ("값", "값 (2)", "3")),
        (table(["1", "2"], ["3", "4"], heading=False), ("1", "2")),
        (table(["이름", "값"]), ("이름", "값")),
    ],
)
def test_no_column_is_without_a_name_and_no_name_is_there_twice(rows: str, columns: tuple[str, ...]) -> None:
    (found,) = tables(document([Printed("table", rows)]))
    assert found.columns == columns
    assert all(len(row) == len(columns) for row in found.rows)
