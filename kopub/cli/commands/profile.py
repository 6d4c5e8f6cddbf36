"""`kopub profile`: where the time goes on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from kopub.cli.options import local_file


def profile(
    pages: Annotated[int, typer.Option(min=1, help="Pages of the corpus to run on.")] = 100,
    out: Annotated[
        Path | None,
        typer.Option(parser=local_file, metavar="FILE", help="HTML file; by default $KOPUB_HOME/profile/profile.html."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the tables of the run, in $KOPUB_HOME/profile.")] = False,
) -> None:
    """Measure speed: run some pages in a home of their own, and show how long each stage takes and what limits it."""
    # It loads Arrow and the engines.
    from kopub.cli.sample_run import measure_speed

    measure_speed(pages, out, keep)
