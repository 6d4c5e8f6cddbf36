"""Small previews for the UI: they live in the event log, so each is bounded."""

import dagster as dg
import pyarrow as pa

from resources.errors import UndecodableImage
from resources.pages.corpus import Corpus
from resources.pages.drawing import preview
from resources.pages.images import decode
from resources.states import State

_CHARACTERS = 1500


def first_page(corpus: Corpus, shard: str, pages: pa.Table, layout: pa.Table | None = None) -> dg.MarkdownMetadataValue:
    """The shard's first usable page, with the boxes and the reading order of `layout` drawn on it."""
    shown = layout if layout is not None else pages
    row = next((row for row in shown.drop_columns([]).to_pylist() if row["state"] == State.OK), None)
    if row is None:
        return dg.MetadataValue.md("no page to show")
    page_idx = pages["page_idx"][pages["page_id"].index(row["page_id"]).as_py()].as_py()
    with corpus.reader(shard) as source:
        try:
            image = decode(source.bytes(page_idx))
        except UndecodableImage as error:
            return dg.MetadataValue.md(f"{row['page_id']}: {error}")
    boxes = [(region["bbox"], region["label"], region["index"]) for region in row.get("regions") or ()]
    return dg.MetadataValue.md(f"{row['page_id']}\n\n![{row['page_id']}]({preview(image, boxes)})")


def first_text(table: pa.Table, column: str) -> dg.MarkdownMetadataValue:
    """The beginning of the first page that has text, as it is: fenced, so that nothing in it is rendered."""
    for page_id, text in zip(table["page_id"].to_pylist(), table[column].to_pylist(), strict=True):
        if text:
            return dg.MetadataValue.md(f"{page_id}\n\n{_fenced(text[:_CHARACTERS])}")
    return dg.MetadataValue.md("no text")


def _fenced(text: str) -> str:
    fence = "`" * 3
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"
