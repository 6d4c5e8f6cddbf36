"""How well what is released was read: the scores on pages with known answers, and what speaks against them."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from resources.config.choices.gates import Gates
from resources.evaluation.runs.comparison import significant_drops
from resources.evaluation.runs.guards import guards, verdict
from resources.evaluation.runs.run_history import HISTORY
from resources.pages.corpus import Corpus
from resources.scores.history import ALL, Contents
from resources.store.corpus_tables import OCR_SCORES, TABLES
from resources.store.footer_cache import FooterCache
from resources.store.shard_store import ShardStore

_READERS = (TABLES.readings.name, TABLES.texts.name)
"""The assets whose engines and versions must be those that were evaluated; a benchmark may give its own layout."""


def reading_scores(
    corpus: Corpus, store: ShardStore, gates: Gates, profile: str, released: Contents
) -> tuple[list[pa.Table], list[str]]:
    """The scores of the corpus' own known answers and of the benchmarks that guard it, and the problems.

    `released` is what the release was made from. Scores of other readings are left out, and said to be missing.
    """
    found: list[pa.Table] = []
    problems: list[str] = []
    if corpus.gold is not None and store.has(OCR_SCORES.name, ALL):
        if unmeasured := HISTORY.unmeasured(store, released):
            problems.append(
                f"reading was not measured on what is released of {len(unmeasured)} shards, {unmeasured[0]} first: "
                f"materialize {OCR_SCORES}"
            )
        else:
            found.append(store.read(OCR_SCORES.name, ALL))
            problems += significant_drops(found[-1])
    for asked in guards(gates.benchmarks, gates.benchmark_samples):
        guard = asked.store(Path(corpus.home), profile)
        said = verdict(guard)
        if said is None or _other_reader(store, released, guard):
            problems.append(f"the benchmark {asked.benchmark} was not read by what made this release: {asked.command}")
            continue
        found.append(said.scores)
        problems += said.closed
    return found, problems


def _other_reader(store: ShardStore, shards: Iterable[str], guard: ShardStore) -> bool:
    """Whether a released shard was read by other engines than the benchmark."""
    return any(
        _made_with(store, asset, shards) - _made_with(guard, asset, guard.published(asset)) for asset in _READERS
    )


def _made_with(store: ShardStore, asset: str, shards: Iterable[str]) -> set[str]:
    tables = FooterCache(store).tables(asset)
    return {tables[shard].made_with for shard in shards if shard in tables}
