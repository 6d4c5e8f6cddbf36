"""Hostile documents: nothing of the machine comes out, and a bomb costs its own page alone."""

import io
import os
import socket
import stat
import sys
import zipfile
from concurrent.futures import wait
from pathlib import Path
from threading import Event, Thread
from time import sleep
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from kopub import confinement, processes
from kopub.errors import UndecodableImage
from kopub.folders import runtime_folder
from kopub.pages.documents import conversion, hwp, office, page_maker
from kopub.pages.documents import pool as pool_module
from kopub.pages.documents.extents import require_small
from kopub.pages.documents.pool import RenderPool
from kopub.pages.documents.references import without_references
from kopub.pages.documents.text_layer import Extent, Failure, RenderedImage
from kopub.pages.page import decode
from kopub.processes import ChildPool, start_child
from tests.support.sources.hostile_files import (
    COLOUR,
    TOKEN,
    far_cell,
    fine_pattern,
    in_open_document,
    nested_forms,
    references,
    repeated_cells,
    secrets,
)
from tests.support.sources.hwp_files import hwpx, paragraph
from tests.support.sources.office_files import docx, open_document, pptx, xlsx
from tests.support.sources.pdf_files import pdf, sheet
from tests.support.sources.source_folder import SourceFolder

confines = pytest.mark.skipif(confinement.why_open() is not None, reason=str(confinement.why_open()))
converts = pytest.mark.skipif(any(map(office.lacks, office.SUFFIXES)), reason="apt-get install libreoffice")

pytestmark = pytest.mark.usefixtures("one_process")
_LONG = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif("KOPUB_TEST_HOSTILE" not in os.environ, reason="takes minutes: set KOPUB_TEST_HOSTILE=1"),
]


@confines
@converts
@pytest.mark.parametrize(
    "names",
    [
        ("include.rtf-absolute-png.rtf",),
        pytest.param(("include.rtf-host-png.rtf", "svg.docx-file-pdf.docx"), marks=pytest.mark.slow),
        pytest.param(None, marks=_LONG),
    ],
)
def test_no_file_of_the_machine_and_no_host_comes_out(
    folder: SourceFolder, tmp_path: Path, names: tuple[str, ...] | None
) -> None:
    secrets(tmp_path / "secret")
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        Thread(target=_answer, args=(server, asked), daemon=True).start()
        made = references(tmp_path / "secret", f"http://127.0.0.1:{server.getsockname()[1]}")
        for name in names or made:
            folder.put(name, made[name])
        folder.index()
    rows = folder.rows()
    assert {row.doc_id for row in rows} == {*(names or made)}
    for row in rows:
        assert row.data is None or not _shows_secret(decode(row.data)), row.doc_id
    for shard in folder.files():
        assert TOKEN not in str(pq.read_table(folder.home / "rendered" / shard).drop_columns(["image"]).to_pylist())
    assert asked == []


@converts
@pytest.mark.slow
def test_without_landlock_references_are_removed_or_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confinement, "why_open", lambda: "the kernel 4.18 has no Landlock")
    secrets(tmp_path / "secret")
    made = references(tmp_path / "secret", "http://127.0.0.1:9")
    shown = ("include.rtf-absolute-png.rtf",)
    refused = [name for name in made if name.startswith(("svg.", "linked.", "section.", "sheet.", "field."))]
    assert len(refused) > 50
    for at, name in enumerate((*shown, *refused)):
        path, folder = tmp_path / name, tmp_path / f"made {at}"
        path.write_bytes(made[name])
        folder.mkdir()
        if name in refused:
            with pytest.raises(UndecodableImage, match=r"it refers to .* cannot keep LibreOffice from files"):
                office.convert(path, folder / "document.pdf")
            continue
        office.convert(path, folder / "document.pdf")
        assert not _shows_secret(decode(_first_page(folder / "document.pdf"))), name


def test_without_landlock_ordinary_office_files_are_converted(tmp_path: Path) -> None:
    link = '<w:p><w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText>HYPERLINK "http://a.b"</w:instrText></w:r></w:p>'
    for suffix, content in {
        "docx": docx("words", body=link),
        "xlsx": xlsx([["words"]]),
        "pptx": pptx("words"),
        "odt": open_document("text", "words"),
        "ods": open_document("spreadsheet", "words"),
        "rtf": b"{\\rtf1 words}",
        "html": b'<p style="color:red"><a href="http://a.b">words</a></p>',
    }.items():
        path = tmp_path / f"a.{suffix}"
        path.write_bytes(content)
        cleaned = without_references(path, tmp_path).read_bytes()
        assert cleaned == content or (suffix == "html" and b'<a href="http://a.b">words</a>' in cleaned)


def _first_page(pdf: Path) -> bytes:
    with RenderPool(1) as pool:
        (page,) = pool.render([(pdf, 0)], 72)
    assert isinstance(page, RenderedImage)
    return page.data


def _answer(server: socket.socket, asked: list[bytes]) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            asked.append(connection.recv(100))


def _shows_secret(pixels: "np.ndarray") -> bool:
    return bool((np.abs(pixels.astype(int) - COLOUR).max(axis=2) < 40).any())


LOOKS = """
import os, socket
def main(connection, *_):
    path = connection.recv()
    said = []
    for attempt in (
        lambda: open(path).read(),
        lambda: os.listdir("/etc"),
        lambda: open("/proc/self/environ").read(),
        lambda: open(path + ".new", "w"),
        lambda: socket.create_connection(("127.0.0.1", 9)),
        lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        lambda: "SECRET" in os.environ and 1 / 0,
    ):
        try:
            attempt()
        except Exception as error:
            said.append(type(error).__name__)
        else:
            said.append("")
    connection.send(said)
"""


@confines
def test_a_confined_process_reaches_what_it_is_given_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Modules that were installed into a folder, as by pip's --target, are readable; those beside documents are not.
    modules = tmp_path / "installed"
    (modules / "looking-1.dist-info").mkdir(parents=True)
    (modules / "looking.py").write_text(LOOKS)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "given.txt").write_text("x")
    monkeypatch.syspath_prepend(str(modules))
    monkeypatch.setenv("SECRET", "x")
    refused = "PermissionError"
    for reads, first in (([], refused), ([str(tmp_path / "given.txt")], "")):
        connection, process = start_child("looking:main", confined={"reads": reads})
        with connection:
            connection.send(str(tmp_path / "given.txt"))
            assert connection.recv() == [first, *[refused] * 5, ""]
        process.wait(10)


STRICT = """
from kopub.pages.documents import page_maker
page_maker.SECONDS, page_maker.MEMORY = {limits}
work = page_maker.work
"""


@pytest.fixture
def strict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give pages little time and memory, so that what takes too much ends soon."""
    limits = (2, 512 << 20)
    modules = tmp_path / "installed"
    (modules / "strict_maker-1.dist-info").mkdir(parents=True)
    (modules / "strict_maker.py").write_text(STRICT.format(limits=limits))
    monkeypatch.syspath_prepend(str(modules))
    for name, value in zip(("SECONDS", "MEMORY", "__name__"), (*limits, "strict_maker"), strict=True):
        monkeypatch.setattr(page_maker, name, value)


@pytest.mark.usefixtures("strict")
def test_a_bomb_is_quarantined_once_and_other_files_come_out(folder: SourceFolder) -> None:
    folder.put("a.pdf", nested_forms())
    folder.put("b.pdf", nested_forms(depth=1))
    folder.index()
    rows = {str(row.doc_id): row for row in folder.rows()}
    assert "ended by SIGABRT" in str(rows["a.pdf"].problem)
    assert "in 512 MB" in str(rows["a.pdf"].problem)
    assert (rows["a.pdf"].failed, rows["b.pdf"].problem) == (False, None)
    before = folder.files()
    folder.index()
    assert folder.files() == before
    assert not any("could not be made" in line for line in folder.lines)


@pytest.mark.usefixtures("strict")
def test_a_page_that_computes_too_long_is_quarantined_while_others_come_out(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(fine_pattern())
    (tmp_path / "b.pdf").write_bytes(nested_forms(depth=1))
    with RenderPool(1) as pool:
        assert list(pool.count([tmp_path / "a.pdf"])) == [Extent(1)]
        first, second = pool.render([(tmp_path / "a.pdf", 0), (tmp_path / "b.pdf", 0)], 72)
    assert isinstance(first, Failure)
    assert (first.may_pass, "it takes too long to compute" in first.reason) == (False, True)
    assert isinstance(second, RenderedImage)


@pytest.mark.parametrize("slow", ["slow.pdf", "slow.docx"])
def test_other_files_are_made_while_one_is_slow(slow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [tmp_path / f"{at}.pdf" for at in range(20)]
    for path in (tmp_path / slow, *others):
        path.write_bytes(b"x")
    made: list[str] = []
    all_made = Event()

    def work_on(path: Path) -> Failure | RenderedImage:
        if path.name == slow:
            return Failure("" if all_made.wait(10) else "the others waited")
        made.append(path.name)
        if len(made) == len(others):
            all_made.set()
        return RenderedImage(b"x")

    def wait_late(*futures: Any, **until: Any) -> Any:
        sleep(0.02)  # all that was begun ends before it is waited for
        return wait(*futures, **until)

    monkeypatch.setattr(pool_module, "wait", wait_late)
    monkeypatch.setattr(ChildPool, "ask", lambda pool, request, file: work_on(request[1]))
    monkeypatch.setattr(conversion.Conversions, "pdf", lambda conversions, name, path: work_on(path))
    with RenderPool(2) as pool:
        first, *rest = pool.render([(path, 0) for path in (tmp_path / slow, *others)], 72)
    assert first == Failure("")
    assert rest == [RenderedImage(b"x")] * len(others)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how much memory a process has")
def test_a_conversion_has_no_more_memory_than_the_processes_in_whose_place_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversion, "_BESIDE_OTHERS", 1)
    monkeypatch.setattr(conversion, "_ALONE", 2 << 20)
    monkeypatch.setattr(processes, "_MOST_KEPT", 1)
    (tmp_path / "a.pdf").write_bytes(pdf(sheet()))
    os.mkfifo(tmp_path / "b.hwp")
    idle: list[int] = []
    convert = conversion.Conversions._convert

    def convert_beside(conversions: conversion.Conversions, path: Path, most: int) -> Any:
        idle.append(sum(worker._process is None for worker in pool._processes.workers))
        return convert(conversions, path, most)

    monkeypatch.setattr(conversion.Conversions, "_convert", convert_beside)
    with RenderPool(2) as pool:
        page = tmp_path / "a.pdf", 0
        assert all(isinstance(made, RenderedImage) for made in pool.render([page] * 8, 72))
        assert list(pool.count([tmp_path / "b.hwp"])) == [
            Failure("its conversion needs more than 0.00195312 GB of memory")
        ]
    # The first time in one place, the second time in both.
    assert idle[0] >= 1
    assert idle[1:] == [2]


VALUE = ' office:value-type="float" office:value="1"'
FAR = "a sheet or table reaches to row"


SPACES = '<text:p><text:s text:c="2000000000"/></text:p>'
NESTED = "it nests more than 256 elements"
LARGE = {
    "far.xlsx": (far_cell(), f"{FAR} 1,048,576 and column 16,384"),
    "prefixed.xlsx": (far_cell("Z1048576", prefixed=True), FAR),
    "repeated.ods": (repeated_cells("spreadsheet", 1_000_000, 16_000, VALUE), f"{FAR} 1,000,000"),
    "repeated.odt": (repeated_cells("text", 1_000_000, 16_000), f"{FAR} 1,000,000"),
    "spaces.odt": (
        in_open_document("text", '<text:p><text:s text:c="2000000000"/></text:p>', {}),
        "67,108,864 letters",
    ),
    "nested.docx": (docx("x", body="<w:sdt>" * 300 + "</w:sdt>" * 300), NESTED),
    "nested.hwpx": (hwpx(paragraph("x", "<hp:ctrl>" * 300 + "</hp:ctrl>" * 300)), NESTED),
    "table.hwpx": (hwpx(paragraph("x", '<hp:tbl rowCnt="65535" colCnt="65535"/>')), f"{FAR} 65,535"),
}


@pytest.mark.parametrize("name", LARGE)
def test_what_xml_states_too_large_is_one_line_at_once(name: str, tmp_path: Path) -> None:
    content, reason = LARGE[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UndecodableImage, match=reason):
        hwp.pieces(path) if name.endswith(".hwpx") else office.convert(path, tmp_path / "a.pdf")


def test_sheets_formatted_to_their_last_row_are_small() -> None:
    made = repeated_cells("spreadsheet", 1_048_575, 16_384, ' table:style-name="x"')
    with zipfile.ZipFile(io.BytesIO(made)) as archive:
        require_small(archive)


def test_the_lock_of_office_files_is_in_a_folder_of_its_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPUB_RUNTIME", str(tmp_path / "runtime"))
    conversions = conversion.Conversions()
    try:
        with conversions._only_one():
            lock = runtime_folder() / "office.lock"
            assert stat.S_IMODE(os.stat(lock).st_mode) == 0o600
            assert stat.S_IMODE(lock.parent.stat().st_mode) == 0o700
    finally:
        conversions.end()
