"""Documents as DoclingDocuments: they validate, and hold every region with its place."""

import sys
from pathlib import Path

import pytest

from resources.documents_out.folder import write_documents
from resources.errors import ConfigError
from resources.states import State
from tests.support.sources.documents import HEIGHT, WIDTH, DocumentTables, PageRow, Printed

docling = pytest.importorskip("docling_core.types.doc")

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


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory):
    out = tmp_path_factory.mktemp("docling")
    write_documents(DocumentTables(s=PAGES), ["s"], out, ["docling"], lambda page_id, index: f"그림 설명 {index}")
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
    assert made.pictures[0].meta.description.text == "그림 설명 5"
    assert made.tables[0].caption_text(made) == "표 1. 현황"
    cell, value, number = made.tables[0].data.table_cells
    assert (cell.text, cell.row_span, cell.column_header, value.text) == ("구분", 2, True, "값")
    assert (number.text, number.start_row_offset_idx, number.start_col_offset_idx) == ("1,000", 1, 1)


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


def test_without_docling_core_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docling_core", None)
    monkeypatch.setitem(sys.modules, "docling_core.types.doc", None)
    with pytest.raises(ConfigError, match=r"pip install 'kopub\[docling\]'"):
        write_documents(DocumentTables(s=PAGES), ["s"], tmp_path / "out", ["docling"])
    assert not (tmp_path / "out").exists()
