"""`kopub index`, `kopub run` and `kopub sources` when the home already holds another corpus."""

import json
import os
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kopub.cli.main import app
from kopub.pages.indexing import index
from tests.support.processes import forked
from tests.support.sources.pdf_files import pdf, sheet


def folder(place: Path, *names: str) -> Path:
    place.mkdir()
    for at, name in enumerate(names):
        (place / f"{name}.pdf").write_bytes(pdf(sheet(box=f"0 0 {60 + at + 10 * (ord(place.name[0]) % 9)} 80")))
    return place


def kopub(home: Path, *arguments: object) -> tuple[int, str, str]:
    done = forked.run(["kopub", *map(str, arguments)], os.environ | {"KOPUB_HOME": str(home)})
    return done.returncode, done.stdout, done.stderr


@pytest.mark.services
def test_a_second_folder_is_never_taken_in_silence(tmp_path: Path) -> None:
    home, first, second = tmp_path / "home", folder(tmp_path / "A", "a", "b"), folder(tmp_path / "B", "c")
    assert kopub(home, "index", first)[0] == 0
    for command in ("index", "run"):
        status, said, error = kopub(home, command, second)
        assert status == 1
        assert said == ""
        assert len(error.splitlines()) == 1
        assert all(option in error for option in ("--add", "--replace", "--home DIR"))
    status, said, _ = kopub(home, "index", second, "--add", "--dpi", "72")
    assert status == 0
    assert said.splitlines()[-2] == f"{home}: 3 pages in 3 documents, 2 sources"
    assert [line.split()[:3] for line in kopub(home, "sources")[1].splitlines()] == [
        ["source", "documents", "pages"],
        ["A", "2", "2"],
        ["B", "1", "1"],
    ]
    status, said, _ = kopub(home, "sources", "remove", "A")
    assert status == 0
    assert "A was removed from the corpus, which now has 1 page of B" in said.splitlines()
    assert (first / "a.pdf").exists()
    listed = json.loads(kopub(home, "sources", "--json")[1])
    assert [(each["source"], each["path"], each["shards"]) for each in listed] == [("B", str(second), ["shard_01"])]
    other = tmp_path / "other"
    assert kopub(home, "index", first, "--home", other)[0] == 0
    assert (other / "shards.json").exists()
    assert "shard_01" in kopub(home, "shards")[1]
    assert kopub(home, "index", first, "--replace")[0] == 0
    assert [each["source"] for each in json.loads(kopub(home, "sources", "--json")[1])] == ["A"]


def test_the_command_for_the_pages_that_are_left_can_be_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = folder(tmp_path / "A 문서's", "a", "b")
    index(str(source), tmp_path / "home", max_pages=1)
    monkeypatch.setenv("KOPUB_HOME", str(tmp_path / "home"))
    (listed,) = json.loads(CliRunner().invoke(app, ["sources", "--json"]).output)
    left, _, command = listed["state"].partition(": ")
    assert (left, shlex.split(command)) == ("1 page left", ["kopub", "run", str(source)])


@pytest.mark.parametrize(("answer", "names"), [("\n", ["A", "B"]), ("r\n", ["B"]), ("s\n", ["A"])])
def test_a_person_at_a_terminal_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, names: list[str]
) -> None:
    from kopub.cli.commands import index as command
    from kopub.pages.manifest import Manifest

    home, first, second = tmp_path / "home", folder(tmp_path / "A", "a"), folder(tmp_path / "B", "c")
    monkeypatch.setenv("KOPUB_HOME", str(home))
    runner = CliRunner()
    assert runner.invoke(app, ["index", str(first)]).exit_code == 0
    monkeypatch.setattr(command, "_at_terminal", lambda: True)
    asked = runner.invoke(app, ["index", str(second)], input=answer)
    assert f"The corpus has {first}." in asked.output
    assert asked.exit_code == (1 if answer == "s\n" else 0)
    assert [source.name for source in Manifest.load(home).sources] == names
