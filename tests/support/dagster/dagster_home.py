"""Dagster homes with their databases, as `make setup` leaves them."""

import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

from kopub.config.settings import ROOT
from tests.support.processes import forked


def make_dagster_home(folder: Path) -> Path:
    """Copy databases into `folder` if it has none, because making them takes a second.

    A `dagster.yaml` that is there stays.
    """
    if not (folder / "history").exists():
        settings = "dagster.yaml"
        stays = shutil.ignore_patterns(settings) if (folder / settings).exists() else None
        shutil.copytree(_made().name, folder, dirs_exist_ok=True, ignore=stays)
    return folder


@cache
def _made() -> tempfile.TemporaryDirectory[str]:
    """Return a folder with new databases, which is removed when this process ends."""
    folder = tempfile.TemporaryDirectory(prefix="dagster-home-")
    script = ROOT / "deploy" / "local" / "instance.py"
    made = forked.run(["python", "-"], os.environ | {"DAGSTER_HOME": folder.name}, script.read_text())
    assert made.returncode == 0, made.stderr
    return folder
