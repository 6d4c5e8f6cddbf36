"""`kopub lineage`: how a page or a vector came to be, and its pictures."""

from pathlib import Path
from typing import Annotated

import typer

from kopub.cli.options import local_path
from kopub.errors import ConfigError


def lineage(
    row_id: Annotated[
        str,
        typer.Argument(
            metavar="PAGE_OR_VECTOR_ID",
            help="A page or query id, or a row of one table, such as corpus_text_embeddings/PAGE_ID.",
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as one JSON object.")] = False,
    crop: Annotated[
        Path | None,
        typer.Option(
            parser=local_path,
            metavar="PATH",
            help="Folder for the pictures of the page and its regions, or a file for one of them.",
        ),
    ] = None,
    region: Annotated[int | None, typer.Option(help="With --crop: only this region, by its index.", min=0)] = None,
) -> None:
    """Show how a page or vector came to be: source bytes, boxes, models, prompts, runs.

    A page or query shows its rows as they are now. A row of one table, such as
    corpus_text_embeddings/PAGE_ID, shows exactly what that row was made from,
    even where those tables have been replaced since. The exit status is 1 if
    the image in the source is not the one that was read.
    """
    if region is not None and crop is None:
        raise ConfigError("--region needs --crop: add it")
    # It loads Arrow and the engines.
    from kopub.cli.lineage_display import show_lineage

    show_lineage(row_id, as_json, crop, region)
