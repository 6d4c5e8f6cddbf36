"""What must hold before a table is published. Pure functions: a problem for a person, or None."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kopub_assets.materialize.loop import Made
from resources.config.gates import Gates
from resources.states import State

FEW = 3
"""With fewer pages than this without regions a share says nothing."""
NORM_TOLERANCE = 5e-3
"""Rounding to float16 moves the norm of a 2048-dimensional unit vector by less than this."""


def unaccounted(made: Made) -> str | None:
    """in = ok + blank + failed + quarantined, every owed row once and no other."""
    owed = Counter(row.id for row in made.owed)
    found = Counter(made.table[made.id_column].to_pylist())
    lost, extra = owed - found, found - owed
    unknown = set(made.table["state"].to_pylist()) - set(State)
    if not (lost or extra or unknown):
        return None
    return (
        f"{owed.total()} rows in, {found.total()} out: lost {sorted(lost)[:3]}, "
        f"doubled or unasked {sorted(extra)[:3]}, unknown states {sorted(unknown)[:3]}"
    )


def losses(table: pa.Table, id_column: str) -> str | None:
    """The rows that failed or are quarantined, with the commonest reasons."""
    lost = table.filter(pc.field("state").isin([State.FAILED, State.QUARANTINED]))
    if not lost.num_rows:
        return None
    named = zip(lost[id_column].to_pylist(), lost["state"].to_pylist(), lost["reason"].to_pylist(), strict=True)
    first = "; ".join(f"{row_id} {state}: {reason}" for row_id, state, reason in list(named)[:5])
    return f"{lost.num_rows} of {table.num_rows}: {first}"


def without_regions(table: pa.Table, previous: pa.Table, gates: Gates) -> str | None:
    """A jump in pages without regions: a broken detector looks like a pile of blank pages."""
    readable = table.filter(pc.field("state") != State.QUARANTINED)
    inked = readable.filter(pc.field("state") != State.BLANK)
    if inked.num_rows and _empty(inked) == inked.num_rows:
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


def unsound_vectors(table: pa.Table, dim: int) -> str | None:
    """Wrong width, NaN, or a norm other than 1 where the state is `ok`; a vector where it is not."""
    width = table.schema.field("vector").type.list_size
    if width != dim:
        return f"vectors have {width} dimensions, the engine says {dim}"
    ok, has_vector = pc.field("state") == State.OK, pc.field("vector").is_valid()
    misplaced = table.filter((ok & ~has_vector) | (~ok & has_vector)).num_rows
    if misplaced:
        return f"{misplaced} rows are ok without a vector, or have one without being ok"
    vectors = table.filter(ok)["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    norms = np.linalg.norm(vectors.reshape(-1, dim).astype(np.float32), axis=1)
    wrong = int(np.sum(~(np.abs(norms - 1) <= NORM_TOLERANCE)))
    return f"{wrong} vectors hold NaN or are not of norm 1" if wrong else None


def _empty(table: pa.Table) -> int:
    """Pages without regions."""
    lengths = table["regions"].combine_chunks().value_lengths()
    return sum(not length for length in lengths.to_pylist())
