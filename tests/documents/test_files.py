"""Exported documents: one complete file each, under a safe name, identical when written again."""

import json
import os
import re
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from markdown_it import MarkdownIt

from kopub.documents.export import write_documents
from kopub.documents.markdown import MarkdownOptions
from kopub.documents.stream import file_names
from kopub.errors import StoreError, spelt
from kopub.figures.figure import FigureNote
from kopub.folders import SAMPLES
from kopub.pages.documents.folder import EXPORTED_DOCUMENTS as MARKER
from kopub.states import State
from tests.doubles.full_disk import no_room
from tests.support.released import contents
from tests.support.sources.documents import DocumentTables, PageRow, Printed, jpeg
from tools import documents_cer

PICTURE = Printed("image", "", (100, 200, 300, 300))


def page(number: int, doc_id: str | None = "a.pdf", *regions: Printed, **ended: object) -> PageRow:
    return PageRow(f"{doc_id}_{number}", doc_id, number, regions or (Printed("text", f"쪽 {number}."),), **ended)  # type: ignore[arg-type]


def write(out: Path, **shards: list[PageRow]) -> dict[str, str]:
    """Write an export and return its markdown files by name."""
    write_documents(DocumentTables(**shards), list(shards), out, ["markdown"])
    return {path.name: path.read_text("utf-8") for path in sorted(out.glob("*.md"))}


def test_a_document_of_two_shards_is_one_file_in_the_order_of_its_pages(tmp_path: Path) -> None:
    shards = {"s0": [page(2), page(1, "b.pdf"), page(1)], "s1": [page(4), page(3, "a.pdf", PICTURE), page(1, "c.pdf")]}
    reader = DocumentTables(**shards)
    done = write_documents(reader, ["s0", "s1"], tmp_path / "out", ["markdown"])
    text = (tmp_path / "out" / "a.md").read_text("utf-8")
    marks = "<!-- a.pdf: 4 pages -->\n\n<!-- page 1 -->\n\n쪽 1.\n\n<!-- page 2 -->\n\n쪽 2.\n\n<!-- page 3 -->\n\n"
    assert text == f"{marks}![image](a.pictures/3-0.jpg)\n\n<!-- page 4 -->\n\n쪽 4.\n"
    assert (tmp_path / "out" / "a.pictures" / "3-0.jpg").read_bytes() == jpeg()
    assert (done.documents, done.pages, done.pictures) == (3, {"ok": 6}, 1)
    assert len(reader.reads) == len(set(reader.reads)) == 6, "every table is read once"


def test_pages_that_could_not_be_read_are_marked(tmp_path: Path) -> None:
    lost = PageRow("a.pdf_2", "a.pdf", 2, state=State.QUARANTINED, reason="the image --> is damaged")
    blank = PageRow("a.pdf_3", "a.pdf", 3, state=State.BLANK)
    partial = page(
        4, "a.pdf", Printed("text", "앞."), Printed("text", None), state=State.PARTIAL, reason="1 of 2 failed"
    )
    assert write(tmp_path, s=[page(1), lost, blank, partial])["a.md"] == (
        "<!-- a.pdf: 4 pages -->\n\n<!-- page 1 -->\n\n쪽 1.\n\n"
        "<!-- page 2: quarantined: the image - -&gt; is damaged -->\n\n"
        "> Page 2 could not be read (quarantined): the image --> is damaged\n\n"
        "<!-- page 3: blank -->\n\n<!-- page 4: partial: 1 of 2 failed -->\n\n앞.\n\n"
        "> Region 1 (text) of page 4 could not be read: no answer\n"
    )


def test_a_second_export_changes_nothing_and_what_is_gone_is_removed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    pages = [page(1, "a.pdf", PICTURE, PICTURE), page(1, "b.pdf", PICTURE)]
    write(out, s=pages)
    before, times = contents(out), {path: path.stat().st_mtime_ns for path in out.rglob("*.*") if path.name != MARKER}
    write(out, s=pages)
    assert contents(out) == before
    assert {path: path.stat().st_mtime_ns for path in times} == times
    write(out, s=[page(1, "a.pdf", PICTURE)])
    assert contents(out).keys() == {MARKER, "a.md", "a.pictures/1-0.jpg"}


def test_an_export_that_stopped_is_repeated_and_other_files_are_never_touched(tmp_path: Path) -> None:
    class Broken(DocumentTables):
        def read(self, asset, shard, columns=None):  # type: ignore[no-untyped-def]
            if (asset, shard) == ("ocr_results", "s1"):
                raise StoreError("no such table")
            return super().read(asset, shard, columns)

    out, shards = tmp_path / "out", {"s0": [page(1)], "s1": [page(1, "b.pdf")]}
    with pytest.raises(StoreError, match="no such table"):
        write_documents(Broken(**shards), ["s0", "s1"], out, ["markdown"])
    assert write(out, s=[page(1, "c.pdf")]).keys() == {"c.md"}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(StoreError, match="no export of documents wrote"):
        write(tmp_path / "mine", s=[page(1)])
    assert contents(tmp_path / "mine") == {"thesis.txt": b"years of work"}


@pytest.mark.parametrize("left", [f".{MARKER}.0123abcd.tmp", ".kopub-documents.tmp"])
@pytest.mark.parametrize("earlier", [False, True])
def test_what_a_killed_export_left_is_removed_by_the_next_one(tmp_path: Path, left: str, earlier: bool) -> None:
    if earlier:
        write(tmp_path, s=[page(1)])
    (tmp_path / left).write_bytes(b"{")
    write(tmp_path, s=[page(1)])
    assert contents(tmp_path).keys() == {MARKER, "a.md"}


def test_an_export_without_room_for_its_first_file_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr(os, "replace", no_room)
        with pytest.raises(StoreError, match=r"^the disk is full: .* free some space and run again$"):
            write(tmp_path, s=[page(1)])
    assert write(tmp_path, s=[page(1)]).keys() == {"a.md"}


@pytest.mark.parametrize("marker", ["", "[]", '{"documents": {"markdown": 3}}'])
def test_a_damaged_marker_is_one_line(tmp_path: Path, marker: str) -> None:
    (tmp_path / MARKER).write_text(marker)
    with pytest.raises(StoreError, match="cannot be read: delete the folder"):
        write(tmp_path, s=[page(1)])


HOSTILE = [
    "../../evil",
    "/etc/passwd",
    ".",
    "..",
    "",
    "a\0b",
    "CON",
    "nul.pdf",
    "x" * 500,
    "가" * 200,
    "-->",
    "a b",
    "\ud800",
]


def test_names_are_safe_and_never_the_same() -> None:
    ids = [*HOSTILE, "보고서.pdf", "보고서.PDF", "보고서", "a/보고서.pdf", "Ａ", "a", "A"]
    names = file_names(ids)
    assert len({name.casefold() for name in names}) == len(ids)
    assert all(name == Path(name).name and not name.startswith(".") and len(name.encode()) < 200 for name in names)
    assert not {"con", "nul"} & {name.casefold() for name in names}
    assert dict(zip(reversed(ids), file_names(ids[::-1]), strict=True)) == dict(zip(ids, names, strict=True))
    assert file_names(["보고서 2023.pdf", "b"]) == ["보고서_2023", "b"]


def test_a_file_that_was_named_in_cp949_is_exported_by_its_korean_name() -> None:
    name = os.fsdecode("가나다 똠방.pdf".encode("cp949"))
    assert file_names([spelt(name), spelt("a\udcff\udcfe.pdf")]) == ["가나다_똠방", "a_udcff_udcfe"]
    both = file_names([spelt(name), "가나다 똠방.pdf"])
    assert len(set(both)) == 2
    assert all(each.startswith("가나다_똠방-") for each in both)


def test_hostile_documents_are_written_into_the_folder_alone(tmp_path: Path) -> None:
    pages = [PageRow(f"p{at}", doc_id, 1, [PICTURE]) for at, doc_id in enumerate(HOSTILE) if doc_id != "\ud800"]
    assert len(write(tmp_path / "a" / "out", s=pages)) == len(pages)
    assert {path.parts[0] for path in map(Path, contents(tmp_path))} == {"a"}


def test_two_documents_of_one_name_are_told_apart_by_the_ids_of_their_pages(tmp_path: Path) -> None:
    pages = [
        PageRow(f"{of}_{n}", "보고서.pdf", n, [Printed("text", f"{of} {n}.")]) for of in ("x", "y") for n in (1, 2)
    ]
    files = write(tmp_path, s=pages)
    assert sorted(text.count("<!-- page") for text in files.values()) == [2, 2]
    assert {("x 1." in text, "y 1." in text) for text in files.values()} == {(True, False), (False, True)}


@pytest.mark.timeout(60)
def test_a_document_is_named_like_one_of_two_with_one_name_and_its_pages(tmp_path: Path) -> None:
    pages = [PageRow(page_id, doc_id, 1, [PICTURE]) for page_id, doc_id in (("x_1", "a"), ("y_1", "a"), ("z_1", "a/x"))]
    assert [re.sub("-[0-9a-f]{8}", "-hash", name) for name in write(tmp_path, s=pages)] == [
        "a_x-hash.md", "a_x-hash.md", "a_y.md",
    ]  # fmt: skip


def test_pages_without_a_document_or_a_number(tmp_path: Path) -> None:
    rows = [PageRow("photo", None, None, [Printed("text", "하나.")])]
    rows += [PageRow(f"q{n}", "d", None, [Printed("text", f"{n}.")]) for n in "ab"]
    files = write(tmp_path, s=rows)
    assert files["photo.md"] == "<!-- photo: 1 page -->\n\n<!-- page 1 -->\n\n하나.\n"
    assert files["d.md"] == "<!-- d: 2 pages -->\n\n<!-- page 1 -->\n\na.\n\n<!-- page 2 -->\n\nb.\n"


@pytest.mark.parametrize(
    ("shorter", "says"),
    [
        ({"layout_regions"}, "layout_regions of s does not hold the pages of ocr_results"),
        ({"raw_pages"}, "raw_pages of s does not hold the pages of ocr_results"),
        ({"layout_regions", "ocr_results"}, "ocr_results of s does not hold the pages of raw_pages"),
    ],
)
def test_tables_that_do_not_belong_together_are_one_line(tmp_path: Path, shorter: set[str], says: str) -> None:
    class Mixed(DocumentTables):
        def read(self, asset, shard, columns=None):  # type: ignore[no-untyped-def]
            table = super().read(asset, shard, columns)
            return table.slice(1) if asset in shorter else table

    with pytest.raises(StoreError, match=says):
        write_documents(Mixed(s=[page(1), page(2)]), ["s"], tmp_path, ["markdown"])


def test_a_note_about_a_picture_is_its_alternative_text(tmp_path: Path) -> None:
    def note(page_id: str, index: int) -> FigureNote:
        return FigureNote("", State.OK, description=f"막대 [그래프] {page_id} {index}")

    write_documents(DocumentTables(s=[page(1, "a.pdf", PICTURE)]), ["s"], tmp_path, ["markdown"], note)
    assert "![막대 \\[그래프\\] a.pdf_1 0](a.pictures/1-0.jpg)" in (tmp_path / "a.md").read_text("utf-8")


def test_notes_are_below_their_pictures_and_tables_when_they_are_asked_for(tmp_path: Path) -> None:
    data = "<table><tr><td>2023</td><td>5 <script></td></tr></table>"
    notes = {
        0: FigureNote("", State.OK, None, "bar_chart", "매출이\n는다 <b>.", ("매출", "분기"), data),
        1: FigureNote("", State.OK, None, "table", "현황 요약"),
    }
    rows = [page(1, "a.pdf", PICTURE, Printed("table", "<table><tr><td>가</td></tr></table>"))]

    def written(options: MarkdownOptions) -> str:
        reader = DocumentTables(s=rows)
        write_documents(reader, ["s"], tmp_path, ["markdown"], lambda _, index: notes[index], markdown=options)
        return (tmp_path / "a.md").read_text("utf-8").partition("-->\n\n<!-- page 1 -->\n\n")[2]

    assert written(MarkdownOptions(notes=True)) == (
        "![매출이 는다 &lt;b>.](a.pictures/1-0.jpg)\n\n"
        "> **By a model (bar chart):** 매출이 는다 &lt;b>.\n>\n> Keywords: 매출, 분기\n>\n"
        "> <table><tr><td>2023</td><td>5 &lt;script&gt;</td></tr></table>\n\n"
        "<table>\n<tr><td>가</td></tr>\n</table>\n\n> **By a model (table):** 현황 요약\n"
    )
    assert "By a model" not in written(MarkdownOptions())


def test_a_note_is_written_once_however_many_blocks_its_region_has(tmp_path: Path) -> None:
    made = [
        page(1, "a.pdf", Printed("table", "첫 줄.\n\n둘째 줄.")),
        page(2, "a.pdf", Printed("chart", "<table><tr><td>가</td></tr></table>", (100, 200, 300, 300))),
        page(3, "a.pdf", Printed("table", "<table><tr><td>나</td></tr></table> 아래 줄.")),
    ]

    def note(page_id: str, index: int) -> FigureNote:
        return FigureNote("", State.OK, description=f"요약 {page_id}")

    options = MarkdownOptions(notes=True)
    write_documents(DocumentTables(s=made), ["s"], tmp_path, ["markdown"], note, markdown=options)
    written = (tmp_path / "a.md").read_text("utf-8")
    assert re.findall(r"By a model:\*\* (.*)", written) == ["요약 a.pdf_1", "요약 a.pdf_2", "요약 a.pdf_3"]
    assert written.index("둘째 줄.") < written.index("요약 a.pdf_1")


FULL = "데비안 설치 프로그램은 임베디드 장치와 노트북 컴퓨터와 데스크톱 컴퓨터 등 여러가지"


def test_page_marks_are_lines_between_blocks_from_the_second_page_on(tmp_path: Path) -> None:
    rows = [
        page(1, "a.pdf", Printed("text", FULL, (100, 800, 900, 900))),
        page(2, "a.pdf", Printed("text", "종류를 지원한다.", (100, 80, 900, 180)), Printed("text", "다음.")),
        PageRow("a_3", "a.pdf", 3, state=State.FAILED, reason="no answer"),
    ]
    write_documents(DocumentTables(s=rows), ["s"], tmp_path, ["markdown"], markdown=MarkdownOptions(page_marks=True))
    assert (tmp_path / "a.md").read_text("utf-8") == (
        f"<!-- a.pdf: 3 pages -->\n\n<!-- page 1 -->\n\n{FULL} <!-- page 2 -->종류를 지원한다.\n\n"
        "----- Page 2 -----\n\n다음.\n\n<!-- page 3: failed: no answer -->\n\n----- Page 3 -----\n\n"
        "> Page 3 could not be read (failed): no answer\n"
    )


def test_pictures_of_whole_pages_lie_with_the_others_and_go_when_they_are_not_asked_for(tmp_path: Path) -> None:
    @contextmanager
    def opened(shard: str):  # type: ignore[no-untyped-def]
        yield lambda page_id: None if page_id == "a.pdf_2" else jpeg()

    rows = [page(1, "a.pdf", PICTURE), page(2)]
    done = write_documents(DocumentTables(s=rows), ["s"], tmp_path, ["markdown", "docling"], images=opened)
    assert (done.pictures, done.page_images) == (1, 1)
    assert {path.name for path in (tmp_path / "a.pictures").iterdir()} == {"1-0.jpg", "page-1.jpg"}
    assert '"uri": "a.pictures/page-1.jpg"' in (tmp_path / "a.json").read_text("utf-8")
    write_documents(DocumentTables(s=rows), ["s"], tmp_path, ["markdown", "docling"])
    assert {path.name for path in (tmp_path / "a.pictures").iterdir()} == {"1-0.jpg"}


LIVE = [
    "[a](javascript:alert(1))", "![a](file:///etc/passwd)", "[a](data:text/html,<b>)", "[a](VBScript:x)",
    "[a](java&#115;cript:x)", "[a](javascript&colon;x)", "[a](javascript\\:x)", "[a](<java\tscript:x>)",
    "[a](&Tab;javascript:x)", "[a](\njavascript:x)", "[a]: javascript:x", "[a]:\nfile:///x", "[b [a](file:x)](file:y)",
    "[a\\\\](javascript:x)", "<javascript:alert(1)>", "[a](\u200bjavascript:x)", "`a` [a](intent:x)",
    "[담당자](비공개)", "![p](http://evil/x.png)", "$$</script><script>alert(5)</script>",
]  # fmt: skip


@pytest.mark.parametrize(
    "label", ["text", "doc_title", "footnote", "figure_title", "table", "header", "display_formula"]
)
def test_no_text_that_was_read_is_a_link_or_a_picture(tmp_path: Path, label: str) -> None:
    rows = [page(at, "a.pdf", Printed(label, f"{text}\n\n[a]")) for at, text in enumerate(LIVE, 1)]
    text = write(tmp_path, s=rows)["a.md"]
    renderer = MarkdownIt("commonmark")
    renderer.validateLink = lambda url: True
    assert re.findall(r"(?:href|src)=|<script", renderer.render(text)) == []


def test_no_export_has_characters_that_control_or_turn_what_is_shown(tmp_path: Path) -> None:
    controls = "\x00\x07\x1b\x9b\u202e\u2066\u200f"
    said = f"앞{controls}[31m뒤"
    table = f"<table><tr><th>{said}</th></tr><tr><td>{said}</td></tr></table>"
    labels = ("doc_title", "text", "display_formula", "footnote", "header")
    regions = [*(Printed(label, said) for label in labels), Printed("table", table)]
    write_documents(
        DocumentTables(s=[page(1, "a.pdf", *regions)]), ["s"], tmp_path, ["markdown", "docling", "chunks", "tables"]
    )
    files = [path for path in tmp_path.rglob("*") if path.suffix in (".md", ".json", ".jsonl", ".csv")]
    assert len(files) >= 5
    for path in files:
        text = path.read_text("utf-8-sig")
        assert "뒤" in text or path.name == MARKER, path.name
        assert not set(controls) & set(text), path.name
        assert not re.search(r"\\u00(00|07|1b|9b)|\\u20(2e|66|0f)", text), path.name
    (book,) = tmp_path.rglob("*.xlsx")
    cells = [str(cell.value) for sheet in openpyxl.load_workbook(book) for row in sheet.iter_rows() for cell in row]
    assert cells
    assert not set(controls) & set("".join(cells))


def test_reasons_name_no_folder_of_the_machine(tmp_path: Path) -> None:
    why = "cannot identify image file '/home/me/scans/page 1.png'"
    text = write(tmp_path, s=[PageRow("a_1", "a.pdf", 1, state=State.QUARANTINED, reason=why)])["a.md"]
    assert "cannot identify image file 'page 1.png'" in text
    assert "/home" not in text


def test_chunks_and_tables_are_files_of_a_document_and_go_with_it(tmp_path: Path) -> None:
    table = "<table><tr><th>이름</th><th>값</th></tr><tr><td>가</td><td>1,000</td></tr></table>"
    pages = [PageRow("a_1", "보고서.pdf", 1, [Printed("text", "본문."), Printed("table", table)])]
    out = tmp_path / "out"
    write_documents(DocumentTables(s=pages), ["s"], out, ["chunks", "tables"])
    (chunk,) = map(json.loads, (out / "보고서.chunks.jsonl").read_text("utf-8").splitlines())
    assert (chunk["headings"], chunk["kinds"], chunk["places"][0]["page_id"]) == ([], ["text", "table"], "a_1")
    (listed,) = map(json.loads, (out / "보고서.tables.jsonl").read_text("utf-8").splitlines())
    assert (listed["columns"], listed["n_rows"]) == (["이름", "값"], 1)
    csv, parquet = (out / file for file in listed["files"])
    assert csv.read_text("utf-8-sig") == '이름,값\n가,"1,000"\n'
    assert csv.read_bytes().startswith(b"\xef\xbb\xbf")
    book = openpyxl.load_workbook(out / listed["workbook"])
    assert [[cell.value for cell in row] for row in book[listed["sheet"]]] == [["이름", "값"], ["가", 1000]]
    assert pq.read_table(parquet).to_pylist() == [{"이름": "가", "값": "1,000"}]
    write_documents(
        DocumentTables(s=[PageRow("a_1", "보고서.pdf", 1, [Printed("text", "본문.")])]), ["s"], out, ["tables"]
    )
    assert not csv.parent.exists(), "the table is gone, and the chunks stay"
    assert {file.name for file in out.iterdir()} == {"보고서.chunks.jsonl", "보고서.tables.jsonl", MARKER}


def test_chunks_and_tables_read_no_picture_and_leave_those_of_another_export(tmp_path: Path) -> None:
    class Seen(DocumentTables):
        columns: ClassVar[set[str]] = set()

        def read(self, asset: str, shard: str, columns: Sequence[str] | None = None) -> pa.Table:
            self.columns.update(columns or ())
            return super().read(asset, shard, columns)

    pages = [page(1, "a.pdf", PICTURE, Printed("text", "본문."))]
    write(tmp_path, s=pages)
    done = write_documents(Seen(s=pages), ["s"], tmp_path, ["chunks", "tables"])
    assert (done.pictures, "crop_images" in Seen.columns) == (0, False)
    assert contents(tmp_path).keys() >= {"a.md", "a.chunks.jsonl", "a.pictures/1-0.jpg"}


def test_pictures_that_no_format_shows_any_more_are_removed(tmp_path: Path) -> None:
    pages = [page(1, "a.pdf", PICTURE, Printed("text", "본문."))]
    images = DocumentTables(s=pages)

    @contextmanager
    def opened(shard: str):  # type: ignore[no-untyped-def]
        yield lambda page_id: jpeg()

    write_documents(images, ["s"], tmp_path, ["chunks"], images=opened)
    assert contents(tmp_path).keys() == {MARKER, "a.chunks.jsonl", "a.pictures/1-0.jpg", "a.pictures/page-1.jpg"}
    write_documents(images, ["s"], tmp_path, ["chunks"])
    assert contents(tmp_path).keys() == {MARKER, "a.chunks.jsonl"}


def test_exports_of_the_samples_are_compared_with_the_texts_beside_their_other_tables() -> None:
    assert len(documents_cer.known_texts(SAMPLES)) == 12
