"""How good a ranking is, by trec_eval's definitions, query by query. Pure; ir-measures."""

from collections.abc import Collection, Sequence

import numpy as np

from resources.errors import ConfigError
from resources.retrieval.ranking import NO_PAGE

METRICS = {
    "recall@1": "Success@1",
    "recall@5": "Success@5",
    "recall@10": "Success@10",
    "recall@20": "Success@20",
    "ndcg@10": "nDCG@10",
    "mrr": "RR",
}
"""Measures of ir-measures by our names. recall@k is 1 when one of the first k pages answers (mteb's hit rate)."""


def score(ranking: np.ndarray, relevant: Sequence[Collection[int]]) -> np.ndarray:
    """float64 (queries, METRICS) of a ranking, given the pages that answer each query, at least one each.

    Raises `ConfigError` where ir-measures is not installed.
    """
    try:
        import ir_measures
    except ImportError:
        raise ConfigError(
            "retrieval scores need ir-measures, which is compiled on Linux on ARM: "
            "install a C compiler and Python's headers, then `pip install ir-measures`"
        ) from None
    measures = [ir_measures.parse_measure(name) for name in METRICS.values()]
    qrels = {str(query): {str(page): 1 for page in pages} for query, pages in enumerate(relevant)}
    # The order is decided already: the score of a page is its place from the end, so that nothing ties.
    run = {
        str(query): {str(page): float(len(pages) - rank) for rank, page in enumerate(pages) if page != NO_PAGE}
        for query, pages in enumerate(ranking.tolist())
    }
    scores = np.zeros((len(relevant), len(measures)))
    for found in ir_measures.iter_calc(measures, qrels, run):
        scores[int(found.query_id), measures.index(found.measure)] = found.value
    return scores
