"""`kopub sources`: where the pages of the corpus come from, and taking a source out of it."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column
from rich.text import Text

from kopub_cli.display.console import print_json, print_table, right, table_console, tell
from kopub_cli.profile_option import ProfileCommand, ProfileGroup, with_profile
from resources.printable import counted, visible
from resources.urls import is_url

if TYPE_CHECKING:
    from resources.pages.manifest import Manifest, Source

_OK = "ok"

app = typer.Typer(cls=ProfileGroup, help="Where the pages of the corpus come from.", invoke_without_command=True)


@app.callback()
def sources(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON list instead of a table.")] = False,
) -> None:
    """List the sources of the corpus: where they lie, their documents and pages, and when they were indexed."""
    from resources.config.located import locate

    if context.invoked_subcommand is not None:
        return
    manifest = locate(os.environ).manifest
    if as_json:
        print_json([_values(manifest, source) for source in manifest.sources])
        return
    columns = [Column("source"), *right("documents", "pages"), *map(Column, ("indexed", "state", "path"))]
    print_table(table_console(), columns, (_cells(manifest, source) for source in manifest.sources))


@app.command(cls=ProfileCommand)
def remove(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Its name in `kopub sources`, or its path.")],
) -> None:
    """Take a source out of the corpus. Its files stay, and so do its tables: adding it again computes nothing."""
    from resources.config.located import locate
    from resources.pages import indexing

    located = locate(os.environ)
    manifest = indexing.remove(source, located.corpus, tell)
    left = ", ".join(visible(each.name) for each in manifest.sources)
    tell(f"{visible(source)} is out of the corpus, which has {counted(manifest.rows, 'page')} of {left}")
    tell(f"next: {with_profile('kopub run')}, which brings search and the release up to date")


def _cells(manifest: "Manifest", source: "Source") -> list[str | Text]:
    state = _state(manifest, source)
    return [
        visible(source.name),
        "" if source.documents is None else f"{source.documents:,}",
        f"{_pages(manifest, source):,}",
        f"{source.indexed_at.astimezone():%Y-%m-%d %H:%M}" if source.indexed_at else "",
        Text(state, style="" if state == _OK else "yellow"),
        visible(manifest.location_of(source)),
    ]


def _values(manifest: "Manifest", source: "Source") -> dict[str, object]:
    return {
        "source": source.name,
        "path": manifest.location_of(source),
        "revision": source.revision,
        "documents": source.documents,
        "pages": _pages(manifest, source),
        "shards": [shard.key for shard in manifest.shards_of(source.name)],
        "queries": source.queries,
        "indexed_at": source.indexed_at and source.indexed_at.isoformat(),
        "state": _state(manifest, source),
    }


def _pages(manifest: "Manifest", source: "Source") -> int:
    return sum(shard.rows for shard in manifest.shards_of(source.name))


def _state(manifest: "Manifest", source: "Source") -> str:
    """Whether the source is there, and all its pages were made and are wanted."""
    place = manifest.location_of(source)
    if not (source.revision or is_url(place) or Path(place).exists()):
        return "not there now"
    if source.failed:
        return f"{counted(source.failed, 'page')} not made: index it again"
    return f"{counted(source.left, 'page')} left: kopub run {place}" if source.left else _OK
