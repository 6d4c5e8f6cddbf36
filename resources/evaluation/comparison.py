"""Means over samples with their intervals, and what changed since another run. Pure; Arrow and NumPy."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from resources.evaluation.metrics import METRICS, Metric
from resources.scores.significance import FEWEST, ratio_interval
from resources.store.schemas import OCR_SCORES

EVERY = "all"
"""The slice of all samples."""

_HEADLINES = (("cer", "text_edit", "edit", "nid"), ("teds", "facts", "answer_recall", "formula_edit"))
"""Of the text, and of what has a structure or a question: the first of each that a benchmark has closes the gate. Of
all the intervals of a table some are on the wrong side by chance."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """A metric on the samples that two runs share: both values, and the 95 % interval of the second minus the first."""

    before: float
    after: float
    low: float
    high: float
    documents: int
    """Documents whose value changed."""

    @property
    def difference(self) -> float:
        return self.after - self.before

    def is_worse(self, metric: Metric) -> bool:
        """Whether it got worse, significantly and by more than the metric's margin."""
        worse = self.difference if metric.lower_is_better else -self.difference
        surely = self.low > 0 if metric.lower_is_better else self.high < 0
        return self.documents >= FEWEST and surely and worse >= metric.margin


def compare(run: pa.Table, previous: pa.Table | None) -> pa.Table:
    """The table OCR_SCORES of a run, compared sample by sample with `previous` where that has the sample."""
    before = {} if previous is None else _values(previous.to_pylist())
    return pa.Table.from_pylist(list(_rows(run.to_pylist(), before)), OCR_SCORES)


def changes(run: pa.Table, other: pa.Table) -> dict[tuple[str, str, str], Change]:
    """By benchmark, metric and slice, what `other` is against `run` on the samples that both have a value of."""
    first, second = _values(run.to_pylist()), other.to_pylist()
    found = {}
    for named, rows in _parts(second):
        change = _change(named, rows, first)
        if change is not None:
            found[named] = change
    return found


def significant_drops(scores: pa.Table) -> list[str]:
    """A sentence for every headline metric that dropped over all samples, of a table OCR_SCORES."""
    return [
        f"{row['benchmark']} is read worse: {row['metric']} went from {row['previous']:.4f} by {row['change']:+.4f} "
        f"(95 % interval {row['change_low']:+.4f} to {row['change_high']:+.4f}) over {row['samples']} samples"
        for row in scores.to_pylist()
        if row["dropped"] and row["headline"] and row["slice"] == EVERY
    ]


def headline(scores: pa.Table) -> list[Row]:
    """The rows of the headline metrics over all samples."""
    return [row for row in scores.to_pylist() if row["headline"] and row["slice"] == EVERY]


def _headlines(metrics: Iterable[str]) -> set[str]:
    there = set(metrics)
    found = (next((name for name in names if name in there), None) for names in _HEADLINES)
    return {name for name in found if name is not None}


def _parts(rows: Sequence[Row]) -> Iterator[tuple[tuple[str, str, str], list[Row]]]:
    """The rows by benchmark, metric and slice; `all` comes first."""
    parts: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        parts[row["benchmark"], row["metric"], EVERY].append(row)
    sliced: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        for name, value in row["slices"] or ():
            sliced[row["benchmark"], row["metric"], f"{name}={value}"].append(row)
    yield from parts.items()
    yield from sorted(sliced.items(), key=lambda part: part[0])


def _rows(rows: Sequence[Row], before: Mapping[tuple[str, str, str | None], Row]) -> Iterator[dict[str, Any]]:
    metrics: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row["value"] is not None:
            metrics[row["benchmark"]].add(row["metric"])
    headlines = {benchmark: _headlines(names) for benchmark, names in metrics.items()}
    for (benchmark, name, part), samples in _parts(rows):
        metric = METRICS[name]
        scored = [row for row in samples if row["value"] is not None]
        skipped = [row for row in samples if row["value"] is None]
        read = [row for row in scored if not row["lost"]]
        found: dict[str, Any] = {
            "benchmark": benchmark,
            "metric": name,
            "slice": part,
            "better": "lower" if metric.lower_is_better else "higher",
            "headline": name in headlines.get(benchmark, ()),
            "samples": len(scored),
            "lost": len(scored) - len(read),
            "value": _mean(metric, scored),
            "value_of_read": _mean(metric, read),
            "dropped": False,
            "skipped": len(skipped),
            "skipped_reason": skipped[0]["skipped_reason"] if skipped else None,
        }
        if found["value"] is not None and scored[0]["sample"] is not None:
            found["low"], found["high"] = ratio_interval(_groups(metric, scored))
        change = _change((benchmark, name, part), samples, before)
        if change is not None:
            found |= {
                "previous": change.before,
                "change": change.difference,
                "change_low": change.low,
                "change_high": change.high,
                "dropped": change.is_worse(metric),
            }
        yield found


def _change(
    named: tuple[str, str, str], rows: Sequence[Row], before: Mapping[tuple[str, str, str | None], Row]
) -> Change | None:
    """Over the samples with a value in both runs; None where there are none."""
    benchmark, name, _ = named
    pairs = [
        (before[key], row)
        for row in rows
        if row["sample"] is not None and row["value"] is not None
        for key in [(benchmark, name, row["sample"])]
        if key in before
    ]
    if not pairs:
        return None
    metric = METRICS[name]
    # The documents of the run now, so that both means are over the same groups.
    documents = [row["document"] for _, row in pairs]
    old, new = (_groups(metric, side, documents) for side in zip(*pairs, strict=True))
    low, high = ratio_interval(new, old)
    changed = {row["document"] for first, row in pairs if first["value"] != row["value"]}
    values = (float(sums.sum() / weights.sum()) if weights.sum() else 0.0 for sums, weights in (old, new))
    return Change(*values, low, high, len(changed))


def _values(rows: Iterable[Row]) -> dict[tuple[str, str, str | None], Row]:
    return {(r["benchmark"], r["metric"], r["sample"]): r for r in rows if r["value"] is not None}


def _weight(metric: Metric, row: Row) -> float:
    return row["size"] if metric.pooled else 1.0


def _mean(metric: Metric, rows: Sequence[Row]) -> float | None:
    weights = sum(_weight(metric, row) for row in rows)
    return sum(row["value"] * _weight(metric, row) for row in rows) / weights if weights else None


def _groups(
    metric: Metric, rows: Sequence[Row], documents: Sequence[str] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(sums, weights) of the samples by document."""
    named = [row["document"] for row in rows] if documents is None else documents
    places = {document: at for at, document in enumerate(dict.fromkeys(named))}
    sums, weights = np.zeros(len(places)), np.zeros(len(places))
    for document, row in zip(named, rows, strict=True):
        weight = _weight(metric, row)
        sums[places[document]] += row["value"] * weight
        weights[places[document]] += weight
    return sums, weights
