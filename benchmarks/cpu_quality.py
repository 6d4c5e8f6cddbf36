"""What the cpu profile reads and what it costs: character error rate, CPU seconds, retrieval.

    python benchmarks/cpu_quality.py [CORPUS] [--limit PAGES]

CORPUS is a folder with Arrow shards whose `text` column is the truth (default: the samples), and
maybe `qa.parquet` with queries. One thread, so that CPU seconds are those of one core. The error
rate is Levenshtein distance by length of the truth, after NFC, with white space left out or
collapsed. Retrieval ranks the text vectors of all pages by dot product with each query's.
"""

import argparse
import os
import time
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["OMP_THREAD_LIMIT"] = "1"

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rapidfuzz.distance import Levenshtein
from rich.console import Console
from rich.progress import track
from rich.table import Table

from resources.layout.cpu.detector import CpuLayout
from resources.pages.page import Page
from resources.recognition.tesseract.recognizer import TesseractRecognizer
from resources.texts.plain_text import page_text

ROOT = Path(__file__).resolve().parent.parent
WORST = 10


@dataclass(frozen=True)
class Result:
    """One page: `errors` and `spaced_errors` are rates without and with white space, times are CPU seconds."""

    page_id: str
    text: str
    errors: float
    spaced_errors: float
    decode: float
    layout: float
    recognition: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="?", type=Path, default=ROOT / "samples")
    parser.add_argument("--limit", type=int, help="only the first PAGES pages")
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    console = Console()
    rows = read_pages(arguments.corpus)[: arguments.limit]
    layout, recognizer = CpuLayout(threads=1), TesseractRecognizer(threads=1)
    results = [measure(layout, recognizer, row) for row in track(rows, "reading", console=console, transient=True)]
    console.print(quality_table(results))
    console.print(worst_table(results))
    questions = arguments.corpus / "qa.parquet"
    if questions.is_file():
        console.print(retrieval_table(results, pq.read_table(questions).to_pylist()))


def read_pages(corpus: Path) -> list[dict[str, Any]]:
    """Rows of every Arrow file of the folder or its `corpus/`, in order."""
    folder = corpus / "corpus" if (corpus / "corpus").is_dir() else corpus
    files = sorted(folder.glob("*.arrow"))
    if not files:
        raise SystemExit(f"{folder} holds no .arrow file")
    return [row for file in files for row in pa.ipc.open_stream(pa.memory_map(str(file))).read_all().to_pylist()]


def measure(layout: CpuLayout, recognizer: TesseractRecognizer, row: dict[str, Any]) -> Result:
    page = Page(row["id"], row["image"]["bytes"])
    clock = [time.process_time()]
    _ = page.image
    clock.append(time.process_time())
    found = next(layout.detect([page]))
    clock.append(time.process_time())
    reading = next(recognizer.read([(page, found.regions)]))
    clock.append(time.process_time())
    text = page_text(reading.regions)
    rates = [error_rate(text, row["text"], blank) for blank in ("", " ")]
    return Result(page.page_id, text, *rates, *np.diff(clock).tolist())


def error_rate(text: str, truth: str, blank: str) -> float:
    read, wanted = (blank.join(unicodedata.normalize("NFC", string).split()) for string in (text, truth))
    return Levenshtein.distance(read, wanted) / max(1, len(wanted))


def quality_table(results: Sequence[Result]) -> Table:
    table = Table("", "mean", "median", "p90", title=f"{len(results)} pages")
    for name, values in (
        ("error rate, no white space", [result.errors for result in results]),
        ("error rate, with white space", [result.spaced_errors for result in results]),
        ("decode, CPU s", [result.decode for result in results]),
        ("layout, CPU s", [result.layout for result in results]),
        ("recognition, CPU s", [result.recognition for result in results]),
        ("layout + recognition, CPU s", [result.layout + result.recognition for result in results]),
    ):
        table.add_row(name, *(f"{value:.4f}" for value in (np.mean(values), *np.percentile(values, (50, 90)))))
    return table


def worst_table(results: Sequence[Result]) -> Table:
    table = Table("page", "error rate", "CPU s", title="worst pages")
    for result in sorted(results, key=lambda result: -result.errors)[:WORST]:
        table.add_row(result.page_id, f"{result.errors:.3f}", f"{result.layout + result.recognition:.2f}")
    return table


def retrieval_table(results: Sequence[Result], questions: Sequence[dict[str, Any]]) -> Table:
    from resources.embedding.hashed.embedder import HashedEmbedder

    embedder = HashedEmbedder()
    pages = {e.id: e.vector for e in embedder.embed_texts((r.page_id, r.text) for r in results) if e.vector is not None}
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
