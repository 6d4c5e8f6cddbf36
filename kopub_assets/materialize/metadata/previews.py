"""Small previews for the UI: they live in the event log, so each is bounded."""

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from resources.errors import SourceError, UndecodableImage
from resources.pages.corpus import Corpus
from resources.pages.pixels.drawing import preview
from resources.states import State
from resources.texts.markdown import defused

_CHARACTERS = 1500
_PICTURE = re.compile(r"^!\[([^\]]*)\]\(.*\)$", re.MULTILINE)


class Markdown(str):
    """Metadata that the UI renders as markdown."""

    __slots__ = ()


class Link(str):
    """Metadata that the UI shows as a link."""

    __slots__ = ()


def first_page(corpus: Corpus, shard: str, pages: Sequence[dict[str, Any]], layout: pa.Table) -> Markdown:
    """The shard's first page that has regions, with their boxes, labels and reading order drawn on it."""
    at = layout["state"].index(State.OK.value).as_py()
    if at < 0:
        return Markdown("no page to show")
    (row,) = layout.slice(at, 1).to_pylist()
    page = next(page for page in pages if page["page_id"] == row["page_id"])
    try:
        with corpus.reader(shard) as source:
            image = source.page(page["page_id"], page["page_idx"], page["sha256"], page["upright"]).image
    except (SourceError, UndecodableImage) as error:
        return Markdown(_fenced(f"no page to show: {error}"))
    boxes = [(region["bbox"], region["label"], region["index"]) for region in row["regions"]]
    return Markdown(f"{_fenced(page['page_id'])}\n\n![page]({preview(image, boxes)})")


def first_text(table: pa.Table, column: str) -> Markdown:
    """The beginning of the first page that has text, as it is."""
    for page_id, text in zip(table["page_id"].to_pylist(), table[column].to_pylist(), strict=True):
        if text:
            return Markdown(_fenced(f"{page_id}\n\n{text[:_CHARACTERS]}"))
    return Markdown("no text")


def first_markdown(table: pa.Table, column: str) -> Markdown:
    """The first blocks of the first page that has any, rendered; a picture is its label, since the UI has no crops.

    What a page says is escaped in `column` already. A first block that is too long is cut and shown as it is.
    """
    for page_id, text in zip(table["page_id"].to_pylist(), table[column].to_pylist(), strict=True):
        if not text:
            continue
        blocks = _PICTURE.sub(r"*(\1)*", defused(text)).split("\n\n")
        shown, left = [], _CHARACTERS
        for block in blocks:
            left -= len(block)
            if left < 0:
                break
            shown.append(block)
        rendered = "\n\n".join(shown) or _fenced(blocks[0][:_CHARACTERS])
        more = "\n\n..." if len(shown) < len(blocks) else ""
        return Markdown(f"{_fenced(page_id)}\n\n{rendered}{more}")
    return Markdown("no text")


def _fenced(text: str) -> str:
    """Markdown that shows `text` as it is: nothing that a page says is rendered."""
    fence = "`" * 3
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"
