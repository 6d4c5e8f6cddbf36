"""Read the made tables by kopub and by other programs, and score their cells and rows.

    python -m benchmarks.reading.table_readers FOLDER [--limit PAGES]

FOLDER is that of `kopub evaluate made_tables`, and is filled if it is empty. Each reader gets the same born-digital
pages; one that is not installed is left out (`pip install pymupdf4llm pdfplumber`). kopub reads by its cpu layout and
the text layer, without recognition. docling's PDF backends give words without cells: its tables take a model.
"""

import argparse
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

import cv2
from rich.console import Console
from rich.table import Table

from kopub.evaluation.benchmark import Sample, SamplePicture, TableList, close_pictures
from kopub.evaluation.benchmarks.made_tables import load_made_tables
from kopub.evaluation.table_cells import cell_rows
from kopub.layout.base import SPECK
from kopub.layout.cpu.detector import detect_page
from kopub.layout.regions import Task
from kopub.pages.documents.text_layer import TextLayer
from kopub.pages.page import Page
from kopub.texts.extracted_text import extract_texts
from kopub.texts.layer_regions import correct_regions

Grid = Sequence[Sequence[str | None]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--limit", type=int, help="only the first PAGES of each producer")
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    out = Console()
    benchmark = load_made_tables(arguments.folder)
    by_producer: dict[str, list[Sample]] = defaultdict(list)
    for sample in benchmark.samples:
        by_producer[sample.slices["producer"]].append(sample)
    samples = [sample for pages in by_producer.values() for sample in pages[: arguments.limit]]
    for left_out in benchmark.left_out:
        out.print(f"left out: {left_out}")
    shown = Table("reader", "producer", "pages", "cells", "rows", "figures", "CPU ms a page")
    for name, read in READERS.items():
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        try:
            for sample in samples:
                assert isinstance(sample.gold, TableList)
                assert sample.picture is not None
                start = time.process_time()
                tables = read(sample.picture)
                seconds = time.process_time() - start
                for of in (sample.slices["producer"], "all"):
                    counts[of].update(score(sample.gold, tables), pages=1, ms=round(1000 * seconds))
        except ImportError as error:
            out.print(f"left out: {name} ({error})")
            continue
        for producer, count in sorted(counts.items()):
            shares = [f"{100 * count[f'{kind} right'] / count[kind]:.1f} %" for kind in ("cells", "rows", "figures")]
            shown.add_row(name, producer, f"{count['pages']}", *shares, f"{count['ms'] / count['pages']:.0f}")
    out.print(shown)
    close_pictures()


def score(gold: TableList, tables: Sequence[str]) -> Counter[str]:
    """Count the cells, rows and figures of a page, and those that are exact."""
    counts: Counter[str] = Counter()
    for row in cell_rows(gold.tables, tables):
        counts.update({"rows": 1, "rows right": all(cell.is_right for cell in row)})
        for cell in row:
            kinds = ["cells", *(["figures"] if cell.is_figure else [])] if cell.printed else []
            for kind in kinds:
                counts.update({kind: 1, f"{kind} right": cell.is_right})
    return counts


def by_kopub(picture: SamplePicture) -> list[str]:
    made = picture.made()
    layer = TextLayer.from_json(made.text_layer or "")
    regions = correct_regions(detect_page(Page("page", made.data), SPECK), layer).regions
    texts = extract_texts(layer, regions).texts
    return [texts.get(region.index, "") for region in regions if region.task is Task.TABLE]


def by_pymupdf4llm(picture: SamplePicture) -> list[str]:
    from pymupdf4llm import to_markdown  # pyright: ignore[reportMissingImports]

    told = to_markdown(str(picture.path), pages=[_page(picture)], use_ocr=False, show_progress=False)
    return [str(told).replace("**", "")]


def by_pdfplumber(picture: SamplePicture, strategy: str = "lines") -> list[str]:
    import pdfplumber

    with pdfplumber.open(picture.path, pages=[_page(picture) + 1]) as document:
        settings = {"vertical_strategy": strategy, "horizontal_strategy": strategy}
        return list(map(_html, document.pages[0].extract_tables(settings)))


def _page(picture: SamplePicture) -> int:
    assert picture.page is not None
    return picture.page - 1


def _html(grid: Grid) -> str:
    rows = ("".join(f"<td>{escape(cell or '')}</td>" for cell in row) for row in grid)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


READERS: dict[str, Callable[[SamplePicture], list[str]]] = {
    "kopub": by_kopub,
    "pymupdf4llm": by_pymupdf4llm,
    "pdfplumber, by lines": by_pdfplumber,
    "pdfplumber, by words": lambda picture: by_pdfplumber(picture, "text"),
}


if __name__ == "__main__":
    main()
