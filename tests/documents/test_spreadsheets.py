"""Tables as spreadsheets: numbers are numbers, texts are texts, and nothing is computed."""

import csv
import io

import openpyxl
import pytest

from kopub.documents.spreadsheets import number_of, tables_workbook
from kopub.documents.structure import structure_document
from kopub.documents.tables import DataTable, document_tables
from tests.support.sources.documents import Printed, document

EDGES, NEXT_EDGES, CAPTION = (100, 700, 900, 950), (100, 60, 900, 300), (100, 660, 900, 690)


def tables(*pages: list[Printed]) -> list[DataTable]:
    made = document(*pages)
    return list(document_tables(made, structure_document(made).blocks))


def table(*rows: str, tag: str = "td") -> str:
    cells = ("".join(f"<{tag}>{cell}</{tag}>" for cell in row.split("|")) for row in rows)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


@pytest.mark.parametrize(
    ("printed", "value", "shown"),
    [
        ("1,234", 1234, "#,##0"),
        ("-1,234", -1234, '#,##0;"-"#,##0'),
        ("△48,163", -48163, '#,##0;"△"#,##0'),
        ("3.50", 3.5, "0.00"),
        ("12.5%", 0.125, "0.0%"),
        ("0", 0, "0"),
    ],
)
def test_what_is_a_number_beyond_doubt_is_one(printed: str, value: float, shown: str) -> None:
    number = number_of(printed)
    assert number is not None
    assert (number.value, number.number_format) == (value, shown)


@pytest.mark.parametrize("printed", ["▲10", "(1,234)", "007", "1,23", "2024. 3. 5.", "010-1234-5678", "1" * 16, "3~5"])
def test_what_may_be_anything_else_is_a_text(printed: str) -> None:
    assert number_of(printed) is None


def test_no_text_is_computed_and_a_table_without_headings_has_no_row_of_numbers() -> None:
    live = ["=1+1", '=HYPERLINK("http://evil","x")', "@SUM(1)", "+cmd|calc", "-2+3", "- 없음"]
    kept = ["-1,234", "+3.5%", "-", "---"]
    (made,) = tables([Printed("table", table(*(text.replace("|", "&#124;") for text in [*live, *kept])))])
    assert [row for (row,) in csv.reader(io.StringIO(made.to_csv()))] == [*(f"'{text}" for text in live), *kept]
    sheet = openpyxl.load_workbook(io.BytesIO(tables_workbook([made]))).worksheets[0]
    assert {cell.data_type for (cell,) in sheet.rows} == {"s", "n"}
    assert [cell.value for (cell,) in sheet.rows] == [*live, -1234, 0.035, "-", "---"]


def test_a_workbook_has_a_sheet_a_table_with_merged_cells_and_the_caption_as_its_name() -> None:
    rows = '<tr><th colspan="2">2024년</th></tr><tr><td rowspan="2">가</td><td>1,000</td></tr><tr><td>2</td></tr>'
    pages = [
        Printed("figure_title", "<표 1> 예산: 총괄/세부", CAPTION),
        Printed("table", f"<table>{rows}</table>", EDGES),
    ]
    made = tables(pages, [Printed("table", table("x|y"), (100, 300, 900, 400))])
    data = tables_workbook(made)
    book = openpyxl.load_workbook(io.BytesIO(data))
    assert book.sheetnames == ["<표 1> 예산 총괄세부", "Table 2"]
    assert {str(merged) for merged in book.worksheets[0].merged_cells.ranges} == {"A1:B1", "A2:A3"}
    assert [cell.value for cell in book.worksheets[0]["B"]] == [None, 1000, 2]
    assert book.worksheets[0]["A1"].value == "2024년"
    assert data == tables_workbook(made)
