import sys
from pathlib import Path

import pytest

from kopub.processes import start_child

ANSWERING = """
import os, sys
def main(connection, *descriptors):
    connection.send((sys.path, [os.pread(each, 99, 0) for each in descriptors], os.getpgid(0) == os.getpid()))
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a module that answers, importable by this process."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "answering.py").write_text(ANSWERING)
    monkeypatch.syspath_prepend(folder)
    return folder


@pytest.mark.parametrize("group", [None, 0])
def test_a_child_finds_the_modules_and_has_the_descriptors(modules: Path, tmp_path: Path, group: int | None):
    given = tmp_path / "given"
    given.write_bytes(b"so many bytes")
    with given.open("rb") as file:
        connection, process = start_child("answering:main", file.fileno(), group=group)
    path, read, leads_a_group = connection.recv()
    assert path[0] == str(modules)
    assert read == [b"so many bytes"]
    assert leads_a_group == (group == 0)
    with pytest.raises(EOFError):
        connection.recv()
    assert process.wait() == 0
    connection.close()


def test_a_package_that_is_imported_meanwhile_hides_no_module(modules: Path, monkeypatch: pytest.MonkeyPatch):
    """While it is imported, OpenCV puts its own folder, with a `typing`, on the path."""
    package = modules / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "typing.py").write_text("raise SystemExit('the typing of a package')\n")
    monkeypatch.setattr(sys, "path", [str(package), *sys.path])
    connection, process = start_child("answering:main")
    path, *_ = connection.recv()
    assert str(package) not in path
    assert process.wait() == 0
    connection.close()


def test_a_project_that_is_a_package_stays_on_the_path(modules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    project = tmp_path / "project"
    project.mkdir()
    (project / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(modules), str(project), *sys.path])
    connection, process = start_child("answering:main")
    path, *_ = connection.recv()
    assert path[:2] == [str(modules), str(project)]
    assert process.wait() == 0
    connection.close()
