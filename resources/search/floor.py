"""How near the corpus's own questions come to the pages that answer them: what a good match is for a model."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from resources.search.nearest import Vectors, rows_with
from resources.search.search_options import Mode
from resources.search.tables import SearchedTables
from resources.states import MADE
from resources.store.corpus_tables import TABLES
from resources.store.table_source import IsOfCorpus

_FEWEST = 20
"""Questions below which a twentieth of them is less than one."""
_TWENTIETH = 0.05
_QUERIES = TABLES.query_vectors.name


class KnownQuestions:
    """The questions of a corpus with their answers, in the tables as they are at the time of the call."""

    def __init__(self, store: SearchedTables) -> None:
        self._store = store
        self._floors: dict[Mode, tuple[object, float | None]] = {}

    def floor(
        self,
        kind: Mode,
        shards: Sequence[str],
        vectors: Vectors,
        is_of_engine: Callable[[str, str], bool],
        is_of_corpus: IsOfCorpus,
    ) -> float | None:
        """What a twentieth of the questions does not reach with the page that answers; None for too few questions.

        The best page of a question is at least as near as the one that answers it, so at most a twentieth of such
        questions are taken for questions without an answer.
        """
        published = self._store.published(_QUERIES)
        versions = [published, [(part.shard, part.version) for part in vectors.shards]]
        if kind not in self._floors or self._floors[kind][0] != versions:
            fit = [s for s in shards if s in published and is_of_corpus(_QUERIES, s) and is_of_engine(_QUERIES, s)]
            asked = [question for shard in fit for question in self._questions(shard)]
            self._floors[kind] = versions, known_floor(asked, vectors)
        return self._floors[kind][1]

    def _questions(self, shard: str) -> Iterator[tuple[np.ndarray, str]]:
        table = self._store.read(_QUERIES, shard, ["vector", "ground_truth", "state"])
        for row in table.filter(pc.field("state").isin(MADE)).to_pylist():
            if row["ground_truth"]:
                yield np.asarray(row["vector"], np.float32), row["ground_truth"][0]


def known_floor(questions: Iterable[tuple[np.ndarray, str]], vectors: Vectors) -> float | None:
    """The dot product that a twentieth of `questions` does not reach: (vector of shape (dim,), id of its page)."""
    wanted: dict[str, list[np.ndarray]] = {}
    for vector, page_id in questions:
        wanted.setdefault(page_id, []).append(vector)
    answers = pa.array(list(wanted), pa.string())
    products: list[float] = []
    for shard in vectors.shards:
        ids = shard.table["page_id"]
        for row in rows_with(shard.table, answers).tolist():
            page = shard.matrix[row].astype(np.float32)
            products += [float(page @ vector) for vector in wanted[ids[row].as_py()]]
    return float(np.quantile(products, _TWENTIETH)) if len(products) >= _FEWEST else None
