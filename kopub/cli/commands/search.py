"""`kopub search`: pages that answer a question."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from kopub.cli.console import print_json, said, say, table_console, tell
from kopub.cli.options import open_settings
from kopub.errors import blanked
from kopub.search.options import MOST, Mode, Where
from kopub.states import phrase

if TYPE_CHECKING:
    from kopub.config.settings import Settings
    from kopub.search.answer import Answer, Hit
    from kopub.search.pages import View
    from kopub.search.searcher import Searcher

_INDENT = 4
"""Columns by which the lines of a hit below its page are indented."""
_ALSO = 3
"""Most other pages with the same picture that are named."""


def search(
    query: Annotated[list[str] | None, typer.Argument(metavar="QUERY", help="A question, in quotes or not.")] = None,
    limit: Annotated[int, typer.Option("--limit", "--top", min=1, max=MOST, help="Pages to show.")] = 5,
    mode: Annotated[
        Mode | None,
        typer.Option(help="How pages are ranked; by default whatever measured best on this corpus.", show_choices=True),
    ] = None,
    document: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Only pages of this document; may be repeated.")
    ] = None,
    shard: Annotated[
        list[str] | None,
        typer.Option("--shard", "--shards", metavar="NAME", help="Only pages of this shard; may be repeated."),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only pages of this source, as `kopub sources` names it; may be repeated."),
    ] = None,
    since: Annotated[
        str, typer.Option(metavar="DATE", help="Only pages of sources indexed on this day (2026-01-31) or later.")
    ] = "",
    has_table: Annotated[bool, typer.Option("--has-table", help="Only pages with a table.")] = False,
    has_figure: Annotated[bool, typer.Option("--has-figure", help="Only pages with a picture or chart.")] = False,
    script: Annotated[
        list[str] | None,
        typer.Option(
            "--script",
            "--scripts",
            metavar="NAME",
            help="Only pages mainly in this script (hangul, latin, cjk ...); may be repeated.",
        ),
    ] = None,
    as_json_values: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Find the pages that answer QUERY in what was made so far."""
    from kopub.search.answer import as_json

    settings = open_settings()
    manifest = settings.corpus.manifest
    shards = manifest.shards_to_search(shard or (), source or (), since)
    where = Where(frozenset(document or ()), shards, has_table, has_figure, frozenset(script or ()))
    answer = searcher_of(settings).search(" ".join(query or ()), limit, mode, where)
    sources: dict[str, str] = {}
    for hit in answer.hits:
        for page in (hit.page, *hit.also):
            sources[page.shard] = manifest.shard(page.shard).source
    if as_json_values:
        values = as_json(answer)
        for hit in values["hits"]:
            for place in (hit, *hit["also"]):
                place["source"] = sources[place["shard"]]
        print_json(values)
    else:
        _show(answer, sources if len(manifest.sources) > 1 else {}, where, table_console())


def searcher_of(settings: "Settings") -> "Searcher":
    """Return the searcher of a home's tables with its profile's engine."""
    from kopub.api.search import home_searcher

    return home_searcher(settings, settings.corpus, settings.store, lambda line: tell(line, err=True))


def _show(answer: "Answer", sources: Mapping[str, str], where: Where, out: Console) -> None:
    """Show the answer, with the names in `sources` (by shard) if the corpus has several."""
    if not answer.hits and answer.searched and answer.mode is Mode.BM25:
        say(out, "None of the pages searched contains a word of the question.")
    elif not answer.hits:
        say(out, "There is no page to search." if where == Where() else "No page fits what was asked for.")
    elif answer.matches_well is False:
        say(out, "Nothing matches well. The nearest pages are:", "yellow")
    for at, hit in enumerate(answer.hits):
        if at:
            out.print()
        is_weak = answer.matches_well is False if hit.matches_well is None else not hit.matches_well
        passage = hit.match.passage
        text = Text(blanked(passage.text) or said("(no text was read)"), "dim" if is_weak else "")
        for start, end in passage.marks:
            text.stylize("bold underline green", start, end)
        say(out, Text.assemble((f"{hit.rank:>2}. ", "bold"), text), indent=_INDENT)
        say(out, _place(hit, sources, is_weak), indent=_INDENT)
        if hit.also:
            # Other pages with the same picture.
            named = [" ".join(filter(None, (page.page_id, _where(page, sources)))) for page in hit.also[:_ALSO]]
            if len(hit.also) > _ALSO:
                named.append(said(phrase("{count} more", len(hit.also) - _ALSO)))
            also = Text(blanked(said(phrase("the same page: {pages}", "; ".join(named)))), "dim")
            also.pad_left(_INDENT)
            say(out, also, indent=_INDENT)
    for note in answer.notes:
        say(out, note, "yellow")


def _place(hit: "Hit", sources: Mapping[str, str], is_weak: bool) -> Text:
    """Return the line below a passage, about its page and what matches there."""
    page = hit.page
    named: list[str] = []
    for at in hit.match.regions:
        region = page.regions[at]
        is_text = region.label == "text"
        named.append(str(region.index) if is_text else said(phrase("{number} ({label})", region.index, region.label)))
    found_by = "words" if hit.match.passage.marks else "meaning"
    form = "{by} in regions {regions}" if named[1:] else "{by} in region {regions}"
    facts = [
        _where(page, sources),
        said(phrase(form, said(found_by), ", ".join(named))) if named else "",
        said("weak match") if is_weak else "",
    ]
    text = Text.assemble((blanked(page.page_id), "bold"), (blanked("  ".join(["", *filter(None, facts)])), "dim"))
    text.pad_left(_INDENT)
    return text


def _where(page: "View", sources: Mapping[str, str]) -> str:
    source = sources.get(page.shard)
    number = None if page.page_no is None else said(phrase("page {number}", page.page_no))
    return ", ".join(part for part in (page.doc_id, number, source and said(phrase("of {source}", source))) if part)
