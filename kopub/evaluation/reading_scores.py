"""Reading scores of the tables, computed once for equal inputs, and compared.

The inputs are readings, answers and scorers.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kopub.errors import SourceError, counted, quoted
from kopub.evaluation.benchmark import MISSING, Benchmark, FactList, PageText, Sample, SampleReading, SampleScore
from kopub.evaluation.benchmarks.texts import CORRECTIONS
from kopub.evaluation.cdm import Cdm
from kopub.evaluation.home import CHECKED_PAGES, EvaluationRequest, KnownAnswers
from kopub.evaluation.metrics import ALL, METRICS, PairedChange, changes, means
from kopub.evaluation.scoring import ADAPTERS, VERSION, Scorer
from kopub.files import replace_bytes
from kopub.fingerprints import fingerprint
from kopub.pages.page import problem_with_id
from kopub.recognition.regions import region_texts
from kopub.search.scores import ALL as WHOLE
from kopub.search.scores import Contents, History, ScoreChange, ScoredRun
from kopub.states import State, phrase
from kopub.store import schemas
from kopub.store.corpus_tables import OCR_SCORES, TABLES
from kopub.store.schemas import OCR_RUNS
from kopub.store.table_source import FooterCache, IsOfCorpus
from kopub.store.table_store import ShardStore
from kopub.texts.markdown import page_text
from kopub.texts.regions import join_regions

_PROGRESS_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class ReadingScores:
    """The table OCR_SCORES in the store, and the run that it was compared with.

    `computed` says whether it was computed just now, not read.
    """

    scores: pa.Table
    inputs: str
    compared: str
    computed: bool
    unread: Sequence[str]
    """Shards of the corpus that were not read completely; their samples are lost."""


def measure(
    store: ShardStore,
    answers: Sequence[KnownAnswers],
    keys: Sequence[str],
    is_of_corpus: IsOfCorpus,
    accept: bool = False,
    log: Callable[[str], None] = lambda line: None,
    cdm: Sequence[str] = (),
) -> ReadingScores:
    """Score the shards `keys` and write the result, unless they are already scored.

    A sample without a row has the worst value. With `accept`, later runs are compared with this one even if its scores
    dropped. `cdm` is the command that scores formulas by CDM. Raises `StoreError`.
    """
    measured = contents(store, keys, is_of_corpus)
    inputs = inputs_of(answers, measured, cdm)
    todo = not HISTORY.is_scored(store, inputs)
    if todo:
        benchmarks = [entry.benchmark for entry in answers]
        members: list[str] = []
        for benchmark in benchmarks:
            # People check pages one by one, so checked pages must not decide whether two runs are comparable.
            if benchmark.name != CORRECTIONS.name:
                prefix = f"{benchmark.name} {benchmark.version}"
                members += [f"{prefix}/{sample.id} {sample.mark}" for sample in benchmark.samples]
        table = score_samples(benchmarks, dict(readings(store, measured)), log, cdm)
        HISTORY.publish(store, ScoredRun(inputs, table, members, kind=_kind(cdm)), measured, accept)
    elif accept:
        HISTORY.accept(store, inputs)
    name = HISTORY.scores.name
    compared = store.metadata(name, WHOLE)["compared"]
    unread = [key for key in keys if key not in measured]
    return ReadingScores(store.read(name, WHOLE), inputs, compared, todo, unread)


def inputs_of(answers: Sequence[KnownAnswers], measured: Contents, cdm: Sequence[str]) -> str:
    """Return the fingerprint of what determines scores: answers, scorers, readings."""
    return fingerprint([_kind(cdm), [entry.identity for entry in answers], measured])


def _kind(cdm: Sequence[str]) -> str:
    """Return the fingerprint of the scorers; runs by different scorers are not compared."""
    return fingerprint([VERSION.number, list(cdm)])


def score_samples(
    benchmarks: Sequence[Benchmark],
    by_sample: dict[str, SampleReading],
    log: Callable[[str], None],
    cdm: Sequence[str],
) -> pa.Table:
    """Return the scores of every sample, as a table with the schema OCR_RUNS."""
    parts = [OCR_RUNS.empty_table()]
    for benchmark in benchmarks:
        pairs = [(sample, by_sample.get(sample.id, MISSING)) for sample in benchmark.samples]
        scores: list[SampleScore] = []
        logged_at = time.monotonic()
        with Scorer(benchmark.name, Cdm(cdm) if cdm else None) as scorer:
            for done, of_sample in enumerate(scorer.score_all(pairs)):
                scores += of_sample
                if time.monotonic() - logged_at >= _PROGRESS_SECONDS:
                    logged_at = time.monotonic()
                    log(f"{benchmark.name}: {done + 1} of {len(pairs)} samples are scored")
        rows: list[dict[str, Any]] = []
        samples = {sample.id: sample for sample in benchmark.samples}
        for score in scores:
            sample = None if score.sample is None else samples[score.sample]
            rows.append(
                {
                    "benchmark": benchmark.name,
                    "metric": score.metric,
                    "sample": score.sample,
                    "document": sample.document if sample else benchmark.name,
                    "slices": list(sample.slices.items()) if sample else [],
                    "gold": sample.mark if sample else None,
                    "value": score.value,
                    "size": score.size,
                    "lost": score.lost,
                    "skipped_reason": score.skipped_reason,
                    "notes": list(score.notes),
                }
            )
        parts.append(pa.Table.from_pylist(rows, OCR_RUNS))
        log(f"{benchmark.name}: {len(pairs)} samples, {sum(reading.lost for _, reading in pairs)} of them lost")
    return pa.concat_tables(parts)


_READ = {
    TABLES.regions.name: ["page_id", "regions", "state", "reason"],
    TABLES.readings.name: ["page_id", "regions", "markdown", "state", "reason"],
}
"""The columns of each asset that determine a score, without corrections: a reader is judged by what it read."""


def contents(store: ShardStore, keys: Iterable[str], is_of_corpus: IsOfCorpus) -> dict[str, dict[str, str]]:
    """Return the fingerprint of the rows by shard and asset.

    Shards that have not been read completely are left out.
    """
    footers = FooterCache(store)
    tables = {asset: footers.tables(asset) for asset in _READ}
    fingerprints: dict[str, dict[str, str]] = {}
    for shard in keys:
        if all(shard in shards and is_of_corpus(asset, shard) for asset, shards in tables.items()):
            fingerprints[shard] = {asset: shards[shard].content for asset, shards in tables.items()}
    return fingerprints


def readings(store: ShardStore, shards: Iterable[str]) -> Iterator[tuple[str, SampleReading]]:
    """Yield the id and the reading of every page in the shards.

    Raises `StoreError` for tables that are not consistent.
    """
    for shard in shards:
        rows: list[dict[str, dict[str, Any]]] = []
        for asset, columns in _READ.items():
            rows.append({row["page_id"]: row for row in store.read(asset, shard, columns).to_pylist()})
        layouts, read = rows
        for page_id, row in read.items():
            layout, regions = layouts.get(page_id), row["regions"]
            if layout is None:
                yield page_id, SampleReading(None, "its tables do not hold the same pages")
                continue
            yield (
                page_id,
                SampleReading(
                    state=State(row["state"]),
                    reason=row["reason"],
                    markdown=row["markdown"] or "",
                    text=page_text(region_texts(regions)),
                    regions=join_regions(page_id, layout["regions"], regions),
                ),
            )


def write_predictions(folder: Path, benchmark: Benchmark, readings: Mapping[str, SampleReading]) -> int:
    """Write `folder`/<stem>.md for each sample, and return their number.

    The stem is the picture's, as in OmniDocBench; for facts it is `<pdf>_pg<page>_repeat1`, as in olmOCR-bench. A
    sample that was not read gets an empty file, because the scripts leave a missing one out of their means. Raises
    `SourceError` for two samples with the same name and for an invalid name, and `StoreError`.
    """
    names: dict[str, str] = {}
    for sample in benchmark.samples:
        picture = sample.picture
        if picture is None or picture.load is not None:
            name = sample.id
        elif isinstance(sample.gold, FactList):
            name = f"{picture.path.stem}_pg{picture.page or 1}_repeat1"
        else:
            name = picture.path.stem if picture.page is None else f"{picture.path.stem}_{picture.page}"
        if (problem := problem_with_id(name)) is not None:
            form = "the prediction of {sample} cannot be written: its name {error}"
            raise SourceError(form, quoted(sample.id), problem)
        if other := names.get(name):
            form = "{other} and {sample} would both be {name}.md: rename a picture"
            raise SourceError(form, quoted(other), quoted(sample.id), name)
        names[name] = sample.id
    for name, sample_id in names.items():
        reading = readings.get(sample_id)
        replace_bytes(folder / f"{name}.md", (reading.markdown if reading else "").encode())
    return len(names)


Row = Mapping[str, Any]
_UNKNOWN = PageText("")
"""The gold of a stored run, which keeps none; means need none."""


def compare(run: pa.Table, previous: pa.Table | None) -> pa.Table:
    """Return the table OCR_SCORES of a run, compared sample by sample with `previous`."""
    rows: list[dict[str, Any]] = []
    for benchmark in run["benchmark"].unique().to_pylist():
        changed = {}
        if previous is not None:
            changed = {(change.metric, change.slice): change for change in _changes(benchmark, run, previous)}
        adapter = ADAPTERS.get(benchmark)
        for mean in means(*scores_of(benchmark, run)):
            is_headline = adapter is not None and mean.metric in adapter.headline
            change = changed.get((mean.metric, mean.slice))
            row: dict[str, Any] = {
                "benchmark": benchmark,
                "metric": mean.metric,
                "slice": mean.slice,
                "better": "lower" if METRICS[mean.metric].lower_is_better else "higher",
                "headline": is_headline,
                "samples": mean.samples,
                "lost": mean.lost,
                "value": mean.value,
                "low": mean.low,
                "high": mean.high,
                "value_of_read": mean.without_lost,
                "dropped": False,
                "skipped": mean.skipped,
                "skipped_reason": mean.skipped_reason,
            }
            if change is not None:
                row |= {
                    "previous": change.previous,
                    "change": change.change,
                    "change_low": change.low,
                    "change_high": change.high,
                    "dropped": change.worse,
                }
            rows.append(row)
    return pa.Table.from_pylist(rows, schemas.OCR_SCORES)


def changes_between(run: pa.Table, other: pa.Table) -> dict[tuple[str, str, str], PairedChange]:
    """Return the changes from `run` to `other`, by benchmark, metric and slice.

    Only samples that have a value in both tables count.
    """
    by_slice: dict[tuple[str, str, str], PairedChange] = {}
    for benchmark in other["benchmark"].unique().to_pylist():
        for change in _changes(benchmark, other, run):
            by_slice[benchmark, change.metric, change.slice] = change
    return by_slice


def significant_drops(scores: pa.Table) -> list[str]:
    """Return a sentence for every headline metric that dropped over all samples.

    Only headline metrics close a gate, because some of a table's many intervals are on the wrong side by chance.
    """
    form = (
        "{benchmark} is read worse: {metric} went from {previous:.4f} by {change:+.4f} (95 % interval {low:+.4f} to "
        "{high:+.4f}) over the samples of both runs"
    )
    names = ("benchmark", "metric", "previous", "change", "change_low", "change_high")
    return [phrase(form, *(row[name] for name in names)) for row in headline(scores) if row["dropped"]]


def headline(scores: pa.Table) -> list[Row]:
    """Return the rows of headline metrics over all samples that have a value.

    The filter is not an Arrow expression, because that would load pandas.
    """
    rows = scores.to_pylist()
    return [row for row in rows if row["slice"] == ALL and row["headline"] and row["value"] is not None]


def headline_changes(scores: pa.Table) -> list[ScoreChange]:
    """Return the changes of the headline metrics over all samples since the previous run."""
    changes: list[ScoreChange] = []
    for row in headline(scores):
        changes.append(
            ScoreChange.of(
                row["metric"] if row["metric"] == row["benchmark"] else f"{row['benchmark']} {row['metric']}",
                row,
                row["better"] == "lower",
                METRICS[row["metric"]].margin,
                counted(row["samples"], "sample"),
            )
        )
    return changes


def scores_of(benchmark: str, run: pa.Table) -> tuple[list[Sample], list[SampleScore]]:
    """Return a benchmark's samples, without gold, and scores from a table OCR_RUNS."""
    samples: dict[str, Sample] = {}
    scores = []
    for row in run.filter(pc.field("benchmark") == benchmark).to_pylist():
        if row["sample"] is not None and row["sample"] not in samples:
            slices = dict(row["slices"])
            samples[row["sample"]] = Sample(row["sample"], row["document"], None, slices, _UNKNOWN)
        named = (row["sample"], row["metric"], row["value"], row["size"], row["skipped_reason"], row["lost"])
        scores.append(SampleScore(*named, tuple(row["notes"] or ())))
    return list(samples.values()), scores


def _changes(benchmark: str, run: pa.Table, previous: pa.Table) -> list[PairedChange]:
    """Return the changes over the samples that have the same gold in both runs."""
    samples, now = scores_of(benchmark, run)
    marks = set(_marks(run))
    same = pa.array([mark in marks for mark in _marks(previous)], pa.bool_())
    return changes(samples, scores_of(benchmark, previous.filter(same))[1], now)


def _marks(run: pa.Table) -> list[tuple[str | None, ...]]:
    return list(zip(*(run[name].to_pylist() for name in ("benchmark", "sample", "gold")), strict=True))


HISTORY = History(
    scores=OCR_SCORES,
    runs="ocr_runs",
    members="ocr_samples",
    member_column="sample",
    schema=schemas.OCR_RUNS,
    compare=compare,
    drops=significant_drops,
    member="samples",
)
"""The history of runs, each compared sample by sample with one scored in the same way against the same gold."""


def are_of_readings_now(store: ShardStore, keys: Iterable[str], is_of_corpus: IsOfCorpus) -> bool:
    """Return whether the stored scores are of the shards `keys` as they are read now.

    Stored scores count a shard that was read later as lost.
    """
    return HISTORY.measured(store) == contents(store, keys, is_of_corpus)


@dataclass(frozen=True, slots=True)
class ProfileVerdict:
    """The verdict on a profile: its scores, and the drops that nobody accepted."""

    scores: pa.Table
    closed: Sequence[str]


def guards(benchmarks: Mapping[str, str], samples: int, home: Path) -> list[EvaluationRequest]:
    """Return the evaluations of the gates' `benchmarks`; 0 `samples` means all.

    Checked pages are always taken from the `home`, whatever folder a profile names.
    """
    folders = {name: Path(folder) for name, folder in benchmarks.items()}
    if CORRECTIONS.name in folders:
        folders[CORRECTIONS.name] = home / CHECKED_PAGES
    return [EvaluationRequest(name, folder, samples or None) for name, folder in folders.items()]


def begin_baseline(baseline: ShardStore, stores: Iterable[ShardStore]) -> None:
    """Begin with the last accepted run of the first store that has one.

    Otherwise the first run that guards a corpus would be compared with nothing, although earlier releases, or `kopub
    evaluate`, have scored readers on the benchmark.
    """
    if HISTORY.latest(baseline) is None:
        run = next(filter(None, map(HISTORY.accepted, stores)), None)
        if run is not None:
            with baseline.exclusive(OCR_SCORES.name, WHOLE):
                HISTORY.publish(baseline, run, {}, True)


def keep_baseline(baseline: ShardStore, store: ShardStore, accept: bool) -> tuple[pa.Table, str]:
    """Compare a profile's run with the last accepted run that guarded the corpus.

    The run is the newest of the profile's `store`. Return the scores, and what they were compared with. The run is kept
    in `baseline`, and is accepted if nothing dropped or with `accept`. So a corpus that moves to another profile is
    compared with the reading of the one before. Raises `StoreError`.
    """
    run = HISTORY.latest(store)
    assert run is not None, "a profile that was evaluated has a run"
    with baseline.exclusive(OCR_SCORES.name, WHOLE):
        if not HISTORY.is_scored(baseline, run.inputs):
            HISTORY.publish(baseline, run, HISTORY.measured(store), accept)
        elif accept:
            HISTORY.accept(baseline, run.inputs)
        return baseline.read(OCR_SCORES.name, WHOLE), baseline.metadata(OCR_SCORES.name, WHOLE)["compared"]


def same_run(store: ShardStore, baseline: ShardStore) -> bool:
    """Return whether the newest run that guarded the corpus is that of a profile's `store`."""
    runs = HISTORY.latest(store), HISTORY.latest(baseline)
    return runs[0] is not None and runs[1] is not None and runs[0].inputs == runs[1].inputs


def verdict(store: ShardStore) -> ProfileVerdict | None:
    """Return the verdict on an evaluation, or None if nothing is scored yet.

    Raises `StoreError`.
    """
    run = HISTORY.latest(store)
    if run is None or not HISTORY.is_scored(store, run.inputs):
        return None
    scores = store.read(OCR_SCORES.name, WHOLE)
    return ProfileVerdict(scores, [] if run.accepted else significant_drops(scores))
