"""Office files converted by LibreOffice: their text, errors of hostile files, killed processes."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pypdfium2 import PdfDocument

from kopub.errors import SourceError, UndecodableImage
from kopub.pages.documents import conversion, libreoffice, office
from kopub.pages.documents.conversion import Conversion, Conversions
from kopub.pages.documents.text_layer import Failure, TextLayer
from tests.support.sources.hwp_files import compound
from tests.support.sources.office_files import archive, docx, open_document, pptx, xlsx
from tests.support.sources.source_folder import SourceFolder
from tests.support.waiting import until

converts = pytest.mark.skipif(
    any(map(office.lacks, office.SUFFIXES)) or not conversion.has_korean_font(),
    reason="apt-get install libreoffice-writer libreoffice-calc libreoffice-impress fonts-noto-cjk",
)
SAID = ["계약서의 첫째 줄입니다.", "둘째 줄에는 숫자 12345가 있습니다."]

pytestmark = pytest.mark.usefixtures("one_process")


@pytest.fixture
def conversions():
    made = Conversions()
    yield made
    made.end()


@pytest.mark.slow
@converts
def test_every_format_comes_out_with_its_text(folder: SourceFolder) -> None:
    page = f"<html><body><script>alert(1)</script><p>{'</p><p>'.join(SAID)}</p></body></html>"
    contents = {
        "a.docx": docx(*SAID),
        "b b%20.xlsx": xlsx([SAID]),
        "-c.pptx": pptx(*SAID),
        "한글 이름.odt": open_document("text", *SAID),
        "e.ods": open_document("spreadsheet", *SAID),
        "f.ODP": open_document("presentation", *SAID),
        "g.html": page.encode(),
        "h.rtf": b"{\\rtf1\\ansi plain words of a letter}",
    }
    for name, content in contents.items():
        folder.put(name, content)
    folder.index()
    rows = folder.rows()
    assert {row.doc_id for row in rows} == contents.keys()
    assert [row.problem or row.damage for row in rows if row.problem or row.damage] == []
    texts = dict.fromkeys(contents, "")
    for shard in (folder.home / "rendered").glob("pages-*"):
        for row in pq.read_table(shard, columns=["file_name", "pdf_text_layer"]).to_pylist():
            texts[row["file_name"]] += "".join(word.text for word in TextLayer.from_json(row["pdf_text_layer"]).words)
    assert "plainwords" in texts.pop("h.rtf")
    for name, text in texts.items():
        assert [line for line in SAID if line.replace(" ", "") not in text] == [], name


@pytest.mark.parametrize(
    ("name", "package"), [("a.docx", "writer"), ("a.html", "writer"), ("a.xls", "calc"), ("a.odp", "impress")]
)
def test_without_libreoffice_a_file_is_left_out_with_the_package_to_install(
    folder: SourceFolder, monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    monkeypatch.setattr(libreoffice, "program", lambda: None)
    folder.put(name, b"x")
    with pytest.raises(SourceError, match=rf"need LibreOffice: apt-get install libreoffice-{package} \(macOS"):
        folder.index()


@converts
@pytest.mark.slow
def test_files_of_old_programs_come_out_with_their_text(tmp_path: Path, conversions: Conversions) -> None:
    made = (("a.docx", docx(*SAID), "doc"), ("b.xlsx", xlsx([SAID]), "xls"), ("c.pptx", pptx(*SAID), "ppt"))
    for name, content, _ in made:
        (tmp_path / name).write_bytes(content)
    for name, _, suffix in made:
        home = f"-env:UserInstallation={(tmp_path / 'profile').as_uri()}"
        command = [
            "soffice",
            home,
            "--headless",
            "--convert-to",
            suffix,
            "--outdir",
            str(tmp_path),
            str(tmp_path / name),
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        old = (tmp_path / name).with_suffix(f".{suffix}")
        assert old.read_bytes().startswith(b"\xd0\xcf\x11\xe0")
        pdf = conversions.pdf(old.name, old)
        assert isinstance(pdf, Conversion), pdf
        with PdfDocument(pdf.pdf) as document:
            text = "".join(page.get_textpage().get_text_range() for page in document)
        assert [line for line in SAID if "".join(line.split()) not in "".join(text.split())] == [], suffix


# Hostile files

LAUGHS = "".join(f'<!ENTITY l{at} "{f"&l{at - 1};" * 10}">' for at in range(1, 10))
SCRIPT = (
    '<office:scripts><office:script script:language="ooo:Basic"/><office:event-listeners><script:event-listener '
    'script:language="ooo:script" script:event-name="dom:load" '
    'xlink:href="vnd.sun.star.script:Standard.Module1.Main?language=Basic&amp;location=document" '
    'xmlns:xlink="http://www.w3.org/1999/xlink"/></office:event-listeners></office:scripts>'
)


LOCKED = compound({"EncryptionInfo": bytes(200), "EncryptedPackage": bytes(5000)}, {"part": b"x"})


@pytest.mark.slow
@converts
def test_what_is_locked_or_hostile_is_one_line(folder: SourceFolder) -> None:
    key = '<m:file-entry m:full-path="x"><m:encryption-data/></m:file-entry>'
    contents = {
        "bomb.docx": (archive({"word/document.xml": b" " * (600 << 20)}), "unpacks to more"),
        "empty.xlsx": (b"", "the file is empty"),
        "entities.docx": (docx("&l9;", head=f"<!DOCTYPE d [<!ENTITY l0 'lol'>{LAUGHS}]>"), "declares entities"),
        "locked.docx": (LOCKED, "wants a password"),
        "locked.xlsx": (LOCKED, "wants a password"),
        "locked.odt": (open_document("text", "잠긴 글", manifest=key), "wants a password"),
        "none.pptx": (archive({"readme.txt": b"x"}), "LibreOffice cannot convert it"),
    }
    for name, (content, _) in contents.items():
        folder.put(name, content)
    folder.index()
    rows = {str(row.doc_id): row for row in folder.rows()}
    assert rows.keys() == contents.keys()
    for name, (_, said) in contents.items():
        problem = str(rows[name].problem)
        assert (rows[name].data, said in problem, "\n" in problem) == (None, True, False), (name, problem)


def test_a_compound_file_without_a_workbook_is_not_read_as_a_text(tmp_path: Path) -> None:
    """LibreOffice would print its bytes as the cells of a table."""
    (tmp_path / "a.xls").write_bytes(compound({"Contents": b"1,2,3"}, {}))
    with pytest.raises(UndecodableImage, match="no office document: it has no workbook"):
        office.convert(tmp_path / "a.xls", tmp_path / "a.pdf")


@pytest.mark.parametrize("suffix", ["docx", "xlsx", "pptx", "odt"])
def test_a_document_that_is_cut_off_is_one_line(tmp_path: Path, suffix: str) -> None:
    letters = random.Random(0)
    texts = ["".join(letters.choices("가나다라마바사아자차카타파하각난", k=400)) for _ in range(20)]
    whole = {
        "docx": lambda: docx(*texts),
        "xlsx": lambda: xlsx([texts]),
        "pptx": lambda: pptx(*texts),
        "odt": lambda: open_document("text", *texts),
    }[suffix]()
    path = tmp_path / f"a.{suffix}"
    assert len(whole) > 4096
    for end in range(0, len(whole), 1024):
        path.write_bytes(whole[:end])
        with pytest.raises(UndecodableImage, match=r"^the file is damaged or no office document: .+$"):
            office.convert(path, tmp_path / "a.pdf")


@converts
@pytest.mark.slow
def test_a_sheet_as_large_as_can_be_ends_in_pages_or_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.xlsx").write_bytes(xlsx([["칸"] * 200_000]))
    short = Conversions(seconds=10)
    try:
        made = short.pdf("a", tmp_path / "a.xlsx")
    finally:
        short.end()
    assert isinstance(made, Conversion) or "\n" not in made.reason


@pytest.mark.slow
@converts
def test_macros_do_not_run_and_links_are_not_fetched(tmp_path: Path, conversions: Conversions) -> None:
    (tmp_path / "a.odt").write_bytes(open_document("text", "매크로가 든 글", scripts=SCRIPT))
    assert isinstance(conversions.pdf("a", tmp_path / "a.odt"), Conversion)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        page = f'<p>그림</p><img src="http://127.0.0.1:{port}/a.png"><link rel="stylesheet" href="http://127.0.0.1:{port}/b">'
        (tmp_path / "b.html").write_text(f"<html><body>{page}</body></html>")
        assert isinstance(conversions.pdf("b", tmp_path / "b.html"), Conversion)
        server.settimeout(0.2)
        with pytest.raises(TimeoutError):
            server.accept()


_SILENT_AT_FIRST = """#!/bin/sh
echo start >> {folder}/starts
[ "$(wc -l < {folder}/starts)" -le {silent} ] && exit 0
echo pdf > "${{KOPUB_PDF#file://}}"
"""


@pytest.mark.parametrize(("silent", "starts"), [(0, 1), (1, 2), (9, 2)])
def test_a_libreoffice_that_ends_without_a_word_is_started_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: int, starts: int
) -> None:
    program = tmp_path / "soffice"
    program.write_text(_SILENT_AT_FIRST.format(folder=tmp_path, silent=silent))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "a.docx").write_bytes(docx(*SAID))
    pdf = tmp_path / "made" / "a.pdf"
    pdf.parent.mkdir()
    if silent < starts:
        office.convert(tmp_path / "a.docx", pdf)
        assert pdf.read_text() == "pdf\n"
    else:
        with pytest.raises(UndecodableImage, match=r"^LibreOffice cannot convert it: it gave no PDF$"):
            office.convert(tmp_path / "a.docx", pdf)
    assert (tmp_path / "starts").read_text().count("start") == starts


@converts
@pytest.mark.slow
def test_a_conversion_that_takes_too_long_is_killed_with_all_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = tmp_path / "soffice"
    endless.write_text("#!/bin/sh\nsleep 1000 &\necho $! > $HOME/child\nwait\n")
    endless.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "a.docx").write_bytes(docx(*SAID))
    short = Conversions(seconds=8)
    try:
        assert short.pdf("a", tmp_path / "a.docx") == Failure(
            "its conversion was given up after 8 seconds", may_pass=True
        )
        (child,) = short._folder.glob("*/*/child")
        _ends(int(child.read_text()))
    finally:
        short.end()


@pytest.mark.parametrize("home", ["/dev/null", pytest.param("/proc/none", marks=pytest.mark.slow)])
@converts
def test_a_home_that_cannot_be_written_is_not_needed(
    tmp_path: Path, conversions: Conversions, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, home)
    (tmp_path / "a.docx").write_bytes(docx(*SAID))
    assert isinstance(conversions.pdf("a", tmp_path / "a.docx"), Conversion)


_CONVERTS = """
import sys
from pathlib import Path
from kopub.pages.documents.conversion import Conversions
Conversions().pdf("a", Path(sys.argv[1]))
"""


@converts
@pytest.mark.slow
def test_a_killed_run_leaves_no_libreoffice_and_two_runs_convert_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = tmp_path / "soffice"
    endless.write_text("#!/bin/sh\nsleep 1000 &\necho $! >> $HOME/child\nwait\n")
    endless.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("KOPUB_RUNTIME", str(tmp_path / "runtime"))
    (tmp_path / "a.docx").write_bytes(docx(*SAID))
    runs = [subprocess.Popen([sys.executable, "-c", _CONVERTS, str(tmp_path / "a.docx")]) for _ in range(2)]
    try:
        (first,) = _children(tmp_path)
        time.sleep(3)
        assert _children(tmp_path) == [first]
        for run in runs:
            run.send_signal(signal.SIGKILL)
            run.wait()
            time.sleep(1)
        for child in _children(tmp_path):
            _ends(child)
    finally:
        for run in runs:
            run.kill()


def _children(folder: Path) -> list[int]:
    return until(lambda: [int(file.read_text()) for file in folder.glob("kopub-documents-*/*/*/child")])


def _ends(process: int) -> None:
    until(lambda: not _runs(process), 10)


def _runs(process: int) -> bool:
    state = Path(f"/proc/{process}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.slow
@converts
def test_two_at_once_wait_for_each_other_and_both_come_out(tmp_path: Path, conversions: Conversions) -> None:
    for name in ("a.docx", "b.docx"):
        (tmp_path / name).write_bytes(docx(*SAID))
    with ThreadPoolExecutor(2) as threads:
        made = list(threads.map(lambda name: conversions.pdf(name, tmp_path / name), ("a.docx", "b.docx")))
    assert [each.lost for each in made if isinstance(each, Conversion)] == [{}, {}]
