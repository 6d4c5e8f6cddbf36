"""Reading scores of what is in the store: computed once for the same readings, known answers and scorers."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from resources.evaluation.benchmark import Benchmark, Reading, Score
from resources.evaluation.runs.gold_file import KnownAnswers
from resources.evaluation.runs.readings import contents, readings
from resources.evaluation.runs.run_history import HISTORY
from resources.evaluation.scorers.cdm import Cdm
from resources.evaluation.scoring import MISSING, VERSION, Scorer
from resources.fingerprints import fingerprint
from resources.search.scores import ALL, Run
from resources.store.schemas import OCR_RUNS
from resources.store.shard_store import ShardStore
from resources.store.table_source import IsOfCorpus

_PROGRESS_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Measured:
    """The table OCR_SCORES in the store, what it was compared with, and whether it was computed just now."""

    scores: pa.Table
    inputs: str
    compared: str
    computed: bool
    unread: Sequence[str]
    """Shards of the corpus that were not read to the end; their samples are lost."""


def measure(
    store: ShardStore,
    answers: Sequence[KnownAnswers],
    keys: Sequence[str],
    is_of_corpus: IsOfCorpus,
    accept: bool = False,
    log: Callable[[str], None] = lambda line: None,
    cdm: Sequence[str] = (),
) -> Measured:
    """Score what the tables of the shards `keys` say and write the result, unless it is scored already.

    A sample without a row has the worst value. `accept` lets later runs be compared with this one even if it
    dropped. `cdm` is the command that scores formulas by CDM. Raises `StoreError`.
    """
    measured = contents(store, keys, is_of_corpus)
    kind = kind_of(answers, cdm)
    inputs = fingerprint([kind, measured])
    todo = not HISTORY.is_scored(store, inputs)
    if todo:
        benchmarks = [known.benchmark for known in answers]
        members = [f"{each.name}/{sample.id}" for each in benchmarks for sample in each.samples]
        table = scored(benchmarks, dict(readings(store, measured)), log, cdm)
        HISTORY.publish(store, Run(inputs, table, members, kind=kind), measured, accept)
    elif accept:
        HISTORY.accept(store, inputs)
    name = HISTORY.scores.name
    compared = store.metadata(name, ALL)["compared"]
    unread = [key for key in keys if key not in measured]
    return Measured(store.read(name, ALL), inputs, compared, todo, unread)


def kind_of(answers: Sequence[KnownAnswers], cdm: Sequence[str]) -> str:
    """Fingerprint of what is scored against and how: runs of two kinds are not compared."""
    return fingerprint([VERSION.number, [known.identity for known in answers], list(cdm)])


def scored(
    benchmarks: Sequence[Benchmark],
    found: dict[str, Reading],
    log: Callable[[str], None] = lambda line: None,
    cdm: Sequence[str] = (),
) -> pa.Table:
    """The scores of every sample, as a table of schema OCR_RUNS."""
    parts = [OCR_RUNS.empty_table()]
    for benchmark in benchmarks:
        pairs = [(sample, found.get(sample.id, MISSING)) for sample in benchmark.samples]
        scores: list[Score] = []
        told = time.monotonic()
        with Scorer.of(benchmark.name, Cdm(cdm) if cdm else None) as scorer:
            for done, of_sample in enumerate(scorer.score_all(pairs)):
                scores += of_sample
                if time.monotonic() - told >= _PROGRESS_SECONDS:
                    told = time.monotonic()
                    log(f"{benchmark.name}: {done + 1} of {len(pairs)} samples are scored")
        parts.append(pa.Table.from_pylist(list(_rows(benchmark, scores)), OCR_RUNS))
        log(f"{benchmark.name}: {len(pairs)} samples, {sum(reading.lost for _, reading in pairs)} of them lost")
    return pa.concat_tables(parts)


def _rows(benchmark: Benchmark, scores: Iterable[Score]) -> Iterator[dict[str, Any]]:
    samples = {sample.id: sample for sample in benchmark.samples}
    for each in scores:
        sample = None if each.sample is None else samples[each.sample]
        yield {
            "benchmark": benchmark.name,
            "metric": each.metric,
            "sample": each.sample,
            "document": sample.document if sample else benchmark.name,
            "slices": list(sample.slices.items()) if sample else [],
            "value": each.value,
            "size": each.size,
            "lost": each.lost,
            "skipped_reason": each.skipped_reason,
            "notes": list(each.notes),
        }
