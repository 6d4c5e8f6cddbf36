"""Applies corrections to pages, and reads the tables as corrected."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kopub.boxes import Box
from kopub.corrections.log import Action, Correction, CorrectionHistory, CorrectionLog
from kopub.errors import MissingTable
from kopub.fingerprints import fingerprint
from kopub.layout.regions import DEFAULT_TASKS, READ_TASKS, Task
from kopub.recognition.regions import KINDS, Crop, TextOrigin, crop_index, crop_path, page_state, region_texts
from kopub.states import MADE, State
from kopub.store.corpus_tables import TABLES
from kopub.store.table_store import TableStore
from kopub.texts.markdown import page_markdown, page_text

_AGREES = 0.5
"""Least intersection over union of two boxes that count as one region."""
_LAYOUTS, _READINGS = TABLES.regions.name, TABLES.readings.name
_PICTURES = "crop_images"
Row = Mapping[str, Any]
_End = tuple[str, str | None]
"""State and reason."""


@dataclass(frozen=True, slots=True)
class CorrectedRows:
    """A page's corrected rows, and the corrections without effect.

    The rows are those of layout and readings; a correction has no effect if no region matches it any more.
    """

    layout: Row
    reading: Row
    unplaced: tuple[Correction, ...] = ()


@dataclass(frozen=True, slots=True)
class CorrectionStanding:
    """A page that somebody corrected: its shard, corrections and their effect.

    The effect is None if the page is not read.
    """

    page_id: str
    shard: str | None
    done: CorrectionHistory
    page: CorrectedRows | None

    @property
    def unplaced(self) -> tuple[Correction, ...]:
        """The lasting corrections without effect.

        No region matches them, or the page is gone.
        """
        return self.done.changes if self.page is None else self.page.unplaced

    @property
    def differs(self) -> bool:
        """True if the page was checked but has changed since."""
        checked = self.done.checked
        return checked is not None and (self.page is None or truth_of(self.page) != checked.after)


class CorrectedTables:
    """The tables of a store as people corrected them.

    The store itself keeps the engines' results. Only layouts and readings are corrected here, since everything else is
    made from them. A page that nobody corrected is the same to the byte. With `changes`, the tables are read as these
    left them, whatever people corrected since.
    """

    def __init__(self, store: TableStore, changes: Mapping[str, tuple[Correction, ...]] | None = None) -> None:
        self._store = store
        self._log = CorrectionLog(store)
        self._changes = changes

    def has(self, asset: str, shard: str) -> bool:
        return self._store.has(asset, shard)

    def metadata(self, asset: str, shard: str) -> dict[str, str]:
        return self._store.metadata(asset, shard)

    def published(self, asset: str) -> dict[str, str]:
        """Return an asset's published shards, each with a mark of its file and corrections."""
        published = self._store.published(asset)
        marks = self._log.marks(published) if asset in (_LAYOUTS, _READINGS) else {}
        return {key: fingerprint([stamp, marks[key]]) if key in marks else stamp for key, stamp in published.items()}

    def read(self, asset: str, shard: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the table, or only `columns` of it. Raises `StoreError`."""
        table = self._store.read(asset, shard, columns)
        if asset not in (_LAYOUTS, _READINGS):
            return table
        changed = self.changes() if self._changes is None else self._changes
        if not changed:
            return table
        ids = table["page_id"] if "page_id" in table.column_names else self._store.read(asset, shard, ["page_id"])[0]
        places = {at: page_id for at, page_id in enumerate(ids.to_pylist()) if page_id in changed}
        with_pictures = _PICTURES in table.column_names
        # The rows between corrected ones are slices of the table, the same to the byte.
        parts, done = [], 0
        for at, page in self._pages(shard, places, with_pictures):
            corrected = correct_page(*page, changed[places[at]])
            row = corrected.layout if asset == _LAYOUTS else corrected.reading
            values = {name: row[name] for name in table.column_names}
            parts += [table.slice(done, at - done), pa.Table.from_pylist([values], table.schema)]
            done = at + 1
        return pa.concat_tables([*parts, table.slice(done)]) if parts else table

    def changes(self) -> dict[str, tuple[Correction, ...]]:
        """Return the changes to each corrected page that were not undone."""
        return {page_id: page.changes for page_id, page in self._log.by_page().items() if page.changes}

    def pages(self, shard: str, page_ids: Collection[str]) -> dict[str, tuple[Row, Row]]:
        """Return the engines' layout and reading rows of pages, without unread ones."""
        if not (page_ids and self.has(_LAYOUTS, shard) and self.has(_READINGS, shard)):
            return {}
        ids = self._store.read(_READINGS, shard, ["page_id"])["page_id"].to_pylist()
        wanted = {at: page_id for at, page_id in enumerate(ids) if page_id in page_ids}
        return {page[0]["page_id"]: page for _, page in self._pages(shard, wanted, False)}

    def standings(self, shards: Sequence[str]) -> list[CorrectionStanding]:
        """Return every page that somebody corrected, with the effects, by id."""
        corrections = self._log.by_page()
        hints = {page_id: of_page.every[-1].shard for page_id, of_page in corrections.items()}
        pages: dict[str, tuple[str, tuple[Row, Row]]] = {}
        # A page is looked up in the shard where it was corrected, and in all shards if it is no longer there.
        for is_hinted in (True, False):
            for shard in shards:
                wanted = hints.keys() - pages.keys()
                if is_hinted:
                    wanted = {page_id for page_id in wanted if hints[page_id] == shard}
                for page_id, page in self.pages(shard, wanted).items():
                    pages[page_id] = shard, page
        standings = []
        for page_id in sorted(corrections):
            shard, page = pages.get(page_id, (None, None))
            corrected = None if page is None else correct_page(*page, corrections[page_id].changes)
            standings.append(CorrectionStanding(page_id, shard, corrections[page_id], corrected))
        return standings

    def _pages(
        self, shard: str, places: Mapping[int, str], with_pictures: bool
    ) -> Iterator[tuple[int, tuple[Row, Row]]]:
        """Yield the place of each page, and its rows of layout and readings."""
        if not places:
            return
        wanted = set(places.values())
        layouts: dict[str, Row] = {}
        readings: dict[str, Row] = {}
        try:
            for asset, rows in ((_LAYOUTS, layouts), (_READINGS, readings)):
                columns = None
                if asset == _READINGS and not with_pictures:
                    # The table itself tells its columns: one that an older release made may lack some.
                    columns = [name for name in self._store.columns(asset, shard) if name != _PICTURES]
                table = self._store.read(asset, shard, columns)
                for at, page_id in enumerate(table["page_id"].to_pylist()):
                    if page_id in wanted:
                        # Only these rows become Python objects: a shard's pictures are large.
                        rows[page_id] = table.slice(at, 1).to_pylist()[0]
        except MissingTable:
            return
        for at, page_id in places.items():
            if page_id in layouts and page_id in readings:
                yield at, (layouts[page_id], {_PICTURES: None, **readings[page_id]})


def correct_page(layout: Row, reading: Row, changes: Sequence[Correction]) -> CorrectedRows:
    """Return a page's rows after the corrections that find their region, oldest first.

    A text, a strike and an addition need a region of their kind whose box matches; a label and a place in the order
    need only the box.
    """
    if not changes:
        return CorrectedRows(layout, reading)
    page = _Editor(layout, reading)
    unplaced = tuple(change for change in changes if not page.apply(change))
    if len(unplaced) == len(changes):
        return CorrectedRows(layout, reading, unplaced)
    return CorrectedRows(*page.rows(), unplaced)


def truth_of(page: CorrectedRows) -> str:
    """Return JSON of a page's ordered regions and text, as a checker sees them."""
    placed = {region["index"]: region for region in page.layout["regions"] or ()}
    regions: list[dict[str, Any]] = []
    for region in sorted(page.reading["regions"] or (), key=lambda region: region["index"]):
        if region["index"] in placed:
            regions.append(
                {
                    "label": region["native_label"],
                    "kind": region["label"],
                    "bbox_2d": list(placed[region["index"]]["bbox_2d"]),
                    "content": region["content"] or "",
                }
            )
    text = page_text(region_texts(page.reading["regions"]))
    content = {"regions": regions, "markdown": page.reading["markdown"] or "", "text": text}
    return json.dumps(content, ensure_ascii=False)


@dataclass(slots=True)
class _EditedRows:
    """A region of a page under correction: its rows and its crop."""

    layout: dict[str, Any]
    reading: dict[str, Any] | None
    crop: tuple[dict[str, Any], bytes | None] | None = None

    @property
    def kind(self) -> str:
        return KINDS[Task(self.layout["task"])]


class _Editor:
    """An editor that applies corrections to a page's regions, in reading order."""

    def __init__(self, layout: Row, reading: Row) -> None:
        self._layout, self._reading = layout, reading
        read = {region["index"]: dict(region) for region in reading["regions"] or ()}
        listed, pictures = reading["image_crops"] or (), reading["crop_images"] or ()
        # A caller that needs no pictures has not read them.
        pictures = pictures or [None] * len(listed)
        crops = {crop_index(crop["path"]): (crop, data) for crop, data in zip(listed, pictures, strict=True)}
        self._regions = [
            _EditedRows(dict(region), read.get(region["index"]), crops.get(region["index"]))
            for region in sorted(layout["regions"] or (), key=lambda region: region["index"])
        ]
        self._is_ordered_anew = False

    def apply(self, change: Correction) -> bool:
        """Apply a correction, and return whether it found its region."""
        assert change.bbox_2d is not None, "a change is of a region"
        by_box = change.action in (Action.LABEL, Action.ORDER)
        region = self._find(Box(*change.bbox_2d), None if by_box else change.kind)
        if region is None and change.action is Action.ADD:
            self._add(change)
            return True
        if region is None:
            return False
        if change.action in (Action.TEXT, Action.ADD):
            self._say(region, change.after)
        elif change.action is Action.LABEL:
            task = DEFAULT_TASKS[change.after]
            region.layout |= {"label": change.after, "task": task.value}
            if region.reading is not None:
                region.reading |= {"native_label": change.after, "label": KINDS[task]}
        elif change.action is Action.STRIKE:
            self._regions.remove(region)
            self._is_ordered_anew = True
        else:
            # It goes after the region with the box of its anchor, or first.
            follows = self._find(Box(*json.loads(change.after)), None) if change.after else None
            if follows is region or (follows is None and change.after):
                return False
            self._regions.remove(region)
            self._regions.insert(self._regions.index(follows) + 1 if follows else 0, region)
            self._is_ordered_anew = True
        return True

    def rows(self) -> tuple[Row, Row]:
        """Return the page's rows of layout and readings as they are now."""
        readings: list[dict[str, Any]] = []
        crops: list[dict[str, Any]] = []
        pictures: list[bytes | None] = []
        for index, region in enumerate(self._regions):
            # The regions are numbered in order, and their pictures with them.
            if self._is_ordered_anew:
                region.layout["index"] = index
            if region.reading is not None:
                readings.append(region.reading | {"index": index} if self._is_ordered_anew else region.reading)
            if region.crop is not None:
                crop, data = region.crop
                path = crop_path(self._layout["page_id"], index) if self._is_ordered_anew else crop["path"]
                crops.append({**crop, "path": path})
                pictures.append(data)
        texts = region_texts(readings)
        laid_out, ended = self._ends(readings)
        layout = {
            **self._layout,
            "regions": [region.layout for region in self._regions],
            "state": str(laid_out[0]),
            "reason": laid_out[1],
        }
        linked = [Crop(crop["path"], tuple(crop["bbox"]), crop["label"], b"") for crop in crops]
        reading = {
            **self._reading,
            "regions": readings,
            "markdown": page_markdown(texts, linked),
            "image_crops": crops,
            "crop_images": pictures,
            "state": str(ended[0]),
            "reason": ended[1],
        }
        return layout, reading

    def _ends(self, readings: Sequence[Row]) -> tuple[_End, _End]:
        """Return state and reason of layout and reading, from the present regions."""
        laid_out, ended = ((row["state"], row["reason"]) for row in (self._layout, self._reading))
        if not self._regions:
            return (State.BLANK, None), (State.BLANK, None)
        if laid_out[0] not in MADE:
            laid_out = State.OK, None
        before = self._reading["regions"] or ()
        if not readings or (before and not any(region["state"] == State.FAILED for region in before)):
            return laid_out, ended
        unread = any(region.reading is None and region.layout["task"] in READ_TASKS for region in self._regions)
        state, reason = page_state(region_texts(readings))
        if state is State.OK and unread:
            return laid_out, (State.PARTIAL, ended[1])
        return laid_out, laid_out if state is State.OK else (state, reason)

    def _find(self, box: Box[int], kind: str | None) -> _EditedRows | None:
        """Return the region whose box matches best, of `kind` if one is given."""
        matches: list[tuple[float, int, _EditedRows]] = []
        for at, region in enumerate(self._regions):
            if (kind is None or region.kind == kind) and (share := box.iou(Box(*region.layout["bbox_2d"]))) >= _AGREES:
                matches.append((share, -at, region))
        return max(matches, key=lambda match: match[:2])[2] if matches else None

    def _add(self, change: Correction) -> None:
        """Insert a region after the last one that stands above it in its column."""
        assert change.bbox is not None
        assert change.bbox_2d is not None
        assert change.label is not None
        new = Box(*change.bbox_2d)
        at = 0
        for position, region in enumerate(self._regions):
            box = Box(*region.layout["bbox_2d"])
            if (box.y1 + box.y2) < (new.y1 + new.y2) and box.x1 < new.x2 and new.x1 < box.x2:
                at = position + 1
        placed = {"label": change.label, "task": DEFAULT_TASKS[change.label].value, "score": 1.0, "index": -1}
        boxes = {"bbox": list(change.bbox), "bbox_2d": list(change.bbox_2d), "polygon": None, "text": None}
        region = _EditedRows(placed | boxes, None)
        self._say(region, change.after)
        self._regions.insert(at, region)
        self._is_ordered_anew = True

    def _say(self, region: _EditedRows, text: str) -> None:
        """Give a region the text that a person found on it."""
        reading = region.reading or {
            "index": region.layout["index"],
            "native_label": region.layout["label"],
            "bbox_2d": region.layout["bbox_2d"],
            "attempts": 0,
            "seconds": 0.0,
            "scale": None,
        }
        region.reading = reading | {
            "label": region.kind,
            "content": text,
            "state": str(State.OK if text.strip() else State.BLANK),
            "reason": None,
            "finish_reason": "stop",
            "origin": TextOrigin.PERSON.value,
        }
