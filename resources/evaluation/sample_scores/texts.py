"""Scores of a page's or a line's text. Pure."""

from resources.evaluation.adapter import Tools
from resources.evaluation.benchmark import Reading, Sample, Score
from resources.evaluation.gold import Line, PageText
from resources.evaluation.sample_scores.plain_markdown import plain_text
from resources.evaluation.scorers import characters
from resources.evaluation.scorers.characters import Errors

PAGE_METRICS = ("cer", "cer_pooled", "cer_blanks", "cer_jamo", "edit", "bag_f1")
LINE_METRICS = ("cer", "cer_pooled", "cer_blanks", "wer")


def score_page(sample: Sample, reading: Reading, tools: Tools) -> list[Score]:
    """Of a sample whose gold is `PageText`."""
    assert isinstance(sample.gold, PageText)
    gold = plain_text(sample.gold.text) if sample.gold.markdown else sample.gold.text
    text = reading.text
    errors = characters.character_errors(gold, text)
    return [
        _rate(sample, "cer", errors),
        _rate(sample, "cer_pooled", errors),
        _rate(sample, "cer_blanks", characters.spaced_errors(gold, text)),
        _rate(sample, "cer_jamo", characters.jamo_errors(gold, text)),
        Score(sample.id, "edit", characters.edit(characters.without_blanks(gold), characters.without_blanks(text))),
        Score(sample.id, "bag_f1", characters.bag_f1(gold, text)),
    ]


def score_line(sample: Sample, reading: Reading, tools: Tools) -> list[Score]:
    """Of a sample whose gold is `Line`: what was read of the picture, as one line."""
    assert isinstance(sample.gold, Line)
    gold, text = sample.gold.text, reading.text or " ".join(region.content or "" for region in reading.regions)
    errors = characters.character_errors(gold, text)
    return [
        _rate(sample, "cer", errors),
        _rate(sample, "cer_pooled", errors),
        _rate(sample, "cer_blanks", characters.spaced_errors(gold, text)),
        _rate(sample, "wer", characters.word_errors(gold, text)),
    ]


def _rate(sample: Sample, metric: str, errors: Errors) -> Score:
    """An error rate, at most 1: a page of which far too much was read is as bad as a lost one, and no worse."""
    return Score(sample.id, metric, min(1.0, errors.rate), errors.size)
