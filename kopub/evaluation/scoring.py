"""The benchmarks by name, and the scorer of their samples."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Self

from kopub.engine import missing_modules
from kopub.errors import ConfigError, SourceError, did_you_mean
from kopub.evaluation.benchmark import OWN_PAGES, Adapter, Benchmark, Sample, SampleReading, SampleScore, Tools
from kopub.evaluation.benchmarks import (
    answers,
    dp_bench,
    facts,
    made_tables,
    omnidocbench,
    tables_and_formulas,
    texts,
    transformed,
)
from kopub.evaluation.cdm import Cdm
from kopub.evaluation.metrics import METRICS
from kopub.evaluation.tables import BoundedTeds
from kopub.fingerprints import CodeVersion
from kopub.pages.places import require_utf8
from kopub.states import phrase

ADAPTERS: Mapping[str, Adapter] = MappingProxyType(
    {
        adapter.name: adapter
        for adapter in (
            texts.TEXTS,
            texts.CORRECTIONS,
            texts.PDF_TEXTS,
            transformed.TRANSFORMED,
            made_tables.MADE_TABLES,
            made_tables.SCANNED_TABLES,
            facts.KOREAN,
            texts.KOPUB,
            facts.KDOC,
            omnidocbench.MDPBENCH_KO,
            omnidocbench.MDPBENCH,
            omnidocbench.OMNIDOCBENCH,
            dp_bench.ADAPTER,
            tables_and_formulas.PUBTABNET,
            tables_and_formulas.UNIMER,
            texts.IAM_LINES,
            facts.OLMOCR,
            answers.OCRBENCH,
            answers.KIE,
        )
    }
)
"""Every benchmark by name; those of the user's own pages and of Korean come first."""


def adapter(name: str) -> Adapter:
    """Return the adapter of a benchmark. Raises `ConfigError` for an unknown name."""
    if name not in ADAPTERS:
        form = "{name} is no benchmark (there are {benchmarks}){guess}"
        raise ConfigError(form, name, ", ".join(ADAPTERS), did_you_mean(name, ADAPTERS))
    return ADAPTERS[name]


def require_scorers(name: str) -> None:
    """Raise `ConfigError` for an unknown benchmark, and if a package is missing that scores it."""
    if missing := missing_modules(*adapter(name).packages):
        raise ConfigError("{name} needs {missing}: `pip install 'kopub[eval]'`", name, ", ".join(missing))


def load(name: str, folder: Path) -> Benchmark:
    """Return the samples of a benchmark.

    Nothing is downloaded; errors say what the folder lacks and where to get it. Raises `ConfigError` for an unknown
    name, and `SourceError` for a folder that does not contain the benchmark, or no sample that can be scored.
    """
    chosen = adapter(name)
    get = phrase("; get it from {source}, licence: {licence}", chosen.source, chosen.licence)
    source = phrase(" ({source})", chosen.source) if chosen.licence == OWN_PAGES else get
    wanted = phrase("{name} wants {what}{source}", name, chosen.expects, source)
    if not folder.is_dir():
        raise SourceError("{folder} is no folder: {remedy}", folder, wanted)
    require_utf8(folder)
    try:
        benchmark = chosen.load(folder)
    except SourceError as error:
        raise SourceError("{reason}: {remedy}", error, wanted) from None
    if not benchmark.samples:
        form = " ({count} left out, {reason})"
        why = phrase(form, len(benchmark.left_out), str(benchmark.left_out[0])) if benchmark.left_out else ""
        raise SourceError("{folder} has nothing to score{reason}: {remedy}", folder, why, wanted)
    return benchmark


VERSION = CodeVersion(
    "evaluation",
    {
        1: "the first release",
        2: "the numbers of list entries in markdown are part of a known text; tables are composed, too",
        3: "words between two signs in a table are text, and a row that only cells from above fill is a row",
    },
)
"""A new version scores stored tables again; no page is read again."""


class Scorer:
    """A scorer of the samples of one benchmark.

    It is a context manager, which stops the process that compares tables. Tables that take longer than `table_seconds`
    are skipped, with the reason; so is CDM if there is no working command.
    """

    def __init__(self, benchmark: str, cdm: Cdm | None = None, table_seconds: float = 60.0) -> None:
        """Raise `ConfigError` for an unknown benchmark or a missing package."""
        require_scorers(benchmark)
        self._adapter = adapter(benchmark)
        self._tools = Tools(BoundedTeds(table_seconds), cdm)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._tools.teds.close()

    def score(self, sample: Sample, reading: SampleReading) -> list[SampleScore]:
        """Return one score for each metric of the sample.

        The metrics and their sizes depend only on the gold. A lost reading has the worst value of each metric, except
        metrics that are skipped for every sample.
        """
        if not reading.lost:
            return self._adapter.score(sample, reading, self._tools)
        empty = self._adapter.score(sample, SampleReading(reading.state), self._tools)
        scores: list[SampleScore] = []
        for score in empty:
            if score.value is None:
                scores.append(score)
            else:
                worst = METRICS[score.metric].worst
                scores.append(replace(score, value=worst, lost=True, notes=(reading.why_lost,)))
        return scores

    def score_all(self, read: Iterable[tuple[Sample, SampleReading]]) -> Iterator[list[SampleScore]]:
        """Yield the scores of each sample in order, then those of the whole benchmark."""
        samples, scores = [], []
        for sample, reading in read:
            scored = self.score(sample, reading)
            samples.append((sample, reading))
            scores.extend(scored)
            yield scored
        yield self._adapter.whole(samples, scores)
