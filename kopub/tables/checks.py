"""Checks of a table before it is published.

Each returns a problem in words, or None.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kopub.errors import ClosedGate
from kopub.release.gates import Gates
from kopub.states import LOST, MADE, State, joined
from kopub.store.rows import one_row_a_part, vector_matrix, vector_width
from kopub.store.table_source import FooterCache
from kopub.store.table_store import ShardStore
from kopub.tables.rows import ShardResult

FEW = 3
"""With fewer pages than this without regions, their share means nothing."""
NORM_TOLERANCE = 5e-3
"""Rounding to float16 changes the norm of a 2048-dimensional unit vector by less than this."""
_NAMED = 5
"""Most lost rows and shards that a check names; the table has them all."""


@dataclass(frozen=True, slots=True)
class Check:
    """A check of an asset.

    A table in which a blocking check finds a problem is not published, and the previous one stays.
    """

    name: str
    description: str
    blocking: bool = True


ACCOUNTED = Check(
    "every_row_accounted_for", "in = ok + partial + blank + failed + quarantined, every row exactly once."
)
NOTHING_LOST = Check(
    "nothing_lost",
    "No row of any shard failed or is quarantined, and no page lacks a region; names those that do, with reasons.",
    blocking=False,
)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a check over all shards.

    If it `stops`, this run does not make the assets downstream.
    """

    check: str
    passed: bool
    stops: bool
    says: str | None
    metadata: Mapping[str, Any]


class Problems:
    """The problems of an asset, by check and shard.

    A result covers all shards of the corpus: the problem of a shard that this run does not make stays as the last run
    found it.
    """

    def __init__(self, checks: Iterable[Check], before: Mapping[str, Mapping[str, str]]) -> None:
        self._checks = {check.name: check for check in checks}
        self._problems: dict[str, dict[str, str]] = {name: dict(before.get(name, {})) for name in self._checks}
        self._figures: dict[str, Any] = {}
        self._of_this_run: set[str] = set()
        self._concluded: dict[str, tuple[bool, str]] = {}

    def note(self, check: str, shard: str, problem: str | None) -> None:
        """Record the problem that a check found in a shard, or that it found none."""
        self._of_this_run.add(shard)
        self._problems[check].pop(shard, None)
        if problem:
            self._problems[check][shard] = problem

    def conclude(self, check: str, passed: bool, says: str) -> None:
        """Give a check a single result over all shards, even if it passed."""
        self._concluded[check] = passed, says

    def stop_at(self, shard: str) -> None:
        """Raise `ClosedGate` when a blocking check has a problem with the shard."""
        blocking = []
        for name, problems in self._problems.items():
            if self._checks[name].blocking and shard in problems:
                blocking.append(problems[shard])
        if blocking:
            raise ClosedGate(joined(blocking))

    def count_losses(self, store: ShardStore, asset: str, key: str, shards: Sequence[str]) -> None:
        """Count the published rows by state, and name the lost ones.

        Raises `StoreError`.
        """
        tables = FooterCache(store).tables(asset)
        problems = self._problems[NOTHING_LOST.name]
        problems.clear()
        published, total = 0, Counter[str]()
        for shard in shards:
            if shard not in tables:
                continue
            states = Counter(tables[shard].states)
            published += 1
            total += states
            lacking = states[State.PARTIAL] + sum(states[state] for state in LOST)
            if lacking and len(problems) < _NAMED:
                problems[shard] = losses(store.read(asset, shard, [key, "state", "reason"]), key) or ""
            elif lacking:
                problems[shard] = f"{lacking} of {states.total()}"
        rows = total.total()
        lost = sum(total[state] for state in LOST)
        self._figures = {
            "shards": published,
            "rows": rows,
            **{f"rows_{state}": total[state] for state in State},
            "lost_share": lost / rows if rows else 0.0,
        }

    def results(self) -> list[Result]:
        figures = {NOTHING_LOST.name: self._figures}
        results = []
        for name, problems in self._problems.items():
            if name in self._concluded:
                continue
            # Problems with shards of other runs are only reported.
            stops = self._checks[name].blocking and bool(problems.keys() & self._of_this_run)
            says = "; ".join(f"{shard}: {problem}" for shard, problem in problems.items()) or None
            metadata = {**problems, "shards_with_problems": len(problems), **figures.get(name, {})}
            results.append(Result(name, not problems, stops, says, metadata))
        for name, (passed, says) in self._concluded.items():
            results.append(Result(name, passed, False, says, {}))
        return results


def unaccounted(result: ShardResult) -> str | None:
    """Return why the states do not add up to the rows, or None.

    in = ok + partial + blank + failed + quarantined: every specified row exactly once, and no other.
    """
    expected = Counter(spec.id for spec in result.specs)
    actual = Counter(result.table[result.id_column].to_pylist())
    lost, extra = expected - actual, actual - expected
    unknown = set(result.table["state"].to_pylist()) - set(State)
    if not (lost or extra or unknown):
        return None
    return (
        f"{expected.total()} rows in, {actual.total()} out: lost {sorted(lost)[:3]}, "
        f"doubled or unasked {sorted(extra)[:3]}, unknown states {sorted(unknown)[:3]}"
    )


def losses(table: pa.Table, id_column: str) -> str | None:
    """Count the rows that failed, are quarantined or incomplete, with the first reasons."""
    lost = table.filter(pc.field("state").isin([*LOST, State.PARTIAL]))
    if not lost.num_rows:
        return None
    rows = zip(lost[id_column].to_pylist(), lost["state"].to_pylist(), lost["reason"].to_pylist(), strict=True)
    first = "; ".join(f"{row_id} {state}: {reason}" for row_id, state, reason in list(rows)[:_NAMED])
    return f"{lost.num_rows} of {table.num_rows}: {first}"


def without_regions(table: pa.Table, previous: pa.Table, gates: Gates) -> str | None:
    """Report a jump in the share of pages without regions.

    A broken detector looks like many blank pages.
    """
    readable = table.filter(pc.field("state") != State.QUARANTINED)
    inked = readable.filter(pc.field("state") != State.BLANK)
    if inked.num_rows and _empty(inked) == inked.num_rows and gates.max_empty_jump < 1:
        return f"no page with ink has a region ({inked.num_rows} pages; the first: {inked['reason'][0]})"
    if _empty(readable) < FEW:
        return None
    before = gates.expected_empty
    if previous.num_rows:
        before = max(before, _empty(previous) / previous.num_rows)
    share = _empty(readable) / readable.num_rows
    if share <= before + gates.max_empty_jump:
        return None
    return (
        f"{_empty(readable)} of {readable.num_rows} pages have no regions ({share:.0%}, expected {before:.0%}), so "
        "nothing was published; if they are really empty, raise gates.max_empty_jump for this run"
    )


def unsound_vectors(rows: pa.Table, dim: int, with_vector: Sequence[State] = MADE, what: str = "rows") -> str | None:
    """Return what is wrong with the vectors of `rows`, which may be figures or passages.

    That is a wrong width, NaN, a norm other than 1, a row in a state `with_vector` that has none, or a vector for a
    row with nothing to embed.
    """
    width = vector_width(rows.schema)
    if width != dim:
        return f"vectors have {width} dimensions, the engine says {dim}"
    expects_vector, has_vector = pc.field("state").isin(list(with_vector)), pc.field("vector").is_valid()
    misplaced = rows.filter((expects_vector & ~has_vector) | (~expects_vector & has_vector)).num_rows
    if misplaced:
        return f"{misplaced} {what} are ok without a vector, or have one without being ok"
    norms = np.linalg.norm(vector_matrix(rows.filter(expects_vector)["vector"]).astype(np.float32), axis=1)
    wrong = int(np.sum(~(np.abs(norms - 1) <= NORM_TOLERANCE)))
    return f"{wrong} vectors hold NaN or are not of norm 1" if wrong else None


def unsound_passage_vectors(table: pa.Table, dim: int) -> str | None:
    """Return what is wrong with the vectors of the passages of pages."""
    passages = one_row_a_part(table, "passages")
    ok = pa.array([State.OK.value] * passages.num_rows, pa.string())
    if problem := unsound_vectors(passages.append_column("state", ok), dim, (State.OK,), "passages"):
        return problem
    bare = _empty(table.filter(pc.field("state").isin(list(MADE))), "passages")
    return f"{bare} rows are ok without a passage" if bare else None


def _empty(table: pa.Table, column: str = "regions") -> int:
    """Count the pages without a region, or without an item of another list `column`."""
    lengths = table[column].combine_chunks().value_lengths().to_pylist()
    return lengths.count(0) + lengths.count(None)
