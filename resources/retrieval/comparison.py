"""Means over queries with their intervals, and what changed since another run. Pure; Arrow and NumPy."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from resources.retrieval.ranking_metrics import METRICS
from resources.retrieval.scoring import CONVENTIONS
from resources.scores.significance import FEWEST, interval
from resources.scores.summary import ScoreChange
from resources.store.schemas import RETRIEVAL_SCORES

ALL = "all"
MAIN = "ndcg@10"
"""The main score of mteb's tasks on this corpus."""

_FLOOR = 0.01
"""A smaller drop is no loss to a reader, and changing a hundredth of the pages can make it."""


def compare(run: pa.Table, previous: pa.Table | None) -> pa.Table:
    """The table RETRIEVAL_SCORES of a run, compared query by query with `previous` where that has the query."""
    rows = [row for part in _parts(run) for row in _rows(part, previous)]
    return pa.Table.from_pylist(rows, RETRIEVAL_SCORES)


def significant_drops(table: pa.Table) -> list[str]:
    """A sentence for every retriever whose main score dropped over all queries, of a table RETRIEVAL_SCORES.

    Only the main score by the convention of mteb closes a gate: of the table's hundreds of intervals
    some are below zero by chance.
    """
    return [
        f"{row['retriever']} finds less: {row['metric']} fell from {row['previous']:.3f} by {-row['change']:.3f} "
        f"(95 % interval {row['change_low']:+.3f} to {row['change_high']:+.3f}) over {row['queries']} queries"
        for row in _of_all(table)
        if row["metric"] == MAIN and row["dropped"]
    ]


def headline(table: pa.Table) -> dict[str, dict[str, float]]:
    """The means over all queries where one page answers, by retriever and metric."""
    found: dict[str, dict[str, float]] = {}
    for row in _of_all(table):
        found.setdefault(row["retriever"], {})[row["metric"]] = row["value"]
    return found


def headline_changes(table: pa.Table) -> list[ScoreChange]:
    """The main score of each retriever over all queries, against the run before."""
    return [
        ScoreChange.of(f"{row['retriever']} nDCG@10", row, False) for row in _of_all(table) if row["metric"] == MAIN
    ]


def _of_all(table: pa.Table) -> list[dict[str, Any]]:
    """The rows over all queries where one page answers; in Python, as an expression of Arrow's loads pandas."""
    return [row for row in table.to_pylist() if (row["query_type"], row["convention"]) == (ALL, "first")]


def _parts(run: pa.Table) -> Iterator[tuple[dict[str, str], pa.Table]]:
    """The run by retriever, convention and query type; the type `all` is all of them."""
    for retriever in run["retriever"].unique().to_pylist():
        for convention in CONVENTIONS:
            of = {"retriever": retriever, "convention": convention}
            asked = _of(run, of)
            types = sorted(kind for kind in asked["query_type"].unique().to_pylist() if kind)
            if asked.num_rows:
                yield {**of, "query_type": ALL}, asked
            for kind in types:
                yield {**of, "query_type": kind}, asked.filter(pc.field("query_type") == kind)


def _rows(part: tuple[dict[str, str], pa.Table], previous: pa.Table | None) -> Iterator[dict[str, Any]]:
    named, asked = part
    values = _values(asked)
    low, high = interval(values)
    before, after = _paired(asked, None if previous is None else _of(previous, named))
    changes = after - before
    change_low, change_high = interval(changes) if len(changes) else (None, None)
    for at, metric in enumerate(METRICS):
        row = {
            **named,
            "metric": metric,
            "queries": len(values),
            "value": values[:, at].mean(),
            "low": low[at],
            "high": high[at],
            "dropped": False,
        }
        if change_low is not None and change_high is not None:
            row["previous"] = before[:, at].mean()
            row["change"] = changes[:, at].mean()
            row["change_low"], row["change_high"] = change_low[at], change_high[at]
            enough = np.count_nonzero(changes[:, at]) >= FEWEST
            row["dropped"] = bool(enough and row["change_high"] < 0 and row["change"] <= -_FLOOR)
        yield row


def _of(run: pa.Table, named: dict[str, str]) -> pa.Table:
    return run.filter((pc.field("retriever") == named["retriever"]) & (pc.field("convention") == named["convention"]))


def _paired(asked: pa.Table, previous: pa.Table | None) -> tuple[np.ndarray, np.ndarray]:
    """The scores of the queries that both have, before and after, in one order."""
    if previous is None:
        return np.empty((0, len(METRICS))), np.empty((0, len(METRICS)))
    known = {query_id: row for row, query_id in enumerate(previous["query_id"].to_pylist())}
    pairs = [(known[query_id], row) for row, query_id in enumerate(asked["query_id"].to_pylist()) if query_id in known]
    rows = np.array(pairs, np.int64).reshape(-1, 2)
    return _values(previous)[rows[:, 0]], _values(asked)[rows[:, 1]]


def _values(run: pa.Table) -> np.ndarray:
    return np.stack([run[metric].to_numpy() for metric in METRICS], axis=1)
