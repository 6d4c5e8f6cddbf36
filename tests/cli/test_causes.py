"""Errors name their cause, and one fault does not hide the rest."""

import errno
import io
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from sqlalchemy import create_engine

from kopub.cli import main
from kopub.cli.commands import index as index_command
from kopub.cli.commands.status import show_status, status_values
from kopub.cli.dagster_home import prepare_home
from kopub.config.settings import read_settings
from kopub.errors import ConfigError, SourceError, StoreError, first_line
from kopub.files import cannot_write
from kopub.pages import indexing
from kopub.pages.manifest import Manifest
from kopub.pages.places import place_of
from tests.support.harness import Platform
from tests.support.sources.corpora import pages, write_corpus


def test_an_unreadable_table_does_not_hide_the_others(tmp_path: Path):
    platform = Platform.of(tmp_path, [pages("a_1"), pages("b_1")])
    platform.make("raw_pages", "layout_regions")
    folder = tmp_path / "store" / "layout_regions"
    folder.rename(tmp_path / "aside")
    folder.symlink_to(folder)
    out = io.StringIO()
    show_status(platform.settings, Console(file=out, width=200))
    assert ["raw_pages", "2/2", "2", "2"] in [line.split() for line in out.getvalue().splitlines()]
    assert "layout_regions cannot be read, and counts as missing: " in out.getvalue()
    assert "layout_regions" in status_values(platform.settings)["unreadable"]


def test_a_damaged_table_does_not_hide_the_rest(tmp_path: Path):
    platform = Platform.of(tmp_path, [pages("a_1", "a_2"), [("b_1", b"no picture")]])
    platform.make("raw_pages", "layout_regions")
    (table,) = (tmp_path / "store" / "layout_regions").glob("*01.parquet")
    content = bytearray(table.read_bytes())
    content[40] ^= 16
    table.write_bytes(content)
    out = io.StringIO()
    show_status(platform.settings, Console(file=out, width=200))
    assert "layout_regions/shard_01.parquet is damaged" in out.getvalue()
    assert "b_1 quarantined in raw_pages" in out.getvalue()
    assert f"corpus   {tmp_path}" in out.getvalue()
    values = status_values(platform.settings)
    assert "shard_01.parquet is damaged" in values["damage"][0]
    assert [page["page_id"] for page in values["lost"]] == ["b_1"]


def test_a_home_whose_first_index_met_a_full_disk_names_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = write_corpus(tmp_path / "source", [pages("a_1")])

    def write(*_: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(indexing.IndexWriter, "write", write)
        with pytest.raises(StoreError):
            indexing.index(str(source), tmp_path / "home")
    with pytest.raises(SourceError, match=f"because that of {source} was not finished: `kopub index {source}` goes on"):
        Manifest.load(tmp_path / "home")
    indexing.index(str(source), tmp_path / "home")
    assert Manifest.load(tmp_path / "home").rows == 1
    assert not (tmp_path / "home" / "indexing.txt").exists()


@pytest.mark.parametrize("at_terminal", [True, False])
def test_a_wrong_path_is_told_before_any_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_terminal: bool):
    indexing.index(str(write_corpus(tmp_path / "source", [pages("a_1")])), tmp_path / "home")
    monkeypatch.setattr(index_command, "_at_terminal", lambda: at_terminal)
    monkeypatch.setattr(index_command.typer, "prompt", lambda *_, **__: pytest.fail("asked"))
    with pytest.raises(SourceError, match="is neither a folder"):
        index_command.index_source(str(tmp_path / "nowhere"), place_of(tmp_path / "home"), None, False, False)


def test_a_folder_that_may_not_be_opened_is_named_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "mine").mkdir()
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(SourceError, match=r"mine cannot be read: you lack the permission to open this folder$"):
        indexing.index(str(tmp_path / "mine"), tmp_path / "home")
    with pytest.raises(StoreError, match=r"mine was not written \(Permission denied\)"):
        prepare_home(tmp_path / "mine")


def test_a_lack_of_inodes_is_not_a_lack_of_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert cannot_write(tmp_path / "x", full).startswith("the disk is full: ")
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_files=60, f_favail=0, f_bavail=10_000))
    assert cannot_write(tmp_path / "x", full).startswith("the disk has room but takes no more files (df -i): ")


def test_a_reason_holds_no_address() -> None:
    error = ValueError("Failed to get bitmap of image <PdfImage 0x7f2efd7ef450>")
    assert first_line(error) == "Failed to get bitmap of image <PdfImage>"


def test_another_model_does_not_inherit_the_revision_of_the_one_before(tmp_path: Path):
    other = "{model: someone/else, version: ''}"
    for written in (f"{{server: {other}}}", f"{{model: glm_ocr, server: {other}}}"):
        (tmp_path / "mine.yaml").write_text(f"extends: h200\nrecognition: {written}\n")
        with pytest.raises(ConfigError, match="revision: someone/else is no folder here, so a commit"):
            read_settings({"KOPUB_HOME": str(tmp_path / "home"), "KOPUB_PROFILE": str(tmp_path / "mine.yaml")})


def test_a_history_of_dagster_on_a_full_disk_is_not_called_damaged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def run() -> None:
        with create_engine("sqlite://").begin() as history:
            history.exec_driver_sql("PRAGMA max_page_count = 2")
            history.exec_driver_sql("CREATE TABLE runs (body)")
            history.exec_driver_sql("INSERT INTO runs VALUES (zeroblob(100000))")

    monkeypatch.setattr(main, "app", run)
    with pytest.raises(SystemExit):
        main.main()
    told = capsys.readouterr().err
    assert "(database or disk is full): check the free space and the permissions there, and run again" in told
