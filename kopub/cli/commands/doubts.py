"""`kopub doubts`: the pages whose text looks wrong, worst first."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import pyarrow as pa
import typer
from rich.text import Text

from kopub.cli.console import said, say, table_console, tell
from kopub.cli.options import COMMAND, corpus_check, open_located, told_reasons, with_profile
from kopub.corrections.log import CorrectionLog
from kopub.errors import counted, visible
from kopub.states import joined, phrase
from kopub.store.corpus_tables import TABLES
from kopub.texts.layer_counts import layer_figures
from kopub.texts.text_quality import DoubtfulText, doubtful

if TYPE_CHECKING:
    from kopub.pages.manifest import Manifest
    from kopub.store.table_store import TableStore

_COLUMNS = ["page_id", "doubt", "doubts", "text_layer", "text_layer_reason", "text_layer_distance"]
_REASONS = 5
"""Most reasons against text layers that are listed, most frequent first."""
_SHARE = re.compile(r"^(only )?\d+%")
"""The percentage in a reason, replaced to count reasons that only differ in it together."""


def doubts(
    top: Annotated[int, typer.Option(min=1, help="Pages to list.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line, for every page.")] = False,
) -> None:
    """List the pages whose text looks wrong, worst first; those that a person checked are left out.

    Unless pdf.text_layer is never, they include pages that differ from the text layer of their PDF.
    """
    located = open_located()
    texts = texts_by_shard(located.manifest, located.store)
    checked = {page_id for page_id, done in CorrectionLog(located.store).by_page().items() if done.checked}
    suspects: list[tuple[str, DoubtfulText]] = []
    pages = 0
    for shard, table in texts.items():
        pages += len(table) - table["doubt"].null_count
        suspects += [(shard, page) for page in doubtful(table) if page.page_id not in checked]
    suspects.sort(key=lambda entry: -entry[1].doubt)
    if as_json:
        for shard, page in suspects:
            typer.echo(json.dumps({"shard": shard, **asdict(page)}, ensure_ascii=False))
        return
    out = table_console()
    stored = told_reasons(located.store)
    for shard, page in suspects[:top]:
        reasons = "; ".join(said(stored.get(doubt, doubt)) for doubt in page.doubts)
        say(out, Text.assemble((visible(page.page_id), "bold"), (f"  {shard}  ", "dim"), (reasons, "yellow")))
    share = f" ({len(suspects) / pages:.1%})" if pages else ""
    form = "{count:,} of {texts} looks wrong{share}" if len(suspects) == 1 else "{count:,} of {texts} look wrong{share}"
    line = phrase(form, len(suspects), counted(pages, "text"), share)
    more = [phrase("--top {count} lists them all", len(suspects))] if len(suspects) > top else []
    say(out, joined([line, *more]), "yellow" if suspects else "")
    for line in about_layers(list(texts.values())):
        say(out, line)


def texts_by_shard(manifest: "Manifest", store: "TableStore") -> dict[str, pa.Table]:
    """Return the tables of texts by shard, for their doubts and text layers.

    Texts of a corpus other than the indexed one are left out, with a message on standard error.
    """
    is_of_corpus = corpus_check(manifest, store).look()
    texts: dict[str, pa.Table] = {}
    left_out = 0
    for shard in manifest.keys:
        if not store.has(TABLES.texts.name, shard):
            continue
        if not is_of_corpus(TABLES.texts.name, shard):
            left_out += 1
            continue
        texts[shard] = store.read(TABLES.texts.name, shard, _COLUMNS)
    if left_out:
        are = "is" if left_out == 1 else "are"
        form = "{table} of {shards} {are} left out, of another corpus than the indexed one; run `{command}`"
        tell(phrase(form, TABLES.texts.name, counted(left_out, "shard"), are, with_profile(COMMAND)), err=True)
    return texts


def about_layers(texts: Sequence[pa.Table]) -> list[str]:
    """Return lines on the compared text layers, or none without a comparison."""
    figures = layer_figures(pa.concat_tables(texts)) if texts else {}
    if not figures:
        return []
    sound, unsound = figures["text_layers_sound"], figures["text_layers_unsound"]
    pages = counted(round(sound + unsound), "page")
    have = "has" if sound + unsound == 1 else "have"
    line = phrase("{pages} {have} a text layer, {sound:,.0f} a sound one", pages, have, sound)
    if "text_layer_distance" in figures:
        half = f"{figures['text_layer_distance']:.1%}"
        differs = "in no letter" if half == "0.0%" else phrase("in less than {half} of the letters", half)
        line = joined([line, phrase("what was read of half of them differs from it {differs}", differs)])
    reasons: Counter[str] = Counter()
    for table in texts:
        reasons.update(_SHARE.sub("some", reason) for reason in table["text_layer_reason"].to_pylist() if reason)
    return [
        line,
        *(phrase("unsound: {reason} ({count})", reason, count) for reason, count in reasons.most_common(_REASONS)),
    ]
