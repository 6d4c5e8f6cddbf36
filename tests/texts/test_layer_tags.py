"""Titles, lists and tables follow the tags of a PDF, where these agree with its page."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kopub.documents.structure import structure_document
from kopub.layout.regions import Layout, Region, Task
from kopub.pages.documents.pdf import Pdfs
from kopub.pages.documents.text_layer import TextLayer
from kopub.recognition.regions import TextOrigin
from kopub.states import State
from kopub.texts.extracted_text import extract_texts
from kopub.texts.layer_regions import correct_regions
from tests.support.sources.documents import Printed, document
from tests.support.sources.pdf_files import HELVETICA, pdf, sheet, written

Node = tuple[Any, ...]
"""A role, the numbers of its lines or its children, and its attributes."""
BOX = "0 0 420 595"


def tagged_pdf(lines: Sequence[tuple[float, float, str]], tree: Sequence[Node], loops: bool = False) -> bytes:
    """Return a page whose lines are marked by their numbers, with a structure tree."""
    content = b"\n".join(b"/Span << /MCID %d >> BDC %s EMC" % (at, written(line, size=10))
                         for at, line in enumerate(lines))  # fmt: skip
    objects = [HELVETICA, b"", b""]
    root, parents = 6, 7
    owners: dict[int, int] = {}

    def add(node: Node, parent: int) -> int:
        role, kids, *more = node
        objects.append(b"")
        own = len(objects) + 4
        held = []
        for kid in kids:
            if isinstance(kid, int):
                owners[kid] = own
                held.append(b"%d" % kid)
            else:
                held.append(b"%d 0 R" % add(kid, own))
        held += [b"%d 0 R" % own] if loops else []
        objects[own - 5] = b"<< /Type /StructElem /S /%s /P %d 0 R /Pg 3 0 R /K [%s] %s >>" % (
            role.encode(), parent, b" ".join(held), b"".join(more),
        )  # fmt: skip
        return own

    top = [b"%d 0 R" % add(node, root) for node in tree]
    objects[1] = b"<< /Type /StructTreeRoot /K [%s] /ParentTree %d 0 R >>" % (b" ".join(top), parents)
    of = b" ".join(b"%d 0 R" % owners[at] if at in owners else b"null" for at in range(len(lines)))
    objects[2] = b"<< /Nums [0 [%s]] >>" % of
    more = b"/StructParents 0 /Resources << /Font << /F1 5 0 R >> >>"
    catalog = b"/MarkInfo << /Marked true >> /StructTreeRoot %d 0 R" % root
    return pdf(sheet(content, more, box=BOX), catalog=catalog, objects=objects)


def cell(role: str, number: int, columns: int = 1) -> Node:
    return role, [number], b"/A << /O /Table /ColSpan %d >>" % columns


@pytest.fixture
def texts(tmp_path: Path):
    """Return a function that gives (label, text) of the regions of a tagged page, which layout took for one text."""

    def texts(*given: Any, **more: Any) -> list[tuple[str, str]]:
        (tmp_path / "some.pdf").write_bytes(tagged_pdf(*given, **more))
        layer = TextLayer.from_json(Pdfs().make(tmp_path / "some.pdf", 0, 144).text_layer or "")
        whole = Region(0, "text", Task.TEXT, 1.0, (20.0, 20.0, 820.0, 1100.0))
        corrected = correct_regions(Layout("some_1", State.OK, regions=(whole,)), layer).regions
        taken = extract_texts(layer, corrected).texts
        return [(region.label, taken.get(region.index, "")) for region in corrected]

    return texts


LINES = (
    (40, 560, "The budget of this year"),
    (40, 530, "It was passed in May"),
    (40, 515, "and is paid in June"),
    (40, 490, "1. Staff of the office"),
    (52, 475, "and of the library"),
    (40, 460, "2. Roads"),
    (40, 440, "The rest is kept"),
)


def test_titles_and_list_entries_are_regions_of_their_own(texts):
    entries = ("L", [("LI", [("Lbl", []), ("LBody", [3, 4])]), ("LI", [5])])
    tree = [("Document", [("H1", [0]), ("P", [1, 2]), entries, ("P", [6])])]
    assert texts(LINES, tree) == [
        ("paragraph_title", "# The budget of this year"),
        ("text", "It was passed in May\nand is paid in June"),
        ("text", "1. Staff of the office\nand of the library"),
        ("text", "2. Roads"),
        ("text", "The rest is kept"),
    ]


@pytest.mark.parametrize(
    ("titles", "levels"),
    [(("## Staff", "### Pay", "## Roads"), [1, 2, 3, 2]), (("# Staff", "## Pay", "# Roads"), [1, 2, 3, 2])],
    ids=["below the document's title", "beside it"],
)
def test_titles_have_the_levels_of_their_tags(titles: Sequence[str], levels: list[int]):
    made = document([Printed("doc_title", "The budget"), *(Printed("paragraph_title", title) for title in titles)])
    [page] = made.pages
    regions = tuple(replace(region, origin=TextOrigin.TEXT_LAYER) for region in page.regions)
    blocks = structure_document(replace(made, pages=(replace(page, regions=regions),))).blocks
    assert [block.level for block in blocks] == levels
    assert [block.text for block in blocks][1:] == ["Staff", "Pay", "Roads"]


def test_a_page_whose_lines_are_all_tagged_as_titles_has_none(texts):
    assert {label for label, _ in texts(LINES, [("H1", [at]) for at in range(len(LINES))])} == {"text"}


# The words stand so close that only the tags tell the cells apart.
CLOSE = ((60, 500, "Two years"), (40, 480, "Staff"), (72, 480, "of 12"), (40, 460, "Roads"), (72, 460, "and 7"))


def rows(*cells: Sequence[Node]) -> list[Node]:
    return [("Table", [("TBody", [("TR", list(row)) for row in cells])])]


def test_cells_are_those_of_the_tags_with_their_spans(texts):
    tree = rows([cell("TH", 0, 2)], [cell("TD", 1), cell("TD", 2)], [cell("TD", 3), cell("TD", 4)])
    assert texts(CLOSE, tree) == [
        (
            "table",
            '<table><tr><td colspan="2">Two years</td></tr><tr><td>Staff</td><td>of 12</td></tr>'
            "<tr><td>Roads</td><td>and 7</td></tr></table>",
        )
    ]


@pytest.mark.parametrize(
    "tree",
    [
        rows([cell("TH", 0)], [cell("TD", 2), cell("TD", 1)], [cell("TD", 4), cell("TD", 3)]),
        rows([cell("TH", 0)], [cell("TD", 1), cell("TD", 4)], [cell("TD", 3), cell("TD", 2)]),
        rows([cell("TH", 0)], [cell("TD", 1), cell("TD", 2)], [cell("TD", 4), ("TD", [])]),
    ],
    ids=["columns the other way round", "cells of other rows", "a cell that is not tagged"],
)
def test_tags_that_disagree_with_the_page_make_no_table(texts, tree: list[Node]):
    assert texts(CLOSE, tree) == [("text", "Two years\nStaff of 12\nRoads and 7")]


def test_a_tree_without_end_costs_its_tags_alone(texts):
    assert texts(LINES[:1], [("H1", [0])], loops=True)[0][1].endswith("The budget of this year")
    deep: Node = ("P", [0])
    for _ in range(300):
        deep = ("Div", [deep])
    assert texts(LINES[:1], [deep]) == [("text", "The budget of this year")]


def test_too_many_elements_cost_the_tags_alone(texts, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kopub.pages.documents.structure_tags._MOST_ELEMENTS", 5)
    assert texts(LINES[:2], [("H1", [0]), ("P", [1]), ("L", [("LI", []) for _ in range(9)])]) == [
        ("text", "The budget of this year\nIt was passed in May")
    ]
