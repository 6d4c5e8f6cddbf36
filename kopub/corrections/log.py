"""The corrections of a corpus: an append-only log in its store."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from time import monotonic
from typing import Any, Self
from uuid import uuid4

import pyarrow as pa

from kopub.errors import KopubError, StoreError, did_you_mean
from kopub.fingerprints import fingerprint
from kopub.layout.regions import LABELS, PICTURES
from kopub.store.corpus_tables import TABLES
from kopub.store.schemas import CORRECTIONS
from kopub.store.table_store import TableStore

_FOLDER = ".corrections"
_PAGES = TABLES.pages.name
_MOST_PARTS = 64
"""Most files of the log before they are merged: each costs every new process a read."""
_BUCKET_DIGITS = 2
"""Hex digits in the name of a page's lock: people who correct different pages seldom wait for each other."""
_LOOK_AGAIN = 2.0
"""Seconds for which a listing of object storage counts as current: planning lists once for each table and shard."""
LONGEST = 200_000
"""Most characters of a text that a person may enter."""
_LARGEST = 10**6
"""Pixels that no edge of a page has."""


class Action(StrEnum):
    """The effect of a correction on its region, or on its page."""

    TEXT = "text"
    LABEL = "label"
    ORDER = "order"
    """The region is read after the one whose box is in `after`, or first if that is empty."""
    ADD = "add"
    STRIKE = "strike"
    CHECKED = "checked"
    """The page is right as it is; `after` has its content at that time as JSON."""
    UNDO = "undo"
    """The correction whose id is in `after` has no effect any more; undoing an undo restores the effect."""


class CorrectedMeanwhile(KopubError):
    """The page was corrected since the person saw it; nothing was saved."""


@dataclass(frozen=True, slots=True)
class Correction:
    """A row of the log.

    `bbox` is (x1, y1, x2, y2) in pixels of the upright page, `bbox_2d` the same on a grid of 0 to 1000. They, `label`
    and `kind` are those of the region as the person saw it; none is set if the correction concerns the whole page.
    `shard` is the page's shard at that time.
    """

    page_id: str
    shard: str
    action: Action
    author: str
    bbox: tuple[float, ...] | None = None
    bbox_2d: tuple[int, ...] | None = None
    label: str | None = None
    kind: str | None = None
    before: str = ""
    after: str = ""
    reason: str = ""
    id: str = ""
    at: datetime = datetime(1970, 1, 1, tzinfo=UTC)

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Self:
        boxes = {name: None if row[name] is None else tuple(row[name]) for name in ("bbox", "bbox_2d")}
        return cls(**{**row, **boxes, "action": Action(row["action"])})

    def check(self) -> None:
        """Raise `KopubError` for a correction that no page can hold.

        Raises `TypeError` or `ValueError` for values of another type, as a file from elsewhere may have them.
        """
        if self.action in (Action.LABEL, Action.ADD):
            label = self.after if self.action is Action.LABEL else self.label
            if label not in LABELS:
                raise KopubError(f"{label!r} is no label{did_you_mean(str(label), LABELS)}")
            if label in PICTURES:
                raise KopubError(f"a person cannot make a region a picture ({label}): strike it out instead")
        if self.bbox_2d is not None:
            left, top, right, bottom = self.bbox_2d
            if not 0 <= left < right <= 1000:
                raise KopubError("the box has no width, or leaves the page")
            if not 0 <= top < bottom <= 1000:
                raise KopubError("the box has no height, or leaves the page")
        if self.bbox is not None and not (len(self.bbox) == 4 and all(abs(edge) < _LARGEST for edge in self.bbox)):
            raise KopubError("the box is not four places on a page")
        if not self.author.strip():
            raise KopubError("a correction needs the name of its author")
        try:
            "".join((self.before, self.after, self.reason, self.author))
            _table([self])
        except UnicodeEncodeError:
            raise KopubError("a correction, its author or its reason is not valid Unicode") from None
        if self.action is not Action.CHECKED and max(map(len, (self.after, self.reason, self.author))) > LONGEST:
            raise KopubError("a correction has at most {count:,} characters", count=LONGEST)


@dataclass(frozen=True, slots=True)
class CorrectionHistory:
    """All corrections that people made to a page, oldest first."""

    every: tuple[Correction, ...] = ()

    @property
    def seen(self) -> str:
        """The mark of these corrections; the next one carries it to say what was seen."""
        return fingerprint([correction.id for correction in self.every])

    @property
    def lasting(self) -> tuple[Correction, ...]:
        """The corrections that nobody has undone, without the undo entries."""
        undone: set[str] = set()
        for correction in reversed(self.every):
            if correction.action is Action.UNDO and correction.id not in undone:
                undone.add(correction.after)
        return tuple(
            correction
            for correction in self.every
            if correction.action is not Action.UNDO and correction.id not in undone
        )

    @property
    def changes(self) -> tuple[Correction, ...]:
        """The lasting corrections that change the page's content."""
        return tuple(correction for correction in self.lasting if correction.action is not Action.CHECKED)

    @property
    def checked(self) -> Correction | None:
        """The last mark that the page is right, unless it was corrected afterwards."""
        last = self.lasting[-1:]
        return last[0] if last and last[0].action is Action.CHECKED else None


class CorrectionLog:
    """The log of a store's corrections.

    Threads and processes may add to it at once, and be killed at any moment. Every method raises `StoreError` if the
    log cannot be read or written.
    """

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._parts = store.parts(_FOLDER, saves_work=False)

    def by_page(self) -> dict[str, CorrectionHistory]:
        """Return the corrections of each page that has any."""
        pages: dict[str, list[Correction]] = defaultdict(list)
        for correction in self._every():
            pages[correction.page_id].append(correction)
        return {page_id: CorrectionHistory(tuple(corrections)) for page_id, corrections in pages.items()}

    def page(self, page_id: str) -> CorrectionHistory:
        return CorrectionHistory(tuple(correction for correction in self._every() if correction.page_id == page_id))

    def shard_settings(self, shard: str) -> dict[str, str]:
        """Return the inputs of a shard's tables besides their parents.

        Empty if nothing is corrected.
        """
        mark = self.marks([shard]).get(shard)
        return {} if mark is None else {"corrections.of_pages": mark}

    def marks(self, shards: Iterable[str], checked: bool = False) -> dict[str, str]:
        """Return a mark of the corrections of each shard, without the shards that have none.

        With `checked`, pages marked as checked count too.
        """
        changed: dict[str, list[str]] = {}
        for page_id, page in self.by_page().items():
            if ids := [correction.id for correction in (page.lasting if checked else page.changes)]:
                changed[page_id] = ids
        marks: dict[str, str] = {}
        published = self._listed(_PAGES, lambda: self._store.published(_PAGES)) if changed else {}
        for shard in shards:
            if shard in published:
                here = changed.keys() & self._page_ids(shard, published[shard])
                ids = sorted(id for page_id in here for id in changed[page_id])
                if ids:
                    marks[shard] = f"{len(ids)} ({fingerprint(ids)})"
        return marks

    def lasting(self, page_ids: Iterable[str]) -> pa.Table:
        """Return the corrections of the pages that nobody has undone.

        They are in the order of the ids, and the oldest of a page first.
        """
        by_page = self.by_page()
        corrections: list[Correction] = []
        for page_id in page_ids:
            if page_id in by_page:
                corrections += by_page[page_id].lasting
        return _table(corrections)

    def add(self, correction: Correction, seen: str | None = None) -> Correction:
        """Add a correction to a page, and return it with id and time.

        `seen` is the mark that the person saw. Raises `CorrectedMeanwhile` if the page has another mark by now, and
        `KopubError` for a correction that no page can hold.
        """
        correction.check()
        with self._store.exclusive(_FOLDER, fingerprint(correction.page_id)[:_BUCKET_DIGITS]):
            _forget_listing(self._store.url)
            page = self.page(correction.page_id)
            if seen is not None and seen != page.seen:
                if not page.every:
                    raise KopubError("{page} has no corrections any more: load the page again", page=correction.page_id)
                last = page.every[-1]
                raise CorrectedMeanwhile(f"{last.author} has corrected {last.page_id} meanwhile ({last.action})")
            if correction.action is Action.UNDO and correction.after not in {earlier.id for earlier in page.every}:
                raise KopubError(f"{correction.page_id} has no correction {correction.after!r} to undo")
            # A clock that was set back must not change the order.
            last_at = max((earlier.at + timedelta(microseconds=1) for earlier in page.every), default=correction.at)
            entry = replace(correction, id=correction.id or uuid4().hex, at=max(datetime.now(UTC), last_at))
            # On object storage, another process may have taken the lock over: only one writes the next correction.
            name = f"{fingerprint([entry.page_id, page.seen])}.parquet"
            if not self._parts.add(name, _table([entry]), new=True):
                raise CorrectedMeanwhile(
                    f"another process has corrected {entry.page_id} meanwhile: load the page again"
                )
        names = self._parts.seen()
        if len(names) > _MOST_PARTS:
            # A correction in two files counts once, so a kill or a second writer does no harm here.
            self._parts.append(_table(self._every(names)), "merged")
            self._parts.remove(names)
        _forget_listing(self._store.url)
        return entry

    def _page_ids(self, shard: str, stamp: str) -> frozenset[str]:
        """Return the pages of a shard whose file has the mark `stamp`."""
        entry = _page_ids.get((self._store.url, shard))
        if entry is None or entry[0] != stamp:
            ids = self._store.read(_PAGES, shard, ["page_id"])["page_id"].to_pylist()
            entry = _page_ids[self._store.url, shard] = stamp, frozenset(ids)
        return entry[1]

    def _names(self) -> Sequence[str]:
        return self._listed(_FOLDER, lambda: tuple(self._parts.names()))

    def _listed(self, what: str, look: Callable[[], Any]) -> Any:
        """Return what `look` finds, or what it found a moment ago on object storage."""
        listing = _listings.get((self._store.url, what))
        if listing is None or self._store.local or monotonic() - listing[0] > _LOOK_AGAIN:
            listing = _listings[self._store.url, what] = monotonic(), look()
        return listing[1]

    def _every(self, names: Sequence[str] | None = None) -> list[Correction]:
        """Return the corrections of all files or the named ones, each once, oldest first."""
        wanted = self._names() if names is None else names
        before = _read.get(self._store.url, {})
        parts = {name: before[name] for name in wanted if name in before}
        while lacking := [name for name in wanted if name not in parts]:
            for name in lacking:
                if (part := self._parts.read_one(name)) is not None:
                    parts[name] = tuple(Correction.of_row(row) for row in part.to_pylist())
            if gone := set(lacking) - parts.keys():
                # Another process has just merged them.
                _forget_listing(self._store.url)
                listed, wanted = wanted, self._names()
                if gone & set(wanted) and tuple(listed) == wanted:
                    raise StoreError(f"{self._store.location(_FOLDER)}/{min(gone)} cannot be opened")
        _read[self._store.url] = parts
        corrections = {correction.id: correction for name in wanted for correction in parts[name]}
        return sorted(corrections.values(), key=lambda correction: (correction.at, correction.id))


_read: dict[str, dict[str, tuple[Correction, ...]]] = {}
"""The files that this process has read, by URL of the store and name; they never change."""
_listings: dict[tuple[str, str], tuple[float, Any]] = {}
_page_ids: dict[tuple[str, str], tuple[str, frozenset[str]]] = {}
"""The pages of a shard and the mark of their file, by URL of the store and shard."""


def _forget_listing(url: str) -> None:
    _listings.pop((url, _FOLDER), None)


def _table(corrections: Sequence[Correction]) -> pa.Table:
    assert CORRECTIONS.names == [field.name for field in fields(Correction)]
    return pa.Table.from_pylist([asdict(correction) for correction in corrections], CORRECTIONS)
