"""Compare PDFs' text layers with the cpu profile's readings: soundness, errors, costs.

    python -m benchmarks.reading.text_layers PDFS [--gold CORPUS] [--home HOME]

PDFS is a folder of PDFs; CORPUS is a folder of Arrow shards whose `text` is the truth for some of their pages, by id
(without it there are no error rates). All pages go through layout once, and through `ocr_results` and `parsed_texts`
for each value of `pdf.text_layer`, with one thread, so that CPU seconds are those of one core. With `--home` it
continues where it was stopped, and its times are then for the remaining pages.
"""

import argparse
import os
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

os.environ["OMP_THREAD_LIMIT"] = "1"

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rapidfuzz.distance import Levenshtein
from rich.console import Console
from rich.table import Table

from kopub.config.settings import Settings
from kopub.pages.documents.pdf import Pdfs, is_pdf
from kopub.pages.indexing import index
from kopub.pages.page import DPI
from kopub.store.corpus_tables import TABLES
from kopub.tables.asset import RunContext
from kopub.tables.checks import Problems
from kopub.tables.graph import GRAPH
from kopub.tables.shard_loop import make_all
from kopub.texts.layer_soundness import unsound

PROFILE = {
    "layout": {"engine": "cpu", "threads": 1},
    "recognition": {"engine": "tesseract", "threads": 1},
    "embedding": {"engine": "hashed"},
}
MODES = ("never", "check", "prefer")
READING = (TABLES.readings.name, TABLES.texts.name)
DRAWN = 20
"""Pages of each PDF that are drawn to measure the cost of reading their layers."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pdfs", type=Path)
    parser.add_argument("--gold", type=Path)
    parser.add_argument("--home", type=Path, help="keep what was made here")
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    out = Console()
    with tempfile.TemporaryDirectory() as folder:
        home = arguments.home or Path(folder)
        if not (home / "shards.json").exists():
            index(str(arguments.pdfs), home)
        out.print(drawing_table(sorted(filter(is_pdf, arguments.pdfs.iterdir()))))
        make(settings_of(home, "never", "never"), TABLES.pages.name, TABLES.regions.name)
        out.print(soundness_table(settings_of(home, "check", "never")))
        gold = gold_of(arguments.gold) if arguments.gold else {}
        modes = Table("text_layer", "CPU s a page", "of never", "pages with gold", "error rate", "without blanks")
        first = 0.0
        for mode in MODES:
            settings = settings_of(home, mode, mode)
            copy_layout(settings_of(home, "never", "never"), settings)
            seconds = make(settings, *READING) / settings.corpus.manifest.rows
            first = first or seconds
            errors = errors_of(texts_of(settings), gold)
            modes.add_row(mode, f"{seconds:.3f}", f"{seconds / first:.2f}", *errors)
            out.print(found_table(mode, settings))
        out.print(modes)


def settings_of(home: Path, mode: str, store: str) -> Settings:
    profile = {**PROFILE, "pdf": {"text_layer": mode}, "store": {"url": str(home / "stores" / store)}}
    return Settings.of(home, profile, "cpu")


def make(settings: Settings, *assets: str) -> float:
    """Make the missing tables of all shards, and return the CPU seconds."""
    declared = GRAPH.declared(settings.resources)
    shards = tuple(settings.corpus.manifest.keys)
    started = time.process_time()
    for name in assets:
        run = RunContext("benchmark", shards, Problems(declared[name].checks, {}), silent, silent)
        make_all(declared[name], run)
    return time.process_time() - started


def silent(line: str) -> None:
    """Drop a line of the log, which nobody reads."""


def copy_layout(source: Settings, target: Settings) -> None:
    for name in (TABLES.pages.name, TABLES.regions.name):
        for shard in source.corpus.manifest.keys:
            if not target.store.has(name, shard):
                table = source.store.read(name, shard)
                target.store.update(name, shard, table, source.store.metadata(name, shard))


def drawing_table(paths: list[Path]) -> Table:
    """Return the costs of drawing a page, with and without reading its layer."""
    table = Table("PDF", "pages", "ms to draw", "ms with its layer", "bytes of a layer", title="CPU time of a page")
    for path in paths:
        pdfs = Pdfs()
        pages = range(min(DRAWN, pdfs.pages(path)))
        started = time.process_time()
        for page in pages:
            pdfs.make(path, page, DPI, with_text=False)
        between = time.process_time()
        made = [pdfs.make(path, page, DPI) for page in pages]
        each = [1000 * span / len(pages) for span in (between - started, time.process_time() - between)]
        size = sum(len((page.text_layer or "").encode()) for page in made) / len(pages)
        table.add_row(path.name, str(len(pages)), *(f"{ms:.0f}" for ms in each), f"{size:,.0f}")
    return table


def soundness_table(settings: Settings) -> Table:
    found: dict[str, Counter[str]] = {}
    for shard in settings.corpus.manifest.keys:
        layers = settings.corpus.text_layers(shard)
        for row in settings.store.read(TABLES.pages.name, shard).to_pylist():
            layer = layers.layer(row["page_id"], row["page_idx"], row["text_layer_id"])
            says = "none" if layer is None else unsound(layer) or "sound"
            found.setdefault(row["doc_id"], Counter())[says] += 1
    table = Table("document", "pages", "layers")
    for document, counted in found.items():
        table.add_row(document, str(counted.total()), ", ".join(f"{count} {says}" for says, count in counted.items()))
    return table


def found_table(mode: str, settings: Settings) -> Table:
    """Return the origins of the regions' texts, and the pages' distances from their layers."""
    origins: Counter[str] = Counter()
    distances: list[float] = []
    for shard in settings.corpus.manifest.keys:
        for row in settings.store.read(TABLES.readings.name, shard, ["regions"]).to_pylist():
            origins.update(region["origin"] or "not read" for region in row["regions"] or ())
        column = settings.store.read(TABLES.texts.name, shard)["text_layer_distance"].to_pylist()
        distances += [distance for distance in column if distance is not None]
    table = Table("", "", title=mode)
    for origin, count in origins.most_common():
        table.add_row(f"regions: {origin}", str(count))
    for share in (50, 90, 99) if distances else ():
        table.add_row(f"distance, {share} % of {len(distances)} pages", f"{np.percentile(distances, share):.4f}")
    return table


def gold_of(folder: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted(folder.glob("*.arrow")):
        table = pa.ipc.open_stream(str(path)).read_all()
        found |= dict(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))
    for path in sorted(folder.glob("*.parquet")):
        table = pq.read_table(path, columns=["id", "text"])
        found |= dict(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))
    return found


def texts_of(settings: Settings) -> dict[str, str]:
    tables = [settings.store.read(TABLES.texts.name, shard) for shard in settings.corpus.manifest.keys]
    return {row["page_id"]: row["text"] or "" for table in tables for row in table.to_pylist()}


def errors_of(texts: dict[str, str], gold: dict[str, str]) -> tuple[str, ...]:
    """Return the number of pages with gold, and two mean character error rates.

    The first counts each run of white space as one blank; the second ignores white space.
    """
    pages = sorted(texts.keys() & gold.keys())
    rates: list[Any] = []
    for blank in (" ", ""):
        pairs = [(blank.join(texts[page].split()), blank.join(gold[page].split())) for page in pages]
        rates.append([Levenshtein.distance(read, truth) / len(truth) for read, truth in pairs if truth])
    return str(len(pages)), *(f"{np.mean(each):.4f}" if each else "" for each in rates)


if __name__ == "__main__":
    main()
