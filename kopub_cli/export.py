"""`kopub export`: everything as plain files."""

from pathlib import Path
from typing import Annotated

import typer

from kopub_cli.indexed_corpus import open_settings, require_indexed


def export(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="New folder, or that of an earlier export.")],
) -> None:
    """Write everything as JSON lines, NumPy arrays and picture files."""
    from resources.release.base import ASSETS
    from resources.release.export import export as export_tables

    settings = open_settings()
    require_indexed(settings, ASSETS)
    done = export_tables(settings.store, settings.corpus.manifest.keys, folder)
    vectors = ", ".join(f"{count} {name}" for name, count in done.vectors.items())
    typer.echo(f"{folder.resolve()}: {done.pages} pages, {done.crops} pictures; vectors: {vectors}")
