"""The costs of a run's pages, for the ledger and the UI."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from kopub.engine import Engine
from kopub.errors import SourceError, UndecodableImage
from kopub.gpu import NoGpuFigures, Sampler, open_cards
from kopub.pages.corpus import Corpus
from kopub.pages.drawing import preview
from kopub.states import State
from kopub.store import ledger
from kopub.store.run_records import sum_rows
from kopub.store.table_store import ShardStore
from kopub.tables.rows import Work
from kopub.texts.markup import defuse

_COSTLIEST = 5
"""Number of a shard's costliest pages that the UI lists; `kopub costs` lists those of the whole corpus."""


@dataclass(frozen=True, slots=True)
class Account:
    """The work of one asset in one run, with its recipe and GPUs."""

    store: ShardStore
    asset: str
    run_id: str
    own: str
    gpus: int

    def enter(self, shard: str, work: Work, first: bool = False) -> None:
        """Add the work on a shard to the ledger, even without a published table.

        Raises `StoreError`.
        """
        rows: list[pa.Table] = []
        if work.found:
            # A killed run finished them, and their cost is not known.
            recorded = set(ledger.keys_of(ledger.read(self.store, self.asset, shard)))
            unknown = [key for key in work.found if key not in recorded]
            seconds: list[float | None] = [None] * len(unknown)
            rows.append(ledger.entries(unknown, seconds, self.gpus, self.run_id, self.own, {}))
        if work.made:
            shares = ledger.shares(work.seconds, list(work.made.values()))
            rows.append(ledger.entries(list(work.made), shares, self.gpus, self.run_id, self.own, work.figures))
        if rows:
            ledger.append(self.store, self.asset, shard, pa.concat_tables(rows), first and not work.found)

    def metadata(self, work: Work) -> dict[str, Any]:
        """Return the figures that the UI plots and lists; empty if nothing was computed."""
        if not work.made:
            return {}
        costs = list(work.made.values())
        shares = ledger.shares(work.seconds, costs)
        figures: dict[str, Any] = {
            "rows_per_second": len(costs) / work.seconds,
            "seconds_per_row": work.seconds / len(costs),
            "gpu_seconds": work.seconds * self.gpus,
            "gpu_seconds_per_row": work.seconds * self.gpus / len(costs),
        }
        if (summary := sum_rows(work.figures)) is not None:
            figures |= summary.figures()
            records = [{"id": row_id, "tokens": tokens} for row_id, tokens in summary.most_tokens]
            figures |= {"most_tokens": records} if records else {}
        # The costliest rows, if the engine gives each row its own cost.
        if len(set(costs)) > 1:
            ranked = sorted(zip(shares, work.made, strict=True), reverse=True)[:_COSTLIEST]
            records = [{"id": key[0], "seconds": round(share, 3)} for share, key in ranked]
            figures["costliest"] = records
        return figures


_PREVIEW_CHARACTERS = 1500
_PICTURE = re.compile(r"^!\[([^\]]*)\]\(.*\)$", re.MULTILINE)


class Markdown(str):
    """Metadata that the UI renders as markdown."""

    __slots__ = ()


class Link(str):
    """Metadata that the UI shows as a link."""

    __slots__ = ()


class Moment(float):
    """Metadata that the UI shows as a time, in seconds since 1970."""

    __slots__ = ()


def first_page(corpus: Corpus, shard: str, pages: Sequence[dict[str, Any]], layout: pa.Table) -> Markdown:
    """Return the shard's first page with regions, and its layout drawn on it."""
    at = layout["state"].index(State.OK.value).as_py()
    if at < 0:
        return Markdown("no page to show")
    (row,) = layout.slice(at, 1).to_pylist()
    page = next(page for page in pages if page["page_id"] == row["page_id"])
    try:
        with corpus.reader(shard) as source:
            image = source.page_of(page).image
    except (SourceError, UndecodableImage) as error:
        return Markdown(_fence(f"no page to show: {error}"))
    boxes = [(region["bbox"], region["label"], region["index"]) for region in row["regions"]]
    return Markdown(f"{_fence(page['page_id'])}\n\n![page]({preview(image, boxes)})")


def first_text(table: pa.Table, column: str) -> Markdown:
    """Return the beginning of the first page that has text, unrendered."""
    for page_id, text in zip(table["page_id"].to_pylist(), table[column].to_pylist(), strict=True):
        if text:
            return Markdown(_fence(f"{page_id}\n\n{text[:_PREVIEW_CHARACTERS]}"))
    return Markdown("no text")


def first_markdown(table: pa.Table, column: str) -> Markdown:
    """Return the first blocks of the first page with any, rendered.

    A picture is shown as its label, since the UI has no crops. The text is already escaped in `column`. A first block
    that is too long is cut and shown unrendered.
    """
    for page_id, text in zip(table["page_id"].to_pylist(), table[column].to_pylist(), strict=True):
        if not text:
            continue
        blocks = defuse(_PICTURE.sub(r"*(\1)*", text)).split("\n\n")
        beginning, room = [], _PREVIEW_CHARACTERS
        for block in blocks:
            room -= len(block)
            if room < 0:
                break
            beginning.append(block)
        rendered = "\n\n".join(beginning) or _fence(blocks[0][:_PREVIEW_CHARACTERS])
        more = "\n\n..." if len(beginning) < len(blocks) else ""
        return Markdown(f"{_fence(page_id)}\n\n{rendered}{more}")
    return Markdown("no text")


def _fence(text: str) -> str:
    """Return markdown that shows `text` unrendered."""
    fence = "`" * 3
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"


_SECONDS = 0.2
"""Seconds between two readings of the cards: the shortest stage of a shard takes some seconds."""


@dataclass(frozen=True)
class GpuWatch:
    """Figures of the cards while a shard is made; empty without a card."""

    sampler: Sampler = field(default_factory=lambda: Sampler((), _SECONDS))

    def window(self) -> Callable[[], dict[str, float]]:
        """Begin to measure a shard; call the result at its end for the figures."""
        start = self.sampler.take()
        return lambda: self.sampler.readings.figures(start, self.sampler.take())


@contextmanager
def gpu_watch(engines: Sequence[Engine], warn: Callable[[str], None]) -> Iterator[GpuWatch]:
    """Watch the engines' cards until the context ends.

    If there are no figures, it warns with the reason and goes on.
    """
    names = sorted({card for engine in engines for card in engine.cards})
    try:
        cards = open_cards(names) if names else []
    except NoGpuFigures as reason:
        warn(f"no figures of the GPU in the metadata: {reason}")
        cards = []
    with Sampler(cards, _SECONDS) as sampler:
        yield GpuWatch(sampler)
    if sampler.problem:
        warn(f"the figures of the GPU end early: {sampler.problem}")
