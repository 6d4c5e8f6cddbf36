"""Documents as DoclingDocuments: they validate, and hold every region with its place."""

# docling-core offers its types in this package without listing them there.
# pyright: reportPrivateImportUsage=false

import re
from pathlib import Path

import pytest
from docling_core.types import doc as docling
from markdown_it import MarkdownIt

from kopub.documents.export import write_documents
from kopub.figures.figure import FigureNote
from kopub.states import State
from tests.support.sources.documents import HEIGHT, WIDTH, DocumentTables, PageRow, Printed

TABLE = '<table><tr><th rowspan="2">구분</th><th>값</th></tr><tr><td>1,000</td></tr></table>'
HEAD = (100, 30, 900, 45)
FULL = "데비안 설치 프로그램은 임베디드 장치와 노트북 컴퓨터와 데스크톱 컴퓨터 등 여러가지"
PAGES = [
    PageRow("a_1", "보고서.pdf", 1, [
        Printed("header", "머리말", HEAD), Printed("doc_title", "보고서"), Printed("paragraph_title", "제1장 개요"),
        Printed("paragraph_title", "1.1 배경"), Printed("text", "• 첫째\n• 둘째"),
        Printed("image", "", (100, 300, 500, 400)), Printed("figure_title", "그림 1. 추이", (100, 405, 500, 415)),
        Printed("chart", "", (600, 300, 900, 400)), Printed("figure_title", "표 1. 현황", (100, 480, 500, 490)),
        Printed("table", TABLE, (100, 500, 900, 600)), Printed("display_formula", "a=b"),
        Printed("formula_number", "(1)"), Printed("algorithm", "```\nls -l\n```"),
        Printed("text", FULL, (100, 800, 900, 880)),
        Printed("footnote", "1) 각주.", (100, 900, 900, 910)),
    ]),
    PageRow("a_2", "보고서.pdf", 2, [
        Printed("header", "머리말", HEAD), Printed("text", "종류를 지원한다. a_b < c", (100, 80, 900, 120)),
        Printed("text", None),
    ], State.PARTIAL, "1 of 2"),
    PageRow("a_3", "보고서.pdf", 3, [], State.QUARANTINED, "the image is damaged"),
]  # fmt: skip


def note(page_id: str, index: int) -> FigureNote | None:
    """Return the note on the image, the chart or the table of a_1."""
    said = {
        5: FigureNote("a", State.OK, None, "molecule", "그림 설명", ("벤젠", "고리"), None, "c1ccccc1"),
        7: FigureNote("a", State.OK, None, "bar_chart", "매출 추이", data_html=TABLE),
        9: FigureNote("a", State.OK, None, "table", "현황 요약", ("현황",)),
    }
    return said.get(index) if page_id == "a_1" else None


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory):
    out = tmp_path_factory.mktemp("docling")
    write_documents(DocumentTables(s=PAGES), ["s"], out, ["docling"], note)
    return docling.DoclingDocument.model_validate_json((out / "보고서.json").read_text("utf-8"))


def test_every_item_has_its_label_page_and_box(made) -> None:
    body = [(item.label.value, getattr(item, "text", "")) for item, _ in made.iterate_items()]
    assert body == [
        ("title", "보고서"), ("section_header", "제1장 개요"), ("section_header", "1.1 배경"),
        ("list_item", "첫째"), ("list_item", "둘째"), ("picture", ""), ("caption", "그림 1. 추이"), ("chart", ""),
        ("table", ""), ("caption", "표 1. 현황"), ("formula", "a=b"), ("text", "(1)"), ("code", "ls -l"),
        ("text", FULL), ("footnote", "1) 각주."), ("text", "종류를 지원한다. a_b < c"),
    ]  # fmt: skip
    assert [item.level for item in made.texts if item.label == "section_header"] == [1, 2]
    assert (made.pages[2].size.width, made.pages[2].size.height) == (WIDTH, HEIGHT)
    place = made.tables[0].prov[0]
    assert (place.page_no, place.bbox.as_tuple(), place.bbox.coord_origin) == (1, (100, 1000, 900, 1200), "TOPLEFT")
    assert (made.origin.mimetype, made.origin.filename) == ("application/pdf", "보고서.pdf")


def test_captions_pictures_and_spans(made) -> None:
    assert [picture.caption_text(made) for picture in made.pictures] == ["그림 1. 추이", ""]
    assert [str(picture.image.uri) for picture in made.pictures] == [
        "보고서.pictures/1-5.jpg",
        "보고서.pictures/1-7.jpg",
    ]
    assert made.tables[0].caption_text(made) == "표 1. 현황"
    cell, value, number = made.tables[0].data.table_cells
    assert (cell.text, cell.row_span, cell.column_header, value.text) == ("구분", 2, True, "값")
    assert (number.text, number.start_row_offset_idx, number.start_col_offset_idx) == ("1,000", 1, 1)


def test_two_heading_rows_are_headings_of_columns(tmp_path: Path) -> None:
    rows = '<tr><th colspan="2">2024</th></tr><tr><th>상반기</th><th>하반기</th></tr><tr><th>합계</th><td>3</td></tr>'
    page = PageRow("a_1", "a", 1, [Printed("table", f"<table>{rows}</table>")])
    write_documents(DocumentTables(s=[page]), ["s"], tmp_path, ["docling"])
    (table,) = docling.DoclingDocument.model_validate_json((tmp_path / "a.json").read_text("utf-8")).tables
    cells = table.data.table_cells
    assert [cell.text for cell in cells if cell.column_header] == ["2024", "상반기", "하반기"]
    assert [cell.text for cell in cells if cell.row_header] == ["합계"]
    assert table.export_to_dataframe().columns.to_list() == ["2024.상반기", "2024.하반기"]


def test_what_a_model_noted_is_in_the_meta_of_the_picture_or_table(made) -> None:
    molecule, chart = (picture.meta for picture in made.pictures)
    assert (molecule.description.text, molecule.keywords.values) == ("그림 설명", ["벤젠", "고리"])
    assert (molecule.classification.predictions[0].class_name, molecule.molecule.smi) == ("molecule", "c1ccccc1")
    assert (chart.classification.predictions[0].class_name, chart.description.text) == ("bar_chart", "매출 추이")
    assert [cell.text for cell in chart.tabular_chart.chart_data.table_cells] == ["구분", "값", "1,000"]
    table = made.tables[0].meta
    assert (table.description.text, table.keywords.values) == ("현황 요약", ["현황"])


def test_a_printed_link_to_a_script_is_no_link_in_its_markdown(tmp_path: Path) -> None:
    printed = "[click](javascript:alert(1)) [site](https://example.com)"
    rows = [PageRow("a_1", "a", 1, [Printed("text", printed), Printed("doc_title", printed)])]
    write_documents(DocumentTables(s=rows), ["s"], tmp_path, ["docling"])
    read = docling.DoclingDocument.model_validate_json((tmp_path / "a.json").read_text("utf-8"))
    html = MarkdownIt("commonmark").render(read.export_to_markdown())
    assert re.findall(r'href="([^"]*)"', html) == ["https://example.com"] * 2


def test_heads_are_furniture_and_what_is_lost_is_said(made) -> None:
    layers = {"furniture": [], "notes": []}
    for item in made.texts:
        layers.setdefault(item.content_layer.value, []).append(item.text)
    assert layers["furniture"] == ["머리말", "머리말"]
    assert layers["notes"] == [
        "Region 2 (text) could not be read: no answer",
        "Page 3 could not be read (quarantined): the image is damaged",
    ]


def test_its_own_markdown_holds_the_text_of_every_region(made) -> None:
    layers = {docling.ContentLayer.BODY, docling.ContentLayer.FURNITURE}
    text = made.export_to_markdown(included_content_layers=layers, escape_html=False, escape_underscores=False)
    for printed in (region for row in PAGES for region in row.regions):
        for line in (printed.text or "").replace("```", "").split("\n"):
            assert printed.label == "table" or line.removeprefix("• ") in text
    assert all(cell.text in text for cell in made.tables[0].data.table_cells)


def test_a_paragraph_that_goes_on_has_both_places(tmp_path: Path) -> None:
    first = PageRow("a_1", "a", 1, [Printed("text", FULL, (100, 800, 900, 880))])
    second = PageRow("a_2", "a", 2, [Printed("text", "종류를 지원한다.", (100, 80, 900, 120))])
    write_documents(DocumentTables(s=[first, second]), ["s"], tmp_path, ["docling", "markdown"])
    (text,) = docling.DoclingDocument.model_validate_json((tmp_path / "a.json").read_text("utf-8")).texts
    assert [(prov.page_no, text.text[slice(*prov.charspan)]) for prov in text.prov] == [
        (1, FULL),
        (2, "종류를 지원한다."),
    ]
    assert (tmp_path / "a.md").is_file()
