"""Summaries of runs, from the ledger."""

from pathlib import Path

import pyarrow as pa

from kopub.recognition.regions import RegionText, retry_counts
from kopub.states import State
from kopub.store import ledger
from kopub.store.run_records import runs_of, sum_rows
from kopub.store.table_store import ShardStore


def entered(run: str, *counted: dict[str, float], seconds: float | None = 2.0) -> pa.Table:
    keys = [(f"page_{at}", f"f-{run}-{at}") for at in range(len(counted))]
    return ledger.entries(keys, [seconds] * len(keys), 1.0, run, "own", dict(zip(keys, counted, strict=True)))


def test_figures_of_rows_come_back_by_run_the_newest_first(tmp_path: Path):
    store = ShardStore(url=str(tmp_path))
    ledger.append(store, "ocr_results", "shard_00", entered("run-1", {"answer_tokens": 100, "answers_loop": 1}, {}))
    second = entered("run-2", {"answer_tokens": 300}, {"answer_tokens": 50, "cells_pruned": 4}, {"rows_blank": 1})
    ledger.append(store, "ocr_results", "shard_00", second)
    newest, oldest = runs_of(ledger.read(store, "ocr_results", "shard_00"))
    assert (newest.run_id, newest.rows, newest.seconds, newest.rows_per_second) == ("run-2", 3, 6.0, 0.5)
    assert newest.summary is not None
    assert newest.summary.most_tokens == [("page_0", 300), ("page_1", 50)]
    assert newest.summary.figures() == {
        "answer_tokens": 350,
        "cells_pruned": 4,
        "rows_blank": 1,
        "tokens_per_row": 175,
        "tokens_median": 175,
        "tokens_most": 300,
    }
    assert oldest.summary is not None
    assert oldest.summary.counted == {"answer_tokens": 100, "answers_loop": 1}


def test_rows_of_unknown_cost_and_engines_that_count_nothing_have_no_summary():
    assert runs_of(entered("run-1", {"answer_tokens": 1}, seconds=None)) == []
    (run,) = runs_of(entered("run-1", {}, {}))
    assert (run.rows, run.summary, sum_rows({})) == (2, None, None)


def test_a_ledger_from_before_figures_were_kept_is_read(tmp_path: Path):
    store = ShardStore(url=str(tmp_path))
    ledger.append(store, "ocr_results", "shard_00", entered("run-1", {}).drop_columns(["figures"]))
    ledger.append(store, "ocr_results", "shard_00", entered("run-2", {"requests": 3}))
    newest, oldest = runs_of(ledger.read(store, "ocr_results", "shard_00"))
    assert oldest.summary is None
    assert newest.summary is not None
    assert newest.summary.figures() == {"requests": 3}


def test_second_tries_and_what_they_brought():
    texts = [
        RegionText(0, "text", "read at once"),
        RegionText(1, "text", "read at last", attempts=3),
        RegionText(2, "text", "", State.FAILED, "loop", attempts=4),
        RegionText(3, "text", "kept", attempts=2, reused=True),
        RegionText(4, "table", "", State.BLANK, attempts=2),
    ]
    assert retry_counts(texts) == {"second_tries": 3, "second_tries_taken": 2, "tables_dropped": 1}
    assert retry_counts(texts[:1]) == {}
