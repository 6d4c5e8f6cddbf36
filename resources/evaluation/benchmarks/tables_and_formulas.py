"""Scores of the tables and formulas of a sample. Pure but for the tools."""

import re
from collections.abc import Sequence

import numpy as np

from resources.evaluation.benchmark import Formula, Reading, Sample, Score, TableHtml, Tools
from resources.evaluation.scorers import normalization
from resources.evaluation.scorers.cdm import OFF, Cdm
from resources.evaluation.scorers.characters import edit
from resources.evaluation.scorers.teds import BoundedTeds
from resources.layout.regions import Task
from resources.recognition.latex import without_delimiters
from resources.recognition.vlm.tables_html import clean_tables
from resources.states import LOST

TABLE_METRICS = ("teds", "teds_s")
FORMULA_METRICS = ("formula_edit", "cdm")


def score_table(sample: Sample, reading: Reading, tools: Tools) -> list[Score]:
    """Score a sample whose gold is `TableHtml`, both sides by `plain_table`."""
    assert isinstance(sample.gold, TableHtml)
    tables = read_tables(reading)
    return teds_scores(
        sample.id, [(plain_table(sample.gold.html), plain_table(tables[0]) if tables else "")], tools.teds
    )


def score_formula(sample: Sample, reading: Reading, tools: Tools) -> list[Score]:
    """Score a sample whose gold is `Formula`."""
    assert isinstance(sample.gold, Formula)
    text = " ".join(read_formulas(reading)) or without_delimiters(reading.text)
    return formula_scores(sample.id, [(sample.gold.latex, text)], tools.cdm)


Pair = tuple[str, str]
"""A known answer and what was read of it, empty where nothing was."""


def paired(gold: Sequence[str], read: Sequence[str]) -> list[Pair]:
    """Pair each known answer with one reading, so that all edit distances together are least.

    As OmniDocBench pairs tables, and for the same reason: a box that is off does not make a table unread.
    """
    from scipy.optimize import linear_sum_assignment

    if not gold or not read:
        return [(answer, "") for answer in gold]
    costs = np.array([[edit(answer, text) for text in read] for answer in gold])
    rows, columns = linear_sum_assignment(costs)
    chosen: dict[int, int] = dict(zip(rows.tolist(), columns.tolist(), strict=True))
    return [(answer, read[chosen[at]] if at in chosen else "") for at, answer in enumerate(gold)]


def teds_scores(sample: str, tables: Sequence[Pair], teds: BoundedTeds) -> list[Score]:
    """Return the means of `teds` and `teds_s`, skipped where a table was cut."""
    compared = [teds.compare(gold, text) for gold, text in tables]
    cut = [each.cut for each in compared if each.cut]
    if cut:
        reason = f"{len(cut)} of {len(tables)} tables not compared: {cut[0]}"
        return [Score(sample, metric, None, len(tables), reason) for metric in ("teds", "teds_s")]
    both = [(each.teds or 0.0, each.structure or 0.0) for each in compared]
    notes = tuple(f"table {at}: {score:.3f}" for at, (score, _) in enumerate(both, start=1) if score < 1)
    return [
        Score(sample, "teds", sum(score for score, _ in both) / len(both), len(both), notes=notes),
        Score(sample, "teds_s", sum(score for _, score in both) / len(both), len(both)),
    ]


def formula_scores(sample: str, formulas: Sequence[Pair], cdm: Cdm | None) -> list[Score]:
    """`formula_edit`, the mean over the formulas, and `cdm`."""
    shares = [
        normalization.edits(
            gold, text, normalization.normalized_formula(gold), normalization.normalized_formula(text)
        ).share
        for gold, text in formulas
    ]
    return [Score(sample, "formula_edit", sum(shares) / len(shares), len(shares)), _cdm(sample, formulas, cdm)]


def _cdm(sample: str, formulas: Sequence[Pair], cdm: Cdm | None) -> Score:
    why_not = OFF if cdm is None else cdm.why_not()
    if cdm is None or why_not:
        return Score(sample, "cdm", None, len(formulas), why_not)
    try:
        scores = cdm.score(formulas)
    except ValueError as error:
        return Score(sample, "cdm", None, len(formulas), str(error))
    drawn = [score for score in scores if score is not None]
    if len(drawn) < len(scores):
        reason = f"{len(scores) - len(drawn)} of {len(scores)} formulas could not be drawn"
        return Score(sample, "cdm", None, len(formulas), reason)
    return Score(sample, "cdm", sum(drawn) / len(drawn), len(drawn))


_TABLE = re.compile(r"<(/?)table\b[^>]*>", re.IGNORECASE)
_FORM = re.compile(r"</?(?:a|font|math|overline|strike|underline)\b[^>]*>|<!--.*?-->", re.IGNORECASE | re.DOTALL)
"""Tags that say how a text looks and that `clean_tables` would take for printed ones; comments."""
_FIRST = re.compile(r"<table>(?:<caption>.*?</caption>)?(.*?)</table>", re.DOTALL)
_BREAK, _EDGE = re.compile(r"\s*<br>\s*"), re.compile(r"(<td[^>]*>) | (?=</td>)")


def read_tables(reading: Reading) -> list[str]:
    """Return every `<table>` of the regions in reading order, else of the markdown."""
    of_regions = [table for region in reading.regions for table in _tables(region.content or "")]
    return of_regions or _tables(reading.markdown)


def read_formulas(reading: Reading) -> list[str]:
    """Return the LaTeX of every region that was read as a formula, in reading order."""
    return [
        region.content
        for region in reading.regions
        if region.task is Task.FORMULA and region.content and region.state not in LOST
    ]


def plain_table(html: str) -> str:
    """Return the first table of an HTML text in a document of its own, as rows of `td` with spans; empty without one.

    Engines and benchmarks mark heads, sections and bold type or do not, and break lines where they like: both sides
    lose these, so that a score is of rows, cells and text. `sup` and `sub` stay.
    """
    tables = _tables(html)
    found = _FIRST.search(clean_tables(_FORM.sub("", tables[0]))) if tables else None
    if found is None:
        return ""
    rows = found[1].replace("<th", "<td").replace("</th>", "</td>")
    rows = _EDGE.sub(r"\1", _BREAK.sub(" ", rows))
    return f"<html><body><table>{rows}</table></body></html>"


def _tables(html: str) -> list[str]:
    """Return the outermost tables of a text.

    One that is not closed goes on to its end.
    """
    found, depth, start = [], 0, 0
    for tag in _TABLE.finditer(html):
        if not tag[1]:
            start = start if depth else tag.start()
            depth += 1
        elif depth:
            depth -= 1
            if not depth:
                found.append(html[start : tag.end()])
    return [*found, html[start:]] if depth else found
