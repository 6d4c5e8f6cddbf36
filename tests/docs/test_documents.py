"""All documented commands and snippets that can run on a CPU print what pages show."""

import json
import re
import shlex
import shutil
import string
import subprocess
import sys
import tomllib
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

import kopub
from kopub.config.profile_files import EXTENDS, find_profile
from kopub.config.settings import ROOT, Settings
from tests.docs.markdown import PAGES, Block, blocks
from tests.support.dagster.dagster_home import make_dagster_home
from tests.support.installed import needs
from tests.support.processes import forked
from tests.support.sources.corpora import page_image
from tests.support.sources.pdf_files import sheet, text_pdf, written

_SHELL = ("bash", "console")
_DATA = {"json": lambda text: [json.loads(line) for line in text.splitlines()], "toml": tomllib.loads}
_DRAWN = ("mermaid",)
KOREAN = "README.ko.md"
"""This page has the commands of README.md, which are run only there."""
TRANSLATED = sorted(page for page in (ROOT / "docs" / "ko").glob("*.md") if page.name != "README.md")
"""These pages have commands of the English ones with their names, which are run only there."""
_LOGGED = re.compile(r"^.* - dagster - .*\n", re.MULTILINE)
"""Lines of Dagster's own log."""


def _kinds(page: Path) -> set[str]:
    return {block.language for block in blocks(page) if not block.not_run}


def unmarked(page: Path) -> list[str]:
    """Return the blocks that are not run, read as data or marked with a reason."""
    found: list[str] = []
    before = ""
    for block in blocks(page):
        shown = block.mark == "output" and before in ("python", "bash")
        reads = block.language in {*_SHELL, *_DATA, *_DRAWN, "python", "yaml"}
        if not block.not_run and (block.mark.startswith("not run") or not (shown or reads)):
            found.append(f"line {block.line}")
        before = block.language
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_is_run_or_says_why_not(page: Path):
    assert unmarked(page) == []


def test_a_block_without_a_mark_is_noticed(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(
        "```text\nno mark\n```\n\n<!-- not run: a reason -->\n```text\n```\n\n<!-- not run: -->\n```bash\n```\n"
    )
    assert unmarked(page) == ["line 1", "line 10"]


def test_the_korean_readme_has_the_same_commands():
    ours, korean = ([_without_remarks(block) for block in blocks(ROOT / name)] for name in ("README.md", KOREAN))
    assert ours == korean


@pytest.mark.parametrize("page", TRANSLATED, ids=lambda page: page.name)
def test_a_korean_page_has_commands_of_its_english_page(page: Path):
    english = {_without_remarks(block) for block in blocks(page.parent.parent / page.name)}
    korean = [_without_remarks(block) for block in blocks(page)]
    assert korean
    assert [block for block in korean if block not in english] == []


@pytest.mark.parametrize("name", ["README.md", KOREAN])
def test_the_first_table_of_a_readme_is_what_is_read(name: str):
    # The table is set as a browser would show it, so no block holds it that the tests would run.
    budget = kopub.read(ROOT / "docs" / "examples" / "budget.pdf")
    table = budget.markdown[budget.markdown.index("<table>") :]
    assert "<td>△48,163</td>" in table
    assert table.strip() in (ROOT / name).read_text("utf-8").replace("\n", "")


def _without_remarks(block: Block) -> tuple[str, str, str]:
    return block.language, block.mark, re.sub(r" +# .*", "", block.text)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if _kinds(page) & {*_DATA, "yaml"}], ids=lambda page: str(page.relative_to(ROOT))
)
def test_what_is_shown_of_files_can_be_read(page: Path, tmp_path: Path):
    for block in blocks(page):
        if not block.not_run and block.language in _DATA:
            _DATA[block.language](block.text)
        if not block.not_run and block.language == "yaml":
            sections = yaml.safe_load(block.text)
            assert isinstance(sections, dict), str(block)
            profile = tmp_path / "mine.yaml"
            whole = EXTENDS in sections or sections.keys() >= {"layout", "recognition", "embedding"}
            profile.write_text(block.text if whole else f"{EXTENDS}: h200\n{block.text}")
            Settings.of(tmp_path, find_profile(str(profile)).sections, str(block))


class Reader:
    """A person who types all commands of a page in a folder with its files."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment
        self._served = ExitStack()

    def reads(self, page: Path) -> None:
        with ExitStack() as self._served:
            self._reads(page)

    def _reads(self, page: Path) -> None:
        every = blocks(page)
        for at, block in enumerate(every):
            if block.not_run:
                continue
            if block.mark == "served":
                self._serves(block)
            elif block.language in _SHELL:
                before = self.environment["KOPUB_HOME"]
                if block.mark == "new home":
                    self.environment["KOPUB_HOME"] = str(self.folder / f"home-{block.line}")
                self._types(block)
                self.environment["KOPUB_HOME"] = before
            elif block.language == "python":
                after = every[at + 1] if at + 1 < len(every) else None
                self._runs(block, after.text if after and after.mark == "output" else "")

    def _serves(self, block: Block) -> None:
        """Start a command that keeps running, and wait for its first line of output."""
        command = [sys.executable, "-c", "from kopub.cli.main import main; main()", *shlex.split(block.text)[1:]]
        server = subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, text=True)
        self._served.callback(server.wait)
        self._served.callback(server.terminate)
        assert server.stdout
        assert server.stdout.readline(), f"{block} ended"

    def _types(self, block: Block) -> None:
        """Run the commands, and assert that exit status and output are those on the page."""
        commands: list[tuple[str, list[str]]] = []
        for line in block.text.splitlines():
            if block.language == "bash" or line.startswith("$ "):
                commands.append((line.removeprefix("$ "), []))
            else:
                commands[-1][1].append(line)
        for command, lines in commands:
            if command.strip():
                shown = "\n".join(lines)
                status, said = self._command(command)
                assert status == block.status, f"{block}: {command}: exit status {status}\n{said}"
                _holds(block, shown, said)

    def _command(self, line: str) -> tuple[int, str]:
        command, _, piped = string.Template(line).safe_substitute(self.environment).partition(" | ")
        words = shlex.split(command, comments=True)
        if not words:
            return 0, ""
        if words[0] == "export":
            self.environment |= dict(word.split("=", 1) for word in words[1:])
            return 0, ""
        once = dict(self.environment)
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            once[name] = value
        done = forked.run(words, once, folder=self.folder)
        if not piped:
            return done.returncode, done.stdout + done.stderr
        after = forked.run(shlex.split(piped), once, done.stdout, folder=self.folder)
        return done.returncode or after.returncode, done.stderr + after.stdout + after.stderr

    def _runs(self, block: Block, shown: str) -> None:
        # A person's shell has no DAGSTER_HOME, which the file `.env` of the folder sets instead.
        (self.folder / ".env").write_text(f"DAGSTER_HOME={self.environment['DAGSTER_HOME']}\n")
        typed = {name: value for name, value in self.environment.items() if name != "DAGSTER_HOME"}
        done = forked.run(["python", "-"], typed, block.text, folder=self.folder)
        assert done.returncode == 0, f"{block}: {done.stderr}"
        _holds(block, shown, done.stdout + done.stderr)


def _holds(block: Block, shown: str, said: str) -> None:
    """Assert that the output contains the shown text, in which `...` stands for any text."""
    pattern = re.escape(shown.strip()).replace(re.escape("..."), "(?s:.*)")
    said = "\n".join(line.rstrip() for line in _LOGGED.sub("", said).splitlines())
    assert re.search(pattern, said), f"{block} shows\n{shown}\n--- but it says\n{said}"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Return a folder with the samples made into `data`, and with the pages' files."""
    folder = tmp_path_factory.mktemp("reader") / "here"
    (folder / "my_reports").mkdir(parents=True)
    (folder / "more_reports").mkdir()
    (folder / "my_pages").mkdir()
    _report(folder / "report.pdf", "A report of two pages", "on what was done")
    _report(folder / "my_reports" / "budget.pdf", "The budget of the year")
    _report(folder / "more_reports" / "minutes.pdf", "Minutes of the meeting")
    for number in (1, 2):
        (folder / "my_pages" / f"page_{number}.png").write_bytes(page_image(number))
        (folder / "my_pages" / f"page_{number}.txt").write_text(f"page {number}")
    (folder / "photo.jpg").write_bytes(page_image(3))
    for name in ("definitions.py", "pyproject.toml", "docs"):
        (folder / name).symlink_to(ROOT / name)
    make_dagster_home(folder / "dagster")
    environment = forked.inherited() | {
        "KOPUB_HOME": str(folder / "data"),
        "DAGSTER_HOME": str(folder / "dagster"),
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "ignore",
        "COLUMNS": "200",
    }
    first = forked.run(["kopub", "run"], environment, folder=folder)
    assert first.returncode == 0, first.stderr
    shutil.copytree(folder, folder.with_name("as_made"), symlinks=True)
    return folder, environment


def _report(file: Path, *lines: str) -> None:
    """Write a PDF with a page of text for each line."""
    sheets = [sheet(written((72, 700, f"{line}.")), box="0 0 612 792") for line in lines]
    file.write_bytes(text_pdf(*sheets))


@pytest.fixture
def reader(made: tuple[Path, dict[str, str]]) -> Reader:
    """Return a reader in the folder as it was made, without the last page's changes."""
    folder, environment = made
    shutil.rmtree(folder)
    shutil.copytree(folder.with_name("as_made"), folder, symlinks=True)
    return Reader(folder, dict(environment))


_MARKS = {ROOT / "docs" / "sinks.md": needs("lancedb")}
_TYPED = [
    pytest.param(page, marks=_MARKS.get(page, ()), id=str(page.relative_to(ROOT)))
    for page in PAGES
    if _kinds(page) & {*_SHELL, "python"} and page.name != KOREAN and page not in TRANSLATED
]


@pytest.mark.slow
@pytest.mark.services
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", _TYPED)
def test_a_page_does_what_it_shows(page: Path, reader: Reader):
    reader.reads(page)


@pytest.mark.slow
@pytest.mark.services
@pytest.mark.parametrize(
    "block",
    [
        "```console\n$ kopub shards\nshard_07\n```",
        "```bash\nkopub shards --no-such-option\n```",
        "```python\nimport kopub\n\nkopub.open('nowhere')\n```",
        "```python\nprint(1)\n```\n\n<!-- output -->\n```text\n2\n```",
    ],
    ids=["output", "option", "snippet", "printed"],
)
def test_a_page_that_promises_something_else_is_noticed(block: str, reader: Reader):
    (reader.folder / "page.md").write_text(block)
    with pytest.raises(AssertionError):
        reader.reads(reader.folder / "page.md")
