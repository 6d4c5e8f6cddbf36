"""What was measured of a corpus: how well its pages are read, and found."""

from collections.abc import Sequence
from dataclasses import dataclass

from resources.store.corpus_tables import OCR_SCORES, SCORES
from resources.store.schemas import RETRIEVAL_SCORES
from resources.store.shard_store import ShardStore
from resources.store.table_source import IsOfCorpus

READING, FINDING = "reading", "finding"


@dataclass(frozen=True, slots=True)
class Score:
    """A mean over `samples`: of `kind` reading by a benchmark, or finding by a retriever."""

    kind: str
    of: str
    metric: str
    value: float
    samples: int


def reading_scores(store: ShardStore, keys: Sequence[str], is_of_corpus: IsOfCorpus) -> list[Score]:
    """The headline scores of the pages with known answers; none where they are not of the tables as they are."""
    from resources.evaluation.runs.comparison import HISTORY, headline
    from resources.search.scores import ALL

    if not store.has(OCR_SCORES.name, ALL):
        return []
    scores = store.read(OCR_SCORES.name, ALL)
    if not scores.schema.equals(OCR_SCORES.schema) or not HISTORY.is_of_tables_now(store, keys, is_of_corpus):
        return []
    return [Score(READING, row["benchmark"], row["metric"], row["value"], row["samples"]) for row in headline(scores)]


def retrieval_scores(store: ShardStore, keys: Sequence[str], is_of_corpus: IsOfCorpus) -> list[Score]:
    """nDCG@10 of every retriever; none where they are not of the tables as they are."""
    from resources.search.metrics import HISTORY, headline
    from resources.search.scores import ALL

    if not store.has(SCORES.name, ALL):
        return []
    scores = store.read(SCORES.name, ALL)
    if not scores.schema.equals(RETRIEVAL_SCORES) or not HISTORY.is_of_tables_now(store, keys, is_of_corpus):
        return []
    queries = max(scores["queries"].to_pylist(), default=0)
    return [
        Score(FINDING, retriever, "nDCG@10", means["ndcg@10"], queries) for retriever, means in headline(scores).items()
    ]
