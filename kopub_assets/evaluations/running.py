"""A benchmark, read by the assets of a profile and scored, in a home that is not the corpus'."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import dagster as dg
import pyarrow as pa

from kopub_assets.running.execution import execute
from kopub_assets.running.launchpad import launchable
from resources.config.choices import Gates
from resources.config.settings import Settings
from resources.errors import KopubError
from resources.evaluation.runs.comparison import HISTORY
from resources.evaluation.runs.home import EvaluationRequest, KnownAnswers, prepare
from resources.evaluation.scoring import load
from resources.layout.given.detector import GivenLayout
from resources.pages.corpus import Corpus
from resources.printable import first_line
from resources.release.local import LocalRelease
from resources.search.scores import ALL, Run
from resources.store.corpus_tables import OCR_SCORES, TABLES
from resources.store.shard_store import ShardStore

READING = (TABLES.pages, TABLES.regions, TABLES.readings, TABLES.texts)
"""The tables that are made of a benchmark; nothing is embedded or released."""

Build = Callable[[Settings], list[dg.AssetsDefinition | dg.AssetSpec]]


@dataclass(frozen=True)
class Evaluated:
    """What was read by one profile and how well: the scores, and the run that they are of."""

    profile: str
    settings: Settings
    scores: pa.Table
    run: Run
    compared: str


def prepared(asked: EvaluationRequest, home: Path, progress: Callable[[str], None] | None = None) -> KnownAnswers:
    """Load the benchmark and make it a corpus. Raises `ConfigError`, `SourceError`, `StoreError`, one line each."""
    return prepare(load(asked.benchmark, asked.folder), asked.home(home), asked.limit, progress)


def settings_in(settings: Settings, asked: EvaluationRequest) -> Settings:
    """The engines of `settings` in the home of a prepared evaluation; tables, ledger and release lie there too.

    Where the benchmark gives the regions, they are the layout. The platform's own gates do not guard an evaluation.
    """
    home, place = asked.home(settings.home), asked.place(settings.home, settings.profile_name)
    gates = {name: getattr(settings.gates, name) for name in Gates.model_fields}
    moved = {
        "home": home,
        "shards_per_run": None,
        "corpus": Corpus(home=str(home)),
        "store": ShardStore(url=str(place / "store"), keep_versions=settings.store.keep_versions),
        "release": LocalRelease(folder=str(place / "release")),
        "gates": Gates(**{**gates, "benchmarks": {}}),
    }
    if asked.gives_regions(settings.home):
        moved["layout"] = GivenLayout(home=str(home))
    return replace(settings, **moved)


def evaluate(settings: Settings, build: Build) -> Evaluated:
    """Read what is not read yet and score it: one run over all shards of an evaluation's home.

    A page that cannot be read is scored as lost. Raises `KopubError` where an engine cannot run at all; what was
    finished is kept for the next run.
    """
    definitions = dg.Definitions(
        build(settings), resources=launchable(settings.resources), executor=dg.in_process_executor
    )
    assets = [*(table.name for table in READING), OCR_SCORES.name]
    with dg.DagsterInstance.ephemeral() as instance:
        failures = execute(definitions, instance, assets, settings.corpus.manifest.keys)
    if failures:
        raise KopubError(f"profile {settings.profile_name}: {first_line(failures[0])}")
    run = HISTORY.latest(settings.store)
    assert run is not None, "a run that succeeded wrote its scores"
    scores = settings.store.read(OCR_SCORES.name, ALL)
    compared = settings.store.metadata(OCR_SCORES.name, ALL)["compared"]
    return Evaluated(settings.profile_name, settings, scores, run, compared)
