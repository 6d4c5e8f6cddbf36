"""Retrieval metrics by query, as defined by trec_eval, and their comparison."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike

from kopub.errors import counted
from kopub.search.options import NOTHING, ModeScores
from kopub.search.scores import FEWEST, History, ScoreChange, interval, stored_scores
from kopub.states import phrase
from kopub.store.corpus_tables import SCORES as SCORES_TABLE
from kopub.store.corpus_tables import TABLES, VECTOR_TABLES
from kopub.store.schemas import RETRIEVAL_SCORES, retrieval_runs
from kopub.store.table_source import CorpusCheck
from kopub.store.table_store import ShardStore

Metric = Callable[[np.ndarray, np.ndarray], ArrayLike]
"""A function of (queries, places), whether the page there answers, and (queries,), the number of pages that answer."""
_GAINS = 1 / np.log2(np.arange(2, 12))
"""The gain of an answer at each of the first ten places, by nDCG."""

METRICS: dict[str, Metric] = {
    "recall@1": lambda answers, _: answers[:, :1].any(axis=1),
    "recall@5": lambda answers, _: answers[:, :5].any(axis=1),
    "recall@10": lambda answers, _: answers[:, :10].any(axis=1),
    "recall@20": lambda answers, _: answers[:, :20].any(axis=1),
    "ndcg@10": lambda answers, pages: (
        answers[:, :10] @ _GAINS[: answers.shape[1]] / _GAINS.cumsum()[np.minimum(pages, 10) - 1]
    ),
    "mrr": lambda answers, _: (answers / np.arange(1, answers.shape[1] + 1)).max(axis=1, initial=0),
}
"""The metrics by name. recall@k is 1 if one of the first k pages answers (mteb's hit rate)."""
RUN = retrieval_runs(METRICS)
CONVENTIONS = ("first", "any")
"""Which pages answer: only the first ground-truth page, as in mteb, or any ground-truth page, as in the benchmark."""


def score(ranking: np.ndarray, relevant: Sequence[Collection[int]]) -> np.ndarray:
    """Return the scores of a ranking as float64 (queries, METRICS).

    `relevant` has the pages that answer each query, at least one each.
    """
    answers = np.zeros(ranking.shape, bool)
    for row, (places, pages) in enumerate(zip(ranking.tolist(), relevant, strict=True)):
        answers[row] = [page in pages for page in places]
    counts = np.array([len(pages) for pages in relevant], np.int64)
    return np.stack([metric(answers, counts) for metric in METRICS.values()], axis=1).astype(np.float64)


ALL_TYPES = "all"
MAIN = "ndcg@10"
"""The main score of mteb's tasks on this corpus."""
_FLOOR = 0.01
"""Smallest drop that counts: a smaller one does not hurt users, and may come from changing a hundredth of the pages."""


def compare(run: pa.Table, previous: pa.Table | None) -> pa.Table:
    """Return the table RETRIEVAL_SCORES of a run, compared with `previous`.

    The comparison is query by query, for the queries that `previous` has.
    """
    rows: list[dict[str, Any]] = []
    for retriever in run["retriever"].unique().to_pylist():
        for convention in CONVENTIONS:
            of_both = (pc.field("retriever") == retriever) & (pc.field("convention") == convention)
            questions, before = run.filter(of_both), (previous or RUN.empty_table()).filter(of_both)
            types = sorted({*questions["query_type"].unique().to_pylist()} - {None, "", ALL_TYPES})
            for kind in [ALL_TYPES, *types] if questions.num_rows else []:
                of_kind = questions if kind == ALL_TYPES else questions.filter(pc.field("query_type") == kind)
                named = {"retriever": retriever, "convention": convention, "query_type": kind}
                rows += ({**named, **row} for row in _compared(of_kind, before))
    return pa.Table.from_pylist(rows, RETRIEVAL_SCORES)


def _compared(run: pa.Table, previous: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield the mean of each metric, and its change over the questions of both runs."""
    values = _values(run)
    low, high = interval(values)
    numbers = {query_id: number for number, query_id in enumerate(previous["query_id"].to_pylist())}
    rows_before: list[int] = []
    rows_now: list[int] = []
    for number, query_id in enumerate(run["query_id"].to_pylist()):
        if query_id in numbers:
            rows_before.append(numbers[query_id])
            rows_now.append(number)
    before = _values(previous)[rows_before]
    changes = values[rows_now] - before
    change_low, change_high = interval(changes) if len(changes) else (None, None)
    for at, metric in enumerate(METRICS):
        row: dict[str, Any] = {
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


def _values(run: pa.Table) -> np.ndarray:
    return np.stack([run[metric].to_numpy() for metric in METRICS], axis=1)


def significant_drops(table: pa.Table) -> list[str]:
    """Return a sentence for every retriever whose main score dropped significantly.

    `table` is RETRIEVAL_SCORES; the score is over all queries. Only the main score by mteb's convention closes a gate,
    because some of the table's hundreds of intervals are below zero by chance.
    """
    drops: list[str] = []
    for row in _of_all(table):
        if row["metric"] == MAIN and row["dropped"]:
            form = (
                "{by} finds less: {metric} fell from {previous:.3f} by {fall:.3f} (95 % interval {low:+.3f} to "
                "{high:+.3f}) over the queries of both runs"
            )
            values = (row["previous"], -row["change"], row["change_low"], row["change_high"])
            drops.append(phrase(form, row["retriever"], row["metric"], *values))
    return drops


def headline(table: pa.Table) -> dict[str, dict[str, float]]:
    """Return the mean scores by retriever and metric over all queries.

    They follow the convention in which one page answers.
    """
    means: dict[str, dict[str, float]] = {}
    for row in _of_all(table):
        means.setdefault(row["retriever"], {})[row["metric"]] = row["value"]
    return means


def headline_changes(table: pa.Table) -> list[ScoreChange]:
    """Return each retriever's change of the main score over all queries since the last run."""
    return [
        ScoreChange.of(f"{row['retriever']} nDCG@10", row, False, _FLOOR, counted(row["queries"], "question"))
        for row in _of_all(table)
        if row["metric"] == MAIN
    ]


def _of_all(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows over all queries by the convention in which one page answers.

    They are selected in Python, because an Arrow expression would load pandas.
    """
    return [row for row in table.to_pylist() if (row["query_type"], row["convention"]) == (ALL_TYPES, "first")]


SCORES = SCORES_TABLE.name
"""The asset of the scores."""
HISTORY = History(
    scores=SCORES_TABLE,
    runs="retrieval_runs",
    members="retrieval_pages",
    member_column="page_id",
    schema=RUN,
    compare=compare,
    drops=significant_drops,
    member="pages",
)
"""The history of runs; a run is compared, query by query, with one that searched the same pages."""
_MEASURED = (TABLES.texts.name, TABLES.query_vectors.name, *(table.name for table in VECTOR_TABLES.values()))
"""The tables that determine the scores."""


class MeasuredScores:
    """The scores of a corpus, read again whenever one of its tables is replaced."""

    def __init__(self, store: ShardStore, shards: Sequence[str], corpus_check: CorpusCheck) -> None:
        self._store, self._shards, self._corpus_check = store, shards, corpus_check
        self._known: tuple[object, ModeScores] | None = None

    def __call__(self) -> ModeScores:
        """Return the scores if they belong to the tables' present rows. Raises `StoreError`."""
        versions = [self._store.published(asset) for asset in (SCORES, *_MEASURED)]
        if self._known is None or self._known[0] != versions:
            scores, table = NOTHING, stored_scores(self._store, SCORES_TABLE)
            look = self._corpus_check.look
            if table is not None and HISTORY.is_of_tables_now(self._store, self._shards, look()):
                wanted = (pc.field("query_type") == ALL_TYPES) & (pc.field("metric") == MAIN)
                rows = table.filter(wanted & (pc.field("convention") == "first")).to_pylist()
                by_retriever = {row["retriever"]: row["value"] for row in rows}
                scores = ModeScores(by_retriever, rows[0]["queries"] if rows else 0)
            self._known = versions, scores
        return self._known[1]
