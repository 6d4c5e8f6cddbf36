"""Retrieval scores of what is in the store: computed once for the same vectors, texts and queries."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import pyarrow as pa

from resources.fingerprints import fingerprint
from resources.retrieval import morphemes
from resources.retrieval.run_history import ALL, HISTORY, SCORES, Run
from resources.retrieval.scoring import VERSION, evaluate
from resources.retrieval.searched_corpus import SearchedCorpus
from resources.store.schemas import RETRIEVAL_SCORES
from resources.store.table_store import TableStore

_LIBRARIES = ("bm25s", "ir-measures")


@dataclass(frozen=True, slots=True)
class Measured:
    """The table RETRIEVAL_SCORES in the store, what it was compared with, and whether it was computed just now."""

    scores: pa.Table
    inputs: str
    compared: str
    computed: bool

    @property
    def questions(self) -> int:
        """Queries that were measured."""
        return max(self.scores["queries"].to_pylist(), default=0)


def measure(
    store: TableStore, corpus: SearchedCorpus, accept: bool = False, log: Callable[[str], None] = lambda line: None
) -> Measured:
    """Score the corpus and write the result, unless these inputs are scored already.

    `accept` lets later runs be compared with this one even if it dropped. Without a query that can
    be measured the table is empty, and the runs before are left for later ones. Raises `ConfigError`
    where a library is missing, `StoreError`.
    """
    inputs = inputs_of(corpus)
    todo = not HISTORY.is_scored(store, inputs)
    if todo and corpus.questions:
        HISTORY.publish(store, Run(inputs, evaluate(corpus, log), corpus.page_ids), corpus.contents, accept)
    elif todo:
        nothing = "nothing to measure: no query has a vector and a page that answers it"
        HISTORY.write_scores(store, RETRIEVAL_SCORES.empty_table(), inputs, nothing, corpus.contents)
    elif accept:
        HISTORY.accept(store, inputs)
    compared = store.metadata(SCORES, ALL)["compared"]
    return Measured(store.read(SCORES, ALL), inputs, compared, todo)


def inputs_of(corpus: SearchedCorpus) -> str:
    """Fingerprint of everything that decides the scores of a corpus."""
    return fingerprint([corpus.inputs, corpus.kinds, VERSION.number, morphemes.tokenizer(), _libraries()])


def _libraries() -> dict[str, str]:
    return {package: _version(package) for package in _LIBRARIES}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"  # whoever needs it says so
