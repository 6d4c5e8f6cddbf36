"""The benchmark of tables that it makes itself: what is printed is known, and each cell is scored."""

import re
from pathlib import Path

import pytest

from kopub.evaluation.benchmark import TableList
from kopub.evaluation.benchmarks import made_tables
from kopub.evaluation.scoring import load
from kopub.evaluation.table_cells import cell_rows, named_in
from kopub.pages.documents.text_layer import TextLayer

GOLD = "<table><tr><td>사업</td><td>증감</td></tr><tr><td>도로</td><td>△1,234</td></tr></table>"


def test_a_cell_is_right_if_its_sign_and_its_place_are():
    def right(read: str) -> list[bool]:
        return [cell.is_right for row in cell_rows([GOLD], [read]) for cell in row]

    assert right(GOLD) == [True] * 4
    assert right(GOLD.replace("△1,234", "△ 1,234")) == [True] * 4
    assert right(GOLD.replace("△", "A")) == [True, True, True, False]
    assert right("| 사업 | 증감 |\n|---|---|\n| 도로 | △1,234 |") == [True] * 4
    # An empty column before a figure moves it to another place.
    assert right(GOLD.replace("<td>△", "<td></td><td>△")) == [True, True, True, False, False]
    assert right("") == [False] * 4


def test_numbers_that_a_doubt_names_are_found_in_it():
    assert named_in(["figures are read in two ways: 1,234 or 1,284; △5 or 45"]) == {"1,234", "1,284", "△5", "45"}
    assert named_in(["the engine is unsure"]) == frozenset()


def test_a_producer_that_is_missing_is_left_out_and_the_others_make_the_same_tables_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("reportlab")
    monkeypatch.setattr(made_tables, "TABLES", 9)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("kopub.evaluation.made_tables.producers.libreoffice._MAC_PROGRAM", tmp_path / "none")
    found = load("made_tables", tmp_path)
    assert [str(each) for each in found.left_out] == [
        "chromium: Chromium is not installed",
        "libreoffice: LibreOffice is not installed",
    ]
    assert [sample.slices["producer"] for sample in found.samples] == ["reportlab"] * len(found.samples)
    [pdf] = tmp_path.glob("*.pdf")
    before = pdf.read_bytes()
    pdf.unlink()
    assert [sample.gold for sample in load("made_tables", tmp_path).samples] == [s.gold for s in found.samples]
    assert pdf.read_bytes() == before
    # A page keeps its layer, in which the figures stand; a scan has none.
    [first, *_] = found.samples
    assert isinstance(first.gold, TableList)
    assert first.picture is not None
    amount = re.search(r"\d{1,3}(,\d{3}){2,3}", first.gold.tables[0])
    assert amount is not None
    assert amount[0] in " ".join(word.text for word in TextLayer.from_json(first.picture.made().text_layer or "").words)
    scans = load("scanned_tables", tmp_path).samples
    assert len(scans) == 4 * len(found.samples)
    assert {sample.picture.with_layer for sample in scans if sample.picture} == {False}
