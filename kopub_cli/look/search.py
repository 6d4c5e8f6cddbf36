"""`kopub search`: pages that answer a question."""

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from kopub_cli.indexed_corpus import open_settings
from resources.printable import blanked
from resources.search.search_options import MOST, Mode, Where

if TYPE_CHECKING:
    from resources.config.settings import Settings
    from resources.search.answers import Answer, Hit
    from resources.search.searcher import Searcher


def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A question, in quotes.")] = "",
    top: Annotated[int, typer.Option(min=1, max=MOST, help="Pages to show.")] = 5,
    mode: Annotated[
        Mode | None,
        typer.Option(help="How pages are ranked; by default what was measured best on this corpus.", show_choices=True),
    ] = None,
    document: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Only pages of this document; more than once for more.")
    ] = None,
    shard: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only pages of this shard; more than once for more.")
    ] = None,
    has_table: Annotated[bool, typer.Option("--has-table", help="Only pages with a table.")] = False,
    has_figure: Annotated[bool, typer.Option("--has-figure", help="Only pages with a picture or chart.")] = False,
    as_json_values: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Find the pages that answer QUERY in what was made so far."""
    from resources.search.answers import as_json

    where = Where(frozenset(document or ()), frozenset(shard or ()), has_table, has_figure)
    answer = searcher_of(open_settings()).search(query, top, mode, where)
    if as_json_values:
        typer.echo(json.dumps(as_json(answer), ensure_ascii=False, indent=1))
    else:
        _show(answer, Console(highlight=False))


def searcher_of(settings: "Settings") -> "Searcher":
    """The search over a home's tables with its profile's engine."""
    from kopub.searching import home_searcher

    return home_searcher(settings, settings.corpus, settings.store, lambda line: typer.echo(line, err=True))


def _show(answer: "Answer", out: Console) -> None:
    if not answer.hits:
        out.print(_nothing(answer))
    elif answer.matches_well is False:
        out.print("Nothing matches well. The nearest pages are:", style="yellow")
    for hit in answer.hits:
        out.print(_headline(hit), soft_wrap=True)
        out.print(_passage(hit), soft_wrap=True)
        out.print()
    why = f" ({answer.chosen}); --mode chooses another" if answer.chosen else ""
    out.print(f"ranked by {answer.mode}{why}", style="dim", markup=False, soft_wrap=True)
    for note in answer.notes:
        out.print(note, style="yellow", markup=False, soft_wrap=True)


def _nothing(answer: "Answer") -> str:
    if not answer.searched:
        return "There is no page to search."
    is_of_words = answer.mode is Mode.BM25
    return "No page that is searched has a word of the question." if is_of_words else "No page is as asked for."


def _headline(hit: "Hit") -> Text:
    page = hit.page
    where = [part for part in (page.doc_id, None if page.page_no is None else f"page {page.page_no}") if part]
    matching = ", ".join(f"{page.regions[at].index} {page.regions[at].label}" for at in hit.match.regions)
    return Text.assemble(
        (f"{hit.rank:>2}. ", "bold"),
        (f"{hit.score:.3f}  ", "dim"),
        (blanked(page.page_id), "bold"),
        (blanked(f"  {', '.join(where)}" if where else ""), "default"),
        (blanked(f"  in region {matching}" if matching else ""), "dim"),
    )


def _passage(hit: "Hit") -> Text:
    passage = hit.match.passage
    text = Text(blanked(passage.text) or "(no text was read)")
    for start, end in passage.marks:
        text.stylize("bold green", start, end)
    text.pad_left(4)
    return text
