"""The kept runs of a table of scores: the latest and the accepted one.

A new run is compared with the accepted one.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np
import pyarrow as pa

from resources.errors import counted
from resources.states import State
from resources.store.corpus_tables import Table
from resources.store.table_source import FooterCache, IsOfCorpus
from resources.store.table_store import TableStore

ALL = "all"
"""The shard of a table that is made over all shards."""
Contents = Mapping[str, Mapping[str, str]]
"""The fingerprint of a table's rows, by shard and asset."""
_NOW, _BEFORE = "now", "before"
_COMMON = 0.99
"""Share of what two runs measured that must be common to both: in a larger corpus every query is harder."""


def stored_scores(store: TableStore, scores: Table) -> pa.Table | None:
    """Return a table of scores.

    None without a row, or with the columns of another release. Raises `StoreError`.
    """
    found = store.find(scores.name, ALL)
    return found[0] if found and found[0].num_rows and found[0].schema.equals(scores.schema) else None


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """A run: its scores, what was measured, and the fingerprint of both.

    Runs of another `kind` answer another question and are not compared. The next run is compared with the last
    `accepted` one. A run whose scores dropped is not accepted, so a drop stays a drop until a later run makes up for
    it.
    """

    inputs: str
    table: pa.Table
    members: Sequence[str]
    accepted: bool = True
    kind: str = ""


@dataclass(frozen=True)
class History:
    """The runs of one table of scores.

    `runs` and `members` name the tables that hold a run and what it was measured among, `schema` is that of a run.
    `compare` makes the scores of a run against another one, `drops` says what in them got significantly worse.
    `member` names for a person what is measured among.
    """

    scores: Table
    runs: str
    members: str
    member_column: str
    schema: pa.Schema
    compare: Callable[[pa.Table, pa.Table | None], pa.Table]
    drops: Callable[[pa.Table], list[str]]
    member: str

    def read(self, store: TableStore, role: str) -> ScoredRun | None:
        """Return the run in a role.

        None when there is no whole one, or one of other metrics, which cannot be compared.
        """
        runs, members = store.find_sound(self.runs, role), store.find_sound(self.members, role)
        if runs is None or members is None:
            return None
        table, metadata = runs
        if not table.schema.equals(self.schema):
            return None
        if members[1].get("inputs") != metadata["inputs"]:
            return None  # a writer was killed between the two tables
        names = members[0][self.member_column].to_pylist()
        return ScoredRun(metadata["inputs"], table, names, metadata["accepted"] == "yes", metadata.get("kind", ""))

    def latest(self, store: TableStore) -> ScoredRun | None:
        """Return the run whose scores are in the store."""
        return self.read(store, _NOW)

    def is_scored(self, store: TableStore, inputs: str) -> bool:
        """Return whether the scores in the store are those of `inputs`.

        Their comparison then stands.
        """
        found = store.find_sound(self.scores.name, ALL)
        return found is not None and found[1]["inputs"] == inputs and found[0].schema.equals(self.scores.schema)

    def is_of_tables_now(self, store: TableStore, keys: Collection[str], is_of_corpus: IsOfCorpus) -> bool:
        """Return whether the stored scores are of the current rows of the shards `keys`."""
        measured, footers, known = self.measured(store), FooterCache(store), frozenset(keys)
        tables = {asset: footers.tables(asset) for asset in {asset for each in measured.values() for asset in each}}
        return all(
            shard in known and is_of_corpus(asset, shard) and tables[asset][shard].content == content
            for shard, contents in measured.items()
            for asset, content in contents.items()
        )

    def measured(self, store: TableStore) -> Contents:
        """Return the contents that the stored scores are of.

        Empty where there are no scores.
        """
        found = store.find_sound(self.scores.name, ALL)
        return json.loads(found[1].get("measured", "{}")) if found else {}

    def unmeasured(self, store: TableStore, contents: Contents) -> list[str]:
        """Return the shards of `contents` that the stored scores lack or count with other rows."""
        measured = self.measured(store)
        return [
            shard
            for shard, current in contents.items()
            if shard not in measured or any(current.get(asset) != content for asset, content in measured[shard].items())
        ]

    def publish(self, store: TableStore, run: ScoredRun, measured: Contents, accept: bool) -> None:
        """Write a run and its scores, compared with the last accepted run of other inputs.

        `measured` is what the scores are of. A run that dropped is accepted only when told to `accept`.
        """
        now = self.read(store, _NOW)
        if now and now.accepted and now.inputs != run.inputs:
            self._write(store, now, _BEFORE)
        before, compared = self._comparable(self.read(store, _BEFORE), run)
        scores = self.compare(run.table, before.table if before else None)
        self._write(store, replace(run, accepted=accept or not self.drops(scores)), _NOW)
        self.write_scores(store, scores, run.inputs, compared, measured)

    def write_scores(self, store: TableStore, scores: pa.Table, inputs: str, compared: str, measured: Contents) -> None:
        """Replace the scores; `measured` is what they are of."""
        stamp = {"inputs": inputs, "compared": compared, "measured": json.dumps(measured)}
        store.write(self.scores.name, ALL, scores, stamp)

    def accept(self, store: TableStore, inputs: str) -> None:
        """Accept the current run of `inputs` although its scores dropped.

        Later runs are then compared with it.
        """
        now = self.read(store, _NOW)
        if now and now.inputs == inputs and not now.accepted:
            self._write(store, replace(now, accepted=True), _NOW)

    def _write(self, store: TableStore, run: ScoredRun, role: str) -> None:
        # Both tables name the inputs: one without the other, or with that of another run, is no run.
        members = pa.table({self.member_column: pa.array(run.members, pa.string())})
        store.write(self.members, role, members, {"inputs": run.inputs})
        metadata = {"inputs": run.inputs, "accepted": "yes" if run.accepted else "no", "kind": run.kind}
        store.write(self.runs, role, run.table, metadata)

    def _comparable(self, before: ScoredRun | None, run: ScoredRun) -> tuple[ScoredRun | None, str]:
        """Return the run to compare with, if any, and a remark on it."""
        if before is None or before.inputs == run.inputs:
            return None, "the first of its kind: later runs are compared with it"
        if before.kind != run.kind:
            return None, "not compared: the run before was scored in another way or against other answers"
        common = len(set(before.members) & set(run.members))
        if common < _COMMON * max(len(before.members), len(run.members)):
            had = f"{len(before.members)} {self.member}, of which {common} are here"
            return None, f"not compared: the run before had {had}"
        return before, f"compared with run {before.inputs}"


FEWEST = 6
"""Below six samples that changed not even a drop of every one is significant: 2 x 0.5^5 > 0.05, by the sign test.
The bootstrap alone is too sure of so few: it takes four that lost and none that gained for a drop."""
_RESAMPLES = 2000
_SEED = 20_251_104
"""Any fixed number: the same scores give the same interval."""
_QUANTILES = (0.025, 0.975)


def interval(values: np.ndarray, sizes: np.ndarray | None = None) -> np.ndarray:
    """Return the 95 % interval of the means of `values` as (2, columns).

    `values` is (samples, columns); the rows of the result are low and high. Percentile bootstrap over samples (Efron
    and Tibshirani, 1993; for retrieval Sakai, SIGIR 2006). Of differences sample by sample it is the paired bootstrap
    of two systems. With `sizes` (samples) the values are sums over what each sample holds, a document's pages, and the
    means are those of all that was drawn.
    """
    counts = _counts(len(values))
    drawn = len(values) if sizes is None else (counts @ sizes)[:, None]
    return np.quantile(counts @ values / drawn, _QUANTILES, axis=0)


@lru_cache(maxsize=16)
def _counts(samples: int) -> np.ndarray:
    """Return the draws of each sample in each resample, as float64 (resamples, samples)."""
    generator = np.random.default_rng(_SEED)
    return generator.multinomial(samples, np.full(samples, 1 / samples), _RESAMPLES).astype(np.float64)


def pages_by_state(states: Mapping[str, int], unfinished: int = 0, doubtful: int = 0) -> str:
    """Return the numbers of pages by state on one line.

    `57 pages: 54 ok, 1 partial, 2 quarantined; 3 need review`; each page is counted in one state. `unfinished` pages
    lack a table, or have one that is stale. `doubtful` ones have a text that looks wrong.
    """
    counts = [(state.value, states.get(state, 0)) for state in State] + [("unfinished", unfinished)]
    listed = ", ".join(f"{count:,} {name}" for name, count in counts if count)
    review = f"; {doubtful:,} {'needs' if doubtful == 1 else 'need'} review" if doubtful else ""
    return f"{counted(sum(count for _, count in counts), 'page')}: {listed or 'none'}{review}"


@dataclass(frozen=True, slots=True)
class ScoreChange:
    """A score now and before, and the verdict on its change.

    The score before and the verdict are None where there is no run to compare it with. `worse` is a significant drop.
    What chance may have changed is `same`.
    """

    name: str
    now: float
    before: float | None
    verdict: str | None

    @classmethod
    def of(cls, name: str, row: Mapping[str, Any], lower_is_better: bool) -> Self:
        """Return the change that a row of a table of scores states."""
        low, high = row["change_low"], row["change_high"]
        if row["previous"] is None or low is None or high is None:
            return cls(name, row["value"], None, None)
        better = high < 0 if lower_is_better else low > 0
        return cls(name, row["value"], row["previous"], "worse" if row["dropped"] else "better" if better else "same")

    def __str__(self) -> str:
        if self.verdict in (None, "same"):
            return f"{self.name} {self.now:.3f}{' (same)' if self.verdict else ''}"
        return f"{self.name} {self.before:.3f} to {self.now:.3f} ({self.verdict})"


def change_lines(reading: Sequence[ScoreChange], finding: Sequence[ScoreChange]) -> Iterator[str]:
    """Yield a line of changed scores for reading and one for finding, where measured.

    `reading: cer 0.043 to 0.384 (worse), facts 0.811 (same)`.
    """
    for subject, changes in (("reading", reading), ("finding", finding)):
        if changes:
            yield f"{subject}: {', '.join(map(str, changes))}"
