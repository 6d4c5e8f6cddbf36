"""`recipes.lock` rejects code changes without a statement of their effect on results."""

import json
import tomllib
from pathlib import Path

import pytest

from kopub.fingerprints import CodeVersion
from kopub.tables.graph import GRAPH
from tools.recipes_lock import LOCK, ROOT, Sources, current, problems

MODULE = '''
"""Docstring."""

from kopub.fingerprints import CodeVersion
from resources.rows import split

VERSION = CodeVersion("reader", {1: "the first release"})


def area(width, height):
    """What it is."""
    # why
    return split(width) * height if width else f"none {height}"
'''
ROWS = "def split(rows):\n    return rows\n"


def project(folder: Path, module: str = MODULE, rows: str = ROWS, name: str = "reader") -> Sources:
    (folder / "resources").mkdir(parents=True, exist_ok=True)
    for old in (folder / "resources").iterdir():
        old.unlink()
    (folder / "resources" / f"{name}.py").write_text(module)
    (folder / "resources" / "rows.py").write_text(rows)
    return Sources(folder)


def complaints(folder: Path, locked: dict, **changes: str) -> list[str]:
    sources = project(folder, **changes)
    return problems(current(sources), locked, sources)


@pytest.fixture
def locked(tmp_path: Path) -> dict:
    return current(project(tmp_path))


@pytest.mark.slow
def test_the_project_is_as_it_was_locked():
    sources = Sources()
    assert problems(current(sources), json.loads(LOCK.read_text()), sources) == []


def test_every_asset_and_every_engine_of_the_project_is_locked():
    closures = json.loads(LOCK.read_text())["closures"]
    assert set(GRAPH.names) <= closures.keys()
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    engines = {
        f"{group.removeprefix('kopub.')}.{name}"
        for group, names in points.items()
        for name in names
        if group.startswith("kopub.")
    }
    assert engines
    assert engines <= closures.keys()


@pytest.mark.parametrize(
    "same",
    [
        MODULE.replace("# why", "# because"),
        MODULE.replace('    """What it is."""\n', ""),
        MODULE.replace("split(width) * height", "split( width )*height"),
        MODULE.replace("(width, height)", "(\n    width,\n    height\n)"),
    ],
    ids=["comment", "docstring", "blanks", "lines"],
)
def test_comments_docstrings_and_formatting_do_not_count(tmp_path: Path, locked: dict, same: str):
    assert complaints(tmp_path, locked, module=same) == []


def test_a_module_that_moves_does_not_count(tmp_path: Path, locked: dict):
    assert complaints(tmp_path, locked, name="reading") == []


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"module": MODULE.replace("* height", "+ height")}, "resources/reader.py"),
        ({"rows": "def split(rows):\n    return rows[1:]\n"}, "resources/rows.py"),
    ],
    ids=["the module itself", "what it imports"],
)
def test_code_that_changed_names_the_module_and_the_two_ways_on(
    tmp_path: Path, locked: dict, change: dict[str, str], named: str
):
    (line,) = complaints(tmp_path, locked, **change)
    assert line.startswith(f"reader: its code changed since version 1 was locked ({named})")
    assert "Where results change, add a step" in line
    assert line.endswith("lock again: make lock-recipes")


def test_a_new_version_is_locked_too(tmp_path: Path, locked: dict):
    newer = MODULE.replace('{1: "the first release"}', '{1: "the first release", 2: "wider rows"}')
    assert complaints(tmp_path, locked, module=newer) == ["reader: version 2 is not locked; lock it: make lock-recipes"]


def test_what_is_gone_is_named(tmp_path: Path, locked: dict):
    (line,) = complaints(tmp_path, locked, module="from resources.rows import split\n")
    assert line.startswith("reader: it is locked and gone")


@pytest.mark.parametrize("steps", [{}, {2: "two"}, {1: ""}, {1: "one", 3: "three"}])
def test_versions_count_from_one_each_with_its_reason(steps: dict[int, str]):
    with pytest.raises(ValueError, match="count from 1"):
        CodeVersion("reader", steps)


def test_the_reasons_since_a_version():
    version = CodeVersion("reader", {1: "the first release", 2: "wider rows", 3: "blank cells stay"})
    assert version.number == 3
    assert version.since(1) == "wider rows; blank cells stay"
    assert version.since(3) == version.since(None) == ""
