"""Benchmark folders of every format are read; non-samples are left out and named."""

import json
import os
import unicodedata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kopub.errors import ConfigError, SourceError
from kopub.evaluation.benchmark import (
    OWN_PAGES,
    Answers,
    Benchmark,
    ElementList,
    FactList,
    Formula,
    LineText,
    PageText,
    TableHtml,
)
from kopub.evaluation.benchmarks.tables_and_formulas import table_html
from kopub.evaluation.scoring import ADAPTERS, load
from kopub.layout.regions import Task
from tests.support.sources.pdf_files import sheet, text_pdf, written

PNG = b"\x89PNG"
KNOWN = Path(__file__).parent / "known"
TABLE = "<table><tr><td>1</td></tr></table>"
PDF = b"""%PDF-1.4
1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj
2 0 obj<</Type/Pages/Kids[3 0 R 6 0 R]/Count 2>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 200]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>endobj
4 0 obj<</Length 46>>stream
BT /F 20 Tf 20 100 Td (A page with text) Tj ET
endstream endobj
5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj
6 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 200]>>endobj
trailer<</Root 1 0 R>>
"""
"""A page with text and one without."""


def put(folder: Path, **files: object) -> Path:
    """Write files, `__` for `/`: bytes unchanged, text as UTF-8, all else as JSON."""
    for name, content in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return folder


def parquet(folder: Path, rows: list[dict[str, Any]], name: str = "test-00000.parquet") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([{"image": {"bytes": PNG, "path": "x"}, **row} for row in rows]), folder / name)
    return folder


def left_out(benchmark: Benchmark) -> list[str]:
    return [str(each) for each in benchmark.left_out]


def block(category: str, id: int = 0, order: int | None = 1, **other: Any) -> dict[str, Any]:
    return {"category_type": category, "poly": [10, 20, 60, 20, 60, 80, 10, 80], "order": order, "anno_id": id} | other


def page(name: str, *blocks: dict[str, Any], language: str = "english", relation: Any = ()) -> dict[str, Any]:
    return {
        "layout_dets": list(blocks),
        "page_info": {
            "image_path": name,
            "width": 100,
            "height": 200,
            "page_attribute": {"language": language, "data_source": "book"},
        },
        "extra": {"relation": list(relation)},
    }


class TestOmniDocBench:
    def test_pages_blocks_and_what_is_no_sample(self, tmp_path: Path):
        gold = [
            page("book.pdf_1.jpg", block("text_block", text="가", ignore=True), block("title", 1, text=None)),
            page("gone.jpg", block("text_block", text="나")),
            page("odd.jpg", block("poem", text="다"), block("chart_mask", 1)),
            page("broken.jpg", {"category_type": "text_block"}),
            page("book.pdf_1.jpg"),
            {"layout_dets": [], "page_info": {}},
        ]
        names = ("book.pdf_1.png", "odd.jpg", "broken.jpg", "alone.jpg")
        put(tmp_path, **{"OmniDocBench.json": gold}, **{f"images__{name}": PNG for name in names})
        found = load("omnidocbench", tmp_path)
        assert [sample.id for sample in found.samples] == ["book.pdf_1", "odd"]
        first = found.samples[0]
        assert (first.document, first.slices) == ("book.pdf", {"language": "english", "source": "book"})
        assert isinstance(first.gold, ElementList)
        assert first.gold.elements[0].bbox == (0.1, 0.1, 0.6, 0.4)
        assert [element.ignored for element in first.gold.elements] == [True, False]
        assert first.picture is not None
        assert first.picture.read() == PNG
        assert left_out(found) == [
            "gone: it has gold and no picture",
            "broken: its gold cannot be read: KeyError('poly')",
            "book.pdf_1: it is there twice: the first one counts",
            "page 5: it names no picture",
            "alone.jpg: it is a picture without gold",
            "category poem: 1 blocks of it are not scored: it is not known",
        ]

    @pytest.mark.parametrize("benchmark", ["omnidocbench", "mdpbench_ko"])
    def test_gold_of_another_form_is_left_out(self, tmp_path: Path, benchmark: str):
        gold = [page(f"{name}.jpg", block("title", text="가"), language="korean") for name in "abc"]
        gold[0]["layout_dets"][0]["poly"] = [10, 20, 60, 80]
        gold[1]["page_info"]["page_attribute"] = ["korean"]
        put(tmp_path, **{"gold.json": gold}, **{f"{name}.jpg": PNG for name in "abc"})
        found = load(benchmark, tmp_path)
        assert [sample.id for sample in found.samples] == ["c"]
        assert left_out(found) == [
            "a: its gold cannot be read: IndexError('list index out of range')",
            """b: its gold cannot be read: AttributeError("'list' object has no attribute 'get'")""",
        ]

    def test_paragraphs_that_were_cut_are_one(self, tmp_path: Path):
        cut = [{"relation_type": "truncated", "source_anno_id": a, "target_anno_id": b} for a, b in ((2, 1), (3, 2))]
        blocks = [
            block("text_block", id, order, text=text) for id, order, text in ((1, 4, "다."), (2, 2, "나"), (3, 1, "가"))
        ]
        blocks.append(block("text_block", 4, 3, text="라"))
        put(tmp_path, **{"gold.json": [page("a.jpg", *blocks, relation=cut)], "a.jpg": PNG})
        gold = load("omnidocbench", tmp_path).samples[0].gold
        assert isinstance(gold, ElementList)
        assert [(element.order, element.text) for element in gold.elements] == [(1, "가나다."), (3, "라")]

    def test_the_korean_pages_and_their_photographs(self, tmp_path: Path):
        from PIL import Image

        names = ("ko_book_1", "ko_book_1_indoor_light", "en_book_2")
        gold = [
            page(f"{name}.jpg", block("text_block"), language="Korean" if "ko" in name else "English") for name in names
        ]
        for each in gold:
            del each["page_info"]["width"]
        put(tmp_path, **{"MDPBench_public.json": gold})
        for name in names:
            Image.new("L", (50, 100)).save(tmp_path / f"{name}.jpg")
        found = load("mdpbench_ko", tmp_path)
        assert [(sample.id, sample.document) for sample in found.samples] == [
            ("ko_book_1", "ko_book_1"),
            ("ko_book_1_indoor_light", "ko_book_1"),
        ]
        assert found.samples[1].slices["capture"] == "photograph"
        assert not found.left_out
        assert isinstance(found.samples[0].gold, ElementList)
        assert found.samples[0].gold.width == 50

    def test_broken_json_is_one_line(self, tmp_path: Path):
        put(tmp_path, **{"OmniDocBench.json": "[{"})
        with pytest.raises(
            SourceError, match=r"OmniDocBench.json is no JSON: Expecting.*get it from https.*licence: for"
        ):
            load("omnidocbench", tmp_path)


def test_dp_bench(tmp_path: Path):
    corners = [{"x": 1, "y": 2}, {"x": 3, "y": 2}, {"x": 3, "y": 9}, {"x": 1, "y": 9}]
    elements = [
        {"category": "Heading1", "content": {"text": "H", "html": ""}, "coordinates": corners, "id": 0, "page": 1},
        {"category": "Table", "content": {"text": "", "html": TABLE}, "coordinates": corners, "id": 1, "page": 1},
        {"category": "Poem", "content": {"text": "p"}},
    ]
    reference = {"a.pdf": {"elements": elements}, "b.pdf": {"elements": []}, "c.pdf": {}}
    put(tmp_path, **{"dataset__reference.json": reference, "dataset__pdfs__a.pdf": b"%PDF", "pdfs__c.pdf": b"%PDF"})
    found = load("dp_bench", tmp_path)
    assert [(sample.id, sample.picture and sample.picture.page) for sample in found.samples] == [("a", 1)]
    assert left_out(found) == [
        "b: it has gold and no picture",
        "c.pdf: its gold cannot be read: KeyError('elements')",
        "category Poem: it is not known: its text is scored as a paragraph's",
    ]


def test_opendataloader_bench_is_read_as_the_dp_bench_that_it_holds(tmp_path: Path):
    elements = [{"category": "Table", "content": {"text": "", "html": TABLE}, "id": 0, "page": 1}]
    files = {
        "ground-truth__reference.json": {"01030000000010.pdf": {"elements": elements}},
        "ground-truth__markdown__01030000000010.md": "# H",
        "pdfs__01030000000010.pdf": b"%PDF",
        "prediction__docling__evaluation.json": {"summary": {}},
    }
    put(tmp_path, **files)
    found = load("dp_bench", tmp_path)
    assert [(sample.id, sample.picture and sample.picture.page) for sample in found.samples] == [("01030000000010", 1)]
    assert left_out(found) == []


class TestPubTabNet:
    def test_a_record_is_its_structure_with_its_cells_put_in(self):
        records = [json.loads(line) for line in (KNOWN / "pubtabnet/examples_2.jsonl").read_text("utf-8").splitlines()]
        html = table_html(records[0]["html"])
        assert html.startswith("<html><body><table><thead><tr><td><b>Variable</b></td>")
        assert html.count("</td>") == len(records[0]["html"]["cells"])

    def test_json_lines_with_pictures(self, tmp_path: Path):
        structure = {"tokens": ["<tr>", "<td", ' colspan="2"', ">", "</td>", "</tr>"]}
        html = {"structure": structure, "cells": [{"tokens": ["<b>", "가", "</b>"]}]}
        lines = [
            {"filename": "a.png", "split": "val", "html": html},
            {"filename": "b.png", "split": "train", "html": html},
            {"filename": "c.png", "split": "val", "html": {"structure": structure, "cells": []}},
            {"filename": 5, "split": "val", "html": html},
        ]
        text = "\n".join(map(json.dumps, lines)) + "\nno json\n[]\n"
        put(tmp_path, **{"PubTabNet_2.0.0.jsonl": text}, **{f"val__{name}.png": PNG for name in "abd"})
        found = load("pubtabnet", tmp_path)
        assert [sample.gold for sample in found.samples] == [
            TableHtml('<html><body><table><tr><td colspan="2"><b>가</b></td></tr></table></body></html>')
        ]
        assert found.samples[0].slices == {"part": "first 200", "type": "complex"}
        regions = found.samples[0].regions
        assert regions is not None
        assert [(region.label, region.task, region.bbox) for region in regions] == [("table", Task.TABLE, (0, 0, 1, 1))]
        assert left_out(found) == [
            "PubTabNet_2.0.0.jsonl:3: its gold cannot be read: IndexError('list index out of range')",
            "5: it has gold and no picture",
            "PubTabNet_2.0.0.jsonl:5: it is no JSON: Expecting value: line 1 column 1 (char 0)",
            "PubTabNet_2.0.0.jsonl:6: it is no JSON object",
            "d.png: it is a picture without gold",
        ]

    def test_the_two_slices_of_the_parquet_files(self, tmp_path: Path):
        rows = [{"html_table": TABLE if at != 1 else ""} for at in range(4003)]
        parquet(tmp_path, rows, "validation-00000.parquet")
        parquet(tmp_path, [{"html_table": "other"}], "train-00000.parquet")
        found = load("pubtabnet", tmp_path)
        parts = [sample.slices["part"] for sample in found.samples]
        assert (parts.count("first 200"), parts.count("200 from row 4,000")) == (199, 3)
        assert left_out(found) == ["row_1: its gold is empty"]
        assert found.samples[-1].id == "row_4002"
        assert found.samples[-1].picture is not None
        assert found.samples[-1].picture.read() == PNG


def test_unimer_in_text_files_and_in_parquet(tmp_path: Path):
    put(tmp_path / "a", **{"spe.txt": "x^2\u2028\f+ 1\n\ny\n", "spe__0.png": PNG, "spe__1.png": PNG, "notes.txt": "n"})
    found = load("unimer", tmp_path / "a")
    assert [(sample.id, sample.gold) for sample in found.samples] == [("spe_0", Formula("x^2\u2028\f+ 1"))]
    assert left_out(found) == ["spe_1: its gold is empty", "spe_2: it has gold and no picture"]
    found = load("unimer", parquet(tmp_path / "b", [{"text": "a"}, {"text": "b"}]))
    assert [sample.gold for sample in found.samples] == [Formula("a"), Formula("b")]


def test_files_of_another_split_are_not_read_in_a_folder_named_like_the_split(tmp_path: Path):
    folder = tmp_path / "pubtabnet_validation"
    parquet(folder, [{"html_table": TABLE.replace("1", "training")}], "train-00000.parquet")
    parquet(folder, [{"html_table": TABLE}], "validation-00000.parquet")
    assert [sample.gold for sample in load("pubtabnet", folder).samples] == [TableHtml(TABLE)]


def test_lines(tmp_path: Path):
    found = load("iam_lines", parquet(tmp_path, [{"text": "a line"}, {"text": ""}]))
    assert [sample.gold for sample in found.samples] == [LineText("a line")]
    assert left_out(found) == ["row_1: its gold is empty"]


class TestAnswers:
    def test_ocrbench(self, tmp_path: Path):
        questions = [
            {
                "dataset_name": "HME100k",
                "question": "?",
                "answers": ["x"],
                "type": "Formula",
                "image_path": "HME/1.jpg",
            },
            {"dataset_name": "docVQA", "question": "?", "answers": "y", "type": "Doc", "image_path": "doc/1.jpg"},
            {"dataset_name": "docVQA", "question": "?", "answers": [" ", None], "image_path": "doc/1.jpg"},
            "no object",
        ]
        put(tmp_path, **{"OCRBench__OCRBench.json": questions, "images__HME__1.jpg": b"h", "images__doc__1.jpg": b"d"})
        found = load("ocrbench", tmp_path)
        pictures = [sample.picture.read() for sample in found.samples if sample.picture]
        assert pictures == [b"h", b"d"]
        assert [q.dense for s in found.samples if isinstance(s.gold, Answers) for q in s.gold.questions] == [
            True,
            False,
        ]
        assert left_out(found) == ["question_2: it has no answer", "question 3: it is no JSON object"]

    def test_ocrbench_in_parquet(self, tmp_path: Path):
        found = load(
            "ocrbench", parquet(tmp_path, [{"dataset": "svt", "question": "?", "question_type": "R", "answer": ["a"]}])
        )
        assert found.samples[0].slices == {"type": "R", "source": "svt"}

    def test_fields_of_documents(self, tmp_path: Path):
        fields = '{"date": "2023-01-02", "total": "", "discount": 0, "paid": null}'
        rows = [{"annotations": fields}, {"annotations": "{"}, {"annotations": "{}"}]
        found = load("nanonets_kie", parquet(tmp_path, rows))
        assert isinstance(found.samples[0].gold, Answers)
        questions = [(question.question, question.answers) for question in found.samples[0].gold.questions]
        assert questions == [("date", ("2023-01-02",)), ("discount", ("0",))]
        assert [each.what for each in found.left_out] == ["row_1", "row_2"]


class TestFacts:
    def test_olmocr_bench(self, tmp_path: Path):
        facts = [
            {"pdf": "a/x.pdf", "page": 1, "id": "1", "type": "present", "text": "t"},
            {"pdf": "a/x.pdf", "page": 2, "id": "2", "type": "absent", "text": "t"},
            {"pdf": "b.pdf", "page": 1, "id": "3", "type": "order", "before": "ab", "after": "cd", "max_diffs": 2},
            {"pdf": "b.pdf", "page": 1, "id": "1", "type": "present", "text": "t"},
            {"pdf": "b.pdf", "page": 1, "id": "4", "type": "poem"},
            {"pdf": "b.pdf", "page": 0, "id": "5", "type": "baseline"},
            {"pdf": "c.pdf", "page": 1, "id": "6", "type": "present", "text": " "},
            {"pdf": "d.pdf", "page": 1, "id": "7", "type": "baseline", "max_length": 10},
            {"pdf": "d.pdf", "page": 1, "id": "8", "type": "present", "text": "t", "first_n": "ten"},
        ]
        put(tmp_path, **{"facts.jsonl": "\n".join(map(json.dumps, facts)) + "\nx"})
        put(tmp_path, **{"pdfs__a__x.pdf": b"%PDF", "pdfs__d.pdf": b"%PDF", "pdfs__e.pdf": b"%PDF"})
        found = load("olmocr_bench", tmp_path)
        assert [(s.id, s.document, s.picture and s.picture.page) for s in found.samples] == [
            ("a__x_1", "a__x", 1),
            ("a__x_2", "a__x", 2),
            ("d_1", "d", 1),
        ]
        golds = [sample.gold for sample in found.samples]
        groups = [[(fact.type, fact.group) for fact in gold.facts] for gold in golds if isinstance(gold, FactList)]
        assert groups == [
            [("present", "facts"), ("baseline", "baseline")],
            [("absent", "facts")],
            [("baseline", "facts")],
        ]
        assert left_out(found) == [
            "facts.jsonl:3: its max_diffs is more than half of a text",
            "facts.jsonl:4: the fact 1 is there twice: the first one counts",
            "facts.jsonl:5: 'poem' is no type of fact; use one of absent, baseline, footnote, format, math, order, "
            "present, table",
            "facts.jsonl:6: its page is no number from 1",
            "facts.jsonl:7: it has no text in text",
            "facts.jsonl:9: its first_n is no int",
            "facts.jsonl:10: it is no JSON: Expecting value: line 1 column 1 (char 0)",
            "e: there is no fact about it",
        ]

    def test_kdoc_ocrbench(self, tmp_path: Path):
        files = {
            "text_present.jsonl": [{"pdf": "a.pdf", "page": 1, "id": "1", "type": "present", "text": "합계"}],
            "tables.jsonl": [{"pdf": "a.pdf", "page": 1, "id": "2", "type": "table", "cell": "1,234", "left": "합계"}],
            "header_footer_tests.jsonl": [{"pdf": "b.pdf", "page": 1, "id": "3", "type": "absent", "text": "연보"}],
            "categories.jsonl": [{"pdf": "a.pdf", "category": "Statistics", "raw": "x"}],
        }
        put(tmp_path, **{name: "\n".join(map(json.dumps, lines)) for name, lines in files.items()})
        put(tmp_path, **{"pdfs__a.pdf": b"%PDF", "pdfs__b.pdf": b"%PDF"})
        found = load("kdoc_ocrbench", tmp_path)
        assert [(sample.id, sample.slices) for sample in found.samples] == [
            ("a_1", {"kind": "Statistics"}),
            ("b_1", {}),
        ]
        golds = [sample.gold for sample in found.samples]
        groups = [[(fact.type, fact.group) for fact in gold.facts] for gold in golds if isinstance(gold, FactList)]
        # The order is that of the files, with the `baseline` of the code by which the authors count.
        assert groups == [
            [("table", "tables"), ("present", "text_present"), ("baseline", "baseline")],
            [("absent", "header_footer_tests"), ("baseline", "baseline")],
        ]
        assert (found.licence, left_out(found)) == ("CC-BY-4.0", [])

    def test_facts_about_the_rows_of_a_corpus_allow_hanja(self, tmp_path: Path):
        row = {"id": "doc_2", "file_name": "doc.pdf", "page_number": 2}
        parquet(tmp_path, [row], "corpus.parquet")
        put(tmp_path, **{"facts.jsonl": json.dumps({"pdf": "doc.pdf", "page": 2, "id": "1", "type": "baseline"})})
        gold = load("facts", tmp_path).samples[0].gold
        assert isinstance(gold, FactList)
        assert gold.facts[0].fields["check_disallowed_characters"] is False


class TestTexts:
    def test_pages_of_a_corpus_where_both_texts_agree(self, tmp_path: Path):
        rows = [
            {"id": "a_1", "text": "가 나 다", "ocr": "가나다"},
            {"id": "a_2", "text": "가나다라", "ocr": "마바사"},
            {"id": "a_3", "text": None, "ocr": ""},
        ]
        parquet(tmp_path, [{"id": "b_1"}], "other-0.parquet")
        found = load("kopub", parquet(tmp_path, rows, "corpus-0.parquet"))
        assert [(sample.id, sample.document, sample.gold) for sample in found.samples] == [
            ("a_1", "a", PageText("가 나 다", ordered=False)),
            ("a_3", "a", PageText("", ordered=False)),
        ]
        assert left_out(found) == [
            "a_2: its columns text and ocr differ by 1.00",
            "b_1: its file does not have the columns text and ocr",
        ]

    def test_a_page_is_transformed_into_every_form_or_into_none(self, tmp_path: Path):
        long = "가" * 62
        put(
            tmp_path,
            **{f"{name}.{end}": content for name in ("a", long) for end, content in (("png", PNG), ("txt", ""))},
        )
        found = load("transformed", tmp_path)
        assert [sample.id.partition("__")[0] for sample in found.samples] == ["a"] * 16
        assert [each.reason for each in found.left_out] == ["its id with the name of a form is longer than 200 bytes"]

    def test_pages_of_a_corpus_with_their_text(self, tmp_path: Path):
        rows = [{"id": "a_1", "text": "가", "license": "CC0"}, {"id": "a_2", "text": None}, {"id": "a_1", "text": "나"}]
        table = pa.Table.from_pylist([{"image": {"bytes": PNG, "path": None}, **row} for row in rows])
        with pa.OSFile(str(tmp_path / "data.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        found = load("texts", tmp_path)
        assert [(s.id, s.gold, s.slices) for s in found.samples] == [("a_1", PageText("가"), {"licence": "CC0"})]
        assert found.samples[0].picture is not None
        assert found.samples[0].picture.read() == PNG
        assert left_out(found) == ["a_2: it is a page without gold", "a_1: it is there twice: the first one counts"]

    def test_pictures_with_text_files(self, tmp_path: Path):
        put(tmp_path, **{"doc__1.png": PNG, "doc__1.txt": "가", "2.jpg": PNG, "2.md": "# 나", "3.png": PNG})
        put(tmp_path, **{"4.txt": "no picture", "5.png": PNG, "5.txt": "가".encode("cp949")})
        found = load("texts", tmp_path)
        assert [(s.id, s.document, s.gold) for s in found.samples] == [
            ("2", "2", PageText("# 나", markdown=True)),
            ("doc__1", "doc", PageText("가")),
        ]
        assert [each.what for each in found.left_out] == ["3.png", "5.txt", "4.txt"]

    def test_a_picture_and_its_text_may_write_their_name_in_other_ways(self, tmp_path: Path):
        put(
            tmp_path,
            **{f"{unicodedata.normalize('NFD', '보고서')}.png": PNG, "보고서.txt": "글", "b.PNG": PNG, "b.TXT": "나"},
        )
        found = load("texts", tmp_path)
        assert sorted(str(sample.gold) for sample in found.samples) == sorted(str(PageText(text)) for text in "글나")
        assert left_out(found) == []

    def test_pdfs_with_text_layers(self, tmp_path: Path):
        put(tmp_path, **{"a.pdf": PDF, "b.pdf": b"no PDF"})
        found = load("pdf_texts", tmp_path)
        assert [(s.id, s.document, s.gold) for s in found.samples] == [("a_1", "a", PageText("A page with text"))]
        assert found.samples[0].picture is not None
        assert found.samples[0].picture.read().startswith(b"\x89PNG")
        assert [each.what for each in found.left_out] == ["a_2", "b.pdf"]

    def test_a_word_that_a_pdf_divides_has_its_hyphen(self, tmp_path: Path):
        lines = (30, 150, "A sentence has a hyphen-"), (30, 130, "ated word in its middle.")
        put(tmp_path, **{"a.pdf": text_pdf(sheet(written(*lines), box="0 0 300 200"))})
        (sample,) = load("pdf_texts", tmp_path).samples
        assert sample.gold == PageText("A sentence has a hyphen-\nated word in its middle.")


@pytest.mark.parametrize("name", ["보고서.pdf", "보고서.png", "pdfs__2024__보고서.pdf"])
def test_a_fact_finds_a_page_whose_name_is_decomposed(tmp_path: Path, name: str):
    pdf = "2024/보고서.pdf" if "2024" in name else "보고서.pdf"
    fact = {"pdf": pdf, "page": 1, "id": "f1", "type": "present", "text": "예산"}
    put(tmp_path, **{unicodedata.normalize("NFD", name): PNG, "facts.jsonl": json.dumps(fact)})
    (sample,) = load("facts", tmp_path).samples
    assert sample.id == f"{pdf.removesuffix('.pdf').replace('/', '__')}_1"


@pytest.mark.parametrize(
    ("benchmark", "gold", "content"),
    [
        ("omnidocbench", "gold.json", [page("보고서.png")]),
        ("ocrbench", "OCRBench.json", [{"image_path": "그림/보고서.png", "answers": ["예산"]}]),
        ("dp_bench", "reference.json", {"보고서.png": {"elements": []}}),
    ],
)
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_gold_finds_a_picture_whose_name_is_written_in_another_form(
    tmp_path: Path, benchmark: str, gold: str, content: Any, form: Any
):
    other = "NFD" if form == "NFC" else "NFC"
    known = unicodedata.normalize(other, json.dumps(content, ensure_ascii=False))
    put(tmp_path, **{gold: known, unicodedata.normalize(form, "그림__보고서.png"): PNG})
    found = load(benchmark, tmp_path)
    assert (len(found.samples), left_out(found)) == (1, [])


def test_what_a_folder_lacks_is_named_with_where_to_get_it(tmp_path: Path):
    for name, adapter in ADAPTERS.items():
        if name in ("made_tables", "scanned_tables"):  # which make what the folder lacks
            continue
        with pytest.raises(SourceError) as caught:
            load(name, tmp_path)
        assert "\n" not in str(caught.value)
        assert all(part in str(caught.value) for part in (adapter.expects, adapter.source))
        assert (f"licence: {adapter.licence}" in str(caught.value)) == (adapter.licence != OWN_PAGES)
        with pytest.raises(SourceError, match="is no folder"):
            load(name, tmp_path / "missing")
    with pytest.raises(
        ConfigError, match=r"omnidocbnech is no benchmark \(there are .*\); did you mean omnidocbench\?"
    ):
        load("omnidocbnech", tmp_path)


def test_a_folder_of_which_nothing_can_be_scored_says_why(tmp_path: Path):
    put(tmp_path, **{"1.png": PNG})
    with pytest.raises(SourceError, match=r"has nothing to score \(1 left out, 1.png: it is a picture without gold\)"):
        load("texts", tmp_path)


@pytest.mark.parametrize("write", [pa.ipc.new_file, pa.ipc.new_stream])
def test_an_arrow_file_of_pages_is_read_as_well_as_a_stream(tmp_path: Path, write: Any):
    pages = pa.Table.from_pylist([{"id": "a_1", "image": {"bytes": PNG}, "text": "글"}])
    with write(tmp_path / "pages.arrow", pages.schema) as writer:
        writer.write_table(pages)
    (sample,) = load("texts", tmp_path).samples
    assert (sample.id, sample.gold, sample.picture and sample.picture.read()) == ("a_1", PageText("글"), PNG)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"id": 1, "text": "글"}, r"pages.parquet has the columns .*id: int64, .*; wanted id: string"),
        ({"id": "a_1", "text": ["글"]}, "pages.parquet cannot be read: "),
    ],
)
def test_pages_with_columns_of_other_types_are_refused_in_one_line(tmp_path: Path, values: dict[str, Any], says: str):
    parquet(tmp_path, [values], "pages.parquet")
    with pytest.raises(SourceError, match=says) as refused:
        load("texts", tmp_path)
    assert "\n" not in str(refused.value)


def test_numbers_in_a_column_of_texts_are_their_digits(tmp_path: Path):
    parquet(tmp_path, [{"id": "a_1", "text": 1945, "license": 4}])
    (sample,) = load("texts", tmp_path).samples
    assert (sample.gold, sample.slices) == (PageText("1945"), {"licence": "4"})


@pytest.mark.parametrize(
    ("benchmark", "name"),
    [
        *(("texts", name) for name in ("{}/a.png", "{}/pages.parquet", "{}.parquet", "{}.arrow")),
        ("iam_lines", "{}.parquet"),
    ],
)
def test_a_folder_or_a_file_of_pages_whose_name_is_no_utf_8_is_refused_in_one_line(
    tmp_path: Path, benchmark: str, name: str
):
    file = tmp_path / "mine" / name.format(os.fsdecode("보고서".encode("cp949")))
    try:
        file.parent.mkdir(parents=True)
        file.write_bytes(PNG)
    except OSError:
        pytest.skip("this file system takes UTF-8 alone")
    with pytest.raises(SourceError, match=r"\\udcba[^\n]* has a name that is not UTF-8: rename it"):
        load(benchmark, file.parent)


def test_pages_of_your_own_are_not_said_to_have_a_licence(tmp_path: Path):
    with pytest.raises(SourceError) as refused:
        load("texts", tmp_path / "nowhere")
    assert str(refused.value).endswith("a .txt or .md file of the same name (your own pages)")
    with pytest.raises(SourceError, match=r"get it from .*, licence: "):
        load("omnidocbench", tmp_path / "nowhere")
