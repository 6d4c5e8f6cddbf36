"""PubTabNet and UniMER-Test: pictures of one table or formula, and their scores.

Pure, except for the tools and the reading of files.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from kopub.diff.compare import assign
from kopub.errors import SourceError
from kopub.evaluation import characters
from kopub.evaluation.benchmark import (
    Adapter,
    Benchmark,
    Formula,
    GivenRegion,
    Sample,
    SamplePicture,
    SampleReading,
    SampleScore,
    TableHtml,
    Tools,
)
from kopub.evaluation.benchmarks.folders import SampleCollector, parquet_rows, pictures, read_lines, with_suffix
from kopub.evaluation.cdm import OFF, Cdm
from kopub.evaluation.characters import edit
from kopub.evaluation.tables import BoundedTeds
from kopub.layout.regions import Task
from kopub.recognition.content import strip_delimiters
from kopub.recognition.tables import clean_tables
from kopub.states import LOST


def score_table(sample: Sample, reading: SampleReading, tools: Tools) -> list[SampleScore]:
    """Score a sample whose gold is `TableHtml`, after `plain_table` on both sides."""
    assert isinstance(sample.gold, TableHtml)
    tables = read_tables(reading)
    return teds_scores(
        sample.id, [(plain_table(sample.gold.html), plain_table(tables[0]) if tables else "")], tools.teds
    )


def score_formula(sample: Sample, reading: SampleReading, tools: Tools) -> list[SampleScore]:
    """Score a sample whose gold is `Formula`."""
    assert isinstance(sample.gold, Formula)
    text = " ".join(read_formulas(reading)) or strip_delimiters(reading.text)
    return formula_scores(sample.id, [(sample.gold.latex, text)], tools.cdm)


Pair = tuple[str, str]
"""A known answer, and its reading, which is empty if nothing was read."""


def pair_answers(gold: Sequence[str], read: Sequence[str]) -> list[Pair]:
    """Pair each known answer with one reading, by the least total edit distance.

    OmniDocBench pairs tables in the same way, because a table with an inaccurate box was nevertheless read.
    """
    chosen = assign(-np.array([[edit(answer, text) for text in read] for answer in gold], np.float64))
    return [(answer, read[chosen[at]] if at in chosen else "") for at, answer in enumerate(gold)]


def teds_scores(sample: str, tables: Sequence[Pair], teds: BoundedTeds) -> list[SampleScore]:
    """Return the means of `teds` and `teds_s`, skipped if a table was not compared."""
    trees: list[float] = []
    structures: list[float] = []
    notes: list[str] = []
    cut: list[str] = []
    for at, (gold, text) in enumerate(tables, start=1):
        result = teds.compare(gold, text)
        if result.cut:
            cut.append(result.cut)
        tree = result.teds or 0.0
        trees.append(tree)
        structures.append(result.structure or 0.0)
        if tree < 1:
            notes.append(f"table {at}: {tree:.3f}")
    if cut:
        reason = f"{len(cut)} of {len(tables)} tables not compared: {cut[0]}"
        return [SampleScore(sample, metric, None, len(tables), reason) for metric in ("teds", "teds_s")]
    return [
        SampleScore(sample, "teds", sum(trees) / len(trees), len(trees), notes=tuple(notes)),
        SampleScore(sample, "teds_s", sum(structures) / len(structures), len(structures)),
    ]


def formula_scores(sample: str, formulas: Sequence[Pair], cdm: Cdm | None) -> list[SampleScore]:
    """Return `formula_edit`, the mean over the formulas, and `cdm`."""
    shares = [
        characters.edits(gold, text, characters.normalized_formula(gold), characters.normalized_formula(text)).share
        for gold, text in formulas
    ]
    edit_score = SampleScore(sample, "formula_edit", sum(shares) / len(shares), len(shares))
    value, why_not = None, OFF if cdm is None else cdm.why_not()
    if cdm is not None and not why_not:
        try:
            scores = cdm.score(formulas)
        except ValueError as error:
            why_not = str(error)
        else:
            drawn = [score for score in scores if score is not None]
            if len(drawn) < len(scores):
                why_not = f"{len(scores) - len(drawn)} of {len(scores)} formulas could not be drawn"
            else:
                value = sum(drawn) / len(drawn)
    return [edit_score, SampleScore(sample, "cdm", value, len(formulas), why_not)]


_TABLE = re.compile(r"<(/?)table\b[^>]*>", re.IGNORECASE)
_FORM = re.compile(r"</?(?:a|font|math|overline|strike|underline)\b[^>]*>|<!--.*?-->", re.IGNORECASE | re.DOTALL)
"""Comments, and tags for the looks of a text, which `clean_tables` would take for printed ones."""
_FIRST = re.compile(r"<table>(?:<caption>.*?</caption>)?(.*?)</table>", re.DOTALL)
_BREAK, _EDGE = re.compile(r"\s*<br>\s*"), re.compile(r"(<td[^>]*>) | (?=</td>)")


def read_tables(reading: SampleReading) -> list[str]:
    """Return every `<table>` of the regions in reading order, else those of the markdown."""
    of_regions: list[str] = []
    for region in reading.regions:
        of_regions += _tables(region.content or "")
    return of_regions or _tables(reading.markdown)


def read_formulas(reading: SampleReading) -> list[str]:
    """Return the LaTeX of every region read as a formula, in reading order."""
    return [
        region.content
        for region in reading.regions
        if region.task is Task.FORMULA and region.content and region.state not in LOST
    ]


def plain_table(html: str) -> str:
    """Return the first table of an HTML text as a plain document.

    It has rows of `td` with spans, and is empty without a table. Engines and benchmarks differ in whether they mark
    heads, sections and bold type, and in where they break lines, so both sides lose these, and the score covers rows,
    cells and text. `sup` and `sub` stay.
    """
    tables = _tables(characters.composed(html))
    table = _FIRST.search(clean_tables(_FORM.sub("", tables[0]))) if tables else None
    if table is None:
        return ""
    rows = table[1].replace("<th", "<td").replace("</th>", "</td>")
    rows = _EDGE.sub(r"\1", _BREAK.sub(" ", rows))
    return f"<html><body><table>{rows}</table></body></html>"


def _tables(html: str) -> list[str]:
    """Return the outermost tables of a text; an unclosed table extends to its end."""
    tables, depth, start = [], 0, 0
    for tag in _TABLE.finditer(html):
        if not tag[1]:
            start = start if depth else tag.start()
            depth += 1
        elif depth:
            depth -= 1
            if not depth:
                tables.append(html[start : tag.end()])
    return [*tables, html[start:]] if depth else tables


_PUBTABNET_PARTS = {"first 200": range(200), "200 from row 4,000": range(4000, 4200)}
"""The two slices of the validation set that published tables, such as GLM-OCR's, call PubTabNet and TEDS_TEST."""
_ONE_TABLE = (GivenRegion("table", Task.TABLE),)


def load_pubtabnet(folder: Path) -> Benchmark:
    gathered = SampleCollector()
    rows = _json_rows(folder, gathered) if with_suffix(folder, ".jsonl") else _parquet_rows(folder)
    has_rows = False
    for number, id, picture, table in rows:
        has_rows = True
        part = next((name for name, numbers in _PUBTABNET_PARTS.items() if number in numbers), None)
        if part is None:
            continue
        if not table.strip():
            gathered.leave_out(id, "its gold is empty")
            continue
        kind = "complex" if "rowspan" in table or "colspan" in table else "simple"
        gathered.add(id, picture, TableHtml(table), slices={"part": part, "type": kind}, regions=_ONE_TABLE)
    if not has_rows and not gathered.left_out:
        raise SourceError("{folder} has neither a .jsonl with pictures nor .parquet files of PubTabNet", folder)
    return gathered.benchmark(PUBTABNET, "2.0.0")


_Row = tuple[int, str, SamplePicture | None, str]


def _parquet_rows(folder: Path) -> Iterator[_Row]:
    for row in parquet_rows(folder, "validation", ("html_table", "html")):
        table = row.values.get("html_table") or row.values.get("html") or ""
        yield row.number, f"row_{row.number}", row.picture, str(table)
        if row.number >= _PUBTABNET_PARTS["200 from row 4,000"][-1]:
            return


def _json_rows(folder: Path, gathered: SampleCollector) -> Iterator[_Row]:
    files = {path.name: path for path in pictures(folder)}
    named, number = [], 0
    for file in with_suffix(folder, ".jsonl"):
        for where, record in read_lines(file, gathered):
            if record.get("split", "val") != "val":
                named.append(str(record.get("filename")))
                continue
            try:
                name, table = str(record["filename"]), table_html(record["html"])
            except (KeyError, TypeError, IndexError, AttributeError) as error:
                gathered.leave_out(where, f"its gold cannot be read: {error!r}")
                continue
            named.append(name)
            yield number, Path(name).stem, SamplePicture(files[name]) if name in files else None, table
            number += 1
    gathered.leave_out_pictures(files.values(), [files[name] for name in named if name in files])


def table_html(html: Mapping[str, Any]) -> str:
    """Return the table of a record as HTML, with the tokens of its cells.

    A cell begins with `<td>`, or with `<td`, spans and `>`. Raises `IndexError` for fewer cells than the structure has,
    `KeyError` and `TypeError` for a record of another form.
    """
    cells: Sequence[Mapping[str, Any]] = html["cells"]
    tokens, at = [], 0
    for token in html["structure"]["tokens"]:
        tokens.append(token)
        if token in ("<td>", ">"):
            tokens.extend(cells[at]["tokens"])
            at += 1
    return f"<html><body><table>{''.join(tokens)}</table></body></html>"


PUBTABNET = Adapter(
    "pubtabnet",
    "PubTabNet: 400 pictures of tables of the validation set, in the two slices that others report",
    "the .parquet files of the validation split, or PubTabNet_2.0.0.jsonl and the pictures",
    "https://huggingface.co/datasets/apoidea/pubtabnet-html (IBM, ECCV 2020)",
    "annotations CDLA-Permissive-1.0; pictures by the terms of PMC's open access subset",
    load_pubtabnet,
    score_table,
    ("teds", "teds_s"),
    packages=("apted",),
)


_UNIMER_FIRST = 200
"""The number of Parquet rows that other reports use; the text files are used completely."""
_UNIMER_PARTS = {"spe": "simple", "cpe": "complex", "sce": "screen", "hwe": "handwritten"}
_ONE_FORMULA = (GivenRegion("display_formula", Task.FORMULA),)


def load_unimer(folder: Path) -> Benchmark:
    gathered = SampleCollector()
    texts = [path for path in with_suffix(folder, ".txt") if path.stem.lower() in _UNIMER_PARTS]
    for path in texts:
        name = path.stem.lower()
        # Only a line end ends a formula: `str.splitlines` would also cut at a form feed, and move all that follow.
        lines = [line.decode("utf-8", "replace") for line in path.read_bytes().splitlines()]
        images = pictures(path.with_suffix("")) if path.with_suffix("").is_dir() else []
        for number, (line, picture) in enumerate(zip_longest(lines, images)):
            if line is None:
                gathered.leave_out(f"{name}/{picture.name}", "it is a picture without gold")
            else:
                _add_formula(
                    gathered,
                    f"{name}_{number}",
                    SamplePicture(picture) if picture else None,
                    line,
                    {"part": _UNIMER_PARTS[name]},
                )
    if not texts:
        if not with_suffix(folder, ".parquet"):
            form = "{folder} has neither spe.txt, cpe.txt, sce.txt, hwe.txt nor .parquet files of UniMER"
            raise SourceError(form, folder)
        for row in parquet_rows(folder, "test", ("text",)):
            if row.number >= _UNIMER_FIRST:
                break
            _add_formula(gathered, f"row_{row.number}", row.picture, str(row.values.get("text") or ""), {})
    return gathered.benchmark(UNIMER)


def _add_formula(
    gathered: SampleCollector, id: str, picture: SamplePicture | None, latex: str, slices: dict[str, str]
) -> None:
    if not latex.strip():
        gathered.leave_out(id, "its gold is empty")
    else:
        gathered.add(id, picture, Formula(latex.strip()), slices=slices, regions=_ONE_FORMULA)


UNIMER = Adapter(
    "unimer",
    "UniMER-Test: pictures of printed, screen and handwritten formulas",
    "the .parquet files of the test split (the first 200 rows), or spe.txt, spe/, cpe.txt, cpe/, ... of the test set",
    "https://huggingface.co/datasets/deepcopy/UniMER (UniMERNet, arXiv 2404.15254)",
    "Apache-2.0",
    load_unimer,
    score_formula,
    ("formula_edit",),
)
