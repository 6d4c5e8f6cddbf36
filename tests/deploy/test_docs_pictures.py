"""The script for the documentation's screenshots makes all of them, and its errors are clear."""

import re
import sys

import pytest

from kopub.config.settings import ROOT
from tools import docs_pictures


def test_it_makes_every_picture_of_the_documentation():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = {name for page in pages for name in re.findall(r"\((?:docs/)?(\w+)\.png\)", page.read_text("utf-8"))}
    assert (
        {each.name for each in docs_pictures.PICTURES}
        == shown
        == {file.stem for file in docs_pictures.DOCS.glob("*.png")}
    )
    assert {each.server for each in docs_pictures.PICTURES} == {*docs_pictures.SERVERS, "diff"}


def test_a_machine_without_a_browser_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match=r"no browser was found: install one of chromium"):
        docs_pictures.find_browser()


def test_a_server_that_does_not_start_is_named():
    command = (sys.executable, "-c", "raise SystemExit(1)")
    with pytest.raises(SystemExit, match="does not answer"), docs_pictures.serve(command, {}):
        pass
