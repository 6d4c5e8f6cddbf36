"""Scores the readings of a benchmark's samples: the one place where a lost reading gets the worst value."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Self

from resources.code_version import CodeVersion
from resources.evaluation.adapter import Adapter, Tools
from resources.evaluation.benchmark import Reading, Sample, Score
from resources.evaluation.metrics import METRICS
from resources.evaluation.registry import adapter
from resources.evaluation.scorers.bounded_teds import BoundedTeds
from resources.evaluation.scorers.cdm import Cdm

VERSION = CodeVersion("evaluation", {1: "the first release"})
"""A new version scores stored tables again; no page is read again."""

MISSING = Reading(None, "there is no row of it")


class Scorer:
    """Scores samples of one benchmark. A context manager: the process that compares tables ends with it.

    Tables that take longer than `table_seconds` are skipped with the reason, as is CDM without a command that works.
    """

    def __init__(self, benchmark: Adapter, cdm: Cdm | None = None, table_seconds: float = 60.0) -> None:
        self._adapter = benchmark
        self._tools = Tools(BoundedTeds(table_seconds), cdm)

    @classmethod
    def of(cls, benchmark: str, cdm: Cdm | None = None, table_seconds: float = 60.0) -> Self:
        """The scorer of a benchmark by its name. Raises `ConfigError` for an unknown one."""
        return cls(adapter(benchmark), cdm, table_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._tools.teds.close()

    def score(self, sample: Sample, reading: Reading) -> list[Score]:
        """Every metric that the sample has, one score each.

        Which metrics these are, and their sizes, depends on the gold alone. A lost reading has the worst value of
        each, but for metrics that are skipped for every sample.
        """
        if not reading.lost:
            return self._adapter.score(sample, reading, self._tools)
        why = (f"{reading.state or 'missing'}: {reading.reason or 'no reason is given'}",)
        empty = self._adapter.score(sample, Reading(reading.state), self._tools)
        return [
            replace(score, value=METRICS[score.metric].worst, lost=True, notes=why)
            if score.value is not None
            else score
            for score in empty
        ]

    def score_all(self, read: Iterable[tuple[Sample, Reading]]) -> Iterator[list[Score]]:
        """The scores of each sample in its order, and those of the whole benchmark last."""
        samples, scores = [], []
        for sample, reading in read:
            scored = self.score(sample, reading)
            samples.append((sample, reading))
            scores.extend(scored)
            yield scored
        yield self._adapter.whole(samples, scores)


def _worst(score: Score, why: str) -> Score:
    return replace(score, value=METRICS[score.metric].worst, lost=True, notes=(why,))
