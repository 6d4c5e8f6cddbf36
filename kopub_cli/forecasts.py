"""What `kopub run` would take: the same figure in the plan, before a run, and at its beginning."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kopub_assets.running.forecast import Forecast, Stage
from kopub_cli.display.console import duration
from kopub_cli.indexed_corpus import corpus_check
from resources.states import State
from resources.store.corpus_tables import OCR_SCORES, RELEASED_FILES, SCORES

if TYPE_CHECKING:
    from kopub_assets.upgrades.stale_scan import Survey
    from resources.config.settings import Settings
    from resources.engine import Engine

_SCORES_SECONDS = 3.0
"""What measuring queries takes besides the pages."""
_RELEASE_SECONDS = 2.0
"""What the card and the verification of a release take, however few its pages."""
_STEP_SECONDS = 0.15
_SHARD_SECONDS = 0.02
"""What Dagster takes for a step, and for each of its shards."""


def forecast_of(settings: "Settings", scan: "Survey", assets: Sequence[str], shards: Sequence[str]) -> Forecast:
    """What is likely to be computed of `assets` in a run over `shards`, and what it is likely to take."""
    is_of_corpus = corpus_check(settings.corpus.manifest, settings.store).look(scan.tables)
    costs = scan.costs([name for name in assets if name in scan.assets])
    manifest = settings.corpus.manifest
    stages: list[Stage] = []
    started: set[str] = set()
    for name in assets:
        if name not in scan.assets:
            seconds = _SCORES_SECONDS + manifest.rows * 1e-3 if manifest.queries else 0.0
            stages.append(Stage(name, {}, 0.0, False, _STEP_SECONDS + seconds))
            continue
        made, declared = scan.tables[name], scan.assets[name]
        likely = {}
        for shard in shards:
            entry = made[shard] if shard in made and is_of_corpus(name, shard) else None
            if entry is not None and scan.standings[name][shard].stands:
                # Failed rows are tried again.
                likely[shard] = entry.states.get(State.FAILED, 0)
            else:
                likely[shard] = declared.expected_rows(shard, None if entry is None else entry.rows)
        typical = {shard.key: declared.typical_seconds(shard.bytes / shard.rows / 1e6) for shard in manifest.shards}
        mean = sum(typical[shard.key] * shard.rows for shard in manifest.shards) / manifest.rows
        more = _STEP_SECONDS + _SHARD_SECONDS * len(likely) + _RELEASE_SECONDS * (name == RELEASED_FILES.name)
        weights = {shard: typical[shard] / mean for shard in likely}
        stage = Stage(name, likely, costs[name].seconds, costs[name].measured, more, 0.0, weights)
        if stage.rows:
            stage.seconds_to_start = _seconds_to_start(declared.engines, started)
        stages.append(stage)
    return Forecast(stages)


def _seconds_to_start(engines: "Iterable[Engine]", started: set[str]) -> float:
    """What the servers and models take to start that are not among those `started`, and note them there."""
    from resources.weights.pinned import server_of

    seconds = 0.0
    for engine in engines:
        server = server_of(engine)
        name = server.model_dump_json() if server else str(id(engine))
        if name not in started:
            started.add(name)
            seconds += engine.start_seconds
    return seconds


def forecast_of_everything(settings: "Settings", scan: "Survey") -> Forecast:
    """Of `kopub run` without an option."""
    scores = [SCORES.name, *([OCR_SCORES.name] if settings.corpus.gold is not None else [])]
    return forecast_of(settings, scan, [*scan.assets, *scores], settings.corpus.manifest.keys)


def about(forecast: Forecast) -> str:
    """`about 20 s, by what rows cost so far`."""
    seconds = forecast.seconds_to_start
    starts = f", of which {duration(seconds)} for models to start" if seconds else ""
    return f"about {duration(forecast.remaining(0.0))}{starts}, by what rows cost {so_far(is_measured(forecast))}"


def is_measured(forecast: Forecast) -> bool:
    """Whether every row that is likely to be computed is of an engine that made rows here before."""
    return all(stage.measured or not stage.rows for stage in forecast.stages.values())


def so_far(measured: bool) -> str:
    """Where the cost of a row is known from."""
    return "so far" if measured else "elsewhere"
