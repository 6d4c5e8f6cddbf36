"""A run on some pages in a home of their own, and its speed."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

from filelock import FileLock, Timeout
from rich.table import Column

from kopub.cli.console import print_table, right, say, table_console
from kopub.cli.options import open_settings
from kopub.cli.profile_display import page_of, profile_run, stages_to_run, tables
from kopub.config.settings import Settings
from kopub.errors import KopubError, counted, visible
from kopub.profiling.observer import Observer, cards_of, make_sample_home, own_environment
from kopub.recognition.base import STEP_TIMES
from kopub.states import phrase
from kopub.weights.fetch import require_ready

_LAST_LINES = 12


def measure_speed(pages: int, out: Path | None, keep: bool) -> None:
    """Run `pages` pages, print where the time went, and write an HTML page.

    The page is written to `out` or into the home, where the tables stay with `keep`. Raises `KopubError`.
    """
    settings = open_settings()
    require_ready(settings.engines, settings.profile_name)
    folder = settings.home / "profile"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".lock", timeout=0):
            _measure(settings, folder / "home", pages, (out or folder / "profile.html").absolute(), keep)
    except Timeout:
        raise KopubError("another `kopub profile` is running in {folder}: wait until it ends", folder) from None


def _measure(settings: Settings, folder: Path, pages: int, out: Path, keep: bool) -> None:
    """Run some pages in a home at `folder`, print the figures and write `out`.

    Raises `KopubError`.
    """
    console = table_console()
    home = make_sample_home(folder, settings, pages, own_environment())
    form, location = "{pages} of {location}, with profile {profile}", settings.corpus.manifest.location
    say(console, phrase(form, counted(home.pages, "page"), location, settings.profile_name))
    steps = home.folder / "steps"
    words = [sys.executable, "-m", "dagster", "asset", "materialize", "--select", ",".join(stages_to_run(settings))]
    keys = f"{home.shards[0]}...{home.shards[-1]}"
    log = home.folder / "run.log"
    with Observer(cards_of(settings.engines)) as observer, log.open("wb") as output:
        began = time.time()
        status = subprocess.run(
            [*words, "--partition-range", keys, "-m", "definitions"],
            # Readers add the times of their steps to the file.
            env={**home.environment, STEP_TIMES: str(steps)},
            cwd=home.folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
        ended = time.time()
    if status:
        lines = log.read_text("utf-8", errors="replace").splitlines()[-_LAST_LINES:]
        raise KopubError("the run on these pages failed; its last lines:\n{lines}", "\n".join(map(visible, lines)))
    measured = profile_run(settings, home, began, ended, observer.observed, steps)
    for table in tables(measured):
        print_table(console, [Column(table.head[0]), *right(*table.head[1:])], table.rows, table.title)
    for line in measured.lines:
        say(console, line)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page_of(measured), "utf-8")
    if not keep:
        shutil.rmtree(home.folder)
    say(console, phrase("timeline  {path}", out))
