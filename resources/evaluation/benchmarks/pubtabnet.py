"""PubTabNet: pictures of tables from papers, one table each."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from resources.errors import SourceError
from resources.evaluation.benchmark import Adapter, Benchmark, GivenRegion, Picture, TableHtml
from resources.evaluation.benchmarks import tables_and_formulas as region_scores
from resources.evaluation.benchmarks.folders import SampleCollector, parquet_rows, pictures, read_lines, with_suffix
from resources.layout.regions import Task

_PARTS = {"first 200": range(200), "200 from row 4,000": range(4000, 4200)}
"""The two slices of the validation set that GLM-OCR's and others' tables name PubTabNet and TEDS_TEST."""
_REGIONS = (GivenRegion("table", Task.TABLE),)


def load(folder: Path) -> Benchmark:
    gathered = SampleCollector()
    rows = _json_rows(folder, gathered) if with_suffix(folder, ".jsonl") else _parquet_rows(folder)
    found = False
    for number, id, picture, table in rows:
        found = True
        part = next((name for name, numbers in _PARTS.items() if number in numbers), None)
        if part is None:
            continue
        if not table.strip():
            gathered.leave_out(id, "its gold is empty")
            continue
        kind = "complex" if "rowspan" in table or "colspan" in table else "simple"
        gathered.add(id, picture, TableHtml(table), slices={"part": part, "type": kind}, regions=_REGIONS)
    if not found and not gathered.left_out:
        raise SourceError(f"{folder} has neither a .jsonl with pictures nor .parquet files of PubTabNet")
    return Benchmark(ADAPTER.name, "2.0.0", ADAPTER.licence, ADAPTER.source, gathered.sorted(), gathered.left_out)


_Row = tuple[int, str, Picture | None, str]


def _parquet_rows(folder: Path) -> Iterator[_Row]:
    for row in parquet_rows(folder, "validation", ("html_table", "html")):
        table = row.values.get("html_table") or row.values.get("html") or ""
        yield row.number, f"row_{row.number}", row.picture, str(table)
        if row.number >= _PARTS["200 from row 4,000"][-1]:
            return


def _json_rows(folder: Path, gathered: SampleCollector) -> Iterator[_Row]:
    found = {path.name: path for path in pictures(folder)}
    named, number = [], 0
    for file in with_suffix(folder, ".jsonl"):
        for where, record in read_lines(file, gathered):
            if record.get("split", "val") != "val":
                named.append(str(record.get("filename")))
                continue
            try:
                name, table = record["filename"], table_html(record["html"])
            except (KeyError, TypeError, IndexError, AttributeError) as error:
                gathered.leave_out(where, f"its gold cannot be read: {error!r}")
                continue
            named.append(name)
            yield number, Path(name).stem, Picture(found[name]) if name in found else None, table
            number += 1
    gathered.leave_out_pictures(found.values(), [found[name] for name in named if name in found])


def table_html(html: Mapping[str, Any]) -> str:
    """Return the table of a record as a document, the tokens of its cells put in.

    A cell is opened by `<td>`, or by `<td` with spans and `>`. Raises `IndexError` for fewer cells than the structure
    has, `KeyError` and `TypeError` for a record of another form.
    """
    cells: Sequence[Mapping[str, Any]] = html["cells"]
    made, at = [], 0
    for token in html["structure"]["tokens"]:
        made.append(token)
        if token in ("<td>", ">"):
            made.extend(cells[at]["tokens"])
            at += 1
    return f"<html><body><table>{''.join(made)}</table></body></html>"


ADAPTER = Adapter(
    "pubtabnet",
    "PubTabNet: 400 pictures of tables of the validation set, in the two slices that others report",
    "the .parquet files of the validation split, or PubTabNet_2.0.0.jsonl and the pictures",
    "https://huggingface.co/datasets/apoidea/pubtabnet-html (IBM, ECCV 2020)",
    "annotations CDLA-Permissive-1.0; pictures by the terms of PMC's open access subset",
    load,
    region_scores.score_table,
    region_scores.TABLE_METRICS,
    ("teds", "teds_s"),
)
