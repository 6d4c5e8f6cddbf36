"""Scores of DP-Bench: text by NID and tables by TEDS. Pure but for the process that compares tables."""

from collections.abc import Iterable

from resources.evaluation.adapter import Tools
from resources.evaluation.benchmark import Reading, Sample, Score
from resources.evaluation.gold import PageElements
from resources.evaluation.sample_scores.pairs import paired, teds_scores
from resources.evaluation.sample_scores.read_parts import plain_table, read_tables
from resources.evaluation.scorers import characters
from resources.layout.regions import Task
from resources.states import LOST

METRICS = ("nid", "bag_f1", "teds", "teds_s")
NO_TEXT = frozenset({"figure", "table", "chart"})
"""Categories, in lower case, whose text the benchmark leaves out."""


def score(sample: Sample, reading: Reading, tools: Tools) -> list[Score]:
    """Of a sample whose gold is `PageElements` with DP-Bench's categories."""
    assert isinstance(sample.gold, PageElements)
    elements = [element for element in sample.gold.elements if not element.ignored]
    gold = _joined(element.text for element in elements if element.category.lower() not in NO_TEXT)
    text = _joined(
        r.content or "" for r in reading.regions if r.task in (Task.TEXT, Task.FORMULA) and r.state not in LOST
    )
    scores = [
        Score(sample.id, "nid", characters.nid(gold, text), len(gold)),
        Score(sample.id, "bag_f1", characters.bag_f1(gold, text)),
    ]
    tables = [plain_table(element.html) for element in elements if element.category.lower() == "table" and element.html]
    if tables:
        scores += teds_scores(sample.id, paired(tables, [*map(plain_table, read_tables(reading))]), tools.teds)
    return scores


def _joined(texts: Iterable[str]) -> str:
    """As the benchmark joins elements: each with a blank after it, and no line breaks."""
    return "".join(f"{characters.composed(text)} " for text in texts).replace("\n", "")
