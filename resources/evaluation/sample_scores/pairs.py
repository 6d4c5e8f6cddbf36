"""Scores of pairs of tables and of formulas, as many as one sample has. Pure but for the processes of the tools."""

from collections.abc import Sequence

import numpy as np

from resources.evaluation.benchmark import Score
from resources.evaluation.scorers import omnidocbench
from resources.evaluation.scorers.bounded_teds import BoundedTeds
from resources.evaluation.scorers.cdm import OFF, Cdm
from resources.evaluation.scorers.characters import edit

Pair = tuple[str, str]
"""A known answer and what was read of it, empty where nothing was."""


def paired(gold: Sequence[str], read: Sequence[str]) -> list[Pair]:
    """Each known answer with the reading that it shares most with, each reading once: least edit distance in all.

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
    """`teds` and `teds_s`, means over the tables; skipped with the reason where one of them was cut."""
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
        omnidocbench.edits(
            gold, text, omnidocbench.normalized_formula(gold), omnidocbench.normalized_formula(text)
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
