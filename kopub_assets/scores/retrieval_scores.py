"""How well queries find their pages, over all shards, and what changed since the run before."""

import inspect
from collections.abc import Collection, Iterator
from typing import Any

import dagster as dg

from kopub_assets.materialize.asset import Metadata
from kopub_assets.materialize.score_tables import drop_check, score_asset, score_result, shown
from kopub_assets.query_embeddings import QueryEmbeddings
from kopub_assets.raw_pages import RawPages
from kopub_assets.running.command_line import canceled_when_stopped
from kopub_assets.running.progress import watcher
from resources.config.choices import Figures, Gates
from resources.config.settings import Settings
from resources.embedding.base import Embedder
from resources.errors import ConfigError, KopubError
from resources.pages.corpus import Corpus
from resources.search.measuring import VERSION, Measurement, SearchedCorpus, measure
from resources.search.metrics import HISTORY, SCORES, headline, significant_drops
from resources.search.scores import ALL
from resources.store.corpus_tables import FIGURE_VECTORS, TABLES
from resources.store.corpus_tables import SCORES as SCORES_TABLE
from resources.store.shard_store import ShardStore
from resources.store.table_source import CorpusCheck, Source


def retrieval_scores(settings: Settings) -> dg.AssetsDefinition:
    """The asset, over all shards of the corpus that `settings` names."""

    @score_asset(
        SCORES_TABLE,
        (
            *(TABLES.texts, TABLES.image_vectors, TABLES.text_vectors, TABLES.query_vectors),
            *((FIGURE_VECTORS,) if settings.figures.vectors else ()),
        ),
        str(VERSION.number),
        inspect.getdoc(_measured),
        "No retriever finds significantly less than before.",
    )
    def materialize(
        context: dg.AssetExecutionContext,
        store: dg.ResourceParam[ShardStore],
        corpus: dg.ResourceParam[Corpus],
        embedding: dg.ResourceParam[Embedder],
        figures: dg.ResourceParam[Figures],
        gates: dg.ResourceParam[Gates],
    ):
        kinds = embedding.queries_match - (frozenset() if figures.vectors else {"figure"})
        roots = {asset.table.name: asset for asset in (RawPages, QueryEmbeddings)}
        resources = {"store": store, "corpus": corpus, "embedding": embedding}
        yield from _measured(
            context, store, corpus, embedding, kinds, gates, lambda asset, shard: roots[asset](resources).source(shard)
        )

    return materialize


def _measured(
    context: dg.AssetExecutionContext,
    store: ShardStore,
    corpus: Corpus,
    embedding: Embedder,
    kinds: Collection[str],
    gates: Gates,
    sources: Source,
) -> Iterator[dg.MaterializeResult[Any]]:
    """Recall, nDCG and MRR of image vectors, text vectors, BM25 and their fusion, over the shards there are.

    Vectors of figures are one more, where the profile wants them; a page is as near as the nearest of its figures.

    Compared with the last run of other vectors or texts, query by query. A release is pushed after
    it, and not when it dropped, unless `gates.override` gives the reason: then later runs are
    compared with this one.
    """
    watcher().began(SCORES)
    try:
        with canceled_when_stopped(context), store.exclusive(SCORES, ALL), store.fetched_once():
            check = CorpusCheck(store, sources)
            known = HISTORY.measured(store)
            searched = SearchedCorpus(store, corpus.manifest.keys, kinds, embedding.dim, check, known)
            measured = measure(store, searched, bool(gates.override), context.log.info)
    except ConfigError as error:
        context.log.warning(f"not measured: {error}")
        yield dg.MaterializeResult(
            metadata={"not_measured": str(error)}, check_results=[drop_check(f"not measured: {error}", passed=False)]
        )
        return
    except KopubError as error:
        raise dg.Failure(str(error), allow_retries=False) from None
    if measured.computed and measured.questions:
        watcher().computed(SCORES, ALL)
    watcher().ended(SCORES)
    drops = significant_drops(measured.scores)
    yield score_result(context, measured, _account(searched, measured), drops, _metadata(searched, measured))


def _account(searched: SearchedCorpus, measured: Measurement) -> list[str]:
    """What was measured, and what was not and why."""
    shards = len(searched.shards) + len(searched.left_out)
    unmeasured = searched.rows - measured.questions
    lines = [f"{measured.questions} queries over {searched.pages} pages, {len(searched.shards)} of {shards} shards"]
    if unmeasured:
        lines.append(f"{unmeasured} queries left out: without a vector, or no page here answers them")
    lines += [f"{shard} left out: {reason}" for shard, reason in searched.left_out.items()]
    lines += [
        f"{asset}: made in several ways, so that vectors of different shards may not compare"
        for asset in searched.mixed()
    ]
    return lines


def _metadata(searched: SearchedCorpus, measured: Measurement) -> Metadata:
    plotted = {
        f"{retriever}_{metric.replace('@', '_at_')}": value
        for retriever, metrics in headline(measured.scores).items()
        for metric, value in metrics.items()
    }
    return {
        "dagster/row_count": measured.scores.num_rows,
        **plotted,
        "queries": measured.questions,
        "queries_left_out": searched.rows - measured.questions,
        "pages": searched.pages,
        "shards": len(searched.shards),
        "computed": measured.questions if measured.computed else 0,
        "compared": measured.compared,
        "measured": "\n".join(_account(searched, measured)),
        "scores": shown(measured.scores, ("retriever", "convention", "query_type", "metric", "queries")),
    }
