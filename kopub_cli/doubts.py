"""`kopub doubts`: the pages whose text looks wrong, worst first."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from kopub_cli.indexed_corpus import COMMAND, corpus_check, open_located
from resources.printable import counted, visible

if TYPE_CHECKING:
    from resources.pages.manifest import Manifest
    from resources.store.table_store import TableStore
    from resources.texts.text_quality import DoubtfulPage


def doubts(
    top: Annotated[int, typer.Option(min=1, help="Pages to list.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, of all pages.")] = False,
) -> None:
    """List the pages whose text looks wrong, worst first. Their state is unchanged; look at them."""
    located = open_located()
    found, pages = doubtful_pages(located.manifest, located.store)
    if as_json:
        for shard, page in found:
            typer.echo(json.dumps({"shard": shard, **asdict(page)}, ensure_ascii=False))
        return
    out = Console(highlight=False)
    for shard, page in found[:top]:
        out.print(_line(shard, page), soft_wrap=True)
    share = f" ({len(found) / pages:.1%})" if pages else ""
    out.print(f"{len(found):,} of {counted(pages, 'text')} {'looks' if len(found) == 1 else 'look'} wrong{share}")


def doubtful_pages(manifest: "Manifest", store: "TableStore") -> tuple[list[tuple[str, "DoubtfulPage"]], int]:
    """(shard, page) of every text that looks wrong, worst first, and how many texts there are.

    Texts of another corpus than the indexed one are left out, which standard error says.
    """
    from resources.store.corpus_tables import TABLES
    from resources.texts.text_quality import doubtful

    is_of_corpus = corpus_check(manifest, store).look()
    found: list[tuple[str, DoubtfulPage]] = []
    pages = left_out = 0
    for shard in manifest.keys:
        if not store.has(TABLES.texts.name, shard):
            continue
        if not is_of_corpus(TABLES.texts.name, shard):
            left_out += 1
            continue
        table = store.read(TABLES.texts.name, shard, ["page_id", "doubt", "doubts"])
        found += [(shard, page) for page in doubtful(table)]
        pages += len(table) - table["doubt"].null_count
    if left_out:
        are = "is left out: its" if left_out == 1 else "are left out: their"
        says = f"{counted(left_out, 'shard')} {are} {TABLES.texts.name} are of another corpus than the indexed one"
        typer.echo(f"{says}; run `{COMMAND}`", err=True)
    return sorted(found, key=lambda entry: -entry[1].doubt), pages


def _line(shard: str, page: "DoubtfulPage") -> Text:
    return Text.assemble(
        (f"{page.doubt:.2f}  ", "bold"),
        visible(page.page_id),
        (f"  {shard}  ", "dim"),
        "; ".join(page.doubts),
    )
