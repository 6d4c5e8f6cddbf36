"""Reads a benchmark with a profile's assets, and scores it.

A benchmark's home is not that of the corpus.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pyarrow as pa

from kopub.config.settings import Settings
from kopub.corrections.gold import known_answers
from kopub.errors import ClosedGate, KopubError, first_line
from kopub.evaluation.home import EvaluationRequest, KnownAnswers, prepare
from kopub.evaluation.reading_scores import (
    HISTORY,
    ReadingScores,
    contents,
    guards,
    inputs_of,
    measure,
    same_run,
    verdict,
)
from kopub.evaluation.scoring import load, require_scorers
from kopub.layout.ground_truth import GroundTruthLayout
from kopub.pages.corpus import Corpus
from kopub.pages.manifest import shard_source
from kopub.release.gates import Gates
from kopub.release.local import LocalRelease
from kopub.search.scores import ALL, ScoredRun
from kopub.states import joined, phrase
from kopub.store.corpus_tables import OCR_SCORES, TABLES
from kopub.store.table_source import CorpusCheck, FooterCache
from kopub.store.table_store import ShardStore
from kopub.tables.asset import RunContext
from kopub.tables.checks import Problems
from kopub.tables.engines import RunEngines
from kopub.tables.graph import GRAPH, Graph
from kopub.tables.plan import AssetPlan, survey
from kopub.tables.progress import watcher
from kopub.tables.shard_loop import make_shards

READING = (TABLES.pages, TABLES.regions, TABLES.readings, TABLES.texts)
"""The tables made from a benchmark; nothing is embedded or released."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of one benchmark: its scores, and the run they belong to."""

    profile: str
    settings: Settings
    scores: pa.Table
    run: ScoredRun
    compared: str


def prepare_answers(
    request: EvaluationRequest, home: Path, progress: Callable[[str], None] | None = None
) -> KnownAnswers:
    """Load the benchmark and make it a corpus. Raises `ConfigError`, `SourceError`, `StoreError`, one line each."""
    # Before anything is read, not when it is to be scored.
    require_scorers(request.benchmark)
    return prepare(load(request.benchmark, request.folder), request.home(home), request.limit, progress)


def settings_in(settings: Settings, request: EvaluationRequest) -> Settings:
    """Return `settings` with the home of a prepared evaluation.

    Its tables, ledger and release lie there too. If the benchmark provides regions, they are the layout. The
    platform's own benchmarks do not guard an evaluation.
    """
    home, place = request.home(settings.home), request.place(settings.home, settings.profile_name)
    gates = {name: getattr(settings.gates, name) for name in Gates.model_fields}
    moved = {
        "home": home,
        "shards_per_run": None,
        "corpus": Corpus(home=str(home)),
        "store": settings.store.model_copy(update={"url": str(place / "store")}),
        "release": LocalRelease(folder=str(place / "release")),
        "gates": Gates(**{**gates, "benchmarks": {}}),
    }
    if request.gives_regions(settings.home):
        moved["layout"] = GroundTruthLayout(home=str(home))
    return replace(settings, **moved)


def evaluate(settings: Settings) -> Evaluation:
    """Read the remaining pages of an evaluation with its profile's assets, and score it.

    A page that cannot be read is scored as lost. Raises `KopubError` if an engine cannot run at all; finished work is
    kept for the next run.
    """
    assets = {table.name: GRAPH.by_name[table.name](settings.resources) for table in READING}
    shards = tuple(settings.corpus.manifest.keys)
    run_id = uuid4().hex
    footers = FooterCache(settings.store)
    engines = RunEngines(assets, shards, lambda: survey(settings.resources, footers, _READING), GRAPH.assets)
    engines.begin()
    for asset in assets.values():
        run = RunContext(run_id, shards, Problems(asset.checks, {}), _log.info, _log.warning)
        with engines.during(asset):
            watcher().began(asset.name)
            # As many tables as possible are made before the first failure is reported.
            outcomes = dict(make_shards(asset, engines.run_of(asset, run)))
            for shard, outcome in outcomes.items():
                if isinstance(outcome, KopubError):
                    form = "profile {profile}: {asset}: {shard}: {reason}"
                    raise KopubError(form, settings.profile_name, asset.name, shard, first_line(outcome))
            watcher().ended(asset.name)
    _, scores = score(settings.store, settings.corpus, settings.gates, _log.info)
    run = HISTORY.latest(settings.store)
    assert run is not None, "scores that are kept are of a run"
    return Evaluation(settings.profile_name, settings, scores.scores, run, scores.compared)


def score(
    store: ShardStore, corpus: Corpus, gates: Gates, log: Callable[[str], None]
) -> tuple[list[KnownAnswers], ReadingScores]:
    """Score the readings of a corpus, and keep the scores.

    The known answers are its gold. Raises `KopubError`. A person's correction is an answer if the page was checked, but
    never a reading.
    """
    watcher().began(OCR_SCORES.name)
    with store.exclusive(OCR_SCORES.name, ALL), store.fetched_once():
        answers = known_answers(corpus, store)
        manifest = corpus.manifest
        is_of_corpus = CorpusCheck(store, lambda asset, shard: shard_source(manifest.shard(shard))).look()
        measured = measure(store, answers, manifest.keys, is_of_corpus, bool(gates.override), log, gates.cdm)
    if measured.computed:
        watcher().computed(OCR_SCORES.name, ALL)
    watcher().ended(OCR_SCORES.name)
    return answers, measured


_READING = Graph(tuple(asset for asset in GRAPH.assets if asset.table in READING))


@dataclass(frozen=True, slots=True)
class GuardStanding:
    """The standing of one benchmark for the profile as it is now.

    It says whether the benchmark must be read again, why and at what cost, and what its last scores forbid.
    """

    asked: EvaluationRequest
    evaluated: bool
    plans: Sequence[AssetPlan]
    closed: Sequence[str]

    @property
    def why(self) -> list[str]:
        """Return a line for each reason to read it again, none if it is current."""
        if not self.evaluated:
            return ["this profile has not been scored on it"]
        return [phrase("{asset}: {reason}", plan.asset, line) for plan in self.plans for line in plan.why]

    @property
    def is_current(self) -> bool:
        """Return whether the scores are those of the profile as it is now."""
        return self.evaluated and not any(
            keys for plan in self.plans for standing, keys in plan.shards.items() if standing != "current"
        )

    @property
    def seconds(self) -> float | None:
        """Return the most seconds that another reading takes; None if never read."""
        return sum(plan.seconds_at_most for plan in self.plans) if self.evaluated else None

    @property
    def pages(self) -> int:
        """Most of its pages that are read again."""
        return max((plan.pages_at_most for plan in self.plans), default=0)


def standings_of_guards(settings: Settings) -> list[GuardStanding]:
    """Return the standing of every benchmark that the gates name, from stored scores alone."""
    standings: list[GuardStanding] = []
    for request in guards_of(settings):
        standing = GuardStanding(request, False, (), ())
        if request.is_indexed(settings.home):
            moved, baseline = settings_in(settings, request), request.baseline(settings.home)
            drops = verdict(baseline)
            if drops is not None:
                # The scores must be those of the present tables, gold and scorers, and of the run that is judged.
                store, corpus = moved.store, moved.corpus
                measured = contents(store, corpus.manifest.keys, store.has)
                inputs = inputs_of(known_answers(corpus, store), measured, moved.gates.cdm)
                if HISTORY.is_scored(store, inputs) and same_run(store, baseline):
                    plans = survey(moved.resources, FooterCache(store), _READING).plans()
                    closed = () if settings.gates.override.strip() else drops.closed
                    standing = GuardStanding(request, True, plans, closed)
        standings.append(standing)
    return standings


def guards_of(settings: Settings) -> list[EvaluationRequest]:
    """Return the evaluations that guard the corpus of `settings`."""
    return guards(settings.gates.benchmarks, settings.gates.benchmark_samples, settings.home)


def require_read_well(settings: Settings) -> None:
    """Raise `ClosedGate` if this profile reads a benchmark worse than the one before did."""
    closed: list[str] = []
    for guard in standings_of_guards(settings):
        if guard.is_current:
            closed += guard.closed
    if closed:
        form = (
            "gate closed, so nothing was made: {reason}; take the change of the profile back, or give gates.override "
            "a reason to make it all the same"
        )
        raise ClosedGate(form, joined(closed))
