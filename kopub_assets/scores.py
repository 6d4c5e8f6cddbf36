"""The assets of scores: retrieval, readings and benchmarks, each compared with the previous run."""

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import dagster as dg
import pyarrow as pa

from kopub.config.choices import Figures
from kopub.config.settings import Settings
from kopub.corrections.gold import write_checked_pages
from kopub.embedding.base import Embedder
from kopub.errors import KopubError
from kopub.evaluation.benchmarks.texts import CORRECTIONS
from kopub.evaluation.metrics import ALL as EVERY
from kopub.evaluation.reading_scores import (
    HISTORY,
    ReadingScores,
    begin_baseline,
    headline,
    keep_baseline,
    significant_drops,
)
from kopub.evaluation.scoring import VERSION as READING_VERSION
from kopub.pages.corpus import Corpus, queries_source
from kopub.pages.manifest import shard_source
from kopub.release.gates import Gates
from kopub.reranking.base import Reranker
from kopub.search.measuring import VERSION as RETRIEVAL_VERSION
from kopub.search.measuring import Measurement, SearchedCorpus
from kopub.search.measuring import measure as measure_retrieval
from kopub.search.metrics import HISTORY as RETRIEVAL_HISTORY
from kopub.search.metrics import headline as retrieval_headline
from kopub.search.metrics import significant_drops as retrieval_drops
from kopub.search.reranking import reranking_of
from kopub.search.scores import ALL
from kopub.store.corpus_tables import BENCHMARKS, FIGURE_VECTORS, OCR_SCORES, PASSAGE_VECTORS, SCORES, TABLES, Table
from kopub.store.table_source import CorpusCheck, Source
from kopub.store.table_store import ShardStore
from kopub.tables.asset import Metadata
from kopub.tables.evaluations import Evaluation, evaluate, guards_of, prepare_answers, score, settings_in
from kopub.tables.progress import NOBODY, watched_by, watcher
from kopub_assets.reporting import column_schema
from kopub_assets.running.execution import canceled_when_stopped
from kopub_assets.shard_assets import GROUP, OWNERS


def retrieval_scores(settings: Settings) -> dg.AssetsDefinition:
    """Return the asset, over all shards of the corpus that `settings` names."""

    @score_asset(
        SCORES,
        (
            *(TABLES.texts, TABLES.image_vectors, TABLES.text_vectors, TABLES.query_vectors),
            *((PASSAGE_VECTORS,) if "meaning" in settings.embedding.queries_match else ()),
            *((FIGURE_VECTORS,) if settings.figures.vectors else ()),
        ),
        str(RETRIEVAL_VERSION.number),
        inspect.getdoc(_measure_retrieval),
        "No retriever finds significantly less than before.",
    )
    def materialize(
        context: dg.AssetExecutionContext,
        store: dg.ResourceParam[ShardStore],
        corpus: dg.ResourceParam[Corpus],
        embedding: dg.ResourceParam[Embedder],
        figures: dg.ResourceParam[Figures],
        gates: dg.ResourceParam[Gates],
        reranking: dg.ResourceParam[Reranker],
    ):
        kinds = embedding.queries_match - (frozenset() if figures.vectors else {"figure"})

        def sources(asset: str, shard: str) -> str:
            """Return the content that an asset reads from the corpus: pages or queries."""
            manifest = corpus.manifest
            is_pages = asset == TABLES.pages.name
            return shard_source(manifest.shard(shard)) if is_pages else queries_source(manifest, shard)

        yield from _measure_retrieval(context, store, corpus, embedding, kinds, gates, sources, reranking)

    return materialize


def _measure_retrieval(
    context: dg.AssetExecutionContext,
    store: ShardStore,
    corpus: Corpus,
    embedding: Embedder,
    kinds: Collection[str],
    gates: Gates,
    sources: Source,
    reranker: Reranker,
) -> Iterator[dg.MaterializeResult[Any]]:
    """Measure recall, nDCG and MRR of each search method over all shards.

    The methods are image vectors, text vectors, BM25 and their fusion, and vectors of passages and figures if the
    profile has them made; a page is as near as the nearest of these. With a reranker, the fusion is also measured with
    it.

    The scores are compared, query by query, with the last run of other vectors or texts. A release is pushed after this
    asset, but not if the scores dropped, unless `gates.override` gives the reason: then later runs are compared with
    this one.
    """
    watcher().began(SCORES.name)
    try:
        with canceled_when_stopped(context), store.exclusive(SCORES.name, ALL), store.fetched_once():
            check = CorpusCheck(store, sources)
            measured_before = RETRIEVAL_HISTORY.measured(store)
            searched = SearchedCorpus(store, corpus.manifest.keys, kinds, embedding, check, measured_before)
            reranking = reranking_of(reranker, store, corpus)
            measured = measure_retrieval(store, searched, bool(gates.override), context.log.info, reranking)
    except KopubError as error:
        raise dg.Failure(str(error), allow_retries=False) from None
    if measured.computed and measured.questions:
        watcher().computed(SCORES.name, ALL)
    watcher().ended(SCORES.name)
    # What was measured, and what was not and why.
    shards, unmeasured = len(searched.shards) + len(searched.left_out), searched.rows - measured.questions
    account = [f"{measured.questions} queries over {searched.pages} pages, {len(searched.shards)} of {shards} shards"]
    if unmeasured:
        account.append(f"{unmeasured} queries left out: without a vector, or no page here answers them")
    account += [f"{shard} left out: {reason}" for shard, reason in searched.left_out.items()]
    for asset in searched.mixed():
        account.append(f"{asset}: made by different recipes, so that vectors of different shards may not be comparable")
    plotted: Metadata = {}
    for retriever, metrics in retrieval_headline(measured.scores).items():
        for metric, value in metrics.items():
            plotted[f"{retriever}_{metric.replace('@', '_at_')}"] = value
    yield score_result(
        context,
        measured,
        account,
        retrieval_drops(measured.scores),
        {
            "dagster/row_count": measured.scores.num_rows,
            **plotted,
            "queries": measured.questions,
            "queries_left_out": unmeasured,
            "pages": searched.pages,
            "shards": len(searched.shards),
            "computed": measured.questions if measured.computed else 0,
            "compared": measured.compared,
            "measured": "\n".join(account),
            "scores": shown(measured.scores, ("retriever", "convention", "query_type", "metric", "queries")),
        },
    )


def ocr_scores() -> dg.AssetsDefinition:
    """Return the asset that scores the reading of known pages.

    These are pages of a corpus with known answers, or pages that people checked.
    """

    @score_asset(
        OCR_SCORES,
        (TABLES.readings,),
        str(READING_VERSION.number),
        inspect.getdoc(_measure_reading),
        "No headline metric of a benchmark is significantly worse than before.",
    )
    def materialize(
        context: dg.AssetExecutionContext,
        store: dg.ResourceParam[ShardStore],
        corpus: dg.ResourceParam[Corpus],
        gates: dg.ResourceParam[Gates],
    ):
        yield from _measure_reading(context, store, corpus, gates)

    return materialize


def _measure_reading(
    context: dg.AssetExecutionContext, store: ShardStore, corpus: Corpus, gates: Gates
) -> Iterator[dg.MaterializeResult[Any]]:
    """Measure the reading of the pages whose answers are in `gold.parquet`.

    Error rates, tables, formulas, order and facts are measured, also for pages that a person checked. All scores are
    those of the readings, without people's corrections.

    The scores are compared, sample by sample, with the last run of other readings. A page that was not read has the
    worst value. A release is pushed after this asset, but not if a headline metric dropped, unless `gates.override`
    gives the reason: then later runs are compared with this one.
    """
    try:
        with canceled_when_stopped(context):
            answers, measured = score(store, corpus, gates, context.log.info)
    except KopubError as error:
        raise dg.Failure(str(error), allow_retries=False) from None
    account: list[str] = []
    for of_benchmark in answers:
        benchmark, count = of_benchmark.benchmark, of_benchmark.of
        some = f"the first {len(benchmark.samples)} of {count}" if len(benchmark.samples) < count else count
        account.append(f"{benchmark.name}, version {benchmark.version}: {some} samples")
        account += [f"{benchmark.name}: left out {sample}" for sample in benchmark.left_out]
    account += [f"{shard} was not read to the end: its samples are lost" for shard in measured.unread]
    every = [row for row in measured.scores.to_pylist() if row["slice"] == EVERY]
    samples = sum(len(of_benchmark.benchmark.samples) for of_benchmark in answers)
    yield score_result(
        context,
        measured,
        account,
        significant_drops(measured.scores),
        {
            "dagster/row_count": measured.scores.num_rows,
            **{f"{row['benchmark']}_{row['metric']}": row["value"] for row in every if row["value"] is not None},
            "samples": samples,
            "lost": max((row["lost"] for row in every), default=0),
            "left_out": sum(len(of_benchmark.benchmark.left_out) for of_benchmark in answers),
            "computed": samples if measured.computed else 0,
            "compared": measured.compared,
            "measured": "\n".join(account),
            "scores": shown(
                measured.scores, ("benchmark", "metric", "slice", "samples", "lost", "value_of_read", "skipped_reason")
            ),
        },
    )


def benchmark_scores(settings: Settings) -> dg.AssetsDefinition:
    """Return the asset that scores the benchmarks named by the gates."""

    @dg.asset(
        name=BENCHMARKS,
        description=inspect.getdoc(_evaluate),
        backfill_policy=dg.BackfillPolicy.single_run(),
        group_name=GROUP,
        owners=OWNERS,
        check_specs=[
            dg.AssetCheckSpec(
                NO_DROP, asset=BENCHMARKS, description="No benchmark is read significantly worse than before."
            )
        ],
    )
    def materialize(context: dg.AssetExecutionContext):
        try:
            watcher().began(BENCHMARKS)
            with canceled_when_stopped(context):
                evaluations = _evaluate(settings, context.log.info)
        except KopubError as error:
            raise dg.Failure(str(error), allow_retries=False) from None
        watcher().ended(BENCHMARKS)
        columns = ("benchmark", "metric", "slice", "samples", "lost", "value_of_read", "skipped_reason")
        values: Metadata = {}
        tables: Metadata = {}
        drops: list[str] = []
        for benchmark, evaluation in evaluations.items():
            values |= {f"{benchmark}_{row['metric']}": row["value"] for row in headline(evaluation.scores)}
            tables[f"{benchmark}_scores"] = shown(evaluation.scores, columns)
            drops += significant_drops(evaluation.scores)
        compared = "; ".join(f"{benchmark}: {evaluation.compared}" for benchmark, evaluation in evaluations.items())
        for line in drops:
            context.log.info(line)
        yield dg.MaterializeResult(
            metadata={**values, **tables, "compared": compared},
            check_results=[drop_check("; ".join(drops) or compared, passed=not drops)],
        )

    return materialize


def _evaluate(settings: Settings, log: Callable[[str], None]) -> dict[str, Evaluation]:
    """Evaluate this profile on the benchmarks of `gates.benchmarks`.

    Each has its own home, and is compared with the last accepted reading that guarded this corpus, whichever profile
    read it. The layout and the texts are made after this asset, but not if a headline metric dropped significantly and
    by more than its margin, unless `gates.override` gives the reason: then later runs are compared with this one.
    """
    evaluations = {}
    for request in guards_of(settings):
        if request.benchmark == CORRECTIONS.name:
            write_checked_pages(settings.corpus, settings.store, request.folder)
        prepare_answers(request, settings.home)
        moved, baseline = settings_in(settings, request), request.baseline(settings.home)
        begin_baseline(baseline, request.stores(settings.home, settings.profile_name))
        before = HISTORY.latest(baseline)
        with watched_by(NOBODY):
            evaluated = evaluate(moved)
        scores, compared = keep_baseline(baseline, moved.store, bool(settings.gates.override))
        evaluations[request.benchmark] = replace(evaluated, scores=scores, compared=compared)
        if before is None or before.inputs != evaluated.run.inputs:
            watcher().computed(BENCHMARKS, request.benchmark)
        log(f"{request.benchmark} of {request.folder}: {evaluations[request.benchmark].compared}")
    return evaluations


NO_DROP = "no_significant_drop"


def score_asset(
    table: Table, after: Iterable[Table], version: str, description: str | None, says: str
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Return an asset of scores over the tables `after`, with its check.

    `says` is the claim that the check makes.
    """
    assert isinstance(table.schema, pa.Schema)
    return dg.asset(
        name=table.name,
        description=description,
        deps=[dg.AssetDep(table_before.name, partition_mapping=dg.AllPartitionMapping()) for table_before in after],
        # It has no partitions and thus a single run; `--partition-range` requires this of every asset it is given.
        backfill_policy=dg.BackfillPolicy.single_run(),
        group_name=GROUP,
        kinds={"parquet", "metrics"},
        owners=OWNERS,
        code_version=version,
        check_specs=[dg.AssetCheckSpec(NO_DROP, asset=table.name, description=says)],
        metadata={"dagster/column_schema": column_schema(table.schema)},
    )


def score_result(
    context: dg.AssetExecutionContext,
    measured: Measurement | ReadingScores,
    account: Iterable[str],
    drops: Sequence[str],
    metadata: Metadata,
) -> dg.MaterializeResult[Any]:
    """Return the result of an asset of scores.

    `account` says what was measured, `drops` what got worse.
    """
    for line in (*account, measured.compared, *drops):
        context.log.info(line)
    return dg.MaterializeResult(
        metadata=metadata,
        check_results=[drop_check("; ".join(drops) or measured.compared, passed=not drops)],
        data_version=dg.DataVersion(measured.inputs),
    )


def drop_check(says: str, passed: bool) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=passed, check_name=NO_DROP, severity=dg.AssetCheckSeverity.WARN, description=says)


def shown(scores: pa.Table, names: Sequence[str]) -> dg.TableMetadataValue:
    """Return a table of scores with values, changes and intervals.

    `names` are its columns.
    """
    figures = ("value", "interval", "change", "change_interval", "dropped")
    records: list[dict[str, Any]] = []
    for row in scores.to_pylist():
        records.append(
            {
                **{name: "" if row[name] is None else str(row[name]) for name in names},
                "value": _figure(row["value"]),
                "interval": _between(row["low"], row["high"]),
                "change": _figure(row["change"], "+"),
                "change_interval": _between(row["change_low"], row["change_high"], "+"),
                "dropped": "yes" if row["dropped"] else "",
            }
        )
    columns = dg.TableSchema([dg.TableColumn(name) for name in (*names, *figures)])
    return dg.MetadataValue.table([dg.TableRecord(record) for record in records], columns)


def _figure(value: float | None, sign: str = "") -> str:
    return "" if value is None else f"{value:{sign}.4f}"


def _between(low: float | None, high: float | None, sign: str = "") -> str:
    return "" if low is None or high is None else f"{low:{sign}.4f} to {high:{sign}.4f}"
