"""Whether the answers to questions about a page are in the text that was read of it. Pure.

The platform reads and does not answer, so these are no accuracies of question answering and no ANLS.
"""

from rapidfuzz import fuzz

from resources.evaluation.adapter import Tools
from resources.evaluation.benchmark import Reading, Sample, Score
from resources.evaluation.gold import Answers, Question
from resources.evaluation.scorers.characters import composed, similarity, single_blanks, without_blanks
from resources.printable import quoted

METRICS = ("answer_recall", "answer_similarity")


def score(sample: Sample, reading: Reading, tools: Tools) -> list[Score]:
    """Of a sample whose gold is `Answers`."""
    assert isinstance(sample.gold, Answers)
    questions = sample.gold.questions
    found = [contains(question, reading.text) for question in questions]
    alike = [1.0 if hit else best_similarity(q, reading.text) for q, hit in zip(questions, found, strict=True)]
    missed = tuple(
        f"{question.id}: {quoted(question.answers[0])} is not in the text"
        for question, hit in zip(questions, found, strict=True)
        if not hit
    )
    return [
        Score(sample.id, "answer_recall", sum(found) / len(found), len(found), notes=missed),
        Score(sample.id, "answer_similarity", sum(alike) / len(alike), len(alike)),
    ]


def contains(question: Question, text: str) -> bool:
    """OCRBench's rule: an answer is part of the text, in lower case; runs of blanks count as one.

    Answers that are `dense` (its handwritten formulas) are compared with their case and without any blank.
    """
    if question.dense:
        page = without_blanks(text)
        return any(without_blanks(answer) in page for answer in question.answers)
    page = single_blanks(text).lower()
    return any(single_blanks(answer).lower() in page for answer in question.answers)


def best_similarity(question: Question, text: str) -> float:
    """The similarity of the answer and the part of the text most like it, 0 to 1; below one half it is 0."""
    page = single_blanks(text).lower()
    best = 0.0
    for answer in question.answers:
        wanted = composed(answer).strip().lower()
        window = fuzz.partial_ratio_alignment(wanted, page)
        if window is not None and wanted and page:
            best = max(best, similarity(wanted, page[window.dest_start : window.dest_end]))
    return best if best > 0.5 else 0.0
