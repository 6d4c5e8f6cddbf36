"""Measure the cpu profile: error rates with intervals, doubts, CPU seconds and retrieval.

    python -m benchmarks.reading.cpu_quality [FOLDER] [--benchmark NAME] [--limit SAMPLES] [--home HOME]

It makes the same evaluation as `kopub evaluate NAME FOLDER` (default: the pages of the samples with the text of their
PDFs), with one thread, so that CPU seconds are those of one core. With `--home` it continues where it was stopped; only
a run that reads every page gives the cost of a page. If the folder has `qa.parquet`, retrieval ranks the text vectors
of all pages by dot product with each query's.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ["OMP_THREAD_LIMIT"] = "1"

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from kopub.cli.evaluation_display import reading, show
from kopub.config.settings import Settings
from kopub.evaluation.home import EvaluationRequest
from kopub.store.corpus_tables import TABLES
from kopub.tables.evaluations import Evaluation, evaluate, prepare_answers, settings_in
from kopub.texts.text_quality import DOUBTFUL

ROOT = Path(__file__).resolve().parents[2]
PROFILE = {
    "layout": {"engine": "cpu", "threads": 1},
    "recognition": {"engine": "tesseract", "threads": 1},
    "embedding": {"engine": "hashed"},
}
WORST = 10
BAD = 0.3
"""The error rate above which a page is badly read."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "samples")
    parser.add_argument("--benchmark", default="texts", help="name of a benchmark of `kopub evaluate`")
    parser.add_argument("--limit", type=int, help="only the first SAMPLES by the hash of their ids")
    parser.add_argument("--home", type=Path, help="keep what was read here")
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    with tempfile.TemporaryDirectory() as folder:
        asked = EvaluationRequest(arguments.benchmark, arguments.folder, arguments.limit)
        measure(asked, Settings.of(arguments.home or Path(folder), PROFILE, "cpu"), Console())


def measure(asked: EvaluationRequest, settings: Settings, console: Console) -> None:
    known = prepare_answers(asked, settings.home)
    moved = settings_in(settings, asked)
    begun = any(moved.store.published(table.name) for table in TABLES)
    started = time.process_time()
    with reading(moved, console):
        evaluated = evaluate(moved)
    seconds = time.process_time() - started
    show(known, [evaluated], console)
    console.print(pages_table(evaluated))
    console.print(doubts_table(evaluated, moved))
    if not begun:
        console.print(f"{seconds / len(known.benchmark.samples):.2f} CPU s a page, Dagster, store and scorers included")
    questions = asked.folder / "qa.parquet"
    # Benchmarks other than the plain texts give ids of samples, not of the pages that answer.
    if asked.benchmark == "texts" and questions.is_file():
        console.print(retrieval_table(texts_of(moved), pq.read_table(questions).to_pylist()))


def pages_table(evaluated: Evaluation) -> Table:
    """Return the distribution of the pages' character error rates, and the worst pages."""
    errors = {row["sample"]: row["value"] for row in of_metric(evaluated.run.table, "cer")}
    table = Table("page", "error rate", title=f"{len(errors)} pages")
    for name, share in (("median", 50), ("p90", 90)):
        table.add_row(name, f"{np.percentile(list(errors.values()), share):.4f}" if errors else "")
    for page in sorted(errors, key=lambda page: -errors[page])[:WORST]:
        table.add_row(page, f"{errors[page]:.4f}")
    return table


def doubts_table(evaluated: Evaluation, settings: Settings) -> Table:
    """Return the doubted pages among badly read and other ones, by form and half.

    The halves are alternate pages by id; the rules are chosen on the first half.
    """
    doubt = {row["page_id"]: row["doubt"] or 0.0 for row in text_rows(settings)}
    rows = of_metric(evaluated.run.table, "cer")
    halves = {page: at % 2 for at, page in enumerate(sorted({row["sample"].partition("__")[0] for row in rows}))}
    parts: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        form = dict(row["slices"]).get("form", "all")
        half = "second half" if halves[row["sample"].partition("__")[0]] else "first half"
        for part in dict.fromkeys((form, half)):
            parts.setdefault(part, []).append(row)
    table = Table("pages", "", "mean error", "worst", f"error > {BAD}", "doubted", "others", "doubted")
    for part, of_part in parts.items():
        errors = [row["value"] for row in of_part]
        doubted = [
            [doubt.get(row["sample"], 0.0) >= DOUBTFUL for row in of_part if (row["value"] > BAD) == bad]
            for bad in (True, False)
        ]
        counts = [str(count) for each in doubted for count in (len(each), sum(each))]
        table.add_row(part, str(len(errors)), f"{np.mean(errors):.3f}", f"{max(errors):.3f}", *counts)
    return table


def of_metric(run: pa.Table, metric: str) -> list[dict[str, Any]]:
    return [row for row in run.to_pylist() if row["metric"] == metric and row["value"] is not None]


def texts_of(settings: Settings) -> dict[str, str]:
    """Return the text of every page that was read, by id."""
    return {row["page_id"]: row["text"] or "" for row in text_rows(settings)}


def text_rows(settings: Settings) -> list[dict[str, Any]]:
    tables = [settings.store.read(TABLES.texts.name, key) for key in settings.corpus.manifest.keys]
    return [row for table in tables for row in table.to_pylist()]


def retrieval_table(texts: Mapping[str, str], questions: Sequence[dict[str, Any]]) -> Table:
    from kopub.embedding.hashed import HashedEmbedder

    embedder = HashedEmbedder()
    pages = {e.id: e.vector for e in embedder.embed_texts(texts.items()) if e.vector is not None}
    queries = {e.id: e.vector for e in embedder.embed_queries((q["id"], q["query"]) for q in questions)}
    ids, matrix = list(pages), np.stack(list(pages.values()))
    ranks = []
    for question in questions:
        vector = queries[question["id"]]
        if vector is None or not set(question["ground_truth"]) & pages.keys():
            continue
        ranked = [ids[position] for position in np.argsort(-(matrix @ vector), kind="stable")]
        ranks.append(min(ranked.index(page_id) for page_id in question["ground_truth"] if page_id in pages))
    table = Table("recall", "", title=f"{len(ranks)} queries over {len(ids)} pages")
    for depth in (1, 5, 10):
        table.add_row(f"@{depth}", f"{np.mean([rank < depth for rank in ranks]):.3f}")
    return table


if __name__ == "__main__":
    main()
