"""Scores of samples that are one table or one formula each. Pure but for the processes of the tools."""

from resources.evaluation.adapter import Tools
from resources.evaluation.benchmark import Reading, Sample, Score
from resources.evaluation.gold import Formula, TableHtml
from resources.evaluation.sample_scores.pairs import formula_scores, teds_scores
from resources.evaluation.sample_scores.read_parts import plain_table, read_formulas, read_tables
from resources.recognition.latex import without_delimiters

TABLE_METRICS = ("teds", "teds_s")
FORMULA_METRICS = ("formula_edit", "cdm")


def score_table(sample: Sample, reading: Reading, tools: Tools) -> list[Score]:
    """Of a sample whose gold is `TableHtml`; both sides by `plain_table`."""
    assert isinstance(sample.gold, TableHtml)
    tables = read_tables(reading)
    return teds_scores(
        sample.id, [(plain_table(sample.gold.html), plain_table(tables[0]) if tables else "")], tools.teds
    )


def score_formula(sample: Sample, reading: Reading, tools: Tools) -> list[Score]:
    """Of a sample whose gold is `Formula`."""
    assert isinstance(sample.gold, Formula)
    text = " ".join(read_formulas(reading)) or without_delimiters(reading.text)
    return formula_scores(sample.id, [(sample.gold.latex, text)], tools.cdm)
