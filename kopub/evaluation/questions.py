"""The scores of a corpus on questions with known pages."""

import json
import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from kopub.errors import KopubError
from kopub.search.scores import interval
from kopub.search.searcher import Searcher

ALL, UNSEEN = "all", "unseen half"
_DEPTH = 10


@dataclass(frozen=True, slots=True)
class KnownQuestion:
    """A question, its language, and the ids of the pages that answer it."""

    query: str
    language: str
    ground_truth: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QuestionScores:
    """The scores of one way of searching over a group of questions.

    nDCG@10 is the mean over questions that a page of the corpus answers, `interval` its 95 % interval. `precision` is
    the share of such questions among those of which a page matched well, `recall` the share of them that matched well;
    both are None where nothing is to be counted.
    """

    mode: str
    group: str
    answered: int
    unanswered: int
    ndcg: float
    interval: tuple[float, float]
    precision: float | None
    recall: float | None


def read_questions(path: Path) -> list[KnownQuestion]:
    """Return the questions of a JSON lines file, or of all in a folder.

    Raises `KopubError`.
    """
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not files:
        raise KopubError("{path} holds no questions: name a file of JSON lines with query and ground_truth", path)
    questions = []
    for file in files:
        try:
            lines = file.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise KopubError("{file} cannot be read: {error}", file, error) from None
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                pages = row["ground_truth"]
                whole = isinstance(row["query"], str) and isinstance(pages, list)
                question = KnownQuestion(row["query"], str(row.get("language", "")), tuple(pages)) if whole else None
            except (ValueError, TypeError, KeyError, AttributeError):
                question = None
            if question is None:
                form = "{file}, line {number}: a question needs query, and ground_truth as a list of ids"
                raise KopubError(form, file, number)
            questions.append(question)
    return questions


def scored(searcher: Searcher, pages: Container[str], questions: Sequence[KnownQuestion]) -> Iterator[QuestionScores]:
    """Yield the scores of each way of searching over all questions.

    Then come those of every second question, and of each language. Weights and floors may be chosen on the other half,
    the first, third and so on. A question about pages that are not among the corpus's `pages` has no answer.
    """
    groups = {ALL: list(range(len(questions))), UNSEEN: list(range(1, len(questions), 2))}
    by_language: dict[str, list[int]] = {}
    for at, question in enumerate(questions):
        if question.language:
            by_language.setdefault(question.language, []).append(at)
    groups |= sorted(by_language.items())
    is_answered = [any(page in pages for page in question.ground_truth) for question in questions]
    for mode in searcher.choices:
        well: list[bool] = []
        gains: list[float] = []
        for question in questions:
            answer = searcher.search(question.query, _DEPTH, mode)
            well.append(answer.matches_well is True)
            ranks = [rank for rank, hit in enumerate(answer.hits) if hit.page.page_id in question.ground_truth]
            gains.append(1 / math.log2(ranks[0] + 2) if ranks else 0.0)
        for group, members in groups.items():
            answered = [at for at in members if is_answered[at]]
            if not answered:
                continue
            of_group = [gains[at] for at in answered]
            low, high = interval(np.array(of_group)[:, None])[:, 0].tolist()
            right, claimed = sum(well[at] for at in answered), sum(well[at] for at in members)
            yield QuestionScores(
                mode.value,
                group,
                len(answered),
                len(members) - len(answered),
                mean(of_group),
                (low, high),
                right / claimed if claimed else None,
                right / len(answered),
            )


def question_values(scores: Sequence[QuestionScores]) -> list[dict[str, Any]]:
    return [
        {
            "mode": score.mode,
            "group": score.group,
            "questions": score.answered,
            "without_answer": score.unanswered,
            "ndcg_10": score.ndcg,
            "ndcg_10_interval": list(score.interval),
            "matches_well_precision": score.precision,
            "matches_well_recall": score.recall,
        }
        for score in scores
    ]
