"""`kopub.read` and `kopub read`: a file at once, as the assets would have read it, and nothing left behind."""

import gc
import json
import subprocess
import sys
import tempfile
from multiprocessing.util import get_temp_dir
from pathlib import Path

import pytest

import kopub
from resources.config.settings import Settings
from resources.pages.indexing import index
from tests.cli.test_cli import environment_of
from tests.support.harness import Platform
from tests.support.processes import forked
from tests.support.sources.drawn import Sheet

CPU = {"layout": {"engine": "cpu"}, "recognition": {"engine": "tesseract"}, "embedding": {"engine": "hashed"}}


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, empty."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    get_temp_dir()  # of all processes that this one starts, for as long as it lives
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
def test_a_script_without_a_guard_reads_a_pdf(tmp_path: Path):
    """Processes that draw its pages must not run the script again."""
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
def test_the_command_prints_the_same(picture: Path, tmp_path: Path):
    document = kopub.read(picture, profile="cpu")
    environment = environment_of(tmp_path / "home")
    printed = forked.run(("kopub", "read", str(picture)), environment)
    assert (printed.stdout, printed.stderr) == (f"{document.markdown}\n", "")
    shown = json.loads(forked.run(("kopub", "read", str(picture), "--json"), environment).stdout)
    (page,) = shown["pages"]
    assert page["markdown"] == document.markdown
    assert [region["content"] for region in page["regions"]] == [region.content for region in document.regions]
    assert not (tmp_path / "home" / "store").exists()


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("gone.png", None, "is no file: name an image or a PDF"),
        ("notes.txt", b"x", "'notes.txt' cannot be read: neither a PDF nor an image"),
        ("report.docx", b"x", "'report.docx' cannot be read: an office file: save it as PDF"),
        ("cut.png", b"\x89PNG\r\n", "cut_1 cannot be read: raw_pages: "),
        ("cut.pdf", b"%PDF", "cut.pdf cannot be read: raw_pages: "),
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
