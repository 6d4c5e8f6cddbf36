"""`kopub diff`: a shard before and after an upgrade."""

from pathlib import Path
from typing import Annotated

import typer


def diff(
    old: Annotated[
        str, typer.Argument(metavar="OLD", help="SHARD or SHARD@VERSION; the version is `previous` when left out.")
    ],
    new: Annotated[
        str, typer.Argument(metavar="NEW", help="SHARD@VERSION of the same shard; its tables now, when left out.")
    ] = "",
    html: Annotated[Path | None, typer.Option(help="Write one HTML file with both layouts side by side.")] = None,
    pages: Annotated[int, typer.Option(min=0, help="With --html: pages that have pictures, the worst.")] = 12,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as one JSON object.")] = False,
) -> None:
    """Compare a shard before and after an upgrade: regions, texts, states, vectors.

    `kopub diff shard_00` compares the tables now with those before they were
    last replaced: `kopub diff shard_00@previous shard_00@current`, in short.
    A VERSION may also be the recipe of a kept table, or its beginning: that
    table, what it was made from, and what was made from it.

    Regions are one when their boxes overlap by half (IoU 0.5). The damage of
    a text is the number of characters lost, changed or added, and ten for
    every number that is another.
    """
    from kopub_cli.differences import show_differences

    show_differences(old, new, html, pages, as_json)
