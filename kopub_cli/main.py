"""The `kopub` command line."""

from pathlib import Path
from typing import Annotated

import typer
from dotenv import load_dotenv
from rich.console import Console

from kopub_cli import costs, diff, doubts, lineage, plan, publish, search, serve, verify
from resources.errors import KopubError
from resources.pages.pdf.rendering import DPI
from resources.printable import visible

_ENV = Path(__file__).resolve().parent.parent / ".env"

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Index a corpus, see what was made from it, export it. Assets are materialized with Dagster.",
)
app.add_typer(serve.app, name="serve")
app.command()(plan.plan)
app.command()(costs.costs)
app.command()(search.search)
app.command()(search.search_page)
app.command()(doubts.doubts)
app.command()(lineage.lineage)
app.command()(diff.diff)
app.command()(publish.publish)
app.command()(verify.verify)


@app.command()
def index(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="Folder of Arrow or Parquet shards or of PDFs, or a Hub dataset id.")
    ],
    dpi: Annotated[int, typer.Option(min=1, help="Dots per inch that pages of PDFs are drawn at.")] = DPI,
) -> None:
    """Make SOURCE the corpus: write $KOPUB_HOME/shards.json, and pages of PDFs into $KOPUB_HOME/rendered, once."""
    from resources.config.settings import load_settings
    from resources.pages.indexing import index as index_source

    home = load_settings().home
    manifest = index_source(source, home, typer.echo, dpi)
    queries = manifest.queries.rows if manifest.queries else 0
    typer.echo(f"{home}: {len(manifest.shards)} shards, {manifest.rows:,} pages, {queries} queries")


@app.command()
def shards(
    as_range: Annotated[bool, typer.Option("--range", help="One line for `--partition-range`.")] = False,
) -> None:
    """Name the shards of the corpus."""
    from resources.config.settings import load_settings

    keys = load_settings().corpus.manifest.keys
    typer.echo(f"{keys[0]}...{keys[-1]}" if as_range else "\n".join(keys))


@app.command()
def status() -> None:
    """Show what was made, from which corpus, and where it lies."""
    from kopub_cli.status import show_status
    from resources.config.settings import load_settings

    show_status(load_settings(), Console())


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="New folder, or that of an earlier export.")],
) -> None:
    """Write everything as JSON lines, NumPy arrays and picture files."""
    from resources.config.settings import load_settings
    from resources.release.export import export as export_tables

    settings = load_settings()
    done = export_tables(settings.store, settings.corpus.manifest.keys, folder)
    vectors = ", ".join(f"{count} {name}" for name, count in done.vectors.items())
    typer.echo(f"{folder.resolve()}: {done.pages} pages, {done.crops} pictures; vectors: {vectors}")


def main() -> None:
    """Run the command; what a person can put right is one line."""
    load_dotenv(_ENV)
    try:
        app()
    except KopubError as error:
        Console(stderr=True).print(f"Error: {visible(str(error))}", markup=False, highlight=False, soft_wrap=True)
        raise SystemExit(1) from None
