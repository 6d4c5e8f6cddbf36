"""Runs of marks along an axis of a page."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def true_runs(marks: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the runs (start, end) of true values in a row of marks, `end` exclusive."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], marks, [False])).astype(np.int8))).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def merge_intervals(intervals: Sequence[tuple[int, int]], gap: float) -> list[tuple[int, int]]:
    """Merge intervals with less than `gap` between them, and return them in ascending order."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if merged and start - merged[-1][1] < gap:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged
