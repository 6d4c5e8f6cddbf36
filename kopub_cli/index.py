"""`kopub index` and `kopub shards`: what the corpus is, and the partitions that it makes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from resources.errors import SourceError
from resources.pages.documents.pdf import DPI

if TYPE_CHECKING:
    from resources.pages.manifest import Manifest

SOURCE_HELP = "Folder of PDFs and images, or of Arrow or Parquet shards; one such file; a Hub dataset id."
DPI_HELP = "Dots per inch that pages of PDFs are drawn at."


def index(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help=SOURCE_HELP)],
    dpi: Annotated[int, typer.Option(min=1, help=DPI_HELP)] = DPI,
) -> None:
    """Make SOURCE the corpus: write $KOPUB_HOME/shards.json, and pages of documents into $KOPUB_HOME/rendered, once."""
    from resources.config.settings import load_settings

    index_source(source, load_settings().home, dpi)
    typer.echo("next: kopub run, or kopub plan for what it will make")


def index_source(source: str, home: Path, dpi: int) -> "Manifest":
    """Index `source` into `home` and say so. Raises `SourceError`, `StoreError`."""
    from resources.pages import indexing

    if not source.strip():
        raise SourceError("the source is empty: name a folder, a file or a Hub dataset")
    manifest = indexing.index(source, home, typer.echo, dpi)
    queries = manifest.queries.rows if manifest.queries else 0
    typer.echo(f"{home}: {len(manifest.shards)} shards, {manifest.rows:,} pages, {queries} queries")
    return manifest


def shards(
    as_range: Annotated[bool, typer.Option("--range", help="One line for `--partition-range`.")] = False,
) -> None:
    """Name the shards of the corpus."""
    from resources.config.settings import load_settings

    keys = load_settings().corpus.manifest.keys
    typer.echo(f"{keys[0]}...{keys[-1]}" if as_range else "\n".join(keys))
