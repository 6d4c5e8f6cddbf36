"""HWP and HWPX sources: converted text, reported losses, and limits on hostile files."""

import io
import os
import pickle
import struct
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image
from pypdfium2 import PdfDocument

from kopub.boxes import Box
from kopub.errors import SourceError, UndecodableImage
from kopub.pages.documents import conversion, hwp
from kopub.pages.documents.conversion import Conversion, Conversions, pieces_of_page
from kopub.pages.documents.fonts import korean_faces
from kopub.pages.documents.hwp_formulas import latex_of
from kopub.pages.documents.missing_letters import with_missing_letters
from kopub.pages.documents.pieces import Piece
from kopub.pages.documents.text_layer import Failure, TextLayer, Word
from kopub.pages.page_reader import origins
from kopub.processes import start_child
from tests.support.sources import hwp_files as files
from tests.support.sources.hwp_files import hwpx, note, paragraph, table
from tests.support.sources.source_folder import SourceFolder

converts = pytest.mark.skipif(
    hwp.lacks() is not None or not conversion.has_korean_font(),
    reason="apt-get install librsvg2-bin fonts-noto-cjk",
)
SENTENCES = [f"{number}호 문서는 {number * 37}쪽의 보고서와 함께 보관한다." for number in range(1, 60)]
CELLS = [[f"{row}행 {column}열의 칸 {row * 100 + column}" for column in range(3)] for row in range(6)]

pytestmark = pytest.mark.usefixtures("one_process")


def letters(text: str) -> str:
    return "".join(letter for letter in text if letter.isalnum())


def drawn() -> bytes:
    encoded = io.BytesIO()
    Image.new("RGB", (90, 60), (200, 30, 30)).save(encoded, "PNG")
    return encoded.getvalue()


def document(number: int) -> tuple[str, bytes, list[str]]:
    """Return the name, the bytes and all text of one of twenty documents."""
    said = SENTENCES[number : number + 5 + number]
    cells = [cell for row in CELLS for cell in row]
    faces = ["맑은 고딕", "함초롬바탕", "굴림", "HY헤드라인M", "없는 글꼴"]
    face = faces[number % len(faces)]
    body = [paragraph(each) for each in said]
    if number % 4 == 0:
        return f"{number}.hwp", files.hwp(*said, flags=number % 8 // 4), said
    if number % 4 == 1:
        return f"{number}.hwpx", hwpx(*body, paragraph(inside=table(CELLS)), face=face), [*said, *cells]
    if number % 4 == 2:
        notes = [f"{number}번 문서의 각주입니다.", f"{number}번 문서의 미주입니다."]
        noted = [
            paragraph("각주가 있는 문단", note(notes[0])),
            paragraph("미주가 있는 문단", note(notes[1], "endNote")),
        ]
        return f"{number}.hwpx", hwpx(*noted, *body, face=face), [*said, *notes]
    picture = {"BinData/image1.png": drawn()}
    heads = ["머리말의 글입니다", "꼬리말의 글입니다"]
    first = files.columns(2) + files.head(heads[0]) + files.head(heads[1], "footer")
    body[len(body) // 2] = paragraph(said[len(body) // 2], breaks="column")
    return (
        f"{number}.hwpx",
        hwpx(paragraph("그림", files.picture()), *body, first=first, files=picture),
        [*said, *heads],
    )


@converts
@pytest.mark.slow
def test_twenty_documents_come_out_with_all_of_their_text(folder: SourceFolder) -> None:
    expected = {}
    for number in range(20):
        name, content, said = document(number)
        folder.put(name, content)
        expected[name] = said
    folder.index()
    rows = folder.rows()
    assert {row.doc_id for row in rows} == expected.keys()
    assert [row.problem or row.damage for row in rows if row.problem or row.damage] == []
    (shard,) = (folder.home / "rendered").glob("pages-*")
    stored = [
        (row["file_name"], " ".join(word.text for word in TextLayer.from_json(row["pdf_text_layer"]).words))
        for row in pq.read_table(shard, columns=["file_name", "pdf_text_layer"]).to_pylist()
    ]
    for name, said in expected.items():
        text = letters("".join(text for of, text in stored if of == name))
        assert [each for each in said if letters(each) not in text] == [], name


@converts
def test_an_unchanged_document_is_not_converted_again_and_each_page_knows_its_converter(
    folder: SourceFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    convert = Conversions.pdf

    def counted(self: Conversions, name: str, path: Path) -> object:
        asked.append(path.name)
        return convert(self, name, path)

    monkeypatch.setattr(Conversions, "pdf", counted)
    folder.put("a.hwpx", hwpx(paragraph("첫째 문서입니다.")))
    folder.put("b.hwp", files.hwp("둘째 문서입니다."))
    manifest = folder.index()
    origin = origins(manifest, manifest.keys[0])(0)
    assert (origin.file, origin.page, origin.dpi) == ("a.hwpx", 1, 72)
    assert str(origin.renderer).startswith(f"{hwp.converter()}, {conversion.CODE.number}; pypdfium2 ")
    asked.clear()
    assert folder.index().shards == manifest.shards
    assert asked == []
    folder.put("a.hwpx", hwpx(paragraph("첫째 문서가 바뀌었습니다.")))
    folder.index()
    assert set(asked) == {"a.hwpx"}
    # Another version of the converter makes every document again.
    asked.clear()
    monkeypatch.setattr(hwp, "converter", lambda: "hwp-ingest 99")
    folder.index()
    assert set(asked) == {"a.hwpx", "b.hwp"}


@converts
def test_without_a_korean_font_the_run_and_each_page_say_it(
    folder: SourceFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "fonts.conf"
    config.write_text(f"<fontconfig><cachedir>{tmp_path}/cache</cachedir></fontconfig>")
    folder.put("a.hwpx", hwpx(paragraph("글자가 사라지는 문서입니다.")))
    with monkeypatch.context() as patch:
        patch.setenv("FONTCONFIG_FILE", str(config))
        korean_faces.cache_clear()
        folder.index()
    korean_faces.cache_clear()
    advice = "apt-get install fonts-noto-cjk"
    assert any("no Korean font" in line and advice in line for line in folder.lines)
    (row,) = folder.rows()
    assert row.data
    assert "12 letters of the document are in its text but not in its picture" in str(row.damage)
    assert advice in str(row.damage)
    # With a font it is converted again.
    folder.index()
    assert [row.damage for row in folder.rows()] == [None]


def test_without_its_program_a_document_is_left_out_with_the_package_to_install(
    folder: SourceFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    folder.put("계약.hwp", b"HWP")
    with pytest.raises(
        SourceError, match=r"left out: 계약\.hwp \(HWP needs rsvg-convert: apt-get install librsvg2-bin"
    ):
        folder.index()


def test_without_its_package_a_document_is_left_out_with_the_package_to_install(
    folder: SourceFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hwp_ingest", None)
    folder.put("계약.hwp", b"HWP")
    with pytest.raises(SourceError, match=r"계약\.hwp \(HWP needs the package hwp-ingest: pip install hwp-ingest"):
        folder.index()


# Hostile files


def bomb() -> bytes:
    """Return an HWPX with six sections that unpack to 100 MB each."""
    archive = io.BytesIO(hwpx(paragraph("본문")))
    with zipfile.ZipFile(archive, "a", zipfile.ZIP_DEFLATED) as file:
        for section in range(1, 7):
            with file.open(f"Contents/section{section}.xml", "w") as opened:
                for _ in range(100):
                    opened.write(b" " * (1 << 20))
    return archive.getvalue()


def looped() -> bytes:
    """Return a compound file whose directory is a cyclic chain of sectors."""
    content = bytearray(files.hwp("순환하는 문서"))
    end = b"\xfe\xff\xff\xff"
    table_of_sectors = len(content) - 512
    for at in range(table_of_sectors, len(content), 4):
        if content[at : at + 4] == end:
            content[at : at + 4] = bytes(4)
    return bytes(content)


def hollow() -> bytes:
    """Return a compound file of a document without a page."""
    header = b"HWP Document File".ljust(32, b"\0") + struct.pack("<II", 0x05000300, 0)
    return files.compound({"FileHeader": header.ljust(256, b"\0"), "DocInfo": bytes(4096)}, {"Section0": bytes(4096)})


def entities() -> bytes:
    """Return an HWPX whose XML would expand to a billion letters."""
    laughs = "".join(f'<!ENTITY l{at} "{f"&l{at - 1};" * 10}">' for at in range(1, 10))
    xml = f'<!DOCTYPE s [<!ENTITY l0 "lol">{laughs}]><s xmlns="s"><p><t>&l9;</t></p></s>'
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("Contents/section0.xml", xml)
    return archive.getvalue()


@pytest.mark.slow
@converts
def test_what_is_locked_or_hostile_is_one_line_and_quarantined(folder: SourceFolder) -> None:
    expected = {
        "bomb.hwpx": "unpacks to more",
        "distribution.hwp": "배포용 문서",
        "empty.hwp": "the file is empty",
        "entities.hwpx": "",
        "hollow.hwp": "rsvg-convert",
        "loop.hwp": "",
        "old.hwp": "of HWP 3 or older",
        "password.hwp": "wants a password",
        "password.hwpx": "wants a password",
    }
    manifest = {"META-INF/manifest.xml": b"<manifest><file-entry><encryption-data/></file-entry></manifest>"}
    contents = [
        bomb(),
        files.hwp("배포용", flags=5),
        b"",
        entities(),
        hollow(),
        looped(),
        b"HWP Document File V3.00 \x1a\1\2\3\4\5".ljust(3000, b"\0"),
        files.hwp("잠긴 문서", flags=3),
        hwpx(paragraph("잠긴 문서"), files=manifest),
    ]
    for name, content in zip(expected, contents, strict=True):
        folder.put(name, content)
    folder.index()
    rows = {str(row.doc_id): row for row in folder.rows()}
    assert rows.keys() == expected.keys()
    for name, said in expected.items():
        problem = str(rows[name].problem)
        assert (rows[name].data, said in problem, "\n" in problem) == (None, True, False), (name, problem)
        assert not rows[name].failed, (name, problem)
        # Temporary folders are called otherwise on each machine.
        assert "/tmp" not in problem, (name, problem)


@converts
@pytest.mark.parametrize("name", ["a.hwp", "a.hwpx"])
def test_a_document_that_is_cut_off_is_one_line(folder: SourceFolder, name: str) -> None:
    whole = files.hwp(*SENTENCES) if name.endswith(".hwp") else hwpx(*map(paragraph, SENTENCES), face="굴림")
    ends = range(0, len(whole), 1024)
    for end in ends:
        folder.put(f"{end}{name}", whole[:end])
    folder.index()
    rows = folder.rows()
    assert {row.doc_id for row in rows} == {f"{end}{name}" for end in ends}
    said = [row.problem or row.damage for row in rows]
    assert all(said)
    assert not any("\n" in str(line) for line in said)


def test_a_conversion_that_takes_too_long_is_killed_and_said(tmp_path: Path) -> None:
    os.mkfifo(path := tmp_path / "a.hwp")
    conversions = Conversions(seconds=0.5)
    try:
        assert conversions.pdf("a", path) == Failure("its conversion was given up after 0 seconds", may_pass=True)
    finally:
        conversions.end()


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no limit of memory")
def test_a_document_larger_than_the_memory_of_a_conversion_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.hwpx"
    with path.open("wb") as file:
        file.seek(8 << 30)  # a sparse file; a ZIP archive may follow any bytes
        file.write(hwpx(paragraph("본문")))
    conversions = Conversions()
    try:
        said = conversions.pdf("a", path)
        assert said == Failure("its conversion needs more than 2 GB of memory")
    finally:
        conversions.end()


def endless(size: int) -> bytes:
    """Return a compound file with a stream of `size` bytes, whose chain of sectors is its first one for ever."""
    content = bytearray(files.hwp("끝없는 문서" * 1000, flags=0))
    entry = content.find("Section0".encode("utf-16-le"))
    (first,) = struct.unpack_from("<I", content, entry + 116)
    struct.pack_into("<Q", content, entry + 120, size)
    struct.pack_into("<I", content, len(content) - 512 + 4 * first, first)
    return bytes(content)


def test_a_stream_that_states_more_than_its_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a.hwp").write_bytes(endless(3 << 30))
    with pytest.raises(UndecodableImage, match="a stream is larger than the file"):
        hwp.pieces(tmp_path / "a.hwp")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no limit of memory")
def test_a_conversion_whose_memory_is_full_can_still_say_so(tmp_path: Path) -> None:
    with (tmp_path / "a.hwp").open("wb") as file:
        file.write(endless(3 << 30))
        file.truncate(8 << 30)  # a sparse file
    conversions = Conversions()
    try:
        said = conversions.pdf("a", tmp_path / "a.hwp")
        assert said == Failure("its conversion needs more than 2 GB of memory")
    finally:
        conversions.end()


def test_a_compound_file_with_a_damaged_head_is_quarantined(tmp_path: Path) -> None:
    content = bytearray(files.hwp("머리가 깨진 문서"))
    struct.pack_into("<I", content, 44, 200)
    struct.pack_into("<II", content, 68, 0, 1 << 30)
    (tmp_path / "a.hwp").write_bytes(content)
    with pytest.raises(UndecodableImage, match="the file is damaged or no HWP document: incorrect DIFAT"):
        hwp.pieces(tmp_path / "a.hwp")


@converts
def test_scripts_of_a_document_are_left_alone(folder: SourceFolder) -> None:
    scripts = {"Scripts/sourceScripts": b"function OnDocument_Open() { throw 1; }", "Scripts/headerScripts": b"var a;"}
    folder.put("a.hwpx", hwpx(paragraph("스크립트가 든 문서입니다."), files=scripts))
    folder.index()
    assert [(bool(row.data), row.problem, row.damage) for row in folder.rows()] == [(True, None, None)]


def test_a_conversion_ends_with_its_parent(tmp_path: Path) -> None:
    os.mkfifo(path := tmp_path / "a.hwp")
    connection, process = start_child("kopub.pages.documents.conversion:work", group=0)
    connection.send((path, tmp_path))
    connection.close()
    try:
        assert process.wait(60) < 0
    finally:
        process.kill()


# The structure of documents


def converted(path: Path, content: bytes) -> Conversion:
    path.write_bytes(content)
    conversions = Conversions()
    try:
        made = conversions.pdf("a", path)
        assert isinstance(made, Conversion), made
        return replace(made, pieces={at: pieces_of_page(made, at) for at in range(len(PdfDocument(made.pdf)))})
    finally:
        conversions.end()


@converts
def test_what_is_kept_of_a_conversion_does_not_grow_with_its_document(tmp_path: Path) -> None:
    (tmp_path / "a.hwpx").write_bytes(hwpx(*map(paragraph, SENTENCES)))
    conversions = Conversions()
    try:
        made = conversions.pdf("a", tmp_path / "a.hwpx")
        assert isinstance(made, Conversion)
        assert len(pickle.dumps(made)) < 1000
        assert pieces_of_page(made, 0)[0].text == SENTENCES[0]
    finally:
        conversions.end()


def cells(piece: Piece) -> list[tuple[int, int, int, int, str]]:
    return [(cell.row, cell.column, cell.row_span, cell.column_span, cell.text) for cell in piece.cells]


@converts
def test_a_document_says_what_it_holds_with_merged_cells_and_without_what_it_hides(tmp_path: Path) -> None:
    rows = [["넓은 칸", "", "증감"], ["높은 칸", "△1,234", "25㎡"], ["", "", "끝"]]
    nested = table([["속에 든 표", "가나다라 77"]], whole=12000)
    ruled = table(rows, {(0, 0): (1, 2), (1, 0): (2, 1)}, {(2, 1): nested}, "표 1 예산 현황")
    empty = table([["", ""], ["", ""]])
    made = converted(
        tmp_path / "a.hwpx",
        hwpx(
            paragraph("계약 금액은 오천만 원", files.deleted("삼천만 원") + note("부가세를 포함한다")),
            paragraph("", ruled),
            paragraph("면적을 구하는 식은 아래와 같다", files.equation("S = {a+b} over {2} times h")),
            paragraph("", empty),
            paragraph("마지막 문단이다", files.hidden("숨은 설명")),
            first=files.head("머리말의 글") + files.head("꼬리말의 글", "footer"),
        ),
    )
    assert made.lost == {}
    [page] = [list(pieces) for pieces in made.pieces.values()]
    outer, inner = [piece for piece in page if piece.is_table]
    assert cells(outer) == [
        (0, 0, 1, 2, "넓은 칸"),
        (0, 2, 1, 1, "증감"),
        (1, 0, 2, 1, "높은 칸"),
        (1, 1, 1, 1, "△1,234"),
        (1, 2, 1, 1, "25㎡"),
        (2, 1, 1, 1, ""),
        (2, 2, 1, 1, "끝"),
    ]
    assert [text for *_, text in cells(inner)] == ["속에 든 표", "가나다라 77"]
    assert [(piece.label, piece.text) for piece in page if not piece.is_table] == [
        ("header", "머리말의 글"),
        ("text", "계약 금액은 오천만 원1)"),
        ("footnote", "부가세를 포함한다"),
        ("figure_title", "표 1 예산 현황"),
        ("text", "면적을 구하는 식은 아래와 같다"),
        ("display_formula", r"S = \frac{a + b}{2} \times h"),
        ("text", "마지막 문단이다"),
        ("footer", "꼬리말의 글"),
    ]
    assert all(piece.printed for piece in page)


@converts
def test_an_old_document_has_its_tables_with_merged_cells(tmp_path: Path) -> None:
    ruled = files.hwp_table([["넓은 칸", "", "증감"], ["총무과", "△48,163", "25㎡"]], {(0, 0): (1, 2)})
    made = converted(tmp_path / "a.hwp", files.hwp("예산 현황을 보고한다", ruled, "마지막 문단이다"))
    assert made.lost == {}
    [[first, budget, last]] = made.pieces.values()
    assert (first.text, last.text) == ("예산 현황을 보고한다", "마지막 문단이다")
    assert cells(budget) == [
        (0, 0, 1, 2, "넓은 칸"),
        (0, 2, 1, 1, "증감"),
        *((1, at, 1, 1, text) for at, text in enumerate(("총무과", "△48,163", "25㎡"))),
    ]


@converts
def test_each_table_of_the_xml_is_a_table_of_the_document(tmp_path: Path) -> None:
    grids = [[[f"{at}의 {row}행 {column}열" for column in range(3)] for row in range(4)] for at in range(25)]
    breaks = ["page" if at % 5 == 0 else "" for at in range(25)]
    body = (paragraph(f"{at}번 표", breaks=breaks[at]) + paragraph("", table(grid)) for at, grid in enumerate(grids))
    content = hwpx(*body)
    made = converted(tmp_path / "a.hwpx", content)
    assert made.lost == {}
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        count = file.read("Contents/section0.xml").count(b"<hp:tbl ")
    tables = [piece for page in made.pieces.values() for piece in page if piece.is_table]
    assert count == 25
    assert [piece.text.split("\n") for piece in tables] == [[text for row in grid for text in row] for grid in grids]


def test_a_sign_that_no_font_has_is_known_by_its_printed_number() -> None:
    halves = [Word("F5", Box(500, 366, 513, 376)), Word("3A", Box(499, 377, 513, 386))]
    figures = [Word("27", Box(600, 300, 620, 320)), Word("13", Box(600, 325, 620, 345))]
    text = Word("워드", Box(541, 368, 582, 388))
    assert list(with_missing_letters([*figures, *halves, text])) == [
        *figures,
        Word("\uf53a", Box(499, 366, 513, 386)),
        text,
    ]


def test_a_formula_of_a_hostile_document_is_short_work() -> None:
    assert latex_of("{" * 100_000 + "}" * 100_000)
    assert latex_of("}{x over y}} sqrt {2} over z") == r"{\frac{x}{y}} \sqrt \frac{2}{z}"
