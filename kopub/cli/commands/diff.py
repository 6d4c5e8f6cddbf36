"""`kopub diff`: a shard before and after an upgrade."""

from pathlib import Path
from typing import Annotated

import typer

from kopub.cli.options import local_file


def diff(
    old: Annotated[
        str, typer.Argument(metavar="OLD", help="SHARD or SHARD@VERSION; the version is `previous` by default.")
    ],
    new: Annotated[
        str, typer.Argument(metavar="NEW", help="SHARD@VERSION of the same shard; by default its current tables.")
    ] = "",
    html: Annotated[
        Path | None,
        typer.Option(parser=local_file, metavar="FILE", help="Write one HTML file: layouts side by side."),
    ] = None,
    pages: Annotated[
        int, typer.Option(min=0, help="With --html: number of pages with pictures, the worst first.")
    ] = 12,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as one JSON object.")] = False,
) -> None:
    """Compare a shard before and after an upgrade: regions, texts, states, vectors.

    `kopub diff shard_00` is short for `kopub diff shard_00@previous shard_00@current`: it compares the current tables
    with those that they replaced last. A VERSION may also be the recipe of a kept table, or the beginning of one: it
    means that table, what it was made from, and what was made from it.

    Regions match if their boxes overlap by half (IoU 0.5). The damage of a text is the number of characters lost,
    changed or added, plus ten for each changed number.
    """
    # It loads Arrow and the engines.
    from kopub.cli.diff_display import show_difference

    show_difference(old, new, html, pages, as_json)
