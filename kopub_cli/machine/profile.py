"""`kopub profile`: where the time goes on this machine, with the profile in force, on some pages of the corpus."""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table as RichTable

from kopub_cli.display.console import table_console
from kopub_cli.indexed_corpus import open_settings
from kopub_cli.local_path import local_path
from resources.errors import KopubError
from resources.printable import visible

if TYPE_CHECKING:
    from kopub_cli.display.profiled import Profiled
    from resources.config.settings import Settings
    from resources.profiling.picture import Table
    from resources.profiling.sample_home import SampleHome

_LAST_LINES = 12


def profile(
    pages: Annotated[int, typer.Option(min=1, help="Pages of the corpus to run on.")] = 100,
    out: Annotated[
        Path | None,
        typer.Option(parser=local_path, metavar="FILE", help="HTML file; default: $KOPUB_HOME/profile/profile.html."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the tables of the run, in $KOPUB_HOME/profile.")] = False,
) -> None:
    """Run the graph on some pages in a home of its own, and show what each stage takes and what limits it."""
    import shutil

    from kopub_cli.display.profiled import page_of, profiled, tables
    from resources.profiling.sample_home import make_sample_home, own_environment

    settings, console = open_settings(), table_console()
    folder = settings.home / "profile"
    home = make_sample_home(folder / "home", settings, pages, own_environment())
    console.print(f"{home.pages} pages of {settings.corpus.manifest.location}, with profile {settings.profile_name}")
    began, ended, observed = _run(settings, home)
    found = profiled(settings, home, began, ended, observed)
    for table in tables(found):
        _show(table, console)
    _say(found, console)
    path = (out or folder / "profile.html").absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page_of(found), "utf-8")
    if not keep:
        shutil.rmtree(home.folder)
    console.print(f"timeline  {path}", markup=False, highlight=False, soft_wrap=True)


def _run(settings: "Settings", home: "SampleHome"):
    """Run the stages on the pages; when it began and ended, and what was observed. Raises `KopubError`."""
    from kopub_cli.display.profiled import stages_to_run
    from resources.profiling.observer import Observer

    words = [sys.executable, "-m", "dagster", "asset", "materialize", "--select", ",".join(stages_to_run(settings))]
    keys = f"{home.shards[0]}...{home.shards[-1]}"
    log = home.folder / "run.log"
    with Observer() as observer, log.open("wb") as output:
        began = time.time()
        status = subprocess.run(
            [*words, "--partition-range", keys, "-m", "definitions"],
            env=dict(home.environment),
            cwd=home.folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
        ended = time.time()
    if status:
        lines = log.read_text("utf-8", errors="replace").splitlines()[-_LAST_LINES:]
        raise KopubError("the run on these pages failed; its last lines:\n" + "\n".join(map(visible, lines)))
    return began, ended, observer.observed


def _show(table: "Table", console: Console) -> None:
    shown = RichTable(title=table.title, title_justify="left", box=None, padding=(0, 1, 0, 0), header_style="bold")
    for column in table.head:
        first = column == table.head[0]
        shown.add_column(column, justify="left" if first else "right", no_wrap=first)
    for row in table.rows:
        shown.add_row(*row)
    console.print(shown)


def _say(found: "Profiled", console: Console) -> None:
    lines: Sequence[str] = found.lines
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
