"""The two runs that the store keeps: the latest, and the one that it is compared with."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa

from resources.retrieval.comparison import compare, significant_drops
from resources.retrieval.scoring import RUN
from resources.store.corpus_tables import SCORES as SCORES_TABLE
from resources.store.schemas import RETRIEVAL_PAGES, RETRIEVAL_SCORES
from resources.store.shard_store import ShardStore
from resources.store.table_source import IsOfCorpus

SCORES, ALL = SCORES_TABLE.name, "all"
"""The table of the scores: asset and shard."""

Contents = Mapping[str, Mapping[str, str]]
"""By shard and asset, the fingerprint of a table's rows."""

_RUNS, _PAGES = "retrieval_runs", "retrieval_pages"
_NOW, _BEFORE = "now", "before"
_COMMON = 0.99
"""Share of pages two corpora must have in common to be compared: in a larger one every query is harder."""


@dataclass(frozen=True, slots=True)
class Run:
    """The scores of every query, the pages they were found among, and the fingerprint of both.

    The next run is compared with the last `accepted` one. A run whose scores dropped is not accepted, so
    a drop stays a drop until a later run makes up for it.
    """

    inputs: str
    table: pa.Table
    page_ids: Sequence[str]
    accepted: bool = True

    @classmethod
    def read(cls, store: ShardStore, role: str) -> Self | None:
        """The run in a role; None when there is no whole one, or one of other metrics, which cannot be compared."""
        if not (store.has(_RUNS, role) and store.has(_PAGES, role)):
            return None
        table = store.read(_RUNS, role)
        metadata = store.metadata(_RUNS, role)
        if not table.schema.equals(RUN):
            return None
        if store.metadata(_PAGES, role).get("inputs") != metadata["inputs"]:
            return None  # a writer was killed between the two tables
        pages = store.read(_PAGES, role, ["page_id"])["page_id"].to_pylist()
        return cls(metadata["inputs"], table, pages, metadata["accepted"] == "yes")

    def write(self, store: ShardStore, role: str) -> None:
        # Both tables name the inputs: one of them alone, or beside another run's, is no run.
        pages = pa.Table.from_arrays([pa.array(self.page_ids, pa.string())], schema=RETRIEVAL_PAGES)
        store.write(_PAGES, role, pages, {"inputs": self.inputs})
        metadata = {"inputs": self.inputs, "accepted": "yes" if self.accepted else "no"}
        store.write(_RUNS, role, self.table, metadata)


def is_scored(store: ShardStore, inputs: str) -> bool:
    """Whether the scores in the store are those of `inputs`; their comparison then stands."""
    if not store.has(SCORES, ALL):
        return False
    if store.metadata(SCORES, ALL)["inputs"] != inputs:
        return False
    return store.read(SCORES, ALL).schema.equals(RETRIEVAL_SCORES)


def is_of_tables_now(store: ShardStore, keys: Collection[str], is_of_corpus: IsOfCorpus) -> bool:
    """Whether the scores in the store are of the rows that the tables of the shards `keys` hold now."""
    measured: Contents = json.loads(store.metadata(SCORES, ALL)["measured"])
    return all(
        shard in keys and is_of_corpus(asset, shard) and store.metadata(asset, shard).get("content") == content
        for shard, contents in measured.items()
        for asset, content in contents.items()
    )


def unmeasured(store: ShardStore, contents: Contents) -> list[str]:
    """The shards of `contents` that the scores in the store do not count, or counted with other rows."""
    measured: Contents = json.loads(store.metadata(SCORES, ALL)["measured"]) if store.has(SCORES, ALL) else {}
    return [
        shard
        for shard, current in contents.items()
        if shard not in measured or any(current.get(asset) != content for asset, content in measured[shard].items())
    ]


def publish(store: ShardStore, run: Run, measured: Contents, accept: bool) -> None:
    """Write a run and its scores, compared with the last accepted run of other inputs.

    `measured` is what the scores are of. A run that dropped is accepted only when told to `accept`.
    """
    now = Run.read(store, _NOW)
    if now and now.accepted and now.inputs != run.inputs:
        now.write(store, _BEFORE)
    before, compared = _comparable(Run.read(store, _BEFORE), run)
    scores = compare(run.table, before.table if before else None)
    replace(run, accepted=accept or not significant_drops(scores)).write(store, _NOW)
    write_scores(store, scores, run.inputs, compared, measured)


def write_scores(store: ShardStore, scores: pa.Table, inputs: str, compared: str, measured: Contents) -> None:
    """Replace the scores, which are of what was `measured`."""
    store.write(SCORES, ALL, scores, {"inputs": inputs, "compared": compared, "measured": json.dumps(measured)})


def accept(store: ShardStore, inputs: str) -> None:
    """Let later runs be compared with the one now although it dropped, if it is that of `inputs`."""
    now = Run.read(store, _NOW)
    if now and now.inputs == inputs and not now.accepted:
        replace(now, accepted=True).write(store, _NOW)


def _comparable(before: Run | None, run: Run) -> tuple[Run | None, str]:
    """The run to compare with, if any, and what is to be said of it."""
    if before is None or before.inputs == run.inputs:
        return None, "not compared: there is no earlier run of other vectors or texts"
    common = len(set(before.page_ids) & set(run.page_ids))
    if common < _COMMON * max(len(before.page_ids), len(run.page_ids)):
        return None, f"not compared: the run before had {len(before.page_ids)} pages, of which {common} are here"
    return before, f"compared with run {before.inputs}"
