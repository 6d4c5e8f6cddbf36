"""`kopub search`: pages that answer a question."""

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from kopub_cli.indexed_corpus import corpus_check, open_settings
from resources.printable import blanked
from resources.search.search_options import MOST, By

if TYPE_CHECKING:
    from resources.config.settings import Settings
    from resources.search.searcher import Answer, Hit, Searcher


def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A question, in quotes.")] = "",
    top: Annotated[int, typer.Option(min=1, max=MOST, help="Pages to show.")] = 5,
    by: Annotated[By | None, typer.Option(help="Vectors to compare with; by default all that can be.")] = None,
    as_json_values: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Find the pages that answer QUERY in the vectors made so far."""
    from resources.search.searcher import as_json

    answer = searcher_of(open_settings()).search(query, top, by)
    if as_json_values:
        typer.echo(json.dumps(as_json(answer), ensure_ascii=False, indent=1))
    else:
        _show(answer, Console(highlight=False))


def searcher_of(settings: "Settings") -> "Searcher":
    """The search over a home's tables with its profile's engine."""
    from resources.search.searcher import Searcher

    return Searcher(
        settings.store,
        settings.corpus.manifest.keys,
        settings.embedding,
        settings.profile_name,
        settings.home / "search",
        corpus_check(settings),
    )


def _show(answer: "Answer", out: Console) -> None:
    for hit in answer.hits:
        out.print(_headline(hit), soft_wrap=True)
        out.print(_passage(hit), soft_wrap=True)
        out.print()
    if not answer.hits:
        out.print("No page has a vector to compare with.")
    for note in answer.notes:
        out.print(note, style="yellow", markup=False, soft_wrap=True)


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
