"""A shard before and after an upgrade, page by page. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from resources.diff.cosine_change import CosineChange, cosine_change
from resources.diff.damage import Damage, damage
from resources.diff.matching import UNMOVED, match
from resources.recognition.read_regions import ReadRegion, Row, read_regions
from resources.store.corpus_tables import FIGURE_VECTORS, TABLES
from resources.store.page_rows.figure_rows import with_vector

_LAYOUTS, _READINGS = TABLES.regions.name, TABLES.readings.name
VECTORS = {
    **{table.name: table.key for table in (TABLES.text_vectors, TABLES.image_vectors, TABLES.query_vectors)},
    FIGURE_VECTORS.name: "region_id",
}
"""The tables of vectors, each with the column that identifies a row; of the last, a row is a figure."""
_LOWEST = 50
"""Cosines that are listed: the rest are nearer than these."""


@dataclass(frozen=True, slots=True)
class RegionChange:
    """A region that is not what it was. `kinds` are of added, removed, moved, relabelled and text.

    `old` and `new` are None where there is none.
    """

    kinds: tuple[str, ...]
    iou: float
    old: ReadRegion | None
    new: ReadRegion | None
    damage: Damage


@dataclass(frozen=True, slots=True)
class PageDiff:
    """What became of a page.

    `states` are (old, new) by asset, where they differ; `damage` is that of the page's whole text in
    reading order, which a region cut in two does not change. `old` and `new` are all its regions.
    """

    page_id: str
    states: Mapping[str, tuple[str | None, str | None]]
    damage: Damage
    old: tuple[ReadRegion, ...]
    new: tuple[ReadRegion, ...]
    changes: tuple[RegionChange, ...]

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Pages that ended otherwise first, then by damage, then by changed regions."""
        return bool(self.states), self.damage.score, len(self.changes)

    @property
    def kinds(self) -> Counter[str]:
        return Counter(kind for change in self.changes for kind in change.kinds)


@dataclass(frozen=True, slots=True)
class ShardDiff:
    """What became of a shard: the pages that changed, the worst first, and counts over all of them."""

    pages: int
    changed: tuple[PageDiff, ...]
    labels: Mapping[str, tuple[int, int]]
    vectors: Mapping[str, CosineChange] = field(default_factory=dict)

    @property
    def kinds(self) -> Counter[str]:
        return sum((page.kinds for page in self.changed), Counter())

    @property
    def damage(self) -> Damage:
        each = [page.damage for page in self.changed]
        return Damage(*(sum(getattr(one, name) for one in each) for name in ("lost", "changed", "added", "numbers")))


@dataclass(frozen=True, slots=True)
class Page:
    """One side of a page: its state in every table, and its regions with what was read from them."""

    states: Mapping[str, str]
    regions: tuple[ReadRegion, ...]


def compare(old: Mapping[str, pa.Table], new: Mapping[str, pa.Table]) -> ShardDiff:
    """Two versions of a shard's tables by asset: raw_pages, layout_regions, ocr_results, and the others if they are.

    Pages are matched by their ids, regions by their boxes. Raises `StoreError` when the readings of a side are not
    of its layout.
    """
    before, after = pages_of(old), pages_of(new)
    ids = dict.fromkeys([*after, *before])
    nothing = Page({}, ())
    pages = (_page(page_id, before.get(page_id, nothing), after.get(page_id, nothing)) for page_id in ids)
    other = [page for page in pages if page.states or page.changes or page.damage.score]
    counts = [Counter(region.label for page in side.values() for region in page.regions) for side in (before, after)]
    labels = {label: (counts[0][label], counts[1][label]) for label in sorted(counts[0] | counts[1])}
    vectors = {
        asset: _cosine_change(asset, old[asset], new[asset]) for asset in VECTORS if asset in old and asset in new
    }
    return ShardDiff(len(ids), tuple(sorted(other, key=lambda page: page.rank, reverse=True)), labels, vectors)


def pages_of(tables: Mapping[str, pa.Table]) -> dict[str, Page]:
    """The pages of a shard by id, in their order."""
    states: dict[str, dict[str, str]] = {}
    for asset, table in tables.items():
        if "page_id" in table.column_names:
            for page_id, state in zip(table["page_id"].to_pylist(), table["state"].to_pylist(), strict=True):
                states.setdefault(page_id, {})[asset] = state
    readings = _regions_by_page(tables, _READINGS)
    layouts = _regions_by_page(tables, _LAYOUTS)
    return {
        page_id: Page(ended, tuple(read_regions(page_id, layouts.get(page_id), readings.get(page_id))))
        for page_id, ended in states.items()
    }


def _regions_by_page(tables: Mapping[str, pa.Table], asset: str) -> dict[str, list[Row]]:
    if asset not in tables:
        return {}
    table = tables[asset]
    return dict(zip(table["page_id"].to_pylist(), (row or [] for row in table["regions"].to_pylist()), strict=True))


def _page(page_id: str, old: Page, new: Page) -> PageDiff:
    ends = {asset: (old.states.get(asset), new.states.get(asset)) for asset in {**old.states, **new.states}}
    texts = ["\n".join(region.content or "" for region in page.regions) for page in (old, new)]
    return PageDiff(
        page_id=page_id,
        states={asset: ended for asset, ended in ends.items() if ended[0] != ended[1]},
        damage=damage(*texts),
        old=old.regions,
        new=new.regions,
        changes=tuple(sorted(_changes(old, new), key=lambda change: change.damage.score, reverse=True)),
    )


def _changes(old: Page, new: Page) -> Iterator[RegionChange]:
    pairs = match([region.bbox for region in old.regions], [region.bbox for region in new.regions])
    for at, to, overlap in pairs:
        before, after = old.regions[at], new.regions[to]
        harm = damage(before.content or "", after.content or "")
        found = {
            "relabelled": before.label != after.label,
            "moved": overlap < UNMOVED,
            "text": harm.score > 0 or before.state != after.state,
        }
        if any(found.values()):
            kinds = tuple(kind for kind, holds in found.items() if holds)
            yield RegionChange(kinds, round(overlap, 3), before, after, harm)
    gone = set(range(len(old.regions))) - {at for at, _, _ in pairs}
    come = set(range(len(new.regions))) - {to for _, to, _ in pairs}
    for at in sorted(gone):
        yield RegionChange(("removed",), 0.0, old.regions[at], None, damage(old.regions[at].content or "", ""))
    for to in sorted(come):
        yield RegionChange(("added",), 0.0, None, new.regions[to], damage("", new.regions[to].content or ""))


def _cosine_change(asset: str, old: pa.Table, new: pa.Table) -> CosineChange:
    if asset == FIGURE_VECTORS.name:
        old, new = _figures(old), _figures(new)
    return cosine_change(old, new, VECTORS[asset], _LOWEST)


def _figures(table: pa.Table) -> pa.Table:
    """The figures that have a vector, by the ids of their regions."""
    found = with_vector(table)
    known = zip(found["page_id"].to_pylist(), found["index"].to_pylist(), strict=True)
    return found.append_column("region_id", pa.array([f"{page_id}_{index}" for page_id, index in known], pa.string()))
