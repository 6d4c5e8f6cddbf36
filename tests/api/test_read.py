"""`kopub.read` and `kopub read` read a file as the assets do, leaving nothing behind."""

import gc
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing.util import get_temp_dir
from pathlib import Path

import cv2
import numpy as np
import pytest
from pypdfium2 import PdfDocument
from typer.testing import CliRunner

import kopub
from kopub.api.reading import Reading
from kopub.api.sources.home import HomeSource
from kopub.cli.main import app
from kopub.config.settings import Settings
from kopub.documents.export import write_documents
from kopub.pages.indexing import index
from tests.cli.test_cli import environment_of
from tests.support.cpu_engines import CPU
from tests.support.harness import Platform
from tests.support.processes import forked
from tests.support.processes.commands import kopub as run
from tests.support.sources.drawn import Sheet
from tests.support.sources.pdf_files import sheet as sheet_of
from tests.support.sources.pdf_files import text_pdf, written


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder, which is that for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    get_temp_dir()  # made before the patch, because all child processes use it for as long as this process lives
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def sheet(text: str) -> Sheet:
    drawn = Sheet(800, 300)
    drawn.text(60, 60, text, 32)
    drawn.paragraph(60, 140, 680, 2)
    return drawn


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "letter.png"
    sheet("A letter").image.save(path)
    return path


def test_an_image_is_read_as_the_assets_read_it(picture: Path, tmp_path: Path):
    document = kopub.read(picture, profile="cpu")
    assert document.id == "letter.png"
    (page,) = document.pages
    assert page.markdown == document.markdown
    assert "A letter" in document.text
    assert document.regions == page.regions
    assert page.image.size == (800, 300)

    platform = Platform(tmp_path / "home")
    index(str(picture), platform.home)
    settings = Settings.of(platform.home, CPU, "cpu")
    platform.engines = {"layout": settings.layout, "recognition": settings.recognition}
    platform.make("raw_pages", "layout_regions", "ocr_results", "parsed_texts")
    stored = kopub.open(platform.home).page(page.id)
    for what in ("regions", "markdown", "text", "state", "doubt", "sha256"):
        assert getattr(stored, what) == getattr(page, what), what


def test_what_was_made_goes_with_the_result(picture: Path, temporary: Path):
    page = kopub.read(picture, profile="cpu").pages[0]
    assert len(list(temporary.glob("kopub-read-*"))) == 1
    assert page.regions, "a page keeps what it is read from"
    del page
    gc.collect()
    assert not list(temporary.glob("kopub-read-*"))


@pytest.mark.services
def test_a_forked_child_that_exits_leaves_its_parent_the_result(picture: Path, tmp_path: Path):
    code = (
        "import os, sys, kopub\n"
        f"page = kopub.read({str(picture)!r}, profile='cpu').pages[0]\n"
        "if os.fork() == 0:\n    sys.exit()\n"
        "os.wait()\nprint(page.image.size)\n"
    )
    environment = environment_of(tmp_path / "home") | {"PYTHONPATH": str(Path(kopub.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("("), done.stderr


@pytest.mark.services
def test_a_script_without_a_guard_reads_a_pdf(tmp_path: Path):
    """The processes that render pages must not run the script again."""
    images = [sheet(text).image for text in ("First", "Second")]
    images[0].save(tmp_path / "two.pdf", save_all=True, append_images=images[1:], resolution=150)
    script = tmp_path / "script.py"
    script.write_text(
        "import kopub\n"
        f"document = kopub.read({str(tmp_path / 'two.pdf')!r}, profile='cpu')\n"
        "print([page.number for page in document.pages], [page.text.split()[0] for page in document.pages])\n"
    )
    environment = environment_of(tmp_path / "home") | {"PYTHONPATH": str(Path(kopub.__file__).parents[1])}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "[1, 2] ['First', 'Second']\n", done.stderr


@pytest.mark.services
def test_the_command_prints_markdown_or_json(picture: Path, tmp_path: Path):
    document = kopub.read(picture, profile="cpu")
    environment = environment_of(tmp_path / "home")
    printed = forked.run(("kopub", "read", str(picture)), environment)
    assert printed.stderr == ""
    assert printed.stdout.startswith("<!-- letter.png: 1 page -->\n\n<!-- page 1 -->\n\n")
    assert "A letter" in printed.stdout
    shown = json.loads(forked.run(("kopub", "read", str(picture), "--json"), environment).stdout)
    (page,) = shown["pages"]
    assert page["markdown"] == document.markdown
    assert [region["content"] for region in page["regions"]] == [region.content for region in document.regions]
    assert not (tmp_path / "home" / "store").exists()


def letters(folder: Path, count: int) -> Path:
    """Write a PDF with a running head, a paragraph across pages, and page numbers."""
    sheets = []
    for number in range(1, count + 1):
        lines = [(60.0, 800.0, "Letters of a reader"), (290.0, 40.0, str(number))]
        lines += [
            (60.0, 740.0 - 16 * at, f"line {at} of the letter with the number {number} goes on and on")
            for at in range(42)
        ]
        sheets.append(sheet_of(written(*lines), box="0 0 595 842"))
    (folder / "letters.pdf").write_bytes(text_pdf(*sheets))
    return folder / "letters.pdf"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"KOPUB_HOME": str(tmp_path / "home"), "KOPUB_PROFILE": "cpu"}


@pytest.mark.slow
def test_it_prints_and_writes_what_an_export_of_the_corpus_writes(tmp_path: Path, environment: dict[str, str]):
    source = letters(tmp_path, 6)
    platform = Platform(tmp_path / "home")
    index(str(source), platform.home)
    settings = Settings.of(platform.home, CPU, "cpu")
    platform.engines = {"layout": settings.layout, "recognition": settings.recognition}
    platform.make("raw_pages", "layout_regions", "ocr_results")
    write_documents(platform.store, ["shard_00"], tmp_path / "export", ["markdown"])
    expected = (tmp_path / "export" / "letters.md").read_text("utf-8")
    assert "Letters of a reader" not in expected

    printed = run(environment, "read", str(source))
    assert (printed.returncode, printed.stdout) == (0, expected)
    assert "on 6 pages taken from the text layers of PDFs" in printed.stderr
    assert run(environment, "read", str(source), "-o", str(tmp_path / "out")).returncode == 0
    assert (tmp_path / "out" / "letters.md").read_text("utf-8") == expected


@pytest.mark.slow
def test_what_was_read_before_ctrl_c_is_written(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, temporary: Path
):
    source, parts = letters(tmp_path, 6), Reading.parts

    def stopped(self: Reading) -> Iterator[HomeSource]:
        yield next(parts(self))
        raise KeyboardInterrupt

    monkeypatch.setattr(Reading, "parts", stopped)
    ended = run(environment, "read", str(source), "-o", str(tmp_path / "out"))
    assert ended.returncode == 130
    assert ended.stderr.splitlines()[-1] == "stopped: 4 of 6 pages were read"
    assert "number 4" in (tmp_path / "out" / "letters.md").read_text("utf-8")
    assert not list(temporary.glob("kopub-read-*"))


@pytest.mark.slow
def test_pages_are_chosen_and_keep_their_numbers(tmp_path: Path, environment: dict[str, str]):
    source = letters(tmp_path, 5)
    for pages, numbers in (("2,4-", [2, 4, 5]), ([5, 1], [1, 5]), ("-1", [1]), (range(4, 10**18), [4, 5]), (3, [3])):
        assert [page.number for page in kopub.read(source, profile="cpu", pages=pages).pages] == numbers
    shown = json.loads(run(environment, "read", str(source), "--pages", "3", "--ocr", "--json").stdout)
    assert [page["page_id"] for page in shown["pages"]] == ["letters_3"]
    assert {region["origin"] for region in shown["pages"][0]["regions"] if region["content"]} == {"recognizer"}


@pytest.mark.parametrize(
    ("pages", "line"),
    [
        ("3-x", "pages '3-x': write numbers from 1 and ranges, such as 3-7 or 3,5,9-"),
        ("7-3", "pages '7-3': write numbers"),
        ("0", "pages '0': write numbers"),
        pytest.param("9" * 5000, "pages '9+…: write numbers", id="digits"),
        ([], r"pages '\[\]': write numbers"),
        ([1, None], r"pages '\[1, None\]': write numbers"),
        (range(3, 3), r"pages 'range\(3, 3\)': write numbers"),
        ("3-7", "'letters.pdf' has 2 pages: none of them was asked for"),
    ],
)
def test_pages_that_cannot_be_meant_are_one_line(tmp_path: Path, temporary: Path, pages: str, line: str):
    with pytest.raises(kopub.KopubError, match=line):
        kopub.read(letters(tmp_path, 2), profile="cpu", pages=pages)
    assert not list(temporary.iterdir())


@pytest.mark.slow
def test_several_files_go_into_a_folder_and_lost_pages_are_a_status(tmp_path: Path, environment: dict[str, str]):
    (tmp_path / "other").mkdir()
    first, same = letters(tmp_path, 1), letters(tmp_path / "other", 1)
    (tmp_path / "cut.pdf").write_bytes(b"%PDF")
    out = tmp_path / "out"
    ended = run(environment, "read", str(first), str(tmp_path / "cut.pdf"), "-o", str(out))
    assert ended.returncode == 3
    assert "cut.pdf is quarantined: " in ended.stderr
    assert sorted(path.name for path in out.glob("*.md")) == ["cut.md", "letters.md"]
    assert run(environment, "read", str(first), str(same), "-o", str(out)).returncode == 0
    assert len(list(out.glob("*.md"))) == 4, "what an earlier reading wrote stays"


def test_what_is_attached_to_a_pdf_is_named(tmp_path: Path, environment: dict[str, str]):
    document = PdfDocument(text_pdf(sheet_of(written((72, 400, "A cover without its report")), box="0 0 420 595")))
    document.new_attachment("report.xlsx").set_data(b"content")
    document.save(tmp_path / "cover.pdf")
    ended = run(environment, "read", str(tmp_path / "cover.pdf"))
    assert (ended.returncode, "A cover without its report" in ended.stdout) == (0, True)
    assert "left out: cover.pdf (1 attached file in it: save them as files of their own)" in ended.stderr


@pytest.mark.slow
def test_a_noisy_blank_is_blank_or_doubted_and_never_passes_for_a_page(tmp_path: Path, environment: dict[str, str]):
    """A page with dust is blank; one with darkness, grain or stains is doubtful."""
    rng = np.random.default_rng(0)
    paper = np.full((1169, 827), 250, np.uint8)
    dust, stains = paper.copy(), paper.copy()
    for x, y in rng.integers(60, 760, (40, 2)):
        dust[y : y + 3, x : x + 3] = 30
    for x, y, width, height in rng.integers((60, 60, 5, 4), (760, 1100, 16, 12), (8, 4)):
        cv2.ellipse(stains, (int(x), int(y)), (int(width), int(height)), 30, 0, 360, 60, -1)
    blanks = {"dark": (paper // 8, 4), "dust": (dust, 3), "grain": (paper, 40), "stains": (stains, 3)}
    for name, (pixels, noise) in blanks.items():
        grained = (pixels + rng.normal(0, noise, paper.shape)).clip(0, 255).astype(np.uint8)
        cv2.imwrite(str(tmp_path / f"{name}.png"), grained)
    ended = run(environment, "read", *map(str, sorted(tmp_path.glob("*.png"))))
    assert ended.returncode == 0
    said = dict(line.split(" ", 1) for line in ended.stderr.splitlines() if "_1 " in line)
    assert said.pop("dust_1") == "is blank: nothing is written on it"
    assert said.pop("dark_1") == "looks wrong: the page is dark all over: its scan or photo may have failed"
    assert said.keys() == {"grain_1", "stains_1"}
    assert all(line.startswith("looks wrong: ") for line in said.values()), said


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--ocr", "--text-layer"], "--ocr and --text-layer cannot be combined: choose one"),
        (["--json", "-o", "out"], "--json and -o cannot be combined: choose one"),
        (["--pages", ""], "pages '': write numbers from 1 and ranges, such as 3-7 or 3,5,9-"),
    ],
)
def test_options_that_cannot_be_meant_are_one_line(
    picture: Path, environment: dict[str, str], words: list[str], line: str
):
    refused = run(environment, "read", str(picture), *words)
    assert (refused.returncode, refused.stderr) == (1, f"Error: {line}\n")


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_read(
    tmp_path: Path, picture: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Reading, "parts", lambda reading: pytest.fail("it reads"))
    for out, says in ((picture, "is a file; name a new"), (tmp_path, "holds files that no export of documents wrote")):
        done = CliRunner().invoke(app, ["read", str(picture), "-o", str(out)])
        assert says in str(done.exception)


def _empty_frame() -> bytes:
    frame = cv2.rectangle(np.full((842, 595), 255, np.uint8), (37, 37), (558, 800), 0, 2)
    return cv2.imencode(".png", frame)[1].tobytes()


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("gone.png", None, "is no file: name a PDF, an image, an HWP, office or text file"),
        pytest.param(f"{'a' * 300}.png", None, "is no file: name a PDF, an image", id="long name"),
        ("notes.log", b"x", "'notes.log' cannot be read: no PDF, image, HWP, office or text file"),
        ("report.pages", b"x", "'report.pages' cannot be read: an office file: save it as PDF"),
        ("cut.png", b"\x89PNG\r\n", "cut_1 cannot be read: "),
        ("cut.pdf", b"%PDF", "cut.pdf cannot be read: "),
        ("frame.png", _empty_frame(), "frame_1 cannot be read: layout_regions: the page has ink, but no text"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, temporary: Path, name: str, content: bytes | None, line: str):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(kopub.KopubError) as told:
        kopub.read(tmp_path / name, profile="cpu")
    assert line in str(told.value)
    assert "\n" not in str(told.value)
    assert not list(temporary.iterdir())


def test_an_unknown_profile_is_one_line(picture: Path):
    with pytest.raises(kopub.KopubError, match="gpu_of_mine"):
        kopub.read(picture, profile="gpu_of_mine")
