"""The table of reading scores: means, changes since another run, and the verdict."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from resources.evaluation.benchmark import PageText, Sample, Score
from resources.evaluation.metrics import ALL, METRICS, Change, Mean, changes, means
from resources.evaluation.runs.home import EvaluationRequest
from resources.evaluation.scoring import ADAPTERS
from resources.search.scores import ALL as WHOLE
from resources.search.scores import History, ScoreChange
from resources.store import schemas
from resources.store.corpus_tables import OCR_SCORES
from resources.store.shard_store import ShardStore

Row = Mapping[str, Any]
_UNKNOWN = PageText("")
"""A run keeps no gold, and means need none."""


def compare(run: pa.Table, previous: pa.Table | None) -> pa.Table:
    """Return the table OCR_SCORES of a run, compared sample by sample with `previous`."""
    rows = [row for benchmark in run["benchmark"].unique().to_pylist() for row in _rows(benchmark, run, previous)]
    return pa.Table.from_pylist(rows, schemas.OCR_SCORES)


def changes_between(run: pa.Table, other: pa.Table) -> dict[tuple[str, str, str], Change]:
    """Return the changes from `run` to `other`, by benchmark, metric and slice.

    Only samples that have a value in both count.
    """
    return {
        (benchmark, change.metric, change.slice): change
        for benchmark in other["benchmark"].unique().to_pylist()
        for change in _changes(benchmark, other, run)
    }


def significant_drops(scores: pa.Table) -> list[str]:
    """Return a sentence for every headline metric that dropped over all samples.

    Of all the intervals of a table some are on the wrong side by chance: only a benchmark's headline closes a gate.
    """
    return [
        f"{row['benchmark']} is read worse: {row['metric']} went from {row['previous']:.4f} by {row['change']:+.4f} "
        f"(95 % interval {row['change_low']:+.4f} to {row['change_high']:+.4f}) over {row['samples']} samples"
        for row in headline(scores)
        if row["dropped"]
    ]


def headline(scores: pa.Table) -> list[Row]:
    """Return the rows of the headline metrics over all samples that have a value.

    An expression of Arrow would load pandas.
    """
    rows = scores.to_pylist()
    return [row for row in rows if row["slice"] == ALL and row["headline"] and row["value"] is not None]


def headline_changes(scores: pa.Table) -> list[ScoreChange]:
    """Return the headline metrics over all samples, against the run before."""
    return [
        ScoreChange.of(
            row["metric"] if row["metric"] == row["benchmark"] else f"{row['benchmark']} {row['metric']}",
            row,
            row["better"] == "lower",
        )
        for row in headline(scores)
    ]


def scores_of(benchmark: str, run: pa.Table) -> tuple[list[Sample], list[Score]]:
    """Return the samples, without gold, and the scores of a benchmark in a table OCR_RUNS."""
    samples: dict[str, Sample] = {}
    scores = []
    for row in run.filter(pc.field("benchmark") == benchmark).to_pylist():
        if row["sample"] is not None and row["sample"] not in samples:
            slices = dict(row["slices"])
            samples[row["sample"]] = Sample(row["sample"], row["document"], None, slices, _UNKNOWN)
        named = (row["sample"], row["metric"], row["value"], row["size"], row["skipped_reason"], row["lost"])
        scores.append(Score(*named, tuple(row["notes"] or ())))
    return list(samples.values()), scores


def _rows(benchmark: str, run: pa.Table, previous: pa.Table | None) -> Iterator[dict[str, Any]]:
    changed = {}
    if previous is not None:
        changed = {(change.metric, change.slice): change for change in _changes(benchmark, run, previous)}
    adapter = ADAPTERS.get(benchmark)
    for mean in means(*scores_of(benchmark, run)):
        is_headline = adapter is not None and mean.metric in adapter.headline
        yield _row(benchmark, mean, changed.get((mean.metric, mean.slice)), is_headline)


def _changes(benchmark: str, run: pa.Table, previous: pa.Table) -> list[Change]:
    samples, now = scores_of(benchmark, run)
    return changes(samples, scores_of(benchmark, previous)[1], now)


def _row(benchmark: str, mean: Mean, change: Change | None, is_headline: bool) -> dict[str, Any]:
    row = {
        "benchmark": benchmark,
        "metric": mean.metric,
        "slice": mean.slice,
        "better": "lower" if METRICS[mean.metric].lower_is_better else "higher",
        "headline": is_headline,
        "samples": mean.samples,
        "lost": mean.lost,
        "value": mean.value,
        "low": mean.low,
        "high": mean.high,
        "value_of_read": mean.without_lost,
        "dropped": False,
        "skipped": mean.skipped,
        "skipped_reason": mean.skipped_reason,
    }
    if change is None:
        return row
    return row | {
        "previous": change.previous,
        "change": change.change,
        "change_low": change.low,
        "change_high": change.high,
        "dropped": change.worse,
    }


HISTORY = History(
    scores=OCR_SCORES,
    runs="ocr_runs",
    members="ocr_samples",
    member_column="sample",
    schema=schemas.OCR_RUNS,
    compare=compare,
    drops=significant_drops,
    member="samples",
)
"""A run is compared sample by sample, with one that was scored in the same way against the same gold."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an evaluation says of its profile: the scores and the drops nobody accepted."""

    scores: pa.Table
    closed: Sequence[str]


def guards(benchmarks: Mapping[str, str], samples: int) -> list[EvaluationRequest]:
    """Return the evaluations of the gates' `benchmarks`; 0 `samples` are all."""
    return [EvaluationRequest(benchmark, Path(folder), samples or None) for benchmark, folder in benchmarks.items()]


def verdict(store: ShardStore) -> Verdict | None:
    """Return the verdict on an evaluation; None where nothing was scored yet.

    Raises `StoreError`.
    """
    run = HISTORY.latest(store)
    if run is None or not HISTORY.is_scored(store, run.inputs):
        return None
    scores = store.read(OCR_SCORES.name, WHOLE)
    return Verdict(scores, [] if run.accepted else significant_drops(scores))
