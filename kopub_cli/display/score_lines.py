"""How well queries find their pages and pages are read, in lines and as JSON values for `kopub status`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from resources.scores.history import ALL
from resources.store.corpus_tables import OCR_SCORES, SCORES

if TYPE_CHECKING:
    from resources.config.settings import Settings
    from resources.store.shard_store import ShardStore
    from resources.store.table_source import IsOfCorpus


@dataclass(frozen=True, slots=True)
class _Scores:
    """A table of scores, and whether it is of the rows that the tables hold now."""

    table: pa.Table
    is_current: bool


def retrieval_lines(
    store: "ShardStore", keys: Sequence[str], is_of_corpus: "IsOfCorpus"
) -> tuple[list[str], list[str]]:
    """How well queries find their pages, if that was measured; and what they find significantly less well now.

    Scores of tables that are of another corpus, or were replaced since, are not shown.
    """
    scores = _retrieval_scores(store, keys, is_of_corpus)
    if scores is None:
        return [], []
    if not scores.is_current:
        return [f"scores   none of the tables as they are now: materialize {SCORES.name}"], []
    from resources.retrieval.comparison import headline, significant_drops

    shown = ("ndcg@10", "recall@1", "recall@5", "recall@10")
    each = [
        f"{retriever} {' '.join(f'{means[metric]:.3f}' for metric in shown)}"
        for retriever, means in headline(scores.table).items()
    ]
    return [f"scores   {', '.join(each)} (nDCG@10, recall@1, 5, 10)"], significant_drops(scores.table)


def reading_lines(settings: "Settings", is_of_corpus: "IsOfCorpus") -> tuple[list[str], list[str]]:
    """How well the pages with known answers are read, if that was measured; and what is read worse than before."""
    scores = _reading_scores(settings, is_of_corpus)
    if scores is None:
        return [], []
    if not scores.is_current:
        return [f"reading  none of the tables as they are now: materialize {OCR_SCORES.name}"], []
    from resources.evaluation.runs.comparison import headline, significant_drops

    each = [
        f"{row['benchmark']} {row['metric']} {row['value']:.3f} of {row['samples']} samples, {row['lost']} not read"
        for row in headline(scores.table)
    ]
    return [f"reading  {'; '.join(each)}"], significant_drops(scores.table)


def _retrieval_scores(store: "ShardStore", keys: Sequence[str], is_of_corpus: "IsOfCorpus") -> _Scores | None:
    if (found := store.find(SCORES.name, ALL)) is None:
        return None
    from resources.retrieval.run_history import HISTORY

    scores = found[0]
    if not scores.schema.equals(SCORES.schema) or not scores.num_rows:
        return None
    return _Scores(scores, HISTORY.is_of_tables_now(store, keys, is_of_corpus))


def _reading_scores(settings: "Settings", is_of_corpus: "IsOfCorpus") -> _Scores | None:
    store = settings.store
    if settings.corpus.gold is None or (found := store.find(OCR_SCORES.name, ALL)) is None:
        return None
    from resources.evaluation.runs.run_history import HISTORY

    scores = found[0]
    if not scores.schema.equals(OCR_SCORES.schema) or not scores.num_rows:
        return None
    return _Scores(scores, HISTORY.is_of_tables_now(store, settings.corpus.manifest.keys, is_of_corpus))


def retrieval_values(store: "ShardStore", keys: Sequence[str], is_of_corpus: "IsOfCorpus") -> dict[str, Any] | None:
    """The means by retriever and metric, and what dropped; None where nothing was measured."""
    scores = _retrieval_scores(store, keys, is_of_corpus)
    if scores is None:
        return None
    from resources.retrieval.comparison import headline, significant_drops

    means, drops = headline(scores.table), significant_drops(scores.table)
    return {"current": scores.is_current, "means": means, "drops": drops}


def reading_values(settings: "Settings", is_of_corpus: "IsOfCorpus") -> dict[str, Any] | None:
    """The main scores of the benchmarks, and what dropped; None where nothing was measured."""
    scores = _reading_scores(settings, is_of_corpus)
    if scores is None:
        return None
    from resources.evaluation.runs.comparison import headline, significant_drops

    columns = ("benchmark", "metric", "value", "samples", "lost")
    means = [{column: row[column] for column in columns} for row in headline(scores.table)]
    return {"current": scores.is_current, "means": means, "drops": significant_drops(scores.table)}
