"""The benchmarks that guard a corpus: which they are, and what the last evaluation of each says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from resources.evaluation.runs.comparison import significant_drops
from resources.evaluation.runs.home import Asked
from resources.evaluation.runs.run_history import HISTORY
from resources.search.scores import ALL
from resources.store.corpus_tables import OCR_SCORES
from resources.store.shard_store import ShardStore


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an evaluation says of its profile: the scores, and what got worse that nobody accepted."""

    scores: pa.Table
    closed: Sequence[str]


def guards(benchmarks: Mapping[str, str], samples: int) -> list[Asked]:
    """The evaluations of the gates' `benchmarks`, each with the folder of its data; 0 `samples` are all."""
    return [Asked(benchmark, Path(folder), samples or None) for benchmark, folder in benchmarks.items()]


def verdict(store: ShardStore) -> Verdict | None:
    """Of the scores in the store of an evaluation; None where nothing was scored yet. Raises `StoreError`."""
    run = HISTORY.latest(store)
    if run is None or not HISTORY.is_scored(store, run.inputs):
        return None
    scores = store.read(OCR_SCORES.name, ALL)
    return Verdict(scores, [] if run.accepted else significant_drops(scores))
