"""Blocking checks report what is wrong and nothing else."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kopub.release.gates import Gates
from kopub.states import State, decisive
from kopub.store.schemas import LAYOUT_REGIONS, PARSED_TEXTS, page_embeddings
from kopub.tables.checks import ACCOUNTED, Problems, losses, unaccounted, unsound_vectors, without_regions
from kopub.tables.rows import RowSpec, ShardResult

REGION = {"index": 0, "label": "text", "task": "text", "score": 0.9, "bbox": [0, 0, 1, 1], "bbox_2d": [0, 0, 9, 9]}


def texts(*rows: tuple[str, str]) -> pa.Table:
    return pa.Table.from_pylist([{"page_id": i, "state": s, "fingerprint": "f"} for i, s in rows], PARSED_TEXTS)


def made(table: pa.Table, *ids: str) -> ShardResult:
    return ShardResult(table, "page_id", [RowSpec(i, "f", {}) for i in ids], table.slice(0, 0))


def layout(ok: int = 0, blank: int = 0, failed: int = 0, quarantined: int = 0) -> pa.Table:
    states = [State.OK] * ok + [State.BLANK] * blank + [State.FAILED] * failed + [State.QUARANTINED] * quarantined
    rows: list[dict[str, Any]] = [
        {
            "page_id": f"p{at}",
            "regions": [REGION] if state is State.OK else [],
            "state": state,
            "reason": "no regions" if state is State.FAILED else None,
            "fingerprint": "f",
        }
        for at, state in enumerate(states)
    ]
    return pa.Table.from_pylist(rows, LAYOUT_REGIONS)


def test_counts_that_reconcile_are_fine():
    assert unaccounted(made(texts(("a", "ok"), ("b", "failed")), "a", "b")) is None


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (texts(("a", "ok")), "lost ['b']"),
        (texts(("a", "ok"), ("b", "ok"), ("b", "ok")), "doubled or unasked ['b']"),
        (texts(("a", "ok"), ("b", "ok"), ("c", "ok")), "doubled or unasked ['c']"),
        (texts(("a", "ok"), ("b", "lost")), "unknown states ['lost']"),
    ],
)
def test_a_row_that_is_not_accounted_for_is_named(table: pa.Table, problem: str):
    assert problem in (unaccounted(made(table, "a", "b")) or "")


def test_the_problem_of_a_shard_of_an_earlier_run_is_told_and_stops_nothing():
    problems = Problems([ACCOUNTED], {ACCOUNTED.name: {"shard_00": "lost ['b']"}})
    problems.note(ACCOUNTED.name, "shard_01", None)
    (result,) = problems.results()
    assert (result.passed, result.stops, result.says) == (False, False, "shard_00: lost ['b']")
    problems.note(ACCOUNTED.name, "shard_01", "lost ['c']")
    (result,) = problems.results()
    assert (result.passed, result.stops) == (False, True)


def test_losses_are_named_with_their_reasons():
    assert losses(layout(ok=3, blank=1), "page_id") is None
    assert losses(layout(ok=1, failed=1), "page_id") == "1 of 2: p1 failed: no regions"


@pytest.mark.parametrize(
    ("table", "previous"),
    [
        (layout(ok=6), None),
        (layout(ok=1, quarantined=9), None),
        (layout(blank=2), None),
        (layout(ok=7, blank=3), None),
        (layout(ok=5, blank=5), layout(ok=6, blank=4)),
        (layout(ok=1, failed=1), None),
    ],
)
def test_a_usual_number_of_empty_pages_passes(table: pa.Table, previous: pa.Table | None):
    assert without_regions(table, previous or layout(), Gates()) is None


@pytest.mark.parametrize(
    ("table", "previous", "problem"),
    [
        (layout(failed=1), None, "no page with ink has a region"),
        (layout(failed=4, blank=2), layout(ok=6), "no page with ink has a region"),
        (layout(ok=6, blank=4), None, "4 of 10 pages have no regions"),
        (layout(ok=6, failed=4), layout(ok=10), "4 of 10 pages have no regions"),
    ],
)
def test_a_jump_in_empty_pages_stops_the_run(table: pa.Table, previous: pa.Table | None, problem: str):
    assert problem in (without_regions(table, previous or layout(), Gates()) or "")


def test_a_jump_can_be_allowed():
    assert without_regions(layout(ok=6, blank=4), layout(), Gates(max_empty_jump=0.5)) is None
    assert without_regions(layout(failed=4), layout(), Gates(max_empty_jump=1)) is None


def vectors(*rows: tuple[str, list[float] | None]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {"page_id": f"p{at}", "state": state, "vector": vector and np.array(vector, np.float16), "fingerprint": "f"}
            for at, (state, vector) in enumerate(rows)
        ],
        page_embeddings(2),
    )


def test_sound_vectors_pass():
    assert unsound_vectors(vectors(("ok", [0.6, 0.8]), ("blank", None)), 2) is None
    assert unsound_vectors(vectors(), 2) is None


@pytest.mark.parametrize(
    ("table", "dim", "problem"),
    [
        (vectors(("ok", [0.6, 0.8])), 3, "2 dimensions, the engine says 3"),
        (vectors(("ok", [float("nan"), 1.0])), 2, "1 vectors hold NaN or are not of norm 1"),
        (vectors(("ok", [0.0, 0.0])), 2, "1 vectors hold NaN or are not of norm 1"),
        (vectors(("ok", [1.0, 1.0])), 2, "1 vectors hold NaN or are not of norm 1"),
        (vectors(("ok", None)), 2, "1 rows are ok without a vector"),
        (vectors(("failed", [1.0, 0.0])), 2, "1 rows are ok without a vector"),
    ],
)
def test_unsound_vectors_are_named(table: pa.Table, dim: int, problem: str):
    assert problem in (unsound_vectors(table, dim) or "")


def test_a_page_that_one_step_lost_is_lost_although_an_earlier_one_made_a_part_of_it():
    assert decisive({"ocr_results": State.PARTIAL, "corpus_text_embeddings": State.FAILED}) == "corpus_text_embeddings"
    assert decisive({"ocr_results": State.BLANK, "corpus_text_embeddings": State.PARTIAL}) == "corpus_text_embeddings"
    assert decisive({"ocr_results": State.OK}) is None
