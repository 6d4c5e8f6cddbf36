"""The promises in tests/README.md name tests that exist."""

import ast
import re
from functools import cache
from pathlib import Path

from kopub.config.settings import ROOT
from tests.docs.markdown import inline_code

TESTS = ROOT / "tests"


def named_tests(page: Path) -> list[tuple[str, str]]:
    """Return file and function of every test that a page names; a name alone is in the file before it."""
    named, file = [], ""
    for code in inline_code(page):
        if match := re.fullmatch(r"(?:([\w/]+\.py)::)?(test_\w+)", code):
            file = match[1] or file
            named.append((file, match[2]))
    return named


def missing(named: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the tests that their files do not have."""
    return [(file, name) for file, name in named if name not in functions_of(TESTS / file)]


@cache
def functions_of(file: Path) -> set[str]:
    if not file.is_file():
        return set()
    return {node.name for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.FunctionDef)}


def test_every_promise_names_tests_that_exist():
    named = named_tests(TESTS / "README.md")
    assert len(named) > 100
    assert missing(named) == []


def test_a_test_that_was_renamed_or_moved_is_noticed(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("`docs/test_promises.py::test_a`, `test_every_promise_names_tests_that_exist`, `a.py::test_b`")
    assert missing(named_tests(page)) == [("docs/test_promises.py", "test_a"), ("a.py", "test_b")]
