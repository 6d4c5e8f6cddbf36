"""Count the tables of HWPX files that are read whole, by kordoc's rules (its `bench/lib/table-score.mjs`).

    python -m benchmarks.reading.hwpx_tables FOLDER

The file's own XML is the gold, read here by other code than the product's. A table counts as exact if it has the rows,
columns and merged cells of the file, and a cell if its text is the same without blanks. As in kordoc's comparisons,
tables of one column are left out, which are frames; a table in a cell is a table of its own. Tables are paired by the
texts of their cells.
"""

import argparse
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from lxml import etree

import kopub
from kopub.diff.compare import assign
from kopub.errors import KopubError
from kopub.evaluation.characters import composed

Cells = Mapping[tuple[int, int, int, int], str]
"""The text of each cell, without blanks, by row, column, rows and columns."""
_INSIDE = "ancestor::*[local-name()='tc'][1]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    counts: Counter[str] = Counter()
    for path in sorted(parser.parse_args().folder.rglob("*.hwpx")):
        if not (printed := list(printed_tables(path))):
            continue
        try:
            read = read_tables(path)
        except KopubError as error:
            read = []
            print(f"{path.name}: {error}")
        of_file = Counter(score(printed, read))
        counts += of_file
        print(f"{path.name}: {of_file['exact']} of {of_file['tables']} tables exact", flush=True)
    tables, cells = max(counts["tables"], 1), max(counts["cells"], 1)
    print(f"{counts['tables']} tables: {counts['exact'] / tables:.1%} exact, {counts['found'] / tables:.1%} found")
    print(f"{counts['cells']} cells: {counts['right'] / cells:.1%} with the text of the file")


def printed_tables(path: Path) -> Iterator[Cells]:
    """Yield the tables of an HWPX file, those in cells before theirs."""
    with zipfile.ZipFile(path) as file:
        sections = [name for name in file.namelist() if re.search(r"section\d+\.xml$", name)]
        for name in sorted(sections, key=lambda name: int(re.findall(r"\d+", name)[-1])):
            tables = etree.fromstring(file.read(name)).iter("{*}tbl")
            for table in sorted(tables, key=lambda table: -len(list(table.iterancestors("{*}tbl")))):
                cells = {}
                for cell in table.iterfind("{*}tr/{*}tc"):
                    at, spans = cell.find("{*}cellAddr"), cell.find("{*}cellSpan")
                    own = (text for text in cell.iter("{*}t") if text.xpath(_INSIDE) == [cell])
                    place = (int(at.get("rowAddr")), int(at.get("colAddr")))
                    extent = (int(spans.get("rowSpan")), int(spans.get("colSpan")))
                    cells[place + extent] = _key("".join("".join(text.itertext()) for text in own))
                if len({column for _, column, *_ in cells}) > 1:
                    yield cells


def read_tables(path: Path) -> list[Cells]:
    """Return the tables that KoPub reads in a file."""
    grids = (table.grid for table in kopub.read(path).tables)
    tables = [{(c.row, c.column, c.rows, c.columns): _key(c.text) for c in grid.cells} for grid in grids]
    return [cells for cells in tables if len({column for _, column, *_ in cells}) > 1]


def score(printed: Sequence[Cells], read: Sequence[Cells]) -> dict[str, int]:
    """Return how many tables and cells there are, and how many are right."""
    texts = [[Counter(filter(None, cells.values())) for cells in tables] for tables in (printed, read)]
    shared = np.array([[(gold & other).total() for other in texts[1]] for gold in texts[0]], float)
    pairs = [(printed[at], read[to]) for at, to in assign(shared).items() if shared[at, to]]
    places = [({cell[:2]: text for cell, text in other.items()}, gold) for gold, other in pairs]
    return {
        "tables": len(printed),
        "found": len(pairs),
        "exact": sum(gold.keys() == other.keys() for gold, other in pairs),
        "cells": sum(map(len, printed)),
        "right": sum(other.get(cell[:2]) == text for other, gold in places for cell, text in gold.items()),
    }


def _key(text: str) -> str:
    return re.sub(r"\s+", "", composed(text))


if __name__ == "__main__":
    main()
