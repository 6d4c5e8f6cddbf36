"""How well pages with known answers are read, over all shards, and what changed since the run before."""

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from kopub_assets.materialize.asset import Metadata
from kopub_assets.materialize.score_tables import score_asset, score_result, shown
from kopub_assets.raw_pages import RawPages
from kopub_assets.running.command_line import canceled_when_stopped
from kopub_assets.running.progress import watcher
from resources.config.choices import Gates
from resources.errors import KopubError
from resources.evaluation.metrics import ALL as EVERY
from resources.evaluation.runs.comparison import significant_drops
from resources.evaluation.runs.home import KnownAnswers, read_gold
from resources.evaluation.runs.measuring import ReadingScores, measure
from resources.evaluation.scoring import VERSION
from resources.pages.corpus import Corpus
from resources.search.scores import ALL
from resources.store.corpus_tables import OCR_SCORES, TABLES
from resources.store.shard_store import ShardStore
from resources.store.table_source import CorpusCheck

NAME = OCR_SCORES.name


def ocr_scores() -> dg.AssetsDefinition:
    """The asset, over all shards of a corpus that has known answers."""

    @score_asset(
        OCR_SCORES,
        (TABLES.readings, TABLES.texts),
        str(VERSION.number),
        inspect.getdoc(_measured),
        "No headline metric of a benchmark is significantly worse than before.",
    )
    def materialize(
        context: dg.AssetExecutionContext,
        store: dg.ResourceParam[ShardStore],
        corpus: dg.ResourceParam[Corpus],
        gates: dg.ResourceParam[Gates],
    ):
        yield from _measured(context, store, corpus, gates)

    return materialize


def _measured(
    context: dg.AssetExecutionContext, store: ShardStore, corpus: Corpus, gates: Gates
) -> Iterator[dg.MaterializeResult[Any]]:
    """Error rates, tables, formulas, order and facts of the pages whose answers are known, in `gold.parquet`.

    Compared with the last run of other readings, sample by sample. A page that was not read has the worst value.
    A release is pushed after it, and not when a headline metric dropped, unless `gates.override` gives the reason:
    then later runs are compared with this one.
    """
    watcher().began(NAME)
    try:
        with canceled_when_stopped(context), store.exclusive(NAME, ALL), store.fetched_once():
            assert corpus.gold is not None
            answers = read_gold(corpus.gold)
            pages = RawPages({"store": store, "corpus": corpus})
            is_of_corpus = CorpusCheck(store, lambda asset, shard: pages.source(shard)).look()
            keys = corpus.manifest.keys
            measured = measure(store, answers, keys, is_of_corpus, bool(gates.override), context.log.info, gates.cdm)
    except KopubError as error:
        raise dg.Failure(str(error), allow_retries=False) from None
    if measured.computed:
        watcher().computed(NAME, ALL)
    watcher().ended(NAME)
    drops = significant_drops(measured.scores)
    yield score_result(context, measured, _account(answers, measured), drops, _metadata(answers, measured))


def _account(answers: Sequence[KnownAnswers], measured: ReadingScores) -> list[str]:
    """What was measured, and what was not and why."""
    lines = []
    for known in answers:
        benchmark = known.benchmark
        some = f"the first {len(benchmark.samples)} of {known.of}" if len(benchmark.samples) < known.of else known.of
        lines.append(f"{benchmark.name}, version {benchmark.version}: {some} samples")
        lines += [f"{benchmark.name}: left out {each}" for each in benchmark.left_out]
    lines += [f"{shard} was not read to the end: its samples are lost" for shard in measured.unread]
    return lines


def _metadata(answers: Sequence[KnownAnswers], measured: ReadingScores) -> Metadata:
    every = [row for row in measured.scores.to_pylist() if row["slice"] == EVERY]
    return {
        "dagster/row_count": measured.scores.num_rows,
        **{f"{row['benchmark']}_{row['metric']}": row["value"] for row in every if row["value"] is not None},
        "samples": sum(len(known.benchmark.samples) for known in answers),
        "lost": max((row["lost"] for row in every), default=0),
        "left_out": sum(len(known.benchmark.left_out) for known in answers),
        "computed": sum(len(known.benchmark.samples) for known in answers) if measured.computed else 0,
        "compared": measured.compared,
        "measured": "\n".join(_account(answers, measured)),
        "scores": shown(
            measured.scores, ("benchmark", "metric", "slice", "samples", "lost", "value_of_read", "skipped_reason")
        ),
    }
