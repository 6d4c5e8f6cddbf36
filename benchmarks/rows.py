"""Measure the checks of a table and the retrieval scores, by number of rows.

    python -m benchmarks.rows [--rows 10000,40000,100000] [--dim 2048] [--queries 600]

First comes a shard's table of vectors: its checks, the fingerprint of its rows, writing and reading it. Then come the
scores of as many pages: the nearest pages of each query by vectors, by BM25 over 300 words a page, and by their fusion.
Measured are CPU seconds, and the peak memory of a process of its own.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.made_up_vectors import column, noise, unit
from kopub.search.metrics import score
from kopub.search.ranking import Bm25, Ranker, Ranking, fuse
from kopub.store.schemas import page_embeddings
from kopub.store.table_store import ShardStore
from kopub.tables.checks import unaccounted, unsound_vectors
from kopub.tables.provenance import content
from kopub.tables.rows import RowSpec, ShardResult, assemble, unfinished

T = TypeVar("T")
WORDS, VOCABULARY, AT_ONCE = 300, 50_000, 2_000


def measured(rows: int, dim: int, queries: int) -> dict[str, float]:
    """Return the CPU seconds of each step, and peak MiB."""
    took: dict[str, float] = {}

    def timed(what: str, work: Callable[[], T]) -> T:
        started = time.process_time()
        result = work()
        took[what] = time.process_time() - started
        return result

    chance = np.random.default_rng(0)
    vectors = unit(noise(chance, rows, dim))
    schema = page_embeddings(dim)
    ids = [f"p_{row}" for row in range(rows)]
    specs = [RowSpec(row_id, [row], {}) for row, row_id in enumerate(ids)]
    values = {
        "page_id": pa.array(ids),
        "state": pa.array(["ok"] * rows, schema.field("state").type),
        "fingerprint": pa.array([fingerprint for _, fingerprint in (spec.key for spec in specs)]),
        "vector": column(vectors),
    }
    table = pa.table(
        [values[field.name] if field.name in values else pa.nulls(rows, field.type) for field in schema], schema=schema
    )
    timed("what is unfinished", lambda: unfinished(specs, [table], "page_id"))
    whole = timed("assembled", lambda: assemble(specs, table, "page_id"))
    made = ShardResult(whole, "page_id", specs, schema.empty_table())
    assert timed("check: every row once", lambda: unaccounted(made)) is None
    assert timed("check: vectors", lambda: unsound_vectors(whole, dim)) is None
    timed("fingerprint", lambda: content(whole))
    with tempfile.TemporaryDirectory() as folder:
        store = ShardStore(url=folder)
        timed("written", lambda: store.write("vectors", "shard_00", whole, {"recipe": "r"}))
        timed("read", lambda: store.read("vectors", "shard_00"))
    asked = vectors[chance.integers(0, rows, queries)]
    best = Ranker(queries)

    def nearest() -> Ranking:
        for start in range(0, rows, AT_ONCE):
            pages = np.arange(start, min(start + AT_ONCE, rows))
            best.add_vectors(pages, vectors[pages], asked)
        return Ranking("text", *best.ranking())

    by_vectors = timed("scores: vectors", nearest)
    words = np.array([f"w{number}" for number in range(VOCABULARY)], object)
    bm25 = Bm25()

    def added() -> None:
        for page in range(rows):
            bm25.add(page, words[np.minimum(chance.zipf(1.3, WORDS), VOCABULARY) - 1])

    timed("scores: BM25, words added", added)
    by_words = timed("scores: BM25", lambda: bm25.rank([list(words[50 + q : 56 + q]) for q in range(queries)]))
    fused = timed("scores: fusion", lambda: fuse([by_vectors, by_words], {}))
    timed("scores: metrics", lambda: score(fused, [[q] for q in range(queries)]))
    took["peak MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="10000,40000,100000")
    parser.add_argument("--dim", type=int, default=2048)
    parser.add_argument("--queries", type=int, default=600)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(int(options.rows), options.dim, options.queries)))
        return
    sizes = options.rows.split(",")
    found = []
    for rows in sizes:
        command = [sys.executable, "-m", "benchmarks.rows", "--one", "--rows", rows, "--dim", str(options.dim)]
        command += ["--queries", str(options.queries)]
        found.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout))
    table = Table("", *(f"{int(rows):,} rows" for rows in sizes), title="CPU seconds")
    for what in found[0]:
        table.add_row(what, *(f"{each[what]:.2f}" for each in found))
    Console().print(table)


if __name__ == "__main__":
    main()
