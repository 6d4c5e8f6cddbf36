"""One run: every retriever over the corpus, scored query by query."""

import time
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from resources.code_version import CodeVersion
from resources.retrieval import morphemes, ranking_metrics
from resources.retrieval.bm25 import Bm25
from resources.retrieval.fusion import fuse
from resources.retrieval.ranking import BestPages
from resources.retrieval.searched_corpus import SearchedCorpus
from resources.store import schemas

RUN = schemas.retrieval_runs(ranking_metrics.METRICS)
CONVENTIONS = ("first", "any")
"""One page answers, the first ground truth, as mteb has it; or each ground-truth page does, as the benchmark has it."""

VERSION = CodeVersion("retrieval_scores", {1: "the first release"})


def evaluate(corpus: SearchedCorpus, log: Callable[[str], None] = lambda line: None) -> pa.Table:
    """The scores of each question by retriever and convention, as a table of schema `RUN`.

    A question whose first ground truth is not in the corpus is measured by the convention `any` alone.
    Raises `ConfigError` where a library is missing, `StoreError`.
    """
    parts = [RUN.empty_table()]
    for retriever, ranking in _rankings(corpus, log):
        for convention in CONVENTIONS:
            asked = [at for at, q in enumerate(corpus.questions) if convention == "any" or q.has_first]
            questions = [corpus.questions[at] for at in asked]
            relevant = [q.pages if convention == "any" else q.pages[:1] for q in questions]
            known = [
                [retriever] * len(asked),
                [convention] * len(asked),
                [q.query_id for q in questions],
                [q.type for q in questions],
            ]
            scores = ranking_metrics.score(ranking[asked], relevant)
            parts.append(pa.Table.from_arrays([*map(pa.array, known), *map(pa.array, scores.T)], schema=RUN))
    return pa.concat_tables(parts)


def _rankings(corpus: SearchedCorpus, log: Callable[[str], None]) -> Iterator[tuple[str, np.ndarray]]:
    """(retriever, ranking), the questions in their order; the fusion of all others comes last."""
    if not corpus.questions:
        return
    found = []
    queries = np.stack([question.vector for question in corpus.questions])
    for kind in corpus.kinds:
        started = time.monotonic()
        best = BestPages(len(queries))
        for pages, vectors in corpus.vectors(kind):
            best.add_vectors(pages, vectors, queries)
        found.append((kind, best.ranking()))
        log(f"{kind}: {len(queries)} queries over {len(corpus.page_ids)} pages in {time.monotonic() - started:.1f} s")
    started = time.monotonic()
    bm25 = Bm25()
    for page, tokens in corpus.tokens():
        bm25.add(page, tokens)
    found.append(("bm25", bm25.rank(list(morphemes.query_tokens(question.text for question in corpus.questions)))))
    log(f"bm25: tokenised, indexed and searched in {time.monotonic() - started:.1f} s")
    yield from found
    yield "fusion", fuse([ranking for _, ranking in found])
