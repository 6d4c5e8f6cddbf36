"""The `kopub` command line."""

from pathlib import Path
from typing import Annotated, NoReturn

import typer
from dotenv import load_dotenv
from rich.console import Console

from kopub_cli import costs, diff, doubts, evaluate, export, lineage, plan, publish, search, serve, status, verify
from resources.errors import STOPPED, STOPPED_BY_HAND, KopubError
from resources.pages.pdf.rendering import DPI
from resources.printable import visible

_ENV = Path(__file__).resolve().parent.parent / ".env"

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Index a corpus, see what was made from it, export it. Assets are materialized with Dagster.",
)
app.add_typer(serve.app, name="serve")
app.command()(status.status)
app.command()(plan.plan)
app.command()(costs.costs)
app.command()(search.search)
app.command()(search.search_page)
app.command()(doubts.doubts)
app.command()(evaluate.evaluate)
app.command()(lineage.lineage)
app.command()(diff.diff)
app.command()(export.export)
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


def main() -> None:
    """Run the command; what a person can put right is one line."""
    load_dotenv(_ENV)
    try:
        app()
    except KopubError as error:
        _end(f"Error: {visible(str(error))}", 1)
    except SystemExit as ended:
        if ended.code == STOPPED_BY_HAND:
            _end(STOPPED, STOPPED_BY_HAND)
        raise
    except Exception as error:
        # Libraries of object stores have errors of their own: ask the store what is the matter.
        problem = _problem_with_store()
        if problem is None:
            raise
        _end(f"Error: {visible(problem)}", 1, error)


def _problem_with_store() -> str | None:
    from resources.config.settings import load_settings
    from resources.store.reachable import require_reachable

    try:
        require_reachable(load_settings().store.url)
    except KopubError as error:
        return str(error)
    return None


def _end(line: str, status: int, error: Exception | None = None) -> NoReturn:
    Console(stderr=True).print(line, markup=False, highlight=False, soft_wrap=True)
    raise SystemExit(status) from error
