"""Tables that the evaluation makes: born-digital, and as scans of two resolutions."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path
from types import MappingProxyType
from zlib import crc32

import numpy as np

from kopub.errors import SourceError
from kopub.evaluation.benchmark import (
    OWN_PAGES,
    Adapter,
    Benchmark,
    Sample,
    SamplePicture,
    SampleReading,
    SampleScore,
    TableList,
    Tools,
)
from kopub.evaluation.benchmarks.folders import SampleCollector
from kopub.evaluation.benchmarks.tables_and_formulas import read_tables
from kopub.evaluation.benchmarks.texts import page_texts
from kopub.evaluation.benchmarks.transformed import blurred, noisy, skewed
from kopub.evaluation.made_tables.content import SEED, TABLES, MadeCell, MadeTable, sheets
from kopub.evaluation.made_tables.producers import PRODUCERS, print_sheets
from kopub.evaluation.table_cells import cell_rows, named_in
from kopub.pages.page import DPI, decode

VERSION = "1"
"""A new version makes the tables again."""
_AMOUNT = re.compile(r"\d{1,3}(?:,\d{3}){2,3}")
"""An amount, by which the page of its row is found: each is in one row only."""


def load_made_tables(folder: Path) -> Benchmark:
    """Load the born-digital pages, with their text layers."""
    gathered = SampleCollector()
    for page in _pages(folder, gathered):
        assert page.picture is not None
        picture = SamplePicture(page.picture.path, page.picture.page, with_layer=True)
        gathered.add(page.id, picture, page.gold, page.document, page.slices)
    return gathered.benchmark(MADE_TABLES, VERSION)


def load_scanned_tables(folder: Path) -> Benchmark:
    """Load every page once in each form of a scan."""
    gathered = SampleCollector()
    for page in _pages(folder, gathered):
        assert page.picture is not None
        for form, (dpi, turn) in SCANS.items():
            id = f"{page.id}__{form.replace(' ', '_')}"
            picture = SamplePicture(page.picture.path, page.picture.page, partial(_scan, page.picture, id, dpi, turn))
            gathered.add(id, picture, page.gold, page.document, {**page.slices, "form": form})
    return gathered.benchmark(SCANNED_TABLES, VERSION)


def _pages(folder: Path, gathered: SampleCollector) -> Iterator[Sample]:
    """Yield the pages of all producers, which print into the folder what is missing there."""
    for at, producer in enumerate(PRODUCERS):
        documents = sheets(producer, TABLES // len(PRODUCERS) + (at < TABLES % len(PRODUCERS)))
        pdf = folder / f"{producer}-{SEED}-{VERSION}.pdf"
        try:
            if not pdf.is_file():
                print_sheets(producer, documents, pdf)
            texts = list(page_texts(pdf))
            for place, sheet in enumerate(documents):
                on_page: dict[int, list[MadeTable]] = {}
                for table in sheet.tables:
                    rows: dict[int, list[Sequence[MadeCell]]] = {}
                    for row in table.rows[table.heads :]:
                        amount = next(cell.text for cell in row if _AMOUNT.fullmatch(cell.text))
                        page = next((page for page, text in enumerate(texts, start=1) if amount in text), 0)
                        if not page:
                            form = "{file} is not the file that was made: delete it to make it again"
                            raise SourceError(form, pdf.name)
                        rows.setdefault(page, []).append(row)
                    for page, body in rows.items():
                        on_page.setdefault(page, []).append(replace(table, rows=[*table.rows[: table.heads], *body]))
                for number, (page, tables) in enumerate(on_page.items(), start=1):
                    document = f"{producer}_{sheet.name}"
                    slices = {
                        "producer": producer,
                        "look": tables[0].look.value if len(tables) == 1 else "two tables",
                        "half": ("first", "second")[place % 2],
                    }
                    gold = TableList(tuple(map(_html, tables)))
                    yield Sample(f"{document}_{number}", document, SamplePicture(pdf, page), slices, gold)
        except SourceError as error:
            gathered.leave_out(producer, str(error))


def _html(table: MadeTable) -> str:
    rows = ""
    for row in table.rows:
        cells = [f"<td rowspan={cell.rows} colspan={cell.columns}>{escape(cell.text)}</td>" for cell in row]
        rows += f"<tr>{''.join(cells)}</tr>"
    return f"<table>{rows}</table>"


def _scan(picture: SamplePicture, id: str, dpi: int, turn: float) -> bytes:
    """Return a page as a scanner makes it: turned, soft and noisy."""
    import cv2

    page, random = decode(picture.read()), np.random.default_rng(crc32(id.encode()))
    if dpi != DPI:
        page = np.asarray(cv2.resize(page, None, fx=dpi / DPI, fy=dpi / DPI, interpolation=cv2.INTER_AREA), np.uint8)
    for change in (partial(skewed, turn), partial(blurred, 0.6), partial(noisy, 6)):
        page = change(page, random)
    grey = cv2.cvtColor(page, cv2.COLOR_RGB2GRAY)
    return cv2.imencode(".jpg", grey, [cv2.IMWRITE_JPEG_QUALITY, 85])[1].tobytes()


SCANS: Mapping[str, tuple[int, float]] = MappingProxyType(
    {
        "200 dpi": (200, 0.0),
        "300 dpi": (300, 0.0),
        "200 dpi skewed": (200, 0.7),
        "300 dpi skewed": (300, -1.2),
    }
)
"""The forms of a scan: its resolution, and the degrees by which its lines slope down to the right."""


def score_tables(sample: Sample, reading: SampleReading, tools: Tools) -> list[SampleScore]:
    """Score a sample whose gold is `TableList`, cell by cell."""
    assert isinstance(sample.gold, TableList)
    named = named_in(region.reason for region in reading.regions if region.reason)
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    notes: list[str] = []
    for row in cell_rows(sample.gold.tables, read_tables(reading)):
        sizes["rows"] += 1
        counts["rows"] += all(cell.is_right for cell in row)
        for cell in row:
            if not cell.printed:
                continue
            sizes["cells"] += 1
            counts["cells"] += cell.is_right
            if not cell.is_right:
                notes.append(f"{cell.printed} was read as {cell.read or 'nothing'}")
            if cell.is_figure:
                is_named = cell.is_named(named)
                sizes.update(("figures", "figures_silent", "figures_doubted"))
                counts["figures"] += cell.is_right
                counts["figures_silent"] += not cell.is_right and not is_named
                counts["figures_doubted"] += cell.is_right and is_named
    scores: list[SampleScore] = []
    for metric in ("cells", "rows", "figures", "figures_silent", "figures_doubted"):
        size, of_metric = sizes[metric], tuple(notes) if metric == "cells" else ()
        scores.append(SampleScore(sample.id, metric, counts[metric] / size, size, notes=of_metric))
    return scores


MADE_TABLES = Adapter(
    "made_tables",
    "Born-digital Korean tables that the evaluation makes, cell by cell",
    "a folder, into which Chromium, LibreOffice and reportlab print the tables if it lacks them",
    "made by the evaluation",
    OWN_PAGES,
    load_made_tables,
    score_tables,
    ("figures", "cells"),
)
SCANNED_TABLES = replace(
    MADE_TABLES,
    name="scanned_tables",
    says="The same tables as scans of 200 and 300 dpi, upright and skewed",
    load=load_scanned_tables,
)
