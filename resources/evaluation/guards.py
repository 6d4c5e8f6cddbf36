"""The benchmarks that guard a corpus: which they are, and what the last evaluation of each says."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from resources.config.gates import Gates
from resources.config.places import placed
from resources.errors import ConfigError
from resources.evaluation.comparison import significant_drops
from resources.evaluation.home import Asked
from resources.evaluation.run_history import HISTORY
from resources.scores.history import ALL
from resources.store.corpus_tables import OCR_SCORES
from resources.store.shard_store import ShardStore


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an evaluation says of its profile: the scores, and what got worse that nobody accepted."""

    scores: pa.Table
    closed: Sequence[str]


def guards(gates: Gates) -> list[Asked]:
    """The evaluations that `gates.benchmarks` names. Raises `ConfigError`."""
    found = []
    for benchmark, folder in gates.benchmarks.items():
        try:
            found.append(Asked(benchmark, Path(placed(folder)), gates.benchmark_samples or None))
        except ValueError as error:
            raise ConfigError(f"gates.benchmarks.{benchmark}: {error}") from None
    return found


def verdict(store: ShardStore) -> Verdict | None:
    """Of the scores in the store of an evaluation; None where nothing was scored yet. Raises `StoreError`."""
    run = HISTORY.latest(store)
    if run is None or not HISTORY.is_scored(store, run.inputs):
        return None
    scores = store.read(OCR_SCORES.name, ALL)
    return Verdict(scores, [] if run.accepted else significant_drops(scores))
