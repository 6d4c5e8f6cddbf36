"""`kopub index` and `kopub shards`: what the corpus is, and the partitions that it makes."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kopub_cli.display.as_json import print_json
from resources.errors import SourceError
from resources.pages.documents.pdf import DPI
from resources.pages.places.corpus_place import CorpusPlace
from resources.printable import counted

if TYPE_CHECKING:
    from resources.pages.manifest import Manifest

SOURCE_HELP = "Folder or URL of PDFs and images, or of Arrow or Parquet shards; one such file; a Hub dataset id."
DPI_HELP = "Dots per inch that pages of PDFs are drawn at."


def index(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help=SOURCE_HELP)],
    dpi: Annotated[int, typer.Option(min=1, help=DPI_HELP)] = DPI,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object; what is done goes to standard error.")
    ] = False,
) -> None:
    """Make SOURCE the corpus: write its index into $KOPUB_HOME, or to corpus.url, and pages of documents beside it."""
    from resources.config.located import locate

    located = locate(os.environ)
    manifest = index_source(source, located.corpus, dpi, _to_stderr if as_json else typer.echo)
    if as_json:
        print_json(
            {"home": str(located.home), "index": str(located.corpus), **_described(manifest), "next": "kopub run"}
        )
    else:
        typer.echo("next: kopub run, or kopub plan for what it will make")


def _described(manifest: "Manifest") -> dict[str, Any]:
    return {
        "source": manifest.location,
        "shards": [{"key": shard.key, "file": shard.file, "pages": shard.rows} for shard in manifest.shards],
        "pages": manifest.rows,
        "queries": manifest.queries.rows if manifest.queries else 0,
    }


def _to_stderr(line: str) -> None:
    typer.echo(line, err=True)


def index_source(source: str, corpus: CorpusPlace, dpi: int, say: Callable[[str], Any] = typer.echo) -> "Manifest":
    """Index `source` at the place of `corpus`, and `say` so. Raises `SourceError`, `StoreError`."""
    from resources.config.places import store_url
    from resources.pages import indexing
    from resources.urls import is_url

    if not source.strip():
        raise SourceError("the source is empty: name a folder, a file, a URL or a Hub dataset")
    try:
        source = store_url(source) if is_url(source) else source
    except ValueError as error:
        raise SourceError(str(error)) from None
    before = _keys(corpus)
    manifest = indexing.index(source, corpus, say, dpi)
    queries = counted(manifest.queries.rows if manifest.queries else 0, "query", "queries")
    say(f"{corpus}: {counted(len(manifest.shards), 'shard')}, {counted(manifest.rows, 'page')}, {queries}")
    if manifest.keys != before:
        say("a Dagster UI that is open shows these shards after Reload definitions")
    return manifest


def _keys(corpus: CorpusPlace) -> Sequence[str]:
    """The shards that were indexed before; none where that index cannot be used."""
    from resources.pages.manifest import Manifest

    with suppress(SourceError):
        return Manifest.load(corpus).keys
    return ()


def shards(
    as_range: Annotated[bool, typer.Option("--range", help="One line for `--partition-range`.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object: their files and pages too.")] = False,
) -> None:
    """Name the shards of the corpus."""
    from resources.config.located import locate

    manifest = locate(os.environ).manifest
    keys = manifest.keys
    if as_json:
        print_json(_described(manifest))
        return
    typer.echo(f"{keys[0]}...{keys[-1]}" if as_range else "\n".join(keys))
