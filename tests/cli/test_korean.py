"""The command line speaks Korean to whoever reads it: all of a screen, or nothing of it."""

import os
import re
from pathlib import Path
from string import Formatter

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from kopub.cli.console import in_english, plain_reason, said
from kopub.cli.main import app
from kopub.cli.on_demand import COMMANDS, load_command
from kopub.doctor.checks import parts_of
from kopub.engine import INSTALL
from kopub.errors import ConfigError, counted
from kopub.language import texts
from kopub.states import Reason, phrase, with_remedy
from kopub.store.run_records import COUNTED
from tests.support.phrases import ROOT, errors, help_texts, phrases

_COMMAND_LINE = sorted((ROOT / "kopub" / "cli").rglob("*.py"))
_NOT_TOLD = frozenset(
    {
        *("kopub/api/corpus.py", "kopub/api/rows.py", "kopub/web/mcp.py"),  # say it to programs
        *("kopub/release/card.py", "kopub/store/schemas.py"),  # write it into a release
        "kopub/texts/text_quality.py",  # has halves of the doubts that tests/web/test_languages.py knows
    }
)
_MODULES = [
    path
    for package in ("kopub", "kopub_assets")
    for path in sorted((ROOT / package).rglob("*.py"))
    if str(path.relative_to(ROOT)) not in _NOT_TOLD
]
_VARIABLES = ("KOPUB_LANG", "LC_ALL", "LC_MESSAGES", "LANG")


@pytest.fixture
def korean(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KOPUB_LANG", "ko")
    # Commands are translated when they are loaded.
    load_command.cache_clear()
    yield
    load_command.cache_clear()


@pytest.mark.parametrize(
    ("variables", "english"),
    [
        ({}, True),
        ({"LANG": "ko_KR.UTF-8"}, False),
        ({"LANG": "ko_KR.UTF-8", "LC_ALL": "C.UTF-8"}, True),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "ko_KR.eucKR"}, False),
        ({"LC_ALL": "ko_KR.UTF-8", "KOPUB_LANG": "en"}, True),
        ({"LC_ALL": "", "KOPUB_LANG": "KO"}, False),
        ({"LANG": "ja_JP.UTF-8"}, True),
    ],
)
def test_the_language_is_that_of_the_locale_unless_it_is_chosen(
    variables: dict[str, str], english: bool, monkeypatch: pytest.MonkeyPatch
):
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert in_english() is english


def test_every_phrase_and_help_text_of_the_command_line_is_known_in_korean(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KOPUB_LANG", "en")
    load_command.cache_clear()
    known = {**phrases(_MODULES), **help_texts()}
    known |= {f"{name} {{count:,.0f}}": "COUNTED" for name in COUNTED.values()}
    assert len(known) > 900
    assert {text: where for text, where in known.items() if text not in texts("ko").sentences} == {}


def test_nothing_is_printed_from_an_f_string_with_words():
    printed = re.compile(r'\b(?:say|tell|phrase|said)\((?:\w+, )?f"[^"{]*[a-z]{3,} ')
    assert [
        f"{path.name}: {line}"
        for path in _COMMAND_LINE
        for line in path.read_text("utf-8").splitlines()
        if printed.search(line)
    ] == []


def test_no_error_that_the_terminal_tells_is_an_f_string():
    raised = re.compile(rf"\b(?:{'|'.join(errors())})\(\s*f[\"']")
    to_programs = ("kopub/api", "kopub/embedding/base.py", "kopub/evaluation/made_tables")
    paths = [path for path in _MODULES if not str(path.relative_to(ROOT)).startswith(to_programs)]
    assert [str(path) for path in paths if raised.search(path.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    "command",
    [[], *([listed.name] for listed in COMMANDS), ["serve", "stop"], ["sources", "remove"]],
)
def test_the_help_of_each_command_is_korean_in_80_columns(
    command: list[str], korean: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "80")
    shown = CliRunner().invoke(app, [*command, "--help"]).output
    assert shown.splitlines()[1].startswith(" 사용법: ")
    # A name, a value or a quoted command may be all of a cell; a sentence of English would have a verb and blanks.
    assert not re.search(r"\b(?:the|of|is|are|and|with|by)\b", re.sub(r"`[^`]*`", "", shown)), shown
    assert "…" not in shown.replace("cjk …", "")
    assert {cell_len(line) for line in shown.splitlines() if line.startswith("│")} <= {80}


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("rum", "rum 명령은 없습니다. 혹시 run?"),
        ("run --max-page 3", "--max-page 옵션은 없습니다. 혹시 --max-pages?"),
        ("index", "'SOURCE'을(를) 써야 합니다"),
        ("search --top many budget", "'--limit' / '--top'의 값이 INTEGER RANGE 형식이 아닙니다"),
        ("shards a b", "이 명령이 받는 것보다 인자가 많습니다"),
        ("serve stat", "stat 명령은 없습니다"),
    ],
)
def test_a_wrong_command_line_is_told_in_korean(typed: str, told: str, korean: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "100")
    done = CliRunner().invoke(app, typed.split())
    assert done.exit_code == 2
    assert told in done.output
    assert "No such" not in done.output


def test_a_phrase_is_told_with_its_values_and_stays_english_for_machines(monkeypatch: pytest.MonkeyPatch):
    line = phrase("{pages} in {documents}", counted(1200, "page"), counted(1, "document"))
    monkeypatch.setenv("KOPUB_LANG", "ko")
    assert said(line) == "문서 1개의 1,200쪽"
    assert line == "1,200 pages in 1 document"
    assert said("a sentence of nobody") == "a sentence of nobody"
    lost = Reason("{asset}: {reason}", asset="raw_pages", reason="the file is damaged or no PDF")
    assert said(
        phrase("{page} {state} in {asset}, {shard}: {reason}", "a", "failed", "raw_pages", "s", lost)
    ).startswith("a: ")
    assert plain_reason("a", lost) == "파일이 손상되었거나 PDF가 아닙니다"
    # A line is in one language, that of its reason.
    assert said(phrase("gate closed: {reason}", "a gate of nobody")) == "gate closed: a gate of nobody"
    assert said(phrase("gate closed: {reason}", "not recorded")) == "닫힌 관문: 기록 없음"
    # A file may be called like a word of the platform.
    assert said(phrase("wrote {path}", "text")) == "썼습니다: text"
    assert said(phrase("wrote {path}", Path("{x}"))) == "썼습니다: {x}"
    error = ConfigError("{option} needs --http: add it", "--port")
    assert (str(error), said(str(error))) == ("--port needs --http: add it", "--port 옵션은 --http와 함께 써야 합니다")
    with pytest.raises(ValueError, match="zip"):
        phrase("{a} and {b}", 1)


def test_an_error_is_told_with_the_error_that_caused_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KOPUB_LANG", "ko")
    cause = ConfigError("{section} has no key {key!r}{guess}; it has {names}", "pdf", "dpj", "", "dpi")
    error = ConfigError("profile {profile}: {reason}", "cpu", cause)
    assert str(error) == "profile cpu: pdf has no key 'dpj'; it has dpi"
    assert said(str(error)) == "프로필 cpu: pdf에 'dpj' 키가 없습니다. 있는 키: dpi"
    # The sentence of nobody is in the middle of another, and the line is in one language all the same.
    nobody = ConfigError(
        "profile {profile}: {reason}", "cpu", ConfigError("{where}: {reason}", "x", ValueError("no one"))
    )
    assert said(str(nobody)) == str(nobody) == "profile cpu: x: no one"
    missing = with_remedy(phrase("{names} is not installed", "vllm"), INSTALL)
    assert parts_of(missing) == ("vllm is not installed", INSTALL) == parts_of(str.__str__(missing))
    assert said(parts_of(missing)[0]) == "설치되지 않음: vllm"


def test_a_korean_phrase_fills_the_names_of_its_english_form():
    def names(form: str) -> set[str]:
        return {name for _, name, _, _ in Formatter().parse(form) if name is not None}

    sentences = texts("ko").sentences
    assert {form for form, korean in sentences.items() if not names(korean) <= names(form)} == set()


def test_an_unknown_language_is_refused(monkeypatch: pytest.MonkeyPatch):
    from kopub.config.environment import read_environment

    with pytest.raises(ConfigError, match="KOPUB_LANG is 'kr': choose ko or en"):
        read_environment({**os.environ, "KOPUB_LANG": "kr"})
