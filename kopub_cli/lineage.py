"""`kopub lineage`: the way of a page or a vector through the platform, and its pictures."""

from pathlib import Path
from typing import Annotated

import typer


def lineage(
    row_id: Annotated[
        str,
        typer.Argument(
            metavar="PAGE_OR_VECTOR_ID",
            help="A page or query id, or a row of one table, as corpus_text_embeddings/PAGE_ID.",
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as one JSON object.")] = False,
    crop: Annotated[
        Path | None, typer.Option(help="Folder for the pictures of the page and its regions, or file for one of them.")
    ] = None,
    region: Annotated[int | None, typer.Option(help="With --crop: this region alone, by its index.", min=0)] = None,
) -> None:
    """Show how a page or vector came to be: source bytes, boxes, models, prompts, runs.

    A page or query shows its rows as they are now. A row of one table, as
    corpus_text_embeddings/PAGE_ID, shows what exactly that row was made from,
    also where those tables were replaced since. Ends with status 1 when the
    image in the source is not the one that was read.
    """
    from kopub_cli.origins import show_origins

    if not show_origins(row_id, as_json, crop, region):
        raise typer.Exit(1)
