"""Commands truncate no header, name or number at terminals of 80 and 120 columns."""

import io
import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.table import Column
from typer.testing import CliRunner

from kopub.cli.commands import serve
from kopub.cli.console import count, lasting_console, print_table, right, say
from kopub.cli.main import app
from kopub.config.settings import load_settings
from kopub.embedding.hashed import HashedEmbedder
from kopub.errors import ELLIPSIS
from kopub.vllm.lease import RunningServer
from kopub.vllm.supervisor.server_state import Phase, ServerFolder, ServerState, Specification
from tests.search.test_search import Typist
from tests.support.benchmarks import write_pages
from tests.support.harness import STANDARD, Platform
from tests.support.sources.corpora import pages, query

WIDE = 1000
NARROW = 80
PAGES = ("annual-report-2024_1", "annual-report-2024_2", "annual-report-2024_3")
BEFORE = "화면 밝기를 조절하려면 시스템 메뉴를 누르고 1,234,567 원을 확인합니다."
LOOP = "같은 줄이 끝없이 되풀이되는 글입니다. " * 20
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_MOVES = re.compile(r"\x1b\[[0-9;?]*[A-HJKhl]")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home with two versions of three pages, one quarantined and one doubtful."""
    home = tmp_path_factory.mktemp("home")
    (first, last) = pages(*PAGES[:2])
    queries = [query("q1", "밝기는 어떻게 조절하나요?", PAGES[0])]
    platform = Platform.of(home, [[first, last, (PAGES[2], b"no image")]], queries)
    platform.engines["embedding"] = HashedEmbedder()
    for text in (BEFORE, LOOP):
        platform.engines["recognition"] = Typist(texts={PAGES[0]: BEFORE, PAGES[1]: text})
        platform.make(*STANDARD[:-1])
    assert platform.run(STANDARD[-1]).success
    write_pages(home / "answers", 3)
    for name in ("korean_printed_documents", "english_handwritten_letters"):
        (home / f"{name}.yaml").write_text("extends: cpu\n")
    return home


@pytest.fixture
def printed(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return a function that runs a command and returns its output without colours and progress."""
    monkeypatch.setenv("KOPUB_HOME", str(home))
    monkeypatch.setenv("KOPUB_RUNTIME", str(tmp_path))
    monkeypatch.setenv("TTY_COMPATIBLE", "1")

    def printed(command: str, columns: int) -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        load_settings.cache_clear()
        done = CliRunner().invoke(app, command.format(home=home).split(" ", 12))
        assert done.exception is None or isinstance(done.exception, SystemExit), (command, done.exception)
        return _ESCAPES.sub("", _MOVES.split(done.stdout)[-1])

    return printed


def words(shown: str) -> Counter[str]:
    """Return the words of all lines of an output, without the commas of lists."""
    return Counter(word.rstrip(",") for word in shown.split())


def assert_whole(narrow: str, wide: str, columns: int) -> None:
    missing = words(wide) - words(narrow)
    assert not missing, f"cut or broken: {missing}\n{narrow}"
    assert narrow.count(ELLIPSIS) == wide.count(ELLIPSIS)
    for line in narrow.splitlines():
        # A path that is longer than the terminal is not broken.
        is_long = any(cell_len(word) > columns - 10 for word in line.split())
        assert cell_len(line) <= columns or is_long, f"broken inside a word by the terminal: {line}"


EVALUATE = (
    "evaluate texts {home}/answers --profile {home}/korean_printed_documents.yaml"
    " --profile {home}/english_handwritten_letters.yaml"
)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("plan", "corpus_image_embeddings current stale"),
        ("plan --set embedding.dim=512", "hf_release stale embedding.dim=512"),
        ("costs --top 5", "s/row corpus_image_embeddings annual-report-2024_1"),
        ("doubts", "annual-report-2024_2 repeats 1"),
        ("diff shard_00", "annual-report-2024_2 damage lost changed added numbers regions"),
        ("search 밝기", "annual-report-2024_1 annual-report-2024, 밝기를 1,234,567"),
        ("lineage annual-report-2024_1", "pixels label score sha256 recipe corpus_text_embeddings"),
        ("shards", "shard_00"),
        pytest.param("verify {home}/release", "{home}/release sound", marks=pytest.mark.slow),
        ("publish --dry-run", "closed: gates hub.repo"),
        ("evaluate list", "omnidocbench texts"),
        pytest.param(
            EVALUATE,
            "korean_printed_documents english_handwritten_letters interval change against cer bag_f1 {home}",
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda value: value.split()[0],
)
def test_nothing_is_cut(printed: Callable[..., str], home: Path, command: str, expected: str):
    wide, narrow = printed(command, WIDE), printed(command, NARROW)
    for word in expected.format(home=home).split():
        assert word in wide
    assert_whole(narrow, wide, NARROW)


@pytest.mark.parametrize("columns", [80, 120])
def test_servers_are_not_cut(printed: Callable[..., str], tmp_path: Path, monkeypatch: Any, columns: int):
    specification = Specification("Qwen/Qwen3-VL-Embedding-2B", ("vllm",), {}, gpus=("0", "1"), replicas=2)
    folder = ServerFolder(tmp_path / "0123456789abcdef")
    running = RunningServer(folder, specification, ServerState(Phase.READY, 1, 4711, 0.0), True, (123456, 234567))
    monkeypatch.setattr(serve, "list_servers", lambda: [running, replace(running, users=(345678,))])
    wide, narrow = printed("serve status", WIDE), printed("serve status", columns)
    assert {"012345", "Qwen/Qwen3-VL-Embedding-2B", "ready", "345678", str(folder.log(1))} <= set(words(wide))
    assert_whole(narrow, wide, columns)


@pytest.mark.parametrize("columns", [80, 120])
def test_the_stages_of_a_profile_are_not_cut(columns: int):
    head = ("wall s", "pages/s", "start s", "CPU s", "GPU busy", "GPU GiB", "GPU Wh", "requests", "tokens in")
    rows = [["corpus_image_embeddings", *(f"{number}.25" for number in range(100, 109))]]
    shown = []
    for width in (WIDE, columns):
        out = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
        print_table(out, [Column("stage"), *right(*head)], rows, "stages")
        shown.append(out.file.getvalue())  # type: ignore[attr-defined]
    assert {"GiB", "108.25", "corpus_image_embeddings"} <= set(words(shown[0]))
    assert_whole(shown[1], shown[0], columns)


def test_a_pipe_gets_lines_as_they_are():
    out = Console(file=io.StringIO(), width=20)
    say(out, "one line of more than twenty columns", "red")
    assert out.file.getvalue() == "one line of more than twenty columns\n"  # type: ignore[attr-defined]


def test_a_run_goes_on_without_whoever_read_along(monkeypatch: pytest.MonkeyPatch):
    reader, writer = os.pipe()
    with open(writer, "w") as piped:
        monkeypatch.setattr(sys, "stdout", piped)
        out = lasting_console()
        say(out, "one line")
        assert os.read(reader, 100) == b"one line\n"
        os.close(reader)
        say(out, "another line")
        say(out, "and one more")
        out.file.close()


def test_korean_without_blanks_is_broken_between_its_characters_and_a_path_is_not():
    assert spoken("가나다라마바사아자차.가나다라") == "가나다라마바사아자\n  차.가나다라\n"
    assert spoken("가나다 라마바 사아자차") == "가나다 라마바\n  사아자차\n"
    assert spoken("see /a/path/of/more/than/twenty") == "see\n  /a/path/of/more/than/twenty\n"


def spoken(line: str) -> str:
    """Return the output of `say` at a terminal of 20 columns."""
    out = Console(file=io.StringIO(), width=20, force_terminal=True)
    say(out, line)
    return out.file.getvalue()  # type: ignore[attr-defined]


def test_a_count_has_its_colour_only_where_something_is_counted_and_at_a_terminal():
    shown = []
    for kind in ({"force_terminal": True, "color_system": "standard"}, {}):
        out = Console(file=io.StringIO(), width=80, **kind)  # type: ignore[arg-type]
        print_table(out, [Column("asset"), *right("failed")], [["a", count(0, "red")], ["b", count(2, "red")]])
        shown.append(out.file.getvalue().splitlines())  # type: ignore[attr-defined]
    assert "\x1b[31m" not in shown[0][1]
    assert "\x1b[31m" in shown[0][2]
    assert not any("\x1b" in line for line in shown[1])
