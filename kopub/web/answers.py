"""Pages with known answers: their scores, and each answer beside the reading."""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

import kopub
from kopub.corrections.corrected import CorrectedTables
from kopub.corrections.gold import known_answers
from kopub.corrections.log import CorrectionLog
from kopub.errors import KopubError
from kopub.evaluation.benchmark import Sample, SampleReading, SampleScore
from kopub.evaluation.home import EVALUATIONS
from kopub.evaluation.metrics import ALL as EVERY
from kopub.evaluation.metrics import METRICS
from kopub.evaluation.reading_scores import HISTORY, scores_of
from kopub.evaluation.report import compare_sample, questions_of, values_of, worst_first
from kopub.evaluation.scoring import ADAPTERS
from kopub.language import Texts
from kopub.pages.corpus import Corpus
from kopub.recognition.regions import region_texts
from kopub.search.scores import ALL
from kopub.states import State
from kopub.store.corpus_tables import OCR_SCORES
from kopub.store.table_store import ShardStore
from kopub.texts.markdown import page_text

if TYPE_CHECKING:
    from kopub.search.options import Mode
    from kopub.search.searcher import Searcher

_BAD = 0.1
"""Share of a page that makes it bad if wrong: nobody would call such a text right."""


@dataclass(frozen=True)
class ScoredBenchmark:
    """A scored benchmark: its means, and its samples, worst first.

    `values` are the scores by sample and metric; `means` are rows of the table OCR_SCORES.
    """

    name: str
    samples: Sequence[Sample]
    values: Mapping[str, Mapping[str, SampleScore]]
    means: Sequence[Mapping[str, Any]]
    headline: Sequence[str]


def scored(store: ShardStore, corpus: Corpus) -> list[ScoredBenchmark]:
    """Return the scored benchmarks of a corpus, or none without known answers.

    Raises `SourceError`, `StoreError`.
    """
    answers = known_answers(corpus, store)
    if not answers:
        return []
    run = HISTORY.latest(store)
    scores = store.read(OCR_SCORES.name, ALL).to_pylist() if store.has(OCR_SCORES.name, ALL) else []
    benchmarks = []
    for answer in answers:
        name = answer.benchmark.name
        values = values_of(scores_of(name, run.table)[1] if run else ())
        headline = ADAPTERS[name].headline if name in ADAPTERS else ()
        means = [row for row in scores if row["benchmark"] == name and row["slice"] == EVERY]
        samples = worst_first(answer.benchmark.samples, [values], headline)
        benchmarks.append(ScoredBenchmark(name, samples, values, means, headline))
    return benchmarks


@dataclass(frozen=True, slots=True)
class OtherEvaluation:
    """A benchmark that `kopub evaluate` read in another home, and how to see it."""

    benchmark: str
    profile: str
    command: str


def other_evaluations(home: Path) -> list[OtherEvaluation]:
    """Return the evaluations in a home's subfolders, by benchmark and profile."""
    evaluations: list[OtherEvaluation] = []
    for store in sorted((home / EVALUATIONS).glob("*/*/profiles/*/store")):
        own_home, url = shlex.quote(str(store.parents[2])), shlex.quote(str(store))
        command = f"KOPUB_HOME={own_home} KOPUB_STORE__URL={url} kopub browse"
        evaluations.append(OtherEvaluation(store.parents[3].name, store.parents[0].name, command))
    return evaluations


def explained(metric: str, t: Texts) -> str:
    """Return what a metric measures, and which values are good, if known."""
    says = t.sentence(METRICS[metric].says)[0] if metric in METRICS else t(f"metric.{metric}")
    good = t.forms.get(f"good.{metric}")
    return f"{says.rstrip('.')}. {good}" if good else says


def legend(metrics: Iterable[str], t: Texts) -> list[tuple[str, str]]:
    """Return each metric once, with its explanation."""
    return [(metric, explained(metric, t)) for metric in dict.fromkeys(metrics)]


@dataclass(frozen=True, slots=True)
class HeadlineScore:
    """The score of a page by a benchmark's headline metric.

    `is_bad` says that a person should look at the page.
    """

    benchmark: str
    metric: str
    value: float
    is_bad: bool


def page_scores(benchmarks: Sequence[ScoredBenchmark], page_id: str, is_checked: bool) -> list[HeadlineScore]:
    """Return the headline scores of a page, or none without known answers.

    A page that a person checked counts as right, however badly it was read.
    """
    scores = []
    for benchmark in benchmarks:
        for name, score in benchmark.values.get(page_id, {}).items():
            if name in benchmark.headline and score.value is not None:
                wrong = score.value if METRICS[name].lower_is_better else 1 - score.value
                scores.append(HeadlineScore(benchmark.name, name, score.value, wrong >= _BAD and not is_checked))
    return scores


def answers_of(
    benchmarks: Sequence[ScoredBenchmark], page: kopub.Page, store: ShardStore, t: Texts
) -> list[tuple[str, Mapping[str, Any]]]:
    """Return a page's known answers beside its reading, by benchmark, for a template.

    Raises `StoreError`.
    """
    reading = SampleReading(page.state, page.reason, page.markdown, page.text)
    if CorrectionLog(store).page(page.id).changes:
        # Corrections are no part of the reading, so the engines' own rows are used.
        _, row = CorrectedTables(store).pages(page.shard, {page.id})[page.id]
        text = page_text(region_texts(row["regions"]))
        reading = SampleReading(State(row["state"]), row["reason"], row["markdown"] or "", text)

    answers: list[tuple[str, Mapping[str, Any]]] = []
    for benchmark in benchmarks:
        values = benchmark.values.get(page.id, {})
        for sample in benchmark.samples:
            if sample.id == page.id:
                about = {"asked": questions_of(sample), "legend": legend(values, t)}
                answers.append((benchmark.name, {**compare_sample(sample, reading, values), **about}))
    return answers


_PATIENCE = 2.0
"""Seconds that a search waits for the words before it says that it waits."""


class WordLoader:
    """A loader of what a `searcher` reads, in threads of its own.

    Threads may share it.
    """

    def __init__(self, searcher: "Searcher") -> None:
        self._searcher = searcher
        self._lock = Lock()
        self._threads: dict[Callable[[], object], Thread] = {}

    def waits(self, mode: "Mode | None") -> tuple[int, int] | None:
        """Return (shards with known words, all shards) if a search must wait.

        It is None if the wait is short, or if the search cannot be answered at all: the search itself says why.
        """
        try:
            if self._searcher.words_are_known(mode):
                return None
        except KopubError:
            return None
        # A search that names its mode may ask for words that the default mode, opened at the start, does not.
        finding = self._start(self._searcher.words)
        while finding.is_alive():
            finding.join(_PATIENCE)
            # The words of a few pages are found in a moment.
            if finding.is_alive() and (progress := self._searcher.words_found) is not None:
                return progress
        return None

    def start(self) -> None:
        """Open the indexes of the default mode, unless that is going on."""
        self._start(self._searcher.open)

    def end(self) -> None:
        """Stop finding words; the words of complete shards are kept."""
        self._searcher.end()
        for thread in self._threads.values():
            thread.join()

    def _start(self, load: Callable[[], object]) -> Thread:
        """Return the thread that does this, started unless that is going on."""

        def loaded() -> None:
            # The search that waits for it reports the error.
            with suppress(KopubError):
                load()

        with self._lock:
            thread = self._threads.get(load)
            if thread is None or not thread.is_alive():
                thread = Thread(target=loaded, name="words", daemon=True)
                thread.start()
                self._threads[load] = thread
            return thread
