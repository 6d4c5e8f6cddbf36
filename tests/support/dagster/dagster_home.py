"""Homes of Dagster whose databases are made already, as `make setup` leaves one."""

import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

from resources.config.settings import ROOT
from tests.support.processes import forked


def make_dagster_home(folder: Path) -> Path:
    """Lay the databases into `folder`, where it has none. To make them takes a second each time; to copy them, none.

    Settings that are there stay.
    """
    if not (folder / "history").exists():
        settings = "dagster.yaml"
        stays = shutil.ignore_patterns(settings) if (folder / settings).exists() else None
        shutil.copytree(_made().name, folder, dirs_exist_ok=True, ignore=stays)
    return folder


@cache
def _made() -> tempfile.TemporaryDirectory[str]:
    """Removed when this process ends."""
    folder = tempfile.TemporaryDirectory(prefix="dagster-home-")
    script = ROOT / "deploy" / "local" / "instance.py"
    made = forked.run(["python", "-"], os.environ | {"DAGSTER_HOME": folder.name}, script.read_text())
    assert made.returncode == 0, made.stderr
    return folder
