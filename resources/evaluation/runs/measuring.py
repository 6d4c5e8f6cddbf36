"""Reading scores of the tables, computed once for the same readings, answers and scorers."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from resources.errors import SourceError
from resources.evaluation.benchmark import Benchmark, Facts, Reading, Sample, Score
from resources.evaluation.runs.comparison import HISTORY
from resources.evaluation.runs.home import KnownAnswers
from resources.evaluation.scorers.cdm import Cdm
from resources.evaluation.scoring import MISSING, VERSION, Scorer
from resources.files import replace_bytes
from resources.fingerprints import fingerprint
from resources.pages.ids import problem_with
from resources.printable import quoted
from resources.recognition.read_regions import read_regions
from resources.search.scores import ALL, Run
from resources.states import State
from resources.store.corpus_tables import TABLES
from resources.store.footer_cache import FooterCache
from resources.store.schemas import OCR_RUNS
from resources.store.shard_store import ShardStore
from resources.store.table_source import IsOfCorpus

_PROGRESS_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class ReadingScores:
    """The table OCR_SCORES in the store, and what it was compared with.

    `computed` says whether it was computed just now.
    """

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
) -> ReadingScores:
    """Score the tables of the shards `keys` and write the result, unless they are scored.

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
    return ReadingScores(store.read(name, ALL), inputs, compared, todo, unread)


def kind_of(answers: Sequence[KnownAnswers], cdm: Sequence[str]) -> str:
    """Fingerprint of what is scored against and how: runs of two kinds are not compared."""
    return fingerprint([VERSION.number, [known.identity for known in answers], list(cdm)])


def scored(
    benchmarks: Sequence[Benchmark],
    found: dict[str, Reading],
    log: Callable[[str], None] = lambda line: None,
    cdm: Sequence[str] = (),
) -> pa.Table:
    """Return the scores of every sample, as a table of schema OCR_RUNS."""
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
        parts.append(pa.Table.from_pylist(list(_score_rows(benchmark, scores)), OCR_RUNS))
        log(f"{benchmark.name}: {len(pairs)} samples, {sum(reading.lost for _, reading in pairs)} of them lost")
    return pa.concat_tables(parts)


def _score_rows(benchmark: Benchmark, scores: Iterable[Score]) -> Iterator[dict[str, Any]]:
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


_READ = {
    TABLES.regions.name: ["page_id", "regions", "state", "reason"],
    TABLES.readings.name: ["page_id", "regions", "markdown", "state", "reason"],
    TABLES.texts.name: ["page_id", "text", "state", "reason"],
}
"""The columns of each asset that decide a score."""


def contents(store: ShardStore, keys: Iterable[str], is_of_corpus: IsOfCorpus) -> dict[str, dict[str, str]]:
    """Return the fingerprint of the rows by shard and asset.

    Shards that have not been read to the end are left out.
    """
    footers = FooterCache(store)
    tables = {asset: footers.tables(asset) for asset in _READ}
    return {
        shard: {asset: found[shard].content for asset, found in tables.items()}
        for shard in keys
        if all(shard in found and is_of_corpus(asset, shard) for asset, found in tables.items())
    }


def readings(store: ShardStore, shards: Iterable[str]) -> Iterator[tuple[str, Reading]]:
    """Yield the id and the reading of every page of the shards.

    Raises `StoreError` for tables that do not fit together.
    """
    for shard in shards:
        layout, read, texts = ({row["page_id"]: row for row in _table_rows(store, asset, shard)} for asset in _READ)
        for page_id, row in read.items():
            yield page_id, _reading(page_id, layout.get(page_id), row, texts.get(page_id))


def _table_rows(store: ShardStore, asset: str, shard: str) -> list[dict]:
    return store.read(asset, shard, _READ[asset]).to_pylist()


def _reading(page_id: str, layout: Mapping | None, read: Mapping, parsed: Mapping | None) -> Reading:
    if layout is None or parsed is None:
        return Reading(None, "its tables do not hold the same pages")
    return Reading(
        state=State(read["state"]),
        reason=read["reason"],
        markdown=read["markdown"] or "",
        text=parsed["text"] or "",
        regions=read_regions(page_id, layout["regions"], read["regions"]),
    )


def write_predictions(folder: Path, benchmark: Benchmark, readings: Mapping[str, Reading]) -> int:
    """Write `folder`/<stem>.md for each sample, and return how many.

    The stem is that of the picture, as OmniDocBench has it; of facts it is `<pdf>_pg<page>_repeat1`, as olmOCR-bench
    has it. A sample that was not read has an empty file: the scripts leave a missing one out of their means. Raises
    `SourceError` for two samples of one name and a name that is none, `StoreError`.
    """
    names: dict[str, str] = {}
    for sample in benchmark.samples:
        name = _stem(sample)
        if (problem := problem_with(name)) is not None:
            raise SourceError(f"the prediction of {quoted(sample.id)} cannot be written: its name {problem}")
        if other := names.get(name):
            raise SourceError(f"{quoted(other)} and {quoted(sample.id)} would both be {name}.md: rename a picture")
        names[name] = sample.id
    for name, sample_id in names.items():
        reading = readings.get(sample_id)
        replace_bytes(folder / f"{name}.md", (reading.markdown if reading else "").encode())
    return len(names)


def _stem(sample: Sample) -> str:
    picture = sample.picture
    if picture is None or picture.load is not None:
        return sample.id
    if isinstance(sample.gold, Facts):
        return f"{picture.path.stem}_pg{picture.page or 1}_repeat1"
    return picture.path.stem if picture.page is None else f"{picture.path.stem}_{picture.page}"
