"""Commands that read tables load neither Dagster nor a model library."""

import errno
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from kopub.cli import entry
from kopub.cli.main import main
from kopub.cli.on_demand import COMMANDS, ListedCommand, load_command
from kopub.config.environment import SECTIONS as NAMES
from kopub.config.environment import VALUES as NAMED_VALUES
from kopub.config.environment import locate
from kopub.config.profile import SECTIONS, VALUES
from kopub.config.settings import ROOT, read_settings
from kopub.errors import STOPPED, ConfigError, counted
from tests.cli.test_cli import environment_of, run
from tests.search.test_search import made

HEAVY = (
    "aiohttp",
    "cv2",
    "datasets",
    "kiwipiepy",
    "numkong",
    "tesserocr",
    "torch",
    "transformers",
    "vllm",
)
_GROUPS = ("evaluate", "serve")
LISTS = """
import json, sys
from kopub.cli.main import main
for command in json.loads(sys.argv[1]):
    sys.argv = ["kopub", *command]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, command
    print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})), file=sys.stderr)
"""


def loaded(home: Path, *commands: str) -> list[set[str]]:
    """Return the packages loaded after each command; the commands run in turn in one process."""
    asked = json.dumps([command.split() for command in commands])
    process = subprocess.run(
        [sys.executable, "-c", LISTS, asked],
        cwd=ROOT,
        env=environment_of(home) | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return [set(json.loads(line)) for line in process.stderr.splitlines()]


@pytest.mark.services
def test_commands_load_no_more_than_they_need(tmp_path: Path):
    made(tmp_path)
    light = ("--help", "--version", "index -h", "serve status", "shards", "evaluate list", "costs", "doubts", "status")
    found = loaded(tmp_path, *light)
    assert not {"pyarrow", "numpy", "yaml"} & found[0]
    assert not {"pyarrow", "numpy"} & found[light.index("serve status")]
    for command, packages in zip(light, found, strict=True):
        assert not {"dagster", "pandas", *HEAVY} & packages, command


def test_the_sections_are_those_of_a_profile():
    assert (set(NAMES), tuple(NAMED_VALUES)) == (set(SECTIONS), VALUES)


@pytest.mark.parametrize("url", ["", "elsewhere", "memory://tables"])
def test_tables_are_found_where_the_profile_puts_them(tmp_path: Path, url: str):
    environ = {"KOPUB_HOME": str(tmp_path)} | ({"KOPUB_STORE__URL": url} if url else {})
    settings, located = read_settings(environ), locate(environ)
    assert (located.home, located.profile_name) == (settings.home, settings.profile_name)
    assert located.store_url == settings.store.url


def test_a_store_in_the_file_of_the_profile(tmp_path: Path):
    profile = tmp_path / "mine.yaml"
    profile.write_text("layout: {engine: cpu}\nstore: {url: memory://mine, keep_versions: 0}\n")
    environ = {"KOPUB_HOME": str(tmp_path), "KOPUB_PROFILE": str(profile)}
    assert (locate(environ).store_url, locate(environ).profile_name) == ("memory://mine", "mine")
    assert locate(environ | {"KOPUB_STORE": '{"url": "memory://other"}'}).store_url == "memory://other"


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("KOPUB_STOR__URL", "x", "KOPUB_STOR__URL is no setting"),
        ("KOPUB_STORE__URL", "nosuch://x", "profile cpu: store.url: 'nosuch://x' has the unknown protocol"),
        ("KOPUB_PROFILE", "cpuu", r"profile cpuu: there is no such profile \(did you mean cpu\?\)"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, name: str, value: str, line: str):
    with pytest.raises(ConfigError, match=line):
        locate({"KOPUB_HOME": str(tmp_path), name: value})
    assert name not in os.environ


@pytest.mark.services
def test_every_command_that_prints_a_table_prints_json(tmp_path: Path):
    """The keys are those that docs/json.md lists."""
    home = made(tmp_path).home
    documented = {
        line.split("|")[1].strip().strip("`"): re.findall(r"`([a-z_]+)`", line.split("|")[2])
        for line in (ROOT / "docs" / "json.md").read_text("utf-8").splitlines()
        if line.startswith("| `kopub ")
    }
    for command in ("shards", "plan", "status", "costs", "search 밝기", "lineage a_1", "evaluate list", "serve status"):
        ran = run(home, "kopub", *command.split(), "--json")
        assert ran.returncode == 0, ran.stderr
        value, name = json.loads(ran.stdout), " ".join(command.split()[: 1 + (command.split()[0] in _GROUPS)])
        for one in value if isinstance(value, list) else [value]:
            assert list(one) == documented[f"kopub {name}"][: len(one)], command


def test_help_is_in_the_order_of_work():
    names = [command.name for command in COMMANDS]
    wanted = ["run", "index", "status", "search", "doubts", "diff", "publish", "verify", "doctor"]
    assert [name for name in names if name in wanted] == wanted


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_the_list_of_commands_says_what_their_own_help_says(command: ListedCommand):
    assert load_command(command.name).help.partition("\n\n")[0] == command.summary


def test_help_loads_no_command():
    shown = "import sys; from kopub.cli.main import app\ntry: app(['--help'])\nfinally: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", shown], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1].split()
    assert "kopub.cli.main" in loaded
    assert [name for name in loaded if name.startswith(("kopub.cli.commands.", "kopub.vllm"))] == []


def test_help_of_a_command_loads_none_of_its_work(tmp_path: Path):
    """Other commands load Arrow or the settings with their options."""
    heavier = {"run", "plan", "status", "ui", "doubts", "corrections", "costs"}
    commands = [f"{command.name} --help" for command in COMMANDS if command.name not in heavier]
    loaded_at_the_end = loaded(tmp_path, *commands)[-1]
    assert not {"pyarrow", "pydantic", "numpy", "PIL", *HEAVY} & loaded_at_the_end


def test_a_number_of_things_in_words():
    assert [counted(count, "page") for count in (0, 1, 2, 40_781)] == ["0 pages", "1 page", "2 pages", "40,781 pages"]
    assert counted(2, "query", "queries") == "2 queries"


def test_a_command_that_is_stopped_while_it_loads_ends_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Stopped:
        def __getattr__(self, name: str) -> None:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "kopub.cli.main", Stopped())
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert (ended.value.code, capsys.readouterr().err) == (130, "stopped\n")


def test_only_what_makes_pages_says_that_pages_are_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped() -> None:
        raise SystemExit(130)

    monkeypatch.setattr("kopub.cli.main.app", stopped)
    for command, said in (("status", "stopped\n"), ("run", f"{STOPPED}\n")):
        monkeypatch.setattr(sys, "argv", ["kopub", command])
        with pytest.raises(SystemExit):
            main()
        assert capsys.readouterr().err == said


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_an_output_on_a_full_disk_is_one_line(
    number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def print_to_full_disk() -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("kopub.cli.main.app", print_to_full_disk)
    with pytest.raises(SystemExit) as ended:
        main()
    said = (
        f"Error: the output or a temporary file cannot be written: {os.strerror(number)}; free some space and run again"
    )
    assert (ended.value.code, capsys.readouterr().err.strip()) == (1, said)


CLOSED = """
import os, sys
from kopub.cli import main
from kopub.cli.console import lasting_console, say

def app():
    with open(sys.argv[1], "w") as file:
        say(lasting_console(), "said")
        os.write(1, b"said")

main.app = app
main.main()
"""


def test_an_output_that_is_closed_is_no_file_s(tmp_path: Path) -> None:
    command = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-c", CLOSED, str(tmp_path / "file")]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "file").read_bytes() == b""


def test_what_a_terminal_has_no_character_for_is_spelt_out(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "euc-kr"))
    monkeypatch.setattr("kopub.cli.main.app", lambda: typer.echo("예산 😀"))
    main()
    assert written.getvalue().decode("euc-kr") == "예산 \\U0001f600\n"
