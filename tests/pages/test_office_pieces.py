"""The structure of office files: all that they show, in place, and nothing hidden or deleted."""

# The libraries that make the files state no types of what they make.
# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false, reportArgumentType=false

import io
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import docx
import openpyxl
import pptx
import pytest
from docx.oxml import parse_xml
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches
from pypdfium2 import PdfDocument

from kopub.pages.documents import conversion, office
from kopub.pages.documents.conversion import Conversion, Conversions, pieces_of_page
from kopub.pages.documents.pieces import Piece, PieceCell, PrintedWords
from kopub.pages.documents.placing import place_pieces
from tests.support.sources import office_files
from tests.support.sources.office_files import archive, open_document

converts = pytest.mark.skipif(
    any(map(office.lacks, office.SUFFIXES)) or not conversion.has_korean_font(),
    reason="apt-get install libreoffice-writer libreoffice-calc libreoffice-impress fonts-noto-cjk",
)
pytestmark = pytest.mark.usefixtures("one_process")
WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


@pytest.fixture
def converted(tmp_path: Path):
    """Return a function that converts a file, and returns what is on each page."""
    conversions = Conversions()

    def convert(name: str, content: bytes) -> list[list[Piece]]:
        (tmp_path / name).write_bytes(content)
        made = conversions.pdf(name, tmp_path / name)
        assert isinstance(made, Conversion), made
        assert made.lost == {}
        pages = (list(pieces_of_page(made, at)) for at in range(len(PdfDocument(made.pdf))))
        return list(filter(None, pages))

    yield convert
    conversions.end()


def test_a_lack_of_memory_is_no_odd_structure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhaust(*_: object) -> list[Piece]:
        raise MemoryError

    monkeypatch.setattr(office, "read_pieces", exhaust)
    (tmp_path / "a.docx").write_bytes(b"")
    with pytest.raises(MemoryError):
        office.pieces(tmp_path / "a.docx", tmp_path / "document.pdf")


def saved(document) -> bytes:
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def grid(piece: Piece) -> list[list[str]]:
    """Return a table's cells as rows; a spanned place is empty."""
    rows = [[""] * (1 + max(cell.column for cell in piece.cells)) for _ in range(1 + max(c.row for c in piece.cells))]
    for cell in piece.cells:
        rows[cell.row][cell.column] = cell.text
    return rows


def texts(pieces: list[Piece]) -> list[tuple[str, str]]:
    return [(piece.label, piece.text) for piece in pieces]


@pytest.mark.slow
@converts
def test_a_text_document_has_its_titles_lists_and_tables_without_deletions(converted: Callable) -> None:
    file = docx.Document()
    file.add_heading("사업 계획서", 0)
    file.add_heading("추진 배경", 1)
    paragraph = file.add_paragraph("금액은 ")
    paragraph.add_run("오천").bold = True
    paragraph.add_run("만원이고, 나머지는 ")
    paragraph.add_run("숨은 글").font.hidden = True
    paragraph.add_run("△1,234원이다.")
    file.add_paragraph("첫째 항목", style="List Bullet")
    file.add_paragraph("하나", style="List Number")
    table = file.add_table(3, 3)
    for row in range(3):
        for column in range(3):
            table.cell(row, column).text = f"{row}행 {column}열"
    table.cell(0, 0).merge(table.cell(0, 1)).text = "넓은 칸"
    table.cell(2, 2).text = ""
    table.cell(2, 2).add_table(1, 2).cell(0, 1).text = "속에 든 표"
    change = '<w:{0} {3} w:id="{1}" w:author="a" w:date="2024-01-01T00:00:00Z"><w:r><w:{2}>{4}</w:{2}></w:r></w:{0}>'
    changed = file.add_paragraph("계약은 ")._p
    changed.append(parse_xml(change.format("del", 1, "delText", WORD, "삼천만")))
    changed.append(parse_xml(change.format("ins", 2, "t", WORD, "칠천만")))
    [page] = converted("a.docx", saved(file))
    cells = [["넓은 칸", "", "0행 2열"], ["1행 0열", "1행 1열", "1행 2열"], ["2행 0열", "2행 1열", "속에 든 표"]]
    assert [grid(piece) for piece in page if piece.is_table] == [cells]
    assert texts([piece for piece in page if not piece.is_table]) == [
        ("doc_title", "사업 계획서"),
        ("paragraph_title", "추진 배경"),
        ("text", "금액은 오천만원이고, 나머지는 △1,234원이다."),
        ("text", "첫째 항목"),
        ("text", "하나"),
        ("text", "계약은 칠천만"),
    ]


def test_a_process_that_read_a_document_can_still_load_models() -> None:
    assert office.read_pieces("a.docx", office_files.docx("글"))
    assert {sys.modules.get(name, "not loaded") for name in ("torch", "transformers")} & {None} == set()


@converts
def test_a_sheet_has_its_cells_as_they_are_shown_without_hidden_ones(converted: Callable) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "예산 현황"
    sheet["A1"] = "2024년도 예산"
    for row in (("부서", "금액", "비율", "숨은 열"), ("총무과", 84592980078, 0.426, "x"), ("숨은 행", 1, 0.1, "x")):
        sheet.append(row)
    sheet.append(("합계", "=B3*2", "=C3", "x"))
    sheet["B3"].number_format = sheet["B5"].number_format = "#,##0;△#,##0"
    sheet["C3"].number_format = sheet["C5"].number_format = "0.0%"
    sheet["F8"] = -48163
    sheet["F8"].number_format = "#,##0;△#,##0"
    sheet.merge_cells("A6:A7")
    sheet["A6"], sheet["B6"], sheet["B7"] = "두 줄", "위", "아래"
    sheet.column_dimensions["D"].hidden = True
    sheet.row_dimensions[4].hidden = True
    book.create_sheet("숨은 표")["A1"] = "숨은 글"
    book["숨은 표"].sheet_state = "hidden"
    book.create_sheet("둘째 표")["A1"] = "둘째 글"
    first, second = converted("a.xlsx", saved(book))
    assert texts(first)[:2] == [("paragraph_title", "예산 현황"), ("text", "2024년도 예산")]
    [table] = [piece for piece in first if piece.is_table]
    rows = [["부서", "금액", "비율"], ["총무과", "84,592,980,078", "42.6%"], ["합계", "169,185,960,156", "42.6%"]]
    assert grid(table) == [*rows, ["두 줄", "위", ""], ["", "아래", ""]]
    assert next(cell for cell in table.cells if cell.text == "두 줄").row_span == 2
    assert texts(first)[3:] == [("text", "△48,163")]
    assert texts(second) == [("paragraph_title", "둘째 표"), ("text", "둘째 글")]
    assert all(piece.printed for piece in (*first, *second))


@pytest.mark.slow
@converts
def test_a_slide_has_its_tables_charts_and_notes_without_hidden_slides(converted: Callable) -> None:
    deck = pptx.Presentation()
    hidden, slide = (deck.slides.add_slide(deck.slide_layouts[5]) for _ in range(2))
    hidden.shapes.title.text = "숨은 쪽"
    hidden.notes_slide.notes_text_frame.text = "숨은 노트"
    hidden._element.set("show", "0")
    slide.shapes.title.text = "분기 실적"
    table = slide.shapes.add_table(2, 2, Inches(1), Inches(2), Inches(4), Inches(1)).table
    for at, text in enumerate(("부서", "증감", "총무과", "△48,163")):
        table.cell(at // 2, at % 2).text = text
    data = CategoryChartData()
    data.categories = ["1분기", "2분기"]
    data.add_series("매출", (12.5, 17.25))
    place = (Inches(5), Inches(3), Inches(4), Inches(3))
    slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *place, data)
    slide.notes_slide.notes_text_frame.text = "설비 점검 때문이다."
    [page] = converted("a.pptx", saved(deck))
    title, printed, chart, note = page
    assert (title.label, title.text) == ("doc_title", "분기 실적")
    assert (printed.printed, grid(printed)) == (True, [["부서", "증감"], ["총무과", "△48,163"]])
    assert (chart.printed, grid(chart)) == (False, [["", "매출"], ["1분기", "12.5"], ["2분기", "17.25"]])
    assert chart.box == pytest.approx((0.5, 0.4, 0.9, 0.8))
    assert (note.printed, note.text) == (False, "설비 점검 때문이다.")


@pytest.mark.slow
@converts
def test_a_web_page_in_cp949_has_its_structure_without_what_it_hides(converted: Callable) -> None:
    hidden = '<p hidden>숨은 글</p><div style="display: none"><p>숨은 글</p></div><!-- 주석 --><select><option>고를 글'
    page = (
        f"<html><head><title>제목</title></head><body><ul><li>공고</li></ul><h1>채용 공고</h1>{hidden}</select>"
        "<table><tr><td>행정</td><td>3명</td></tr></table>"
        "<pre>def f(x):\n    return x</pre><ul><li>서류</li></ul><footer><ul><li>공고</li></ul></footer>"
    )
    [pieces] = converted("a.html", page.encode("cp949"))
    assert texts(pieces) == [
        ("text", "공고"),
        ("doc_title", "채용 공고"),
        ("table", "행정\n3명"),
        ("algorithm", "def f(x):\n    return x"),
        ("text", "서류"),
        ("text", "공고"),
    ]


@pytest.mark.slow
@converts
@pytest.mark.parametrize(
    ("kind", "name", "before", "after"),
    [
        ("spreadsheet", "a.ods", "<table:table-row>", '<table:table-row table:visibility="collapse">'),
        ("spreadsheet", "b.ods", "<table:table-row>", '<table:table-row table:visibility="filter">'),
        ("presentation", "c.odp", "<draw:frame ", '<draw:frame draw:display="none" '),
        ("text", "d.odt", "<text:p>", '<text:p text:style-name="t">'),
    ],
)
def test_what_an_open_document_hides_does_not_come_out(
    converted: Callable, kind: str, name: str, before: str, after: str
) -> None:
    hides = '<style:style style:name="t" style:family="paragraph"><style:text-properties text:display="none"/>'
    styles = f"<office:automatic-styles>{hides}</style:style></office:automatic-styles>"
    with zipfile.ZipFile(io.BytesIO(open_document(kind, "숨은 글", "보이는 글", scripts=styles))) as file:
        parts: dict[str, str | bytes] = {part: file.read(part) for part in file.namelist()}
    content = bytes(parts["content.xml"]).decode()
    parts["content.xml"] = content.replace(before, after, 1)
    pages = converted(name, archive(parts))
    assert [piece.text for page in pages for piece in page] == ["보이는 글"]


def test_a_text_and_a_table_over_two_pages_are_divided_as_they_are_printed() -> None:
    rows = [("과제", "담당"), ("제1과제", "김"), ("제2과제", "홍"), ("제3과제", "박")]
    cells = [PieceCell(row, at, 1, 1, text) for row, held in enumerate(rows) for at, text in enumerate(held)]
    pieces = [
        Piece.of("text", "25,000원을 냅니다. 그리고 다음 쪽으로 갑니다."),
        Piece("table", tuple(cells)),
        Piece.of("text", "그리고 다음 쪽으로 갑니다."),
        Piece.of("text", "이것은 어디에도 찍히지 않았습니다"),
    ]
    placed = place_pieces(
        pieces,
        [
            ["25,000", "원을", "냅니다.", "그리고"],
            ["다음", "쪽으로", "갑니다.", "담당", "과제", "제1과제", "김"],
            ["과제", "담당", "제3과제", "제2과제", "박", "홍", "-", "3", "-"],
        ],
    )
    assert [piece.text for piece in placed.pages[0]] == ["25,000원을 냅니다. 그리고"]
    assert placed.pages[1][0].text == "다음 쪽으로 갑니다."
    assert grid(placed.pages[1][1]) == [["과제", "담당"], ["제1과제", "김"]]
    assert grid(placed.pages[2][0]) == [["과제", "담당"], ["제2과제", "홍"], ["제3과제", "박"]]
    assert (placed.pages[2][1].printed, placed.unprinted) == (False, {2: ("이것은 어디에도 찍히지 않았습니다",)})


def test_the_like_rows_of_a_sheet_are_whole_though_a_page_has_its_numbers_first() -> None:
    rows = [(str(at), f"이름 {at}", str(at * 1000), f"비고 칸입니다 {at}") for at in range(1, 61)]
    cells = [PieceCell(row, at, 1, 1, text) for row, held in enumerate(rows) for at, text in enumerate(held)]
    pages = []
    for half in (rows[:30], rows[30:]):
        numbers, others = ([text for row in half for text in row[start::2]] for start in (0, 1))
        pages.append(" ".join([*numbers, *others]).split())
    placed = place_pieces([Piece("table", tuple(cells))], pages)
    assert [grid(piece) for at in (0, 1) for piece in placed.pages[at]] == [
        [list(row) for row in rows[:30]],
        [list(row) for row in rows[30:]],
    ]


def test_a_short_number_does_not_take_a_part_of_a_longer_one() -> None:
    printed = PrintedWords([["27.9", "1,204", "(3)", "27", "204", "3"]])
    cells = [PieceCell(0, at, 1, 1, text) for at, text in enumerate(("27", "204", "3", "27.9", "1,204", "(3)"))]
    assert printed.take_cells(cells) == [[3] * 2, [4] * 3, [5], [0] * 4, [1] * 5, [2] * 3]
    assert printed.untaken() == set()


def test_no_page_cuts_a_row_of_a_sheet_though_the_next_has_the_number_that_it_lacks() -> None:
    rows = [[f"{at}번 과제입니다", str(at), str(100 + at)] for at in range(1, 7)]
    cells = [PieceCell(row, at, 1, 1, text) for row, held in enumerate(rows) for at, text in enumerate(held)]
    pages = [" ".join(text for row in half for text in row).split() for half in (rows[:3], rows[3:])]
    pages = [[word for word in pages[0] if word != "103"], ["103", *pages[1]]]
    placed = place_pieces([Piece("table", tuple(cells), sheet="과제")], pages)
    assert [grid(piece) for at in (0, 1) for piece in placed.pages[at]] == [rows[:3], rows[3:]]


def test_the_rows_of_a_sheet_are_on_its_pages_though_another_sheet_prints_the_like() -> None:
    sheets = ("상반기", "하반기")
    rows = [[("서울 지점", "—", str(9 + at)), ("부산 지점", "—", "—"), ("합계", "—", str(9 + at))] for at in (0, 1)]
    pieces: list[Piece] = []
    pages: list[list[str]] = []
    for name, of_sheet in zip(sheets, rows, strict=True):
        cells = [PieceCell(row, at, 1, 1, text) for row, texts in enumerate(of_sheet) for at, text in enumerate(texts)]
        pieces += [Piece.of("text", "단위: 백만 원"), Piece("table", tuple(cells))]
        pieces[-2:] = [replace(piece, sheet=name) for piece in pieces[-2:]]
        # A turned text is printed last.
        pages.append([*(word for texts in of_sheet for text in texts for word in text.split()), "단위:", "백만", "원"])
    placed = place_pieces(pieces, pages, dict(zip(sheets, (0, 1), strict=True)))
    assert [grid(placed.pages[at][1]) for at in (0, 1)] == [[list(row) for row in of_sheet] for of_sheet in rows]


def test_a_table_of_four_times_the_rows_takes_about_four_times_as_long() -> None:
    def seconds(rows: int) -> float:
        cells = [PieceCell(row, at, 1, 1, f"{row}{sign}") for row in range(rows) for at, sign in enumerate("가나다")]
        pages = [[cell.text for cell in cells[at : at + 120]] for at in range(0, len(cells), 120)]
        begin = time.process_time()
        assert len(place_pieces([Piece("table", tuple(cells))], pages).pages) == len(pages)
        return time.process_time() - begin

    assert seconds(6000) < 9 * seconds(1500)


def test_a_cell_that_is_found_on_a_later_page_takes_no_other_rows_there() -> None:
    rows = [(f"{at}번 항목입니다", f"설명 {at}번은 이것입니다") for at in range(1, 13)]
    # The third row's sign has no place on its own page.
    rows[2] = (rows[2][0], "구분 코드 체계표")
    cells = [PieceCell(row, at, 1, 1, text) for row, held in enumerate(rows) for at, text in enumerate(held)]
    pages = [" ".join(text for row in half for text in row).replace("구분 코드 체계표", "").split()
             for half in (rows[:8], rows[8:])]  # fmt: skip
    pages[1] += ["구분", "코드", "체계표"]
    placed = place_pieces([Piece("table", tuple(cells))], pages)
    assert [grid(piece) for at in (0, 1) for piece in placed.pages[at]] == [
        [list(row) for row in rows[:8]],
        [list(row) for row in rows[8:]],
    ]


def test_a_row_that_a_page_cuts_keeps_its_cells_and_a_table_in_a_cell_has_its_own_page() -> None:
    rows = [("번호", "설명", "필수/선택")]
    rows += [(str(at), f"{at}번 항목을 여러 줄로 설명하는 글입니다", "필수") for at in (1, 2, 3)]
    inner = [("구분", "코드"), ("자리", "숫자"), ("코드 설명표", "시군구")]
    grids = [[PieceCell(row, at, 1, 1, text) for row, held in enumerate(of) for at, text in enumerate(held)]
             for of in (rows, inner)]  # fmt: skip
    pages = [
        "번호 설명 필수/선택 1 1번 항목을 여러 줄로 설명하는 글입니다 구분 코드 자리 숫자 코드 설명표 시군구 필수 "
        "2 2번 항목을 여러 필수",
        "번호 설명 필수/선택 줄로 설명하는 글입니다 3 3번 항목을 여러 줄로 설명하는 글입니다 필수",
    ]
    placed = place_pieces([Piece("table", tuple(cells)) for cells in grids], [page.split() for page in pages])
    assert placed.unprinted == {}
    assert [grid(piece) for piece in placed.pages[0]] == [
        [*map(list, rows[:2]), ["2", "2번 항목을 여러", "필수"]],
        [*map(list, inner)],
    ]
    assert [grid(piece) for piece in placed.pages[1]] == [
        [list(rows[0]), ["", "줄로 설명하는 글입니다", ""], list(rows[3])]
    ]


def test_a_title_whose_number_is_printed_in_another_form_has_its_place() -> None:
    placed = place_pieces(
        [Piece.of("paragraph_title", "1.1 Section 1.1"), Piece.of("text", "Bar")], [["1.1.", "Section", "1.1", "•Bar"]]
    )
    assert placed.unprinted == {}
    assert texts(list(placed.pages[0])) == [("paragraph_title", "1.1 Section 1.1"), ("text", "Bar")]


@converts
def test_a_document_whose_structure_cannot_be_read_is_printed_and_partial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = docx.Document()
    document.add_paragraph("사업 계획서")
    document.save(str(path := tmp_path / "a.docx"))

    def odd(name: str, content: bytes) -> list[Piece]:
        raise KeyError("rId7")

    monkeypatch.setattr(office, "read_pieces", odd)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    converted = conversion._convert_file(path, tmp_path)
    assert converted.pdf.is_file()
    assert converted.lost[0].startswith("only the print of the document was read, for its structure is odd: ")
