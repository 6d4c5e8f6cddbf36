"""PDF sources: rendered pages, and which are rendered again when a folder changes."""

import io
import os
import re
import signal
import struct
import subprocess
import sys
import unicodedata
import zlib
from collections.abc import Iterator
from itertools import islice
from multiprocessing import Pipe
from multiprocessing.reduction import send_handle
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

import kopub
from kopub.corrections.corrected import CorrectedTables
from kopub.documents.export import write_documents
from kopub.errors import SourceError, StoreError
from kopub.folders import SAMPLES
from kopub.layout.cpu.engine import CpuLayout
from kopub.pages.corpus import Corpus, SourceRow
from kopub.pages.documents import page_maker, shards
from kopub.pages.documents import pdf as pdfs
from kopub.pages.documents.pdf import Pdfs
from kopub.pages.documents.pool import RenderPool
from kopub.pages.documents.text_layer import Extent, Failure, RenderedImage
from kopub.pages.indexing import index
from kopub.pages.page import decode, inspect, problem_with_id
from kopub.pages.page_reader import origins
from kopub.pages.places import CorpusPlace
from kopub.processes import ChildWorker
from kopub.states import State
from tests.support.harness import Platform
from tests.support.processes import forked
from tests.support.sources.corpora import pages, query, write_corpus
from tests.support.sources.pdf_files import BLACK, bar, pdf, sheet
from tests.support.sources.source_folder import SourceFolder

KOPUB = [sys.executable, "-c", "from kopub.cli.main import main; main()"]
WHITE, RED = (255, 255, 255), (255, 0, 0)
LOCKED = b"/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <" + b"00" * 32 + b"> /U <" + b"11" * 32 + b"> >>"
"""An encryption that no password opens, not even the empty one."""

pytestmark = pytest.mark.usefixtures("one_process")


class Folder(SourceFolder):
    """A folder of PDFs, by default of one page."""

    def put(self, name: str, content: bytes | None = None) -> Path:
        return super().put(name, pdf(sheet()) if content is None else content)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, folder: Folder) -> Folder:
    monkeypatch.setattr(shards, "SHARD_PAGES", 3)
    return folder


def ink(page: np.ndarray) -> set[tuple[int, ...]]:
    return {tuple(map(int, color)) for color in np.unique(page.reshape(-1, 3), axis=0)}


# Pages


def test_pages_come_out_in_their_order_and_size(folder: Folder) -> None:
    folder.put("보고서 2024.pdf", pdf(sheet(), sheet(bar(RED), box="0 0 100 50")))
    manifest = folder.index()
    assert (manifest.rows, manifest.shards[0].format, manifest.location) == (2, "parquet", str(folder.source))
    assert [(row.page_id, row.doc_id, row.page_no, row.problem) for row in folder.rows()] == [
        ("보고서 2024_1", "보고서 2024.pdf", 1, None),
        ("보고서 2024_2", "보고서 2024.pdf", 2, None),
    ]
    assert (folder.page(0).shape, folder.page(1).shape) == ((80, 60, 3), (50, 100, 3))
    expected = np.full((80, 60, 3), 255, np.uint8)
    expected[:10, :20] = 0
    assert np.array_equal(folder.page(0), expected)


def test_a_page_without_colour_is_grey_and_one_with_it_is_not(folder: Folder) -> None:
    folder.put("a.pdf", pdf(sheet(), sheet(bar(RED))))
    folder.index()
    grey, coloured = (bytes(row.data or b"") for row in folder.rows())
    # Byte 25 of a PNG is its colour type: 0 is grey, 2 is RGB.
    assert (grey[25], coloured[25]) == (0, 2)
    assert (ink(decode(grey)), ink(decode(coloured))) == ({WHITE, BLACK}, {WHITE, RED})


def test_resolution_is_300_dpi_unless_it_is_said(folder: Folder) -> None:
    path = folder.put("a.pdf", pdf(sheet(box="0 0 72 144")))
    index(str(path), folder.home)
    assert folder.page().shape == (600, 300, 3)
    folder.index(150)
    assert folder.page().shape == (300, 150, 3)


def test_a_page_is_upright(folder: Folder) -> None:
    folder.put("a.pdf", pdf(sheet(more=b"/Rotate 90"), sheet(more=b"/Rotate 180")))
    folder.index()
    assert folder.page(0).shape == (60, 80, 3)
    # What was in the upper left is in the upper right after a quarter turn clockwise.
    assert not folder.page(0)[:20, -10:].any()
    assert not folder.page(1)[-10:, -20:].any()


def test_a_page_is_its_crop_box(folder: Folder) -> None:
    folder.put("a.pdf", pdf(sheet(more=b"/CropBox [10 60 40 80]")))
    folder.index()
    expected = np.full((20, 30, 3), 255, np.uint8)
    expected[:10, :10] = 0
    assert np.array_equal(folder.page(), expected)


@pytest.mark.parametrize("turn", [b"", b"/Rotate 90"])
def test_a_page_whose_crop_box_lies_beside_it_is_drawn_whole(folder: Folder, turn: bytes) -> None:
    folder.put("a.pdf", pdf(sheet(more=turn), sheet(more=b"/CropBox [100 100 140 120] " + turn)))
    folder.index()
    assert [row.problem for row in folder.rows()] == [None, None]
    assert np.array_equal(folder.page(0), folder.page(1))


def test_annotations_and_form_fields_are_drawn(folder: Folder) -> None:
    box = b"/Rect [30 30 50 50] /F 4 /AP << /N 6 0 R >>"
    look = b"<< /Subtype /Form /BBox [0 0 20 20] /Length 23 >> stream\n1 0 0 rg 0 0 20 20 re f\nendstream"
    for name, annotation in (("note", b"/Subtype /Stamp"), ("field", b"/Subtype /Widget /FT /Tx /T (x)")):
        widget = b"<< /Type /Annot %s %s >>" % (annotation, box)
        form = b"/AcroForm << /Fields [5 0 R] >>" if name == "field" else b""
        drawn = pdf(sheet(b"", b"/Annots [5 0 R]"), objects=[widget, look], catalog=form)
        folder.index(source=folder.put(f"{name}.pdf", drawn))
        assert tuple(folder.page()[40, 40]) == RED, name


@pytest.mark.parametrize("box", ["0 0 14400 9000", "0 0 7 14400", "0 0 60 80"])
def test_a_huge_page_is_drawn_as_large_as_pages_may_be(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, box: str
) -> None:
    monkeypatch.setattr(pdfs, "MAX_PIXELS", 100_000)
    path = folder.put("a.pdf", pdf(sheet(b"", box=box)))
    info = inspect(Pdfs().make(path, 0, 2000).data)
    width, height = map(int, box.split()[2:])
    assert 90_000 < info.width * info.height <= 100_000
    assert (info.width - 1) / info.height < width / height < info.width / (info.height - 1)


def test_the_same_pdf_makes_the_same_bytes(folder: Folder, tmp_path: Path) -> None:
    other = Folder(tmp_path / "other")
    for each in (folder, other):
        each.put("a.pdf", pdf(sheet(), sheet(bar(RED))))
    assert folder.index().shards[0].sha256 == other.index().shards[0].sha256


@pytest.mark.slow
def test_everything_is_made_of_pages_of_pdfs(folder: Folder) -> None:
    folder.put("법령/시행령.pdf", pdf(sheet(box="0 0 300 400"), sheet(bar(RED), box="0 0 300 400")))
    folder.put("법령/없음.pdf", b"")
    folder.index()
    platform = Platform(folder.home)
    assert platform.run().success
    assert platform.states("corpus_image_embeddings") == {
        "법령__시행령_1": State.OK,
        "법령__시행령_2": State.OK,
        "법령__없음.pdf": State.QUARANTINED,
    }


# Names


def test_order_is_natural_folders_included(folder: Folder) -> None:
    for name in (
        "b/10.pdf",
        "b/9.PDF",
        "part 10/1.pdf",
        "part 9/1.pdf",
        "a.pdf",
        ".hidden.pdf",
        ".git/x.pdf",
        "b/x.log",
    ):
        folder.put(name)
    folder.index()
    wanted = ["a_1", "b__9_1", "b__10_1", "part 9__1_1", "part 10__1_1"]
    assert [row.page_id for row in folder.rows()] == wanted
    assert [row.doc_id for row in folder.rows()][1:3] == ["b/9.PDF", "b/10.pdf"]


def test_a_name_in_parts_is_composed(folder: Folder) -> None:
    folder.put(f"{unicodedata.normalize('NFD', '법령/시행령')}.pdf")
    folder.index()
    row = folder.rows()[0]
    assert (row.page_id, row.doc_id) == ("법령__시행령_1", "법령/시행령.pdf")


def test_names_that_come_out_the_same_are_told_apart(folder: Folder) -> None:
    names = [
        *("a/b.pdf", "a__b.pdf"),
        *("가.pdf", f"{unicodedata.normalize('NFD', '가')}.pdf"),
        *("a.pdf", "a.PDF"),
        *("a\nb.pdf", "a\\b.pdf", "a_b.pdf"),
        *("x/" + "가" * 80 + ".pdf", "y/" + "가" * 80 + ".pdf"),
    ]
    for name in names:
        folder.put(name, pdf(sheet(), sheet()))
    folder.index()
    rows = folder.rows()
    assert len({row.page_id for row in rows}) == 2 * len(names)
    assert len({row.doc_id for row in rows}) == len(names)
    assert [(row.problem, problem_with_id(row.page_id)) for row in rows] == [(None, None)] * len(rows)
    # A page keeps its id whatever else is in the folder.
    before = {row.page_id for row in rows}
    folder.put("another.pdf")
    folder.index()
    assert {row.page_id for row in folder.rows()} == before | {"another_1"}


def test_a_name_that_is_no_utf_8(folder: Folder) -> None:
    name = os.fsdecode("보고서".encode("cp949")) + ".pdf"
    try:
        folder.put(name)
    except OSError:
        pytest.skip("this file system takes UTF-8 alone")
    folder.index()
    row = folder.rows()[0]
    assert (row.problem, row.page_no) == (None, 1)
    assert (row.page_id.isprintable(), (row.doc_id or "").isprintable()) == (True, True)
    manifest = folder.index()
    # The name goes into releases and API responses, which are UTF-8.
    origin = origins(manifest, manifest.keys[0])(0)
    assert (origin.file, (folder.source / name).is_file()) == (row.doc_id, True)
    assert folder.made == []


def test_folders_behind_links_are_read_once(folder: Folder, tmp_path: Path) -> None:
    folder.put("0.pdf")
    folder.put("a/1.pdf")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "2.pdf").write_bytes(pdf(sheet()))
    (folder.source / "b").symlink_to(tmp_path / "elsewhere")
    (folder.source / "a" / "back").symlink_to(folder.source)
    folder.index()
    assert [row.page_id for row in folder.rows()] == ["0_1", "a__1_1", "b__2_1"]


# Pages that cannot be drawn


def test_what_cannot_be_drawn_is_quarantined_with_its_reason(folder: Folder) -> None:
    hole = pdf(sheet(), sheet()).replace(b"/Kids [3 0 R 5 0 R]", b"/Kids [3 0 R 9 0 R]")
    contents = {
        "a good.pdf": pdf(sheet()),
        "b damaged.pdf": pdf(sheet())[:40],
        "c empty.pdf": b"",
        "d locked.pdf": pdf(sheet(), trailer=LOCKED),
        "e no pages.pdf": pdf(),
        "f hole.pdf": hole,
        "g good.pdf": pdf(sheet(bar(RED))),
        "h long.pdf": pdf(sheet(b"", box="0 0 2000000 1")),
        "i high.pdf": pdf(sheet(b"", box="0 0 1 2000000")),
    }
    for name, content in contents.items():
        folder.put(name, content)
    (folder.source / "z.pdf").symlink_to("nowhere")
    assert folder.index().rows == 11
    platform = Platform(folder.home)
    assert platform.run("raw_pages").success
    rows = platform.rows("raw_pages")
    states = {name: (row["state"], row["reason"]) for name, row in rows.items()}
    damaged = "the file is damaged or no PDF"
    quarantined = State.QUARANTINED
    assert states == {
        "a good_1": (State.OK, None),
        "b damaged.pdf": (quarantined, f"b damaged.pdf: {damaged}"),
        "c empty.pdf": (quarantined, "c empty.pdf: the file is empty"),
        "d locked.pdf": (quarantined, "d locked.pdf: the PDF wants a password: save it without one"),
        "e no pages.pdf": (quarantined, "e no pages.pdf: the PDF has no pages"),
        "f hole_1": (State.OK, None),
        "f hole_2": (quarantined, "f hole.pdf, page 2: the page cannot be drawn: Failed to load page."),
        "g good_1": (State.OK, None),
        "h long_1": (
            quarantined,
            "h long.pdf, page 1: the page is 2,000,000 by 1 points: at 72 dpi it is longer than 1,000,000 pixels",
        ),
        "i high_1": (
            quarantined,
            "i high.pdf, page 1: the page is 1 by 2,000,000 points: at 72 dpi it is longer than 1,000,000 pixels",
        ),
        "z.pdf": (State.FAILED, "z.pdf: the file cannot be read: No such file or directory"),
    }
    reasons = [reason for state, reason in states.values() if reason and state == quarantined]
    assert [line for line in folder.lines if "quarantined" in line] == [
        f"will be quarantined: {each}" for each in reasons
    ]
    assert "could not be made: z.pdf: the file cannot be read: No such file or directory" in folder.lines
    assert "1 of 11 pages could not be made: index again to try them once more" in folder.lines
    assert (rows["d locked.pdf"]["doc_id"], rows["d locked.pdf"]["page_no"]) == ("d locked.pdf", None)
    assert (rows["g good_1"]["width"], rows["g good_1"]["height"], rows["g good_1"]["format"]) == (60, 80, "PNG")


def test_a_pdf_that_became_whole_gives_its_pages(folder: Folder) -> None:
    folder.put("a.pdf", b"")
    folder.index()
    assert folder.shards() == [["a.pdf"]]
    folder.put("a.pdf")
    folder.index()
    assert folder.shards() == [["a_1"]]


def test_a_pdf_that_ends_its_process_costs_its_own_pages(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder.put("a.pdf")
    start = ChildWorker._start
    lives = iter([False, True, False, False])

    def killed(worker: Any) -> "subprocess.Popen[bytes]":
        process = start(worker)
        if not next(lives, True):
            process.kill()
            process.wait()
        return process

    monkeypatch.setattr(ChildWorker, "_start", killed)
    with RenderPool(1) as processes:
        assert list(processes.count([path])) == [Extent(1)]
    with RenderPool(1) as processes:
        answers = list(processes.render([(path, 0), (path, 0)], 72))
    assert answers[0] == Failure("the process that read it ended by SIGKILL", may_pass=True)
    assert isinstance(answers[1], RenderedImage)


def test_no_process_starts_while_another_has_nothing_to_do(folder: Folder) -> None:
    path = folder.put("a.pdf")
    with RenderPool(2) as processes:
        assert list(processes.count([path])) == [Extent(1)]
        assert len(list(processes.render([(path, 0)], 72))) == 1
        assert sum(worker._process is not None for worker in processes._processes.workers) == 1


def test_a_pdf_that_takes_for_ever_is_given_up(folder: Folder) -> None:
    path = folder.put("a.pdf")
    # No process starts in a microsecond.
    with RenderPool(1, seconds=1e-6) as processes:
        assert list(processes.count([path])) == [Failure("given up after 0 seconds", may_pass=True)]


class Broken(Pdfs):
    """A PDF reader that raises an unexpected exception for every file."""

    def pages(self, path: Path) -> int:
        raise AttributeError("'tuple' object has no attribute 'tobytes'\nin a library")


def test_an_unforeseen_fault_of_a_page_leaves_the_process_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_maker, "Pdfs", Broken)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    ours, theirs = Pipe()
    with ours:
        thread = Thread(target=page_maker.answer_all, args=(theirs,))
        thread.start()
        for _ in range(2):
            ours.send(("pages", Path("a.pdf")))
            with open(os.devnull, "rb") as file:
                send_handle(ours, file.fileno(), None)
            reason = "it cannot be made into pages: 'tuple' object has no attribute 'tobytes'"
            assert ours.recv() == Failure(reason, may_pass=True)
    thread.join()


# Indexing again


def test_nothing_is_opened_or_drawn_twice(small: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.pdf", "b.pdf", "c.pdf"):
        small.put(name, pdf(sheet(), sheet()))
    first = small.index()
    assert small.made == ["2 of 2 pages made"] * 3
    files = small.files()
    for owner, name in ((RenderPool, "_ask"), (shards, "replace_file")):
        monkeypatch.setattr(owner, name, lambda *_, name=name: pytest.fail(name))
    assert small.index() == first
    assert (small.made, small.files()) == ([], files)


def test_a_new_pdf_is_a_new_shard_at_the_end(small: Folder) -> None:
    small.put("b.pdf")
    small.put("c.pdf")
    before = small.index().shards
    files = small.files()
    small.put("a.pdf")
    after = small.index().shards
    assert small.lines[1:3] == ["pages 1 to 2 of 3: 2 pages kept", "pages 3 to 3 of 3: 1 of 1 pages made"]
    assert after[: len(before)] == before
    assert small.shards() == [["b_1", "c_1"], ["a_1"]]
    assert files.items() <= small.files().items()
    small.index()
    assert small.lines[2] == "pages 3 to 3 of 3: 1 page kept"


def test_a_changed_pdf_changes_its_own_shard_and_is_drawn_alone(small: Folder) -> None:
    for name in ("a.pdf", "b.pdf", "c.pdf", "d.pdf", "e.pdf"):
        small.put(name)
    before = small.index().shards
    data = {row.page_id: bytes(row.data or b"") for row in small.rows()}
    small.put("b.pdf", pdf(sheet(bar(RED))))
    after = small.index().shards
    assert small.made == ["1 of 3 pages made"]
    assert small.shards() == [["a_1", "b_1", "c_1"], ["d_1", "e_1"]]
    assert (after[1], after[0].key) == (before[1], before[0].key)
    assert {row.page_id for row in small.rows() if row.data != data[row.page_id]} == {"b_1"}
    assert ink(small.page(1)) == {WHITE, RED}
    assert len(small.files()) == 2


def test_a_pdf_grows_in_its_shard_until_that_is_twice_as_large(small: Folder) -> None:
    for name in ("a.pdf", "b.pdf", "c.pdf", "d.pdf"):
        small.put(name)
    small.index()
    long = pdf(*[sheet()] * 3)
    small.put("a.pdf", long)
    small.index()
    assert small.shards() == [["a_1", "a_2", "a_3", "b_1", "c_1"], ["d_1"]]
    small.put("b.pdf", long)
    small.index()
    assert small.shards() == [["a_1", "a_2", "a_3", "c_1"], ["d_1"], ["b_1", "b_2", "b_3"]]


def test_a_removed_pdf_changes_its_own_shard(small: Folder) -> None:
    for name in "abcdefg":
        small.put(f"{name}.pdf")
    before = small.index().shards
    (small.source / "b.pdf").unlink()
    after = small.index().shards
    assert small.shards() == [["a_1", "c_1"], ["d_1", "e_1", "f_1"], ["g_1"]]
    assert (after[1:], small.made) == (before[1:], ["0 of 2 pages made"])


@pytest.mark.slow
def test_a_shard_that_lost_everything_leaves_a_gap_that_no_other_fills(small: Folder) -> None:
    for name in "abcdefghi":
        small.put(f"{name}.pdf")
    before = small.index().shards
    for name in "abc":
        (small.source / f"{name}.pdf").unlink()
    assert (small.index().shards, small.made) == (before[1:], [])
    assert small.shards() == [["d_1", "e_1", "f_1"], ["g_1", "h_1", "i_1"]]
    assert len(small.files()) == 2
    for name in "jklm":
        small.put(f"{name}.pdf")
    assert small.index().keys == ["shard_01", "shard_02", "shard_03", "shard_04"]
    for name in "jklm":
        (small.source / f"{name}.pdf").unlink()
    for name in "abc":
        small.put(f"{name}.pdf")
    assert small.index().shards[:2] == before[1:]


@pytest.mark.slow
def test_a_long_pdf_has_many_shards_of_which_only_changed_ones_are_other(small: Folder) -> None:
    small.put("a.pdf", pdf(*[sheet()] * 7))
    small.put("b.pdf")
    small.index()
    assert small.shards() == [["a_1", "a_2", "a_3"], ["a_4", "a_5", "a_6"], ["a_7", "b_1"]]
    small.put("a.pdf", pdf(*[sheet(bar(RED))] * 4))
    small.index()
    assert small.shards() == [["a_1", "a_2", "a_3"], ["a_4"], ["b_1"]]


@pytest.mark.slow
def test_another_resolution_keeps_keys_and_draws_everything(small: Folder) -> None:
    for name in ("b.pdf", "c.pdf"):
        small.put(name)
    small.index()
    small.put("a.pdf")
    small.index()
    small.index(144)
    assert small.shards() == [["b_1", "c_1"], ["a_1"]]
    assert small.made == ["2 of 2 pages made", "1 of 1 pages made"]
    assert small.page().shape == (160, 120, 3)


def test_another_version_of_the_renderer_draws_everything(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.put("a.pdf")
    folder.index()
    monkeypatch.setattr(pdfs, "version", lambda: "another")
    folder.index()
    assert folder.made == ["1 of 1 pages made"]


def test_pages_are_kept_across_row_groups_when_a_neighbour_changes(folder: Folder) -> None:
    bars = [sheet(b"0 0 0 rg 0 0 %d 5 re f" % width) for width in range(1, 41)]
    folder.put("a.pdf", pdf(*[sheet()] * 20))
    folder.put("b.pdf", pdf(*bars))
    folder.put("c.pdf", pdf(*bars[:20]))
    folder.index()
    files = list((folder.home / "rendered").glob("pages-*"))
    assert [pq.ParquetFile(path).num_row_groups for path in files] == [5]
    before = [bytes(row.data or b"") for row in folder.rows()]
    folder.put("a.pdf", pdf(sheet(bar(RED)), sheet()))
    folder.index()
    assert folder.made == ["2 of 62 pages made"]
    assert [bytes(row.data or b"") for row in folder.rows()][2:] == before[20:]


@pytest.mark.slow
def test_an_older_index_of_another_source_is_not_used(small: Folder, tmp_path: Path) -> None:
    for name in "abcdefg":
        small.put(f"{name}.pdf")
    small.index()
    other = tmp_path / "other"
    small.source, first = other, small.source
    small.put("x.pdf", pdf(sheet(bar(RED))))
    for name in ("a.pdf", "y.pdf", "z.pdf"):
        small.put(name, pdf(sheet(bar(RED))))
    small.index()
    assert sorted(row.page_id for row in small.rows()) == ["a_1", "x_1", "y_1", "z_1"]
    assert [ink(small.page(at)) for at in range(4)] == [{WHITE, RED}] * 4
    small.index(source=write_corpus(tmp_path / "arrow", [pages("p_1"), pages("q_1")]))
    assert small.shards() == [["p_1"], ["q_1"]]
    small.source = first
    small.index()
    assert small.shards() == [["a_1", "b_1", "c_1"], ["d_1", "e_1", "f_1"], ["g_1"]]


def test_an_index_that_cannot_be_used_is_replaced(folder: Folder) -> None:
    folder.put("a.pdf")
    folder.index()
    (folder.home / "shards.json").write_text("{")
    folder.index()
    assert (folder.shards(), folder.made) == ([["a_1"]], [])


# Interrupted runs


class Stopped(BaseException):
    """A `BaseException`, like `KeyboardInterrupt`."""


def test_a_run_that_was_stopped_goes_on_where_it_was(small: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abcdefgh":
        small.put(f"{name}.pdf")
    render = RenderPool.render
    shards = iter(range(3))

    def stopped(processes: RenderPool, asked: Any, dpi: int) -> Iterator[RenderedImage | Failure]:
        if next(shards) == 0:
            yield from render(processes, asked, dpi)
        yield from islice(render(processes, asked, dpi), 2)
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(RenderPool, "render", stopped)
        with pytest.raises(Stopped):
            small.index()
    finished = small.files()
    assert len(finished) == 1
    assert sorted(path.name for path in small.home.rglob("*") if path.name[0] != ".") == [
        "indexing.txt",
        *finished,
        "rendered",
    ]
    small.index()
    assert small.made == ["3 of 3 pages made", "2 of 2 pages made"]
    assert finished.items() <= small.files().items()
    assert small.shards() == [["a_1", "b_1", "c_1"], ["d_1", "e_1", "f_1"], ["g_1", "h_1"]]


def test_a_stopped_run_leaves_the_old_index_and_its_shards(small: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abcdef":
        small.put(f"{name}.pdf")
    small.index()
    before = [(row.page_id, bytes(row.data or b"")) for row in small.rows()]
    for name in "ad":
        small.put(f"{name}.pdf", pdf(sheet(bar(RED))))
    with monkeypatch.context() as patch:
        patch.setattr(shards.ShardFolder, "clear", lambda self, keep: (_ for _ in ()).throw(Stopped))
        patch.setattr(CorpusPlace, "write", lambda self, name, content: (_ for _ in ()).throw(Stopped))
        with pytest.raises(Stopped):
            small.index()
    assert [(row.page_id, bytes(row.data or b"")) for row in small.rows()] == before
    small.index()
    assert small.made == []
    assert [ink(small.page(at)) for at in (0, 3)] == [{WHITE, RED}] * 2
    assert len(small.files()) == 2


@pytest.mark.services
def test_a_killed_command_leaves_whole_shards_and_is_taken_up_by_the_next(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for at in range(3):
        folder.put(f"{at}.pdf", pdf(*[sheet()] * 300))
    command = [*KOPUB, "index", str(folder.source), "--dpi", "72"]
    environment = os.environ | {"KOPUB_HOME": str(folder.home), "PYTHONUNBUFFERED": "1"}
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=SAMPLES.parent, env=environment)
    assert running.stdout is not None
    for line in running.stdout:
        if line.endswith("made\n"):
            running.send_signal(signal.SIGKILL)
            break
    running.communicate()
    kept = folder.files()
    assert 1 <= len(kept) < 3
    assert not (folder.home / "shards.json").exists()
    again = forked.run(["kopub", *command[len(KOPUB) :]], environment)
    assert again.returncode == 0, again.stderr
    assert len(re.findall("300 pages kept", again.stdout)) == len(kept)
    assert f"{folder.home}: 900 pages in 3 documents" in again.stdout.splitlines()
    assert kept.items() <= folder.files().items()
    assert list((folder.home / "rendered").glob(".*.tmp")) == []
    assert folder.page().shape == (80, 60, 3), "the resolution that the command was given"


def test_a_shard_that_is_not_whole_is_drawn_again(folder: Folder) -> None:
    folder.put("a.pdf")
    folder.index()
    shard = next((folder.home / "rendered").glob("pages-*"))
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-20])
    folder.index()
    assert (folder.made, shard.read_bytes()) == (["1 of 1 pages made"], whole)


def test_what_killed_runs_left_is_removed(folder: Folder) -> None:
    folder.put("a.pdf")
    (folder.home / "rendered").mkdir(parents=True)
    left = folder.home / "rendered" / ".pages-0123456789abcdef.parquet.01234567.tmp"
    other = folder.home / "rendered" / "mine.parquet"
    for path in (left, other):
        path.write_bytes(b"PAR1")
    folder.index()
    assert (left.exists(), other.exists()) == (False, True)


def test_two_commands_do_not_draw_into_one_home(folder: Folder) -> None:
    folder.put("a.pdf")
    with (
        shards.ShardFolder(CorpusPlace(folder.home)).exclusive(),
        pytest.raises(SourceError, match="another `kopub index` makes pages in"),
    ):
        folder.index()


# Sources


def test_one_pdf_is_a_source(folder: Folder) -> None:
    folder.put("b.pdf")
    folder.index(source=folder.put("법령.pdf"))
    assert folder.shards() == [["법령_1"]]


def test_pdfs_have_queries_like_other_pages(folder: Folder) -> None:
    folder.put("corpus/a.pdf")
    write_corpus(folder.source, [], [query("q", "무엇인가?", "a_1")])
    folder.index()
    assert [found.ground_truth for found in Corpus(home=str(folder.home)).queries("shard_00")] == [["a_1"]]


@pytest.mark.parametrize("place", [".", "below", "corpus"])
def test_pdfs_and_shards_in_one_folder_are_refused(folder: Folder, place: str) -> None:
    folder.put(f"{place}/a.pdf")
    write_corpus(folder.source / "made", [pages("p_1")])
    (folder.source / "made" / "corpus" / "data-0.arrow").rename(folder.source / place / "b.arrow")
    message = r"holds documents and \.arrow or \.parquet files \(a\.pdf, b\.arrow\): give each kind a folder of its own"
    with pytest.raises(SourceError, match=message):
        folder.index()
    assert not folder.home.exists()


def test_pdfs_beside_the_corpus_are_refused(folder: Folder) -> None:
    folder.put("corpus/a.pdf")
    folder.put("more/b.pdf")
    with pytest.raises(SourceError, match=r"holds documents in corpus/ and outside of it"):
        folder.index()


def test_a_home_that_cannot_be_written(folder: Folder) -> None:
    folder.put("a.pdf")
    folder.home.write_text("a file")
    with pytest.raises(StoreError, match="was not written"):
        folder.index()


def _drawing(content: bytes, kind: bytes, drawn: bytes, size: bytes) -> bytes:
    """Return a PDF of one page, whose content draws an object `X` of this kind."""
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 %s]/Contents 4 0 R/Resources<</XObject<</X 5 0 R>>>>>>" % size,
        b"<</Length %d>>stream\n%s\nendstream" % (len(content), content),
        b"<</Type/XObject%s/Length %d>>stream\n%s\nendstream" % (kind, len(drawn), drawn),
    ]
    out = b"%PDF-1.4\n" + b"".join(b"%d 0 obj\n%s\nendobj\n" % each for each in enumerate(objects, start=1))
    return out + b"trailer<</Size 6/Root 1 0 R>>\n%%EOF"


def _scan(data: bytes, filter: bytes) -> bytes:
    """Return a page filled with a picture of 64 x 64 grey pixels."""
    kind = b"/Subtype/Image/Width 64/Height 64/ColorSpace/DeviceGray/BitsPerComponent 8/Filter/" + filter
    return _drawing(b"q 64 0 0 64 0 0 cm /X Do Q", kind, data, b"64 64")


def _noise_jpeg() -> bytes:
    file = io.BytesIO()
    Image.effect_noise((64, 64), 80).save(file, "JPEG", quality=95)
    return file.getvalue()


def _fax() -> bytes:
    file = io.BytesIO()
    Image.effect_noise((64, 64), 80).convert("1").save(file, "TIFF", compression="group4")
    with Image.open(file) as tiff:
        (start,), (length,) = tiff.tag_v2[273], tiff.tag_v2[279]  # pyright: ignore[reportAttributeAccessIssue]
    return file.getvalue()[start : start + length]


NOISE = zlib.compress(Image.effect_noise((64, 64), 80).tobytes())
FAX = _fax()
FAX_FILTER = b"CCITTFaxDecode/DecodeParms<</K -1/Columns 64/Rows 64>>"


def _segment(number: int, kind: int, content: bytes) -> bytes:
    return struct.pack(">IBBBI", number, kind, 0, 1, len(content)) + content


JBIG2 = _segment(0, 48, struct.pack(">IIIIBH", 64, 64, 0, 0, 0, 0)) + _segment(
    1, 38, struct.pack(">IIIIBB", 64, 64, 0, 0, 0, 1) + FAX
)
"""A JBIG2 page with one region, whose pixels are those of the fax."""


ROWS_OF_2_GB = b"/DecodeParms<</Predictor 15/Columns 2147483647/Colors 32/BitsPerComponent 16>>"
PICTURES: dict[str, tuple[bytes, bytes | None, bytes, str]] = {
    "a cut JPEG": (_noise_jpeg()[:900] + b"\xff\xd9", _noise_jpeg(), b"DCTDecode", "is damaged: Corrupt JPEG data"),
    "zeros for a JPEG": (bytes(900), _noise_jpeg(), b"DCTDecode", "cannot be drawn (DCTDecode"),
    "zeros for JPEG 2000": (bytes(900), None, b"JPXDecode", "cannot be drawn (JPXDecode"),
    "broken": (NOISE[:1500] + bytes(80) + NOISE[1580:], NOISE, b"FlateDecode", "a picture of the page is damaged: "),
    "cut off": (NOISE[:2000], NOISE, b"FlateDecode", "is damaged: it is cut off"),
    "without its checksum": (NOISE[:-4], NOISE, b"FlateDecode", ""),
    "rows of 2 GB": (NOISE, None, b"FlateDecode" + ROWS_OF_2_GB, "cannot be drawn (FlateDecode"),
    "a cut fax": (FAX[:200], FAX, FAX_FILTER, "a picture of the page is damaged: its fax data is damaged"),
    "zeros in a fax": (
        FAX[:200] + bytes(50) + FAX[250:],
        FAX,
        FAX_FILTER,
        "a picture of the page is damaged: its fax data is damaged",
    ),
    "another kind of fax": (FAX, FAX, b"CCITTFaxDecode/DecodeParms<</K -1/Columns 64/EncodedByteAlign true>>", ""),
    "a cut JBIG2": (JBIG2[:-100], JBIG2 + b"\r\n", b"JBIG2Decode", "its JBIG2 data is cut off"),
    "a cut JBIG2 header": (
        JBIG2[:30] + struct.pack(">IBBIB", 1, 38 | 0x40, 0, 1, 0),
        None,
        b"JBIG2Decode",
        "its JBIG2 data is cut off",
    ),
    "no JBIG2": (b"\1" * 600, None, b"JBIG2Decode", "its JBIG2 data is damaged"),
}
"""A damaged picture, the whole one, their filter, and what is said of the damage."""


def test_a_page_with_a_damaged_picture_is_partial_and_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "scans"
    folder.mkdir()
    for name, (damaged, whole, filter, _) in PICTURES.items():
        (folder / f"{name}.pdf").write_bytes(_scan(damaged, filter))
        if whole is not None:
            (folder / f"whole {name}.pdf").write_bytes(_scan(whole, filter))
    index(str(folder), tmp_path / "home", dpi=72)
    platform = Platform(tmp_path / "home")
    platform.make("raw_pages")
    rows = platform.rows("raw_pages")
    for name, (_, whole, _, says) in PICTURES.items():
        damaged = rows[f"{name}_1"]
        assert damaged["state"] == (State.PARTIAL if says else State.OK), name
        assert says in (damaged["reason"] or ""), name
        assert whole is None or rows[f"whole {name}_1"]["state"] == State.OK, name


def test_a_page_that_lost_all_that_it_shows_counts_as_partial_everywhere(tmp_path: Path) -> None:
    (tmp_path / "cut.pdf").write_bytes(_scan(bytes(900), b"DCTDecode"))
    index(str(tmp_path / "cut.pdf"), tmp_path / "home", dpi=72)
    platform = Platform(tmp_path / "home")
    platform.engines["layout"] = CpuLayout()
    platform.make("raw_pages", "layout_regions", "ocr_results", "parsed_texts")
    assert platform.states("ocr_results") == {"cut_1": State.BLANK}
    reason = platform.rows("raw_pages")["cut_1"]["reason"]
    text = platform.rows("parsed_texts")["cut_1"]
    assert (text["state"], text["reason"], text["doubts"]) == (State.BLANK, reason, [reason])
    done = write_documents(CorrectedTables(platform.store), ["shard_00"], tmp_path / "out", ["markdown"])
    (page,) = kopub.open(platform.home).documents[0].pages
    assert (done.pages, page.state) == ({"partial": 1}, "partial")
    assert (
        "<!-- page 1: partial: cut.pdf, page 1: a picture of the page cannot be drawn"
        in (tmp_path / "out" / "cut.md").read_text()
    )


def _with_content(data: bytes, entries: bytes = b"", page: bytes = b"/Contents 4 0 R") -> bytes:
    whole = pdf(sheet(b"X"))
    start = whole.index(b"<< /Length 1 >>")
    end = whole.index(b"endobj", start)
    stream = b"<< /Length %d %s >> stream\n%s\nendstream\n" % (len(data), entries, data)
    return (whole[:start] + stream + whole[end:]).replace(b"/Contents 4 0 R", page)


FLATE = b"/Filter /FlateDecode"
LONG = zlib.compress(b"\n".join(b"%d 0 0 rg %d %d 3 5 re f" % (at % 2, at % 53, at * 7 % 71) for at in range(999)))
DEFLATED = zlib.compress(b"\n".join(bar() for _ in range(200)))


def test_a_page_whose_content_is_damaged_is_quarantined_and_not_blank(folder: Folder) -> None:
    contents = {
        "broken": (_with_content(bytes(40) + DEFLATED[40:], FLATE), "Error -3 while decompressing data"),
        "cut off": (_with_content(DEFLATED[:20], FLATE), "it is cut off"),
        "other bytes": (_with_content(b"\x93\x01\xfe" * 50), "it is no page description"),
        "no picture": (_with_content(b"q 60 0 0 80 0 0 cm /I Do Q"), "what it draws is missing from the file"),
        "no content": (_with_content(b"", page=b"/Contents 9 0 R"), "it is missing from the file"),
    }
    rows = _indexed(folder, {name: content for name, (content, _) in contents.items()})
    for name, (_, says) in contents.items():
        assert f"{name}.pdf, page 1: the page's content is damaged: {says}" in (rows[name].problem or "")
        assert not rows[name].failed, name


def _indexed(folder: Folder, contents: dict[str, bytes]) -> dict[str, SourceRow]:
    """Return the rows of files with one page each by the names of the files."""
    for name, content in contents.items():
        folder.put(f"{name}.pdf", content)
    folder.index()
    rows = {str(row.doc_id).removesuffix(".pdf"): row for row in folder.rows()}
    assert rows.keys() == contents.keys()
    return rows


def _with_form(data: bytes) -> bytes:
    """Return a page that draws a bar of its own and a form."""
    return _drawing(bar() + b" /X Do", b"/Subtype/Form/BBox[0 0 60 80]" + FLATE, data, b"60 80")


BROKEN = LONG[:900] + bytes(40) + LONG[940:]


def test_a_page_that_is_drawn_in_part_says_so(folder: Folder) -> None:
    contents = {
        "whole": (_with_content(LONG, FLATE), None),
        "without its checksum": (_with_content(LONG[:-4], FLATE), None),
        "broken": (_with_content(BROKEN, FLATE), "Error -3 while decompressing data"),
        "cut off": (_with_content(LONG[:900], FLATE), "it is cut off"),
        "another checksum": (
            _with_content(LONG[:-1] + bytes([LONG[-1] ^ 1]), FLATE),
            "its checksum is that of other bytes",
        ),
        "a form": (_with_form(LONG), None),
        "a broken form": (_with_form(BROKEN), "Error -3 while decompressing data"),
    }
    rows = _indexed(folder, {name: content for name, (content, _) in contents.items()})
    for name, (_, says) in contents.items():
        row = rows[name]
        assert (row.problem, row.data is None) == (None, False), name
        if says is None:
            assert row.damage is None, name
        else:
            assert f"the page's content is damaged: {says}" in (row.damage or ""), name


def test_a_page_that_is_empty_is_a_page(folder: Folder) -> None:
    contents = {
        "no strokes": _with_content(b"q Q"),
        "no content": _with_content(b""),
        "a comment": _with_content(b"% \xec\x97\x86\nq Q"),
        "no entry": _with_content(b"", page=b""),
    }
    for name, row in _indexed(folder, contents).items():
        assert (row.problem, row.data is None) == (None, False), name


def test_a_pdf_that_counts_pages_it_lacks_gives_those_it_has_and_one_line(folder: Folder) -> None:
    three = pdf(sheet(), sheet(), sheet())
    folder.put("a.pdf", three.replace(b"/Count 3", b"/Count 99999"))
    folder.put("b.pdf")
    assert folder.index().rows == 4
    line = "left out: a.pdf (it says that it has 99,999 pages, of which 3 can be found)"
    assert [each for each in folder.lines if "99,999" in each] == [line]
    folder.index()
    assert [each for each in folder.lines if "99,999" in each] == [line]
    folder.put("a.pdf", pdf().replace(b"/Count 0", b"/Count 99999"))
    folder.index()
    assert "will be quarantined: a.pdf: it says that it has 99,999 pages, of which none can be found" in folder.lines
