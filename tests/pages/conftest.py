"""Fixtures of the tests that index documents."""

from pathlib import Path

import pytest

from kopub.pages.documents import pool
from tests.support.sources.source_folder import SourceFolder


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use one process: each index starts its own, and most tests have only a few pages."""
    monkeypatch.setattr(pool, "_MOST", 1)


@pytest.fixture
def folder(tmp_path: Path) -> SourceFolder:
    return SourceFolder(tmp_path)
