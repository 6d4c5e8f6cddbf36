"""The rows of a table being made: their inputs, what is kept, and their cost."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kopub.corrections.corrected import CorrectedTables
from kopub.errors import StoreError
from kopub.fingerprints import fingerprint
from kopub.pages.upright import UprightTransform
from kopub.states import FINAL, LOST, MADE, TRIES_AGAIN, State, count_states
from kopub.store.corpus_tables import Table
from kopub.store.table_store import ShardStore

_PROGRESS_SECONDS = 10.0
_PAGE_COLUMNS = ["page_id", "page_idx", "sha256", "width", "height", "upright", "text_layer_id", "state", "reason"]

Row = dict[str, Any]
Key = tuple[str, str]
"""Id and fingerprint; rows with the same key need to be made only once."""


@dataclass(frozen=True, slots=True)
class RowResult:
    """A finished row: its columns, cost and counts."""

    id: str
    columns: Row
    cost: float = 1.0
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RowSpec:
    """A row that a shard must end up with.

    `made_from` is everything its columns depend on, as JSON values. `known` holds the columns that need no engine.
    `given` is passed to the asset's `make` unchanged. `predetermined` holds the remaining columns of a row whose
    outcome is known beforehand, such as a page that a parent quarantined. `partial` is the reason why the row, once
    made, is `partial`: its parent lacks something.
    """

    id: str
    made_from: Sequence[Any]
    known: Row
    given: Any = None
    predetermined: Row | None = None
    partial: str | None = None

    @classmethod
    def after(cls, parent: Row, made_from: Sequence[Any], known: Row, given: Any = None) -> "RowSpec":
        """Return a row made from the row `parent`.

        If the parent's row is lost or blank, so is this one, for the same reason.
        """
        state = parent["state"]
        predetermined = None if state in MADE else {"state": state, "reason": parent["reason"]}
        partial = parent["reason"] if state == State.PARTIAL else None
        return cls(known["page_id"], made_from, known, given, predetermined, partial)

    @property
    def key(self) -> Key:
        return self.id, self.fingerprint

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of the row; predetermined rows and made rows never share one."""
        return fingerprint([*self.made_from, self.predetermined, *([self.partial] if self.partial else [])])

    def row(self, columns: Row) -> Row:
        """Return all columns of the row, given those from `make`."""
        if self.partial is not None and columns["state"] == State.OK:
            columns = {**columns, "state": State.PARTIAL, "reason": self.partial}
        return {**self.known, **columns, "fingerprint": self.fingerprint}


def page_rows(store: ShardStore, pages: Table, shard: str) -> list[Row]:
    """Return the pages of a shard in order, without their images. Raises `StoreError`."""
    return store.read(pages.name, shard, _PAGE_COLUMNS).to_pylist()


def picture_inputs(page: Row) -> list[Any]:
    """Return what a page's image depends on: its bytes and its upright transform."""
    return [page["sha256"], *([UprightTransform.picture_of(page["upright"])] if page["upright"] else [])]


def with_parent(
    store: ShardStore | CorrectedTables,
    pages: Sequence[Row],
    parent: Table,
    shard: str,
    columns: Sequence[str] | None = None,
) -> Iterator[tuple[Row, Row]]:
    """Return each page with its row of `parent`. Raises `StoreError` if the parent lacks one."""
    rows = {row["page_id"]: row for row in store.read(parent.name, shard, columns).to_pylist()}
    lacking = [page["page_id"] for page in pages if page["page_id"] not in rows]
    if lacking:
        form = "{parent} of {shard} lacks {count} of {pages} pages ({page} first): materialize {parent} again"
        raise StoreError(form, parent, shard, len(lacking), len(pages), lacking[0])
    return ((page, rows[page["page_id"]]) for page in pages)


def keys(rows: pa.Table, id_column: str) -> Iterator[Key]:
    """Return the keys of a table's rows, in order."""
    return zip(rows[id_column].to_pylist(), rows["fingerprint"].to_pylist(), strict=True)


def unfinished(
    specs: Sequence[RowSpec],
    tables: Sequence[pa.Table],
    id_column: str,
    retry_partial: bool = False,
    parts: str = "",
) -> list[RowSpec]:
    """Return the rows of `specs` finished in none of the `tables`.

    A `failed` row is not finished, nor is a `partial` one that lost any of its `parts` to a limit of time.
    """
    final = [state for state in FINAL if not (retry_partial and state is State.PARTIAL)]
    finished: set[Key] = set()
    for table in tables:
        # A filter copies what it keeps, so only the keys are selected, not the vectors and pictures.
        states = table.select([id_column, "fingerprint", "state"])
        finished |= set(keys(states.filter(pc.field("state").isin(final)), id_column)) - tried_again(
            table, id_column, parts
        )
    return [spec for spec in specs if spec.key not in finished]


def tried_again(table: pa.Table, id_column: str, parts: str) -> set[Key]:
    """Return the `partial` rows that lost any of their `parts` to a limit of time.

    A table read without that column, as for a plan, tells of none.
    """
    if parts not in table.column_names:
        return set()
    partial = table.filter(pc.field("state") == State.PARTIAL)
    again: list[bool] = []
    for of_row in partial[parts].to_pylist():
        again.append(any(TRIES_AGAIN in (part["reason"] or "") for part in of_row))
    return set(keys(partial.filter(pa.array(again, pa.bool_())), id_column))


def assemble(specs: Sequence[RowSpec], rows: pa.Table, id_column: str, parts: str = "") -> pa.Table:
    """Return the newest of the `rows` for each of `specs`, in order.

    `rows` are sorted oldest first. A finished row stays if another try at it failed or lost more of its `parts`: only
    `partial` rows are tried again, and what was read of them must not be lost. The known columns are written again,
    because a kept row may have moved in its shard.
    """
    places = list(enumerate(zip(keys(rows, id_column), rows["state"].to_pylist(), strict=True)))
    finished: dict[Key, list[int]] = defaultdict(list)
    for position, (key, state) in places:
        if state in FINAL:
            finished[key].append(position)
    positions = {key: position for position, (key, _) in places}
    for key, tries in finished.items():
        positions[key] = tries[-1]
        if parts and len(tries) > 1:
            # The try that lost the fewest parts counts, and the newest of equals.
            tries_parts = rows[parts].take(pa.array(tries, pa.int64())).to_pylist()
            lost = [sum(part["state"] in LOST for part in of_try or ()) for of_try in tries_parts]
            positions[key] = min(zip(lost, tries, strict=True), key=lambda pair: (pair[0], -pair[1]))[1]
    specs_made = [spec for spec in specs if spec.key in positions]
    table = rows.take(pa.array([positions[spec.key] for spec in specs_made], pa.int64())).combine_chunks()
    for name in specs_made[0].known if specs_made else ():
        column = rows.schema.get_field_index(name)
        values = pa.array([spec.known[name] for spec in specs_made], rows.schema.field(column).type)
        table = table.set_column(column, rows.schema.field(column), values)
    return table


@dataclass(frozen=True, slots=True)
class Work:
    """The rows made of a shard, their costs, and their total time.

    `found` were finished by a killed run, and their cost is unknown. `figures` holds the counts for the made rows.
    """

    made: Mapping[Key, float]
    found: Sequence[Key]
    seconds: float
    figures: Mapping[Key, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ShardResult:
    """The new table of a shard, the previous one, and the rows it must have."""

    table: pa.Table
    id_column: str
    specs: Sequence[RowSpec]
    previous: pa.Table

    @property
    def states(self) -> dict[str, int]:
        return count_states(self.table["state"].to_pylist())


class Progress:
    """A progress report: one log line every few seconds while a shard is made."""

    def __init__(
        self, what: str, total: int, log: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._what, self._total, self._log, self._clock = what, total, log, clock
        self._done = 0
        self._first = 0.0
        self._reported = clock()

    def step(self) -> None:
        """Count one row as done."""
        self._done += 1
        now = self._clock()
        if self._done == 1:
            self._first = now
        if now - self._reported >= _PROGRESS_SECONDS:
            self._reported = now
            pace = ""
            # The first row does not count, since it may have waited for a model.
            if now != self._first:
                seconds_each = (now - self._first) / (self._done - 1)
                pace = f", {seconds_each:.2f} s each, {seconds_each * (self._total - self._done):.0f} s to go"
            self._log(f"{self._what}: {self._done}/{self._total}{pace}")
