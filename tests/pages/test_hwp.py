"""HWP and HWPX sources: converted text, reported losses, and limits on hostile files."""

import io
import os
import sys
import zipfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image

from kopub.errors import SourceError
from kopub.pages.documents import conversion, hwp
from kopub.pages.documents.conversion import Conversions, lost_text
from kopub.pages.documents.fonts import korean_faces
from kopub.pages.documents.text_layer import Failure, TextLayer
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
    assert "12 letters of the document did not come out" in str(row.damage)
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


def entities() -> bytes:
    """Return an HWPX whose XML would expand to a billion letters."""
    laughs = "".join(f'<!ENTITY l{at} "{f"&l{at - 1};" * 10}">' for at in range(1, 10))
    xml = f'<!DOCTYPE s [<!ENTITY l0 "lol">{laughs}]><s xmlns="s"><p><t>&l9;</t></p></s>'
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("Contents/section0.xml", xml)
    return archive.getvalue()


@converts
def test_what_is_locked_or_hostile_is_one_line_and_quarantined(folder: SourceFolder) -> None:
    expected = {
        "bomb.hwpx": "unpacks to more",
        "distribution.hwp": "배포용 문서",
        "empty.hwp": "the file is empty",
        "entities.hwpx": "",
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


# The comparison of texts


def test_all_text_is_there_over_lines_and_pages() -> None:
    held = ["가나다라 마바사아 자차카타 파하 1234567890", "둘째 문단입니다.", "① 셋"]
    assert lost_text(held, ["가나다라\r\n마바사아 자차", "카타 파하 1234567890\r\n둘째 문단입니다. 셋"]) == {}


def test_what_is_lost_is_said_on_the_pages_where_it_may_have_stood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "has_korean_font", lambda: True)
    held = [
        SENTENCES[1],
        SENTENCES[2],
        SENTENCES[3],
        "아주 다른 잃어버린 글이 여기에 있었습니다",
        SENTENCES[4],
        SENTENCES[5],
    ]
    pages = [SENTENCES[1], SENTENCES[2] + SENTENCES[3], SENTENCES[4], SENTENCES[5]]
    lost = lost_text(held, pages)
    assert lost.keys() == {1, 2}
    assert lost[1] == "18 letters of the document did not come out, as “아주 다른 잃어버린 글이 여기에 있었습니다”"


def test_a_text_that_stands_twice_is_to_come_out_twice() -> None:
    assert lost_text(["합계 일곱 사람입니다"] * 2, ["합계 일곱 사람입니다"]).keys() == {0}


def test_with_no_text_at_all_every_page_says_it() -> None:
    assert lost_text(SENTENCES, ["", "", ""]).keys() == {0, 1, 2}


def test_a_hidden_comment_is_not_missed(tmp_path: Path) -> None:
    path = tmp_path / "a.hwpx"
    path.write_bytes(hwpx(paragraph("본문", files.hidden("숨은 설명"))))
    assert [text for text in hwp.paragraphs(path) if text] == ["본문"]
