"""What the engines counted in a run: tokens, retries, and what was left out. Pure."""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import mean, median
from typing import Any

import pyarrow as pa

from resources.store.records.ledger import moment_of

ANSWER_TOKENS = "answer_tokens"
"""Tokens that a model wrote for a row."""
COUNTED = {
    "requests": "requests",
    "image_tokens": "image tokens",
    ANSWER_TOKENS: "answer tokens",
    "second_tries": "second tries",
    "second_tries_taken": "of them taken",
    "second_tries_left_out": "second tries left out",
    "answers_loop": "loops",
    "answers_cut": "cut answers",
    "answers_empty": "empty answers",
    "answers_runaway": "runaway answers",
    "regions_reused": "answers reused",
    "cells_pruned": "cells pruned",
    "tables_dropped": "tables dropped",
    "regions_blank": "blank regions",
    "regions_failed": "failed regions",
    "rows_blank": "blank",
    "rows_partial": "partial",
    "rows_failed": "failed",
    "rows_quarantined": "quarantined",
}
"""The figures of a summary, with their names for a person; engines count more, which the UI shows."""
_LISTED = 5
"""Rows with the most tokens that are named."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Sums over the rows of which something was counted, and the answer tokens of each row that has some."""

    rows: int
    counted: Mapping[str, float]
    tokens: Mapping[str, int]

    @property
    def most_tokens(self) -> list[tuple[str, int]]:
        """(id, tokens) of the rows with the longest answers, the longest first."""
        return sorted(self.tokens.items(), key=lambda each: (-each[1], each[0]))[:_LISTED]

    def figures(self) -> dict[str, float]:
        """Return the sums by name, and what a row usually and at most has of tokens."""
        known = {name: self.counted[name] for name in COUNTED if self.counted.get(name)}
        if not self.tokens:
            return known
        each = list(self.tokens.values())
        return {**known, "tokens_per_row": mean(each), "tokens_median": median(each), "tokens_most": max(each)}


@dataclass(frozen=True, slots=True)
class AssetRun:
    """What one run did for one asset: rows whose cost is known, their seconds, when it ended, and what was counted."""

    run_id: str
    ended: datetime
    rows: int
    seconds: float
    summary: Summary | None

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0


def summed(figures: Mapping[tuple[str, str], Mapping[str, float]]) -> Summary | None:
    """Return the summary of rows by their (id, fingerprint); None where nothing was counted."""
    counted: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    for (row_id, _), each in figures.items():
        counted.update(each)  # pyright: ignore[reportCallIssue, reportArgumentType]
        if each.get(ANSWER_TOKENS):
            tokens[row_id] += int(each[ANSWER_TOKENS])
    rows = sum(1 for each in figures.values() if each)
    return Summary(rows, dict(counted), dict(tokens)) if rows else None


def runs_of(ledger: pa.Table, most: int | None = None) -> list[AssetRun]:
    """Return what each run of a ledger of one asset did, the newest first and no more than `most`.

    Rows of unknown cost are left out.
    """
    # By plain values, and times as numbers: expressions, and moments as Python has them, load pandas.
    known = ledger.filter(ledger["seconds"].is_valid())
    moments: list[Any] = known["made_at"].cast(pa.int64()).to_pylist()
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    ended: dict[str, int] = {}
    values = known.select(["row_id", "fingerprint", "run_id", "seconds", "figures"]).to_pylist()
    for row, moment in zip(values, moments, strict=True):
        run_id = row["run_id"]
        rows[run_id].append(row)
        ended[run_id] = max(moment, ended.get(run_id, moment))
    newest = sorted(ended, key=lambda run_id: -ended[run_id])
    return [_run(run_id, moment_of(ended[run_id]), rows[run_id]) for run_id in newest[:most]]


def _run(run_id: str, ended: datetime, rows: Sequence[Mapping[str, Any]]) -> AssetRun:
    counted = {(row["row_id"], row["fingerprint"]): json.loads(row["figures"]) for row in rows if row["figures"]}
    return AssetRun(run_id, ended, len(rows), sum(row["seconds"] for row in rows), summed(counted))
