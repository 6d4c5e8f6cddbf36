"""The comparison of a shard before and after an upgrade: states, regions, texts, vectors."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

from kopub.states import phrase
from kopub.store.corpus_tables import FIGURE_VECTORS, PASSAGE_VECTORS, TABLES, VECTOR_TABLES
from kopub.store.rows import region_ids, vector_matrix, vector_width, with_vector
from kopub.texts.regions import Region, join_regions

SAME = 0.5
"""Least overlap of two boxes of the same region: the usual threshold in detection (PASCAL VOC)."""
UNMOVED = 0.9
"""Least overlap at which a box has not moved; a line of 40 pixels may be off by two."""


def iou(old: Sequence[Sequence[float]], new: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """Return the intersection over union, (old, new), of boxes (x1, y1, x2, y2).

    It is 0 if neither has an area.
    """
    a = np.asarray(old, np.float64).reshape(-1, 4)
    b = np.asarray(new, np.float64).reshape(-1, 4)
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    shared = np.prod(np.clip(high - low, 0, None), axis=2)
    areas = [np.prod(np.clip(boxes[:, 2:] - boxes[:, :2], 0, None), axis=1) for boxes in (a, b)]
    union = areas[0][:, None] + areas[1][None, :] - shared
    return np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)


def match(old: Sequence[Sequence[float]], new: Sequence[Sequence[float]]) -> list[tuple[int, int, float]]:
    """Return (old, new, IoU) of the boxes of the same region, in the old order.

    This is the assignment with the largest total IoU, without pairs below `SAME`.
    """
    overlap = iou(old, new)
    # A pair below `SAME` must not prevent pairs that would count.
    pairs = assign(np.where(overlap >= SAME, overlap, 0.0)).items()
    return [(row, column, float(overlap[row, column])) for row, column in pairs if overlap[row, column] >= SAME]


def assign(weights: np.ndarray) -> dict[int, int]:
    """Return a column for each row, none twice, with the largest total weight (LAPJV)."""
    import lap

    columns = lap.lapjv(-weights, extend_cost=True)[1].tolist() if weights.size else []
    return {row: column for row, column in enumerate(columns) if column >= 0}


NUMBER = 10
"""The weight of a changed number, in letters: a reader notices a misspelt word, but not a wrong sum."""

_PIECE = 10_000
"""Most characters compared at once, as the time grows with the square; in pieces, a million take a second."""
_NUMBER = re.compile(r"\d+(?:[.,:/-]\d+)*")


@dataclass(frozen=True, slots=True)
class Damage:
    """The edits that turn the old text into the new one.

    `lost`, `changed` and `added` count characters: the deletions, substitutions and insertions of a shortest edit
    script (Levenshtein 1966), with each run of white space as one blank. `numbers` counts the numbers that only one
    text has, on the side with more of them.
    """

    lost: int = 0
    changed: int = 0
    added: int = 0
    numbers: int = 0

    @property
    def score(self) -> int:
        """The number of characters lost, changed or added, plus `NUMBER` for every number."""
        return self.lost + self.changed + self.added + NUMBER * self.numbers


def damage(old: str, new: str) -> Damage:
    """Return the damage between two texts.

    Texts over 10,000 characters are compared in pieces from the same relative places, which gives an upper bound.
    """
    old, new = " ".join(old.split()), " ".join(new.split())
    if old == new:
        return Damage()
    pieces = -(-max(len(old), len(new)) // _PIECE)
    edits: Counter[str] = Counter()
    for at in range(pieces):
        before = old[len(old) * at // pieces : len(old) * (at + 1) // pieces]
        after = new[len(new) * at // pieces : len(new) * (at + 1) // pieces]
        edits.update(edit.tag for edit in Levenshtein.editops(before, after))
    had, has = Counter(_NUMBER.findall(old)), Counter(_NUMBER.findall(new))
    numbers = max((had - has).total(), (has - had).total())
    return Damage(edits["delete"], edits["replace"], edits["insert"], numbers)


@dataclass(frozen=True, slots=True)
class CosineChange:
    """The cosines of old and new vectors: count, mean, and the lowest by id.

    `lowest` are (cosine, id) pairs, lowest first. `problem` says why there are no cosines.
    """

    compared: int = 0
    mean: float | None = None
    lowest: Sequence[tuple[float, str]] = ()
    problem: str | None = None


def cosine_change(old: pa.Table, new: pa.Table, id_column: str, most: int) -> CosineChange:
    """Return the cosines of the rows that have a vector in both tables.

    At most `most` of the lowest are listed, by id.
    """
    old_width, new_width = vector_width(old.schema), vector_width(new.schema)
    if old_width != new_width:
        form = "vectors of {old} and of {new} dimensions cannot be compared"
        return CosineChange(problem=phrase(form, old_width, new_width))
    before, after = _by_id(old, id_column), _by_id(new, id_column)
    ids = [row_id for row_id in before if row_id in after]
    if not ids:
        return CosineChange(problem="no row has a vector in both")
    a = np.stack([before[row_id] for row_id in ids]).astype(np.float32)
    b = np.stack([after[row_id] for row_id in ids]).astype(np.float32)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    cosines = np.divide(np.sum(a * b, axis=1), lengths, out=np.zeros_like(lengths), where=lengths > 0)
    order = np.argsort(cosines, kind="stable")[:most]
    lowest = [(round(float(cosines[at]), 6), ids[at]) for at in order]
    return CosineChange(len(ids), round(float(cosines.mean()), 6), lowest)


def _by_id(table: pa.Table, id_column: str) -> dict[str, np.ndarray]:
    rows = table.filter(table["vector"].is_valid())
    return dict(zip(rows[id_column].to_pylist(), vector_matrix(rows["vector"]), strict=True))


_LAYOUTS, _READINGS = TABLES.regions.name, TABLES.readings.name
VECTORS = {
    **{table.name: table.key for table in (VECTOR_TABLES["text"], VECTOR_TABLES["image"], TABLES.query_vectors)},
    FIGURE_VECTORS.name: "region_id",
    PASSAGE_VECTORS.name: "passage_id",
}
"""The tables of vectors, each with the column that identifies a row; in the last, a row is a figure."""
_PARTS = (FIGURE_VECTORS.name, PASSAGE_VECTORS.name)
"""The tables of a row a page, whose vectors have no column of their own that tells them apart."""
_LOWEST = 50
"""Most cosines that are listed, the lowest ones."""


@dataclass(frozen=True, slots=True)
class Change:
    """A region that changed.

    `kinds` are some of added, removed, moved, relabelled and text. `old` is None if added, `new` if removed.
    """

    kinds: tuple[str, ...]
    iou: float
    old: Region | None
    new: Region | None
    damage: Damage


@dataclass(frozen=True, slots=True)
class Differences:
    """The changes of a page.

    `states` are (old, new) by asset, if they differ. `damage` is that of the page's whole text in reading order, which
    stays the same if a region is cut in two; if both sides read the same, that of the parsed texts, which hold what
    people corrected. `texts` are the two texts that it compares, and `old` and `new` all regions of the page.
    """

    page_id: str
    states: Mapping[str, tuple[str | None, str | None]]
    damage: Damage
    texts: tuple[str, str]
    old: tuple[Region, ...]
    new: tuple[Region, ...]
    changes: tuple[Change, ...]

    @property
    def rank(self) -> tuple[bool, int, int]:
        """The sort key of a page: changed states first, then damage, then changed regions."""
        return bool(self.states), self.damage.score, len(self.changes)

    @property
    def kinds(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for change in self.changes:
            counts.update(change.kinds)
        return counts


@dataclass(frozen=True, slots=True)
class ShardDiff:
    """The changes of a shard: its changed pages, worst first, and counts over all."""

    pages: int
    changed: tuple[Differences, ...]
    labels: Mapping[str, tuple[int, int]]
    vectors: Mapping[str, CosineChange] = field(default_factory=dict)

    @property
    def kinds(self) -> Counter[str]:
        return sum((page.kinds for page in self.changed), Counter())

    @property
    def damage(self) -> Damage:
        counts: Counter[str] = Counter()
        for page in self.changed:
            counts.update(asdict(page.damage))
        return Damage(**counts)


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """One side of a page.

    It has the page's states by table, its regions as read, and its parsed text.
    """

    states: Mapping[str, str]
    regions: tuple[Region, ...]
    text: str | None = None


def compare(old: Mapping[str, pa.Table], new: Mapping[str, pa.Table]) -> ShardDiff:
    """Return the differences between two versions of a shard's tables, given by asset.

    The tables are raw_pages, layout_regions, ocr_results, and the others if they exist. Pages are matched by id, and
    regions by their boxes. Raises `StoreError` if the readings of a side do not belong to its layout.
    """
    before, after = pages_of(old), pages_of(new)
    ids = dict.fromkeys([*after, *before])
    nothing = ComparedSide({}, ())
    changed: list[Differences] = []
    counts_before: Counter[str] = Counter()
    counts_after: Counter[str] = Counter()
    for page_id in ids:
        page_before, page_after = before.get(page_id, nothing), after.get(page_id, nothing)
        counts_before.update(region.label for region in page_before.regions)
        counts_after.update(region.label for region in page_after.regions)
        page = _page(page_id, page_before, page_after)
        if page.states or page.changes or page.damage.score:
            changed.append(page)
    labels = {label: (counts_before[label], counts_after[label]) for label in sorted(counts_before | counts_after)}

    vectors: dict[str, CosineChange] = {}
    for asset, id_column in VECTORS.items():
        if asset not in old or asset not in new:
            continue
        old_rows, new_rows = old[asset], new[asset]
        if asset in _PARTS:
            old_rows, new_rows = _parts(old_rows, id_column), _parts(new_rows, id_column)
        vectors[asset] = cosine_change(old_rows, new_rows, id_column, _LOWEST)
    return ShardDiff(len(ids), tuple(sorted(changed, key=lambda page: page.rank, reverse=True)), labels, vectors)


def pages_of(tables: Mapping[str, pa.Table]) -> dict[str, ComparedSide]:
    """Return the pages of a shard by id, in order."""
    states: dict[str, dict[str, str]] = {}
    for asset, table in tables.items():
        if "page_id" in table.column_names:
            for page_id, state in zip(table["page_id"].to_pylist(), table["state"].to_pylist(), strict=True):
                states.setdefault(page_id, {})[asset] = state
    readings = _by_page(tables, _READINGS, "regions")
    layouts = _by_page(tables, _LAYOUTS, "regions")
    texts = _by_page(tables, TABLES.texts.name, "text")
    pages: dict[str, ComparedSide] = {}
    for page_id, ended in states.items():
        regions = join_regions(page_id, layouts.get(page_id), readings.get(page_id))
        pages[page_id] = ComparedSide(ended, tuple(regions), texts.get(page_id))
    return pages


def _by_page(tables: Mapping[str, pa.Table], asset: str, column: str) -> dict[str, Any]:
    """Return the values of a column by page; empty if there is no such table."""
    if asset not in tables:
        return {}
    table = tables[asset]
    return dict(zip(table["page_id"].to_pylist(), table[column].to_pylist(), strict=True))


def _page(page_id: str, old: ComparedSide, new: ComparedSide) -> Differences:
    changed_states: dict[str, tuple[str | None, str | None]] = {}
    for asset in {**old.states, **new.states}:
        if old.states.get(asset) != new.states.get(asset):
            changed_states[asset] = old.states.get(asset), new.states.get(asset)
    before = "\n".join(region.content or "" for region in old.regions)
    after = "\n".join(region.content or "" for region in new.regions)
    harm = damage(before, after)
    if not harm.score and old.text is not None and new.text is not None:
        before, after = old.text, new.text
        harm = damage(before, after)
    return Differences(
        page_id=page_id,
        states=changed_states,
        damage=harm,
        texts=(before, after),
        old=old.regions,
        new=new.regions,
        changes=tuple(sorted(_changes(old, new), key=lambda change: change.damage.score, reverse=True)),
    )


def _changes(old: ComparedSide, new: ComparedSide) -> Iterator[Change]:
    pairs = match([region.box for region in old.regions], [region.box for region in new.regions])
    gone, come = dict(enumerate(old.regions)), dict(enumerate(new.regions))
    for at, to, overlap in pairs:
        before, after = gone.pop(at), come.pop(to)
        harm = damage(before.content or "", after.content or "")
        differences = {
            "relabelled": before.label != after.label,
            "moved": overlap < UNMOVED,
            "text": harm.score > 0 or before.state != after.state,
        }
        if kinds := tuple(kind for kind, holds in differences.items() if holds):
            yield Change(kinds, round(overlap, 3), before, after, harm)
    for region in gone.values():
        yield Change(("removed",), 0.0, region, None, damage(region.content or "", ""))
    for region in come.values():
        yield Change(("added",), 0.0, None, region, damage("", region.content or ""))


def _parts(table: pa.Table, id_column: str) -> pa.Table:
    """Return figures or passages with a vector, and `id_column`, their ids.

    A figure is identified by its region, a passage by its page and where it begins.
    """
    rows = with_vector(table)
    if id_column == "region_id":
        ids = region_ids(rows)
    else:
        starts = zip(rows["page_id"].to_pylist(), rows["start"].to_pylist(), strict=True)
        ids = [f"{page_id}@{start}" for page_id, start in starts]
    return rows.append_column(id_column, pa.array(ids, pa.string()))
