"""Shares of the facts of a page that hold. Pure."""

from collections import defaultdict
from collections.abc import Sequence

from resources.evaluation.adapter import Tools
from resources.evaluation.benchmark import Reading, Sample, Score
from resources.evaluation.gold import Facts
from resources.evaluation.scorers.facts import check

METRICS = ("facts", "facts_by_file")


def score(sample: Sample, reading: Reading, tools: Tools) -> list[Score]:
    """Of a sample whose gold is `Facts`.

    Facts that cannot be told here are in no share; a page of such facts alone is skipped.
    """
    assert isinstance(sample.gold, Facts)
    verdicts = [(fact, check(fact, reading.markdown)) for fact in sample.gold.facts]
    told = [(fact, verdict) for fact, verdict in verdicts if verdict.holds is not None]
    if not told:
        return [Score(sample.id, "facts", None, len(verdicts), verdicts[0][1].why)]
    broken = tuple(f"{fact.id}: {verdict.why}" for fact, verdict in told if not verdict.holds)
    return [Score(sample.id, "facts", 1 - len(broken) / len(told), len(told), notes=broken)]


def whole(read: Sequence[tuple[Sample, Reading]], scores: Sequence[Score]) -> list[Score]:
    """`facts_by_file`: olmOCR-bench's own mean, in which each of its files counts the same."""
    held: defaultdict[str, list[bool]] = defaultdict(list)
    for sample, reading in read:
        assert isinstance(sample.gold, Facts)
        for fact in sample.gold.facts:
            verdict = check(fact, reading.markdown).holds
            if verdict is not None:
                held[fact.group].append(verdict and not reading.lost)
    if not held:
        return [Score(None, "facts_by_file", None, 0, "no fact can be told here")]
    shares = [sum(of_file) / len(of_file) for of_file in held.values()]
    return [Score(None, "facts_by_file", sum(shares) / len(shares), len(shares))]
