"""Files, anchors, commands, options, targets and modules in the documentation exist."""

import ast
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import typer

from kopub.cli.main import app
from kopub.cli.on_demand import load_command
from kopub.config.settings import ROOT
from tests.docs.markdown import PAGES, anchors, blocks, inline_code, links

README_WORDS = 1000
KOPUB: Any = typer.main.get_command(app)
_PATH = re.compile(r"(?:benchmarks|deploy|docs|kopub_\w+|profiles|resources|samples|tests|tools)/[\w./-]*[\w/]")
_MODULE = re.compile(r"\w+(?:/\w+)+\.py")
"""A module, whose path may begin at any folder: `layout/ink.py`."""
_FOLDERS = ("benchmarks", "docs", "kopub", "kopub_assets", "resources", "tests", "tools")
_MODULES = [f"/{file.relative_to(ROOT)}" for folder in _FOLDERS for file in (ROOT / folder).rglob("*.py")]
_TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))

_PROGRAMS = sorted(file for name in ("benchmarks", "tools") for file in (ROOT / name).rglob("*.py"))
_SCRIPTS = "".join(file.read_text("utf-8") for file in _PROGRAMS)

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def typed(page: Path) -> Iterator[str]:
    """Yield every line that a reader may type: lines of code blocks, and inline code."""
    yield from inline_code(page)
    for block in blocks(page):
        if block.language in ("bash", "console"):
            yield from (line.removeprefix("$ ") for line in block.text.splitlines())


def unknown(line: str) -> list[str]:
    """Return the subcommands and options in a line that `kopub` does not have."""
    line = line.partition("#")[0].partition(" | ")[0]
    _, found, rest = re.sub(r"['\"].*?['\"]", "TEXT", line).rpartition("kopub ")
    if not found:
        return []
    command, words = KOPUB, re.split(r"[ |;&]+", rest.strip())
    while (commands := getattr(command, "commands", None)) and words and re.fullmatch(r"[a-z]+", words[0]):
        if words[0] not in commands:
            return [words[0]]
        name = words.pop(0)
        command = load_command(name) if command is KOPUB else commands[name]
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    asked = [word.strip("[]").partition("=")[0] for word in words]
    return [word for word in asked if word.startswith("-") and word not in {*options, "-", "-h", "--help"}]


@each_page
def test_links_lead_somewhere(page: Path):
    dead = []
    for link in links(page):
        path, _, anchor = unquote(link).partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert dead == []


@each_page
def test_commands_and_options_exist(page: Path):
    said = list(typed(page))
    assert [line for line in said if re.match(r"(?:\w+=\S+ )*(?:\S*/)?kopub ", line) and unknown(line)] == []
    made = [target for line in said for target in re.findall(r"(?:^|\$ |`)make ([a-z-]+)", line)]
    assert [target for target in made if target not in _TARGETS] == []
    modules = [module for line in said for module in re.findall(r"python -m ((?:benchmarks|tools)[\w.]*)", line)]
    assert [module for module in modules if find_spec(module) is None] == []
    scripts = [line for line in said if re.search(r"python -m (benchmarks|tools)\.", line)]
    options = [option for line in scripts for option in re.findall(r"(?<!\S)\[?(--[a-z-]+)", line)]
    assert [option for option in options if f'"{option}"' not in _SCRIPTS] == []


@each_page
def test_paths_of_the_project_exist(page: Path):
    named = [path for code in inline_code(page) for path in _PATH.findall(code.partition("#")[0]) if "$" not in code]
    assert [path for path in named if not (ROOT / path).exists()] == []
    modules = [module for code in inline_code(page) for module in _MODULE.findall(code)]
    assert [module for module in modules if not any(path.endswith(f"/{module}") for path in _MODULES)] == []


@pytest.mark.parametrize("path", _PROGRAMS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_benchmark_or_tool_names_what_there_is_and_has_a_help(path: Path):
    text = path.read_text("utf-8")
    named = _PATH.findall(ast.get_docstring(ast.parse(text)) or "")
    assert [name for name in named if not (ROOT / name).exists()] == []
    assert "ArgumentParser(" in text or "__main__" not in text


def test_an_option_that_was_renamed_is_noticed():
    assert unknown("kopub search --modes bm25 QUERY") == ["--modes"]
    assert unknown("KOPUB_PROFILE=h200 kopub serves status") == ["serves"]
    assert unknown("kopub search '한글' --mode bm25  # --no-such") == []


@pytest.mark.parametrize("name", ["README.md", "README.ko.md"])
def test_a_readme_is_short(name: str):
    assert len((ROOT / name).read_text("utf-8").split()) <= README_WORDS
