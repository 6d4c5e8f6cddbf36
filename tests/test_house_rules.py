"""Code rules that no linter checks: class names, first lines of docstrings, lengths of modules."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

import kopub
from tools import signs

ROOT = Path(kopub.__file__).parents[1]
ROOMS = ("kopub", "kopub_assets", "resources")
MODULES = {path.relative_to(ROOT): path.read_text("utf-8") for room in ROOMS for path in (ROOT / room).rglob("*.py")}
MOST_LINES = 500
MOST_WORDS = 15
ADJECTIVES = {"Closed", "Done", "Given", "Known", "Made", "Taken", "Spent", "Told", "Outdated", "Busy", "Pending"}


@pytest.fixture(scope="module")
def trees() -> dict[Path, list[ast.AST]]:
    """Return the nodes of each module."""
    return {path: list(ast.walk(ast.parse(text))) for path, text in MODULES.items()}


def test_no_two_classes_have_one_name(trees: dict[Path, list[ast.AST]]):
    found = defaultdict(list)
    for path, nodes in trees.items():
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(f"{path}:{node.lineno}")
    # Public classes of the package are named for their users, even like an internal class.
    assert not {name: places for name, places in found.items() if len(places) > 1 and name not in kopub.__all__}


def test_the_name_of_a_class_ends_in_a_noun(trees: dict[Path, list[ast.AST]]):
    classes = {node.name for nodes in trees.values() for node in nodes if isinstance(node, ast.ClassDef)}
    # The last word of `UndecodableImage` is `Image`; that of `Rendered` is a participle.
    last = {name: re.findall("[A-Z]+(?![a-z])|[A-Z][a-z0-9]*", name)[-1] for name in classes}
    assert not {name for name, word in last.items() if word.endswith("ed") or word in ADJECTIVES}


def test_the_first_line_of_a_docstring_says_what_it_is_in_few_words(trees: dict[Path, list[ast.AST]]):
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    described = [
        (path, text.splitlines()[0])
        for path, nodes in trees.items()
        for node in nodes
        if isinstance(node, kinds) and (text := ast.get_docstring(node))
    ]
    assert not [f"{path}: {line}" for path, line in described if line.startswith("Of ")]
    # Docstrings of commands, the API and the MCP tools are shown to people, so they may be longer.
    shown = {Path("kopub/cli/main.py"), Path("kopub/web/api.py"), Path("kopub/web/mcp.py")}
    long = [(path, line) for path, line in described if len(line.split()) > MOST_WORDS and path not in shown]
    assert not [f"{path}: {line}" for path, line in long if path.parent != Path("kopub/cli/commands")]


def test_no_module_is_too_long():
    lengths = {path: len(text.splitlines()) for path, text in MODULES.items()}
    assert not {path: lines for path, lines in lengths.items() if lines > MOST_LINES}


def test_signs_are_counted_in_code_alone_and_one_past_its_limit_is_named():
    few = signs.measure(
        ['"""A module."""\n\n# Why.\nlimit = 1\n\n\ndef _twice() -> int:\n    """Double."""\n    import os\n']
    )
    assert few["lines"] == 9
    assert few["functions per 1,000 lines of code"] == pytest.approx(1000 / 3)
    assert few["private functions per 1,000 lines of code"] == pytest.approx(1000 / 3)
    assert few["imports inside functions"] == 1
    assert few["comments, percent of lines"] == pytest.approx(100 / 9)
    assert [line.partition(":")[0] for line in signs.worse(few | {"lines": 10**6})] == [
        "functions per 1,000 lines of code",
        "private functions per 1,000 lines of code",
        "lines",
    ]


def test_the_command_line_imports_dagster_inside_functions_alone():
    at_top = [
        f"{path}: {name}"
        for path, text in MODULES.items()
        if path.is_relative_to("kopub/cli")
        for node in ast.parse(text).body
        for name in _imported_names(node)
        if name.partition(".")[0] in ("dagster", "kopub_assets", "resources")
    ]
    assert at_top == []


def _imported_names(node: ast.stmt) -> list[str]:
    """Return the modules that a statement at the top of a module imports when it is loaded."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []
