"""`kopub index`, `kopub shards` and `kopub sources`: the corpus and its partitions."""

import os
import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column
from rich.text import Text

from kopub.cli.console import print_json, print_table, right, said, table_console, tell
from kopub.cli.on_demand import LocalCommand
from kopub.cli.options import local_path, located_home, profile_option, with_profile
from kopub.errors import ConfigError, SourceError, counted, visible
from kopub.files import is_url
from kopub.folders import store_url
from kopub.pages.places import CorpusPlace
from kopub.states import joined, phrase

if TYPE_CHECKING:
    from kopub.pages.indexing import Others
    from kopub.pages.manifest import Manifest

SOURCE_HELP = (
    "Folder or URL of PDFs, images, HWP, office and text files, or of Arrow or Parquet shards; one such file; a Hub "
    "dataset id."
)
Dpi = Annotated[
    int | None,
    typer.Option(min=1, help="Dots per inch at which pages of PDFs are drawn; by default as before, or 300."),
]
Add = Annotated[bool, typer.Option("--add", help="Add SOURCE to the sources of the corpus.")]
Replace = Annotated[bool, typer.Option("--replace", help="Replace all sources of the corpus with SOURCE.")]
Home = Annotated[
    Path | None, typer.Option(parser=local_path, metavar="DIR", help="Work in this home instead of $KOPUB_HOME.")
]


def index(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help=SOURCE_HELP)],
    add: Add = False,
    replace: Replace = False,
    home: Home = None,
    dpi: Dpi = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object; progress goes to standard error.")] = False,
) -> None:
    """Index SOURCE as a source of the corpus, and draw the pages of its documents.

    A source that is already in the corpus is indexed again. `kopub sources` lists them all.
    """
    use_home(home)
    located = located_home()
    say = partial(tell, err=True) if as_json else tell
    manifest = index_source(source, located.corpus, dpi, add, replace, say)
    if as_json:
        places = {"home": str(located.home), "index": str(located.corpus)}
        print_json({**places, **_described(manifest), "next": with_profile("kopub run")})
    else:
        commands = (with_profile("kopub run"), with_profile("kopub plan"))
        tell(phrase("next: {run}, or {plan} for what it will make", *commands))


def use_home(home: Path | None) -> None:
    """Make the rest of the command work in the given home, if any."""
    if home is not None:
        named = os.path.expanduser(home)
        # The ~ of an unknown user stays, so that the settings refuse it as they do in KOPUB_HOME.
        os.environ["KOPUB_HOME"] = named if named.startswith("~") else str(Path(named).absolute())


def _described(manifest: "Manifest") -> dict[str, Any]:
    return {
        "source": manifest.location,
        "sources": [source.name for source in manifest.sources],
        "shards": [
            {"key": shard.key, "file": shard.file, "pages": shard.rows, "source": shard.source}
            for shard in manifest.shards
        ],
        "pages": manifest.rows,
        "queries": manifest.queries.rows if manifest.queries else 0,
    }


def index_source(
    source: str,
    corpus: CorpusPlace,
    dpi: int | None = None,
    add: bool = False,
    replace: bool = False,
    say: Callable[[str], Any] = tell,
    max_pages: int | None = None,
) -> "Manifest":
    """Index `source` at the place of `corpus`, and report it with `say`.

    At a terminal, it asks what to do with other sources there. Raises `SourceError`, `StoreError`.
    """
    from kopub.pages import indexing

    if not source.strip():
        raise SourceError("the source is empty: name a folder, a file, a URL or a Hub dataset")
    try:
        source = store_url(source) if is_url(source) else source
    except ValueError as error:
        raise SourceError(str(error)) from None
    manifest = indexing.index(source, corpus, say, dpi, _chosen(source, corpus, add, replace), max_pages)
    documents = [source.documents for source in manifest.sources if source.documents is not None]
    pages = counted(manifest.rows, "page")
    # Their sum is shown if every source has documents.
    if len(documents) == len(manifest.sources):
        pages = phrase("{pages} in {documents}", pages, counted(sum(documents), "document"))
    parts = [pages]
    if len(manifest.sources) > 1:
        parts.append(counted(len(manifest.sources), "source"))
    if manifest.queries:
        parts.append(counted(manifest.queries.rows, "query", "queries"))
    say(phrase("{folder}: {reason}", corpus, joined(parts, "{first}, {then}")))
    return manifest


def _chosen(source: str, corpus: CorpusPlace, add: bool, replace: bool) -> "Others":
    """Return what to do with the corpus's other sources, by the options or by asking.

    Raises `ConfigError`.
    """
    from kopub.pages.indexing import Others, other_sources
    from kopub.pages.source_files import require_source

    if add and replace:
        raise ConfigError("--add and --replace cannot be combined: choose one")
    if add or replace:
        return Others.ADD if add else Others.REPLACE
    others = other_sources(source, corpus)
    if others:
        require_source(source)
    if not (others and _at_terminal()):
        return Others.REFUSE
    tell(phrase("The corpus has {others}.", others))
    answer = typer.prompt(said(phrase("[a]dd {source} to it, [r]eplace it, or [s]top?", source)), default="a")
    chosen = {"a": Others.ADD, "r": Others.REPLACE}.get(answer.strip().lower()[:1])
    if chosen is None:
        tell("Nothing was changed; --home DIR works in another home.")
        raise typer.Exit(1)
    return chosen


def _at_terminal() -> bool:
    """Return whether there is a person to ask."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def shards(
    as_range: Annotated[
        bool, typer.Option("--range", help="Print one range, for Dagster's `--partition-range`.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, with their files and pages.")] = False,
) -> None:
    """List the shards of the corpus."""
    manifest = located_home().manifest
    keys = manifest.keys
    if as_json:
        print_json(_described(manifest))
        return
    typer.echo(f"{keys[0]}...{keys[-1]}" if as_range else "\n".join(keys))


_OK = "ok"

app = typer.Typer(help="List the sources of the corpus, or remove one.", invoke_without_command=True)


@app.callback()
@profile_option
def sources(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON list instead of a table.")] = False,
) -> None:
    """List the sources of the corpus: where they are, their documents and pages, and when they were indexed."""
    if context.invoked_subcommand is not None:
        return
    manifest = located_home().manifest
    values: list[dict[str, Any]] = []
    cells: list[list[str | Text]] = []
    for source in manifest.sources:
        shards_of_source = manifest.shards_of(source.name)
        pages = sum(shard.rows for shard in shards_of_source)
        place, indexed_at = manifest.location_of(source), source.indexed_at
        # The state says whether the source exists, and whether all its pages were made.
        state = _OK
        if not (source.revision or is_url(place) or Path(place).exists()):
            state = "not there now"
        elif source.failed:
            state = phrase("{pages} not made: index it again", counted(source.failed, "page"))
        elif source.left:
            form = "{pages} left: kopub run {place}"
            state = phrase(form, counted(source.left, "page"), shlex.quote(place))
        values.append(
            {
                "source": source.name,
                "path": place,
                "revision": source.revision,
                "documents": source.documents,
                "pages": pages,
                "shards": [shard.key for shard in shards_of_source],
                "queries": source.queries,
                "indexed_at": indexed_at and indexed_at.isoformat(),
                "state": state,
            }
        )
        documents = "" if source.documents is None else f"{source.documents:,}"
        time = f"{indexed_at.astimezone():%Y-%m-%d %H:%M}" if indexed_at else ""
        shown_state = Text(said(state), style="" if state == _OK else "yellow")
        cells.append([visible(source.name), documents, f"{pages:,}", time, shown_state, visible(place)])
    if as_json:
        print_json(values)
        return
    columns = [Column("source"), *right("documents", "pages"), *map(Column, ("indexed", "state", "path"))]
    print_table(table_console(), columns, cells)


@app.command(cls=LocalCommand)
@profile_option
def remove(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Its name in `kopub sources`, or its path.")],
) -> None:
    """Remove a source from the corpus. Its files and tables stay, so adding it again computes nothing."""
    from kopub.pages import indexing

    located = located_home()
    manifest = indexing.remove(source, located.corpus, tell)
    left = ", ".join(visible(other.name) for other in manifest.sources)
    form = "{source} was removed from the corpus, which now has {pages} of {left}"
    tell(phrase(form, visible(source), counted(manifest.rows, "page"), left))
    tell(phrase("next: {command}, which brings search and the release up to date", with_profile("kopub run")))
