"""What a module of `resources/evaluation/adapters/` gives: how a benchmark is loaded, and how one sample is scored."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from resources.evaluation.benchmark import Benchmark, Reading, Sample, Score
from resources.evaluation.scorers.bounded_teds import BoundedTeds
from resources.evaluation.scorers.cdm import Cdm


@dataclass(frozen=True, slots=True)
class Tools:
    """What scorers run outside of this process."""

    teds: BoundedTeds
    cdm: Cdm | None = None


OWN_PAGES = "yours"
"""The licence of a benchmark that a person makes of pages of their own; tables hold this word."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """A kind of benchmark.

    `says` is one sentence for a list of them; `expects` is what a folder must hold, `source` where to get it and
    `licence` under which terms. `load` raises `SourceError` for a folder that is no such benchmark. `score` gives
    every metric that the sample has by its gold, whatever was read. `whole` scores all samples at once. The first of
    `headline`, at most two, is what a gate looks at.
    """

    name: str
    says: str
    expects: str
    source: str
    licence: str
    load: Callable[[Path], Benchmark]
    score: Callable[[Sample, Reading, Tools], list[Score]]
    metrics: tuple[str, ...]
    headline: tuple[str, ...]
    whole: Callable[[Sequence[tuple[Sample, Reading]], Sequence[Score]], list[Score]] = lambda read, scores: []
