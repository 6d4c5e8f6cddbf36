"""The kept runs of a table of scores: the latest and the accepted one."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np
import pyarrow as pa

from kopub.errors import counted
from kopub.states import Reason, State, joined, phrase
from kopub.store.corpus_tables import Table
from kopub.store.table_source import FooterCache, IsOfCorpus
from kopub.store.table_store import TableStore

ALL = "all"
"""The shard name of a table that covers all shards."""
Contents = Mapping[str, Mapping[str, str]]
"""The fingerprint of a table's rows, by shard and asset."""
_NOW, _BEFORE = "now", "before"
_COMMON = 0.99
"""Share of two runs' members that must be common to both, because every query is harder in a larger corpus."""


def stored_scores(store: TableStore, scores: Table) -> pa.Table | None:
    """Return a table of scores. Raises `StoreError`.

    None if it has no rows, or the columns of another release.
    """
    table, _ = store.find(scores.name, ALL) or (None, {})
    return table if table is not None and table.num_rows and table.schema.equals(scores.schema) else None


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """A run: its scores, its members, and the fingerprint of its inputs.

    Runs of different `kind` answer different questions and are not compared. The next run is compared with the last
    `accepted` one. A run whose scores dropped is not accepted, so a drop stays one until a later run makes up for it.
    """

    inputs: str
    table: pa.Table
    members: Sequence[str]
    accepted: bool = True
    kind: str = ""


@dataclass(frozen=True)
class History:
    """The runs of one table of scores.

    `runs` and `members` name the tables that hold a run and the members among which it was measured; `schema` is that
    of a run. `compare` makes the scores of a run compared with another one, and `drops` says what in them got
    significantly worse. `member` is the word for members in messages.
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

        None if there is no complete one, or one with other metrics, which cannot be compared.
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

    def accepted(self, store: TableStore) -> ScoredRun | None:
        """Return the last accepted run."""
        now = self.read(store, _NOW)
        return now if now and now.accepted else self.read(store, _BEFORE)

    def is_scored(self, store: TableStore, inputs: str) -> bool:
        """Return whether the stored scores, and so their comparison, are those of `inputs`."""
        table, metadata = store.find_sound(self.scores.name, ALL) or (None, {})
        return table is not None and metadata["inputs"] == inputs and table.schema.equals(self.scores.schema)

    def is_of_tables_now(self, store: TableStore, keys: Collection[str], is_of_corpus: IsOfCorpus) -> bool:
        """Return whether the stored scores belong to the current rows of the shards `keys`.

        A shard whose tables were all made since is one that the scores lack.
        """
        measured, footers, shards = self.measured(store), FooterCache(store), frozenset(keys)
        tables = {asset: footers.tables(asset) for asset in set[str]().union(*measured.values())}
        for shard, contents in measured.items():
            for asset, content in contents.items():
                if shard not in shards or not is_of_corpus(asset, shard) or tables[asset][shard].content != content:
                    return False
        for shard in shards - measured.keys() if measured else ():
            if all(shard in of_asset and is_of_corpus(asset, shard) for asset, of_asset in tables.items()):
                return False
        return True

    def measured(self, store: TableStore) -> Contents:
        """Return the contents behind the stored scores; empty if there are none."""
        _, metadata = store.find_sound(self.scores.name, ALL) or (None, {})
        return json.loads(metadata.get("measured", "{}"))

    def unmeasured(self, store: TableStore, contents: Contents) -> list[str]:
        """Return the shards of `contents` that the stored scores lack or have with other rows."""
        measured = self.measured(store)
        unmeasured: list[str] = []
        for shard, current in contents.items():
            if shard not in measured or not measured[shard].items() <= current.items():
                unmeasured.append(shard)
        return unmeasured

    def publish(self, store: TableStore, run: ScoredRun, measured: Contents, accept: bool) -> None:
        """Write a run and its scores, compared with the last accepted run of other inputs.

        `measured` are the contents behind the scores. A run that dropped is accepted only with `accept`.
        """
        now = self.read(store, _NOW)
        if now and now.accepted and now.inputs != run.inputs:
            self._write(store, now, _BEFORE)
        before = self.read(store, _BEFORE)
        if before is None or before.inputs == run.inputs:
            which = "the first of its kind" if before is None else "the accepted run again"
            before, compared = None, f"{which}: later runs are compared with it"
        elif before.kind != run.kind:
            before, compared = None, "not compared: the run before was scored in another way or against other answers"
        else:
            compared = f"compared with run {before.inputs}"
            common = len(set(before.members) & set(run.members))
            if common < _COMMON * max(len(before.members), len(run.members)):
                had = f"{len(before.members)} {self.member}, of which {common} are here"
                before, compared = None, f"not compared: the run before had {had}"
        scores = self.compare(run.table, before.table if before else None)
        self._write(store, replace(run, accepted=accept or not self.drops(scores)), _NOW)
        self.write_scores(store, scores, run.inputs, compared, measured)

    def write_scores(self, store: TableStore, scores: pa.Table, inputs: str, compared: str, measured: Contents) -> None:
        """Replace the scores; `measured` are the contents behind them."""
        stamp = {"inputs": inputs, "compared": compared, "measured": json.dumps(measured)}
        store.write(self.scores.name, ALL, scores, stamp)

    def accept(self, store: TableStore, inputs: str) -> None:
        """Accept the current run of `inputs` although its scores dropped.

        Later runs are then compared with this run.
        """
        now = self.read(store, _NOW)
        if now and now.inputs == inputs and not now.accepted:
            self._write(store, replace(now, accepted=True), _NOW)

    def _write(self, store: TableStore, run: ScoredRun, role: str) -> None:
        # Both tables name the inputs, so that one without the other, or with another run's, does not count as a run.
        members = pa.table({self.member_column: pa.array(run.members, pa.string())})
        store.write(self.members, role, members, {"inputs": run.inputs})
        metadata = {"inputs": run.inputs, "accepted": "yes" if run.accepted else "no", "kind": run.kind}
        store.write(self.runs, role, run.table, metadata)


FEWEST = 6
"""Fewest changed samples: below six, not even a drop of every one is significant by the sign test: 2 x 0.5^5 > 0.05.
The bootstrap alone is too sure with so few: it takes four losses and no gain for a drop."""
_RESAMPLES = 2000
_SEED = 20_251_104
"""An arbitrary fixed seed, so that the same scores give the same interval."""
_QUANTILES = (0.025, 0.975)


def interval(values: np.ndarray, sizes: np.ndarray | None = None) -> np.ndarray:
    """Return the 95 % interval of the means of `values` as (2, columns).

    `values` is (samples, columns); the rows of the result are low and high. It is the percentile bootstrap over samples
    (Efron and Tibshirani, 1993; for retrieval Sakai, SIGIR 2006), or for differences by sample the paired bootstrap of
    two systems. With `sizes` (samples), the values are sums over the items of each sample, such as a document's pages,
    and the means are over all drawn items.
    """
    counts = _counts(len(values))
    drawn = len(values) if sizes is None else (counts @ sizes)[:, None]
    return np.quantile(counts @ values / drawn, _QUANTILES, axis=0)


@lru_cache(maxsize=16)
def _counts(samples: int) -> np.ndarray:
    """Return how often each sample is in each resample, as float64 (resamples, samples)."""
    generator = np.random.default_rng(_SEED)
    return generator.multinomial(samples, np.full(samples, 1 / samples), _RESAMPLES).astype(np.float64)


def pages_by_state(states: Mapping[str, int], unfinished: int, doubtful: int) -> Reason:
    """Return the numbers of pages by state on one line.

    An example is `57 pages: 54 ok, 1 partial, 2 quarantined; 3 need review`; each page is counted in one state.
    `unfinished` pages lack a table or have a stale one. `doubtful` pages have a text that looks wrong.
    """
    counts: list[str] = []
    total = unfinished
    for state in State:
        if count := states.get(state, 0):
            counts.append(phrase("{count:,} {state}", count, state.value))
            total += count
    counts += [phrase("{count:,} unfinished", unfinished)] if unfinished else []
    line = phrase("{pages}: {reason}", counted(total, "page"), joined(counts, "{first}, {then}") or "none")
    form = "{first}; {count:,} needs review" if doubtful == 1 else "{first}; {count:,} need review"
    return phrase(form, line, doubtful) if doubtful else line


@dataclass(frozen=True, slots=True)
class ScoreChange:
    """A score now and before, and the verdict on its change.

    The previous score and the verdict are None if there is no run to compare with. `worse` is a significant drop,
    `same` a change that may be due to chance, and `not significant with 3 questions` a fall that would matter but may
    be due to chance. Unless they are the same, both scores are over what both runs measured.
    """

    name: str
    now: float
    before: float | None
    verdict: str | None

    @classmethod
    def of(cls, name: str, row: Mapping[str, Any], lower_is_better: bool, margin: float, measured: str) -> Self:
        """Return the change stated by a row of a table of scores.

        `margin` is the least fall that matters, and `measured` counts what the row was measured on.
        """
        low, high = row["change_low"], row["change_high"]
        if row["previous"] is None or low is None or high is None:
            return cls(name, row["value"], None, None)
        now, better = row["previous"] + row["change"], high < 0 if lower_is_better else low > 0
        if row["dropped"] or better:
            return cls(name, now, row["previous"], "worse" if row["dropped"] else "better")
        if (row["change"] if lower_is_better else -row["change"]) >= margin:
            return cls(name, now, row["previous"], phrase("not significant with {count}", measured))
        return cls(name, row["value"], row["previous"], "same")

    def __str__(self) -> str:
        if self.verdict in (None, "same"):
            form = "{metric} {now:.3f} (same)" if self.verdict else "{metric} {now:.3f}"
            return phrase(form, self.name, self.now)
        in_brackets = self.verdict in ("worse", "better")
        form = (
            "{metric} {before:.3f} to {now:.3f} ({reason})"
            if in_brackets
            else ("{metric} {before:.3f} to {now:.3f}, {reason}")
        )
        return phrase(form, self.name, self.before, self.now, self.verdict)


def change_lines(reading: Sequence[ScoreChange], finding: Sequence[ScoreChange]) -> Iterator[Reason]:
    """Yield a line of score changes each for reading and finding, if measured.

    An example is `reading: cer 0.043 to 0.384 (worse), facts 0.811 (same)`.
    """
    for form, changes in (("reading: {scores}", reading), ("finding: {scores}", finding)):
        if changes:
            yield phrase(form, joined(map(str, changes), "{first}, {then}"))
