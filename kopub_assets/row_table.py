"""Assets whose table has one row for each page or query: keep what is unchanged, make the rest, count every row."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa
from pydantic import Field

from kopub_assets.asset import Metadata, PublishedShard, RunContext, ShardAsset
from kopub_assets.checks import ACCOUNTED, NOTHING_LOST, Check
from kopub_assets.provenance import Provenance
from kopub_assets.rows import RowResult, RowSpec, ShardResult, Work, unfinished
from resources.engine import Resource
from resources.errors import EngineError
from resources.states import State
from resources.store.rows import MovedRows

RETRY_PARTIAL_TAG = "kopub/retry_partial"
"""Run tag that asks for another try of partial rows, as the field does; for backfills."""


class RetryPartial(Resource):
    """The run's choice to make `partial` rows again."""

    retry_partial: bool = Field(default=False, description="Read the lost regions of partial pages again.")


class RowTable(ShardAsset):
    """A `ShardAsset` whose rows are made one by one and journalled, so that a killed run costs what was in flight."""

    checks: ClassVar[tuple[Check, ...]] = (ACCOUNTED, NOTHING_LOST)

    @abstractmethod
    def rows(self, shard: str) -> Iterable[RowSpec]:
        """Return the rows that the shard must end up with, in their order. Raises `StoreError`, `SourceError`."""

    @abstractmethod
    def make(self, shard: str, todo: Sequence[RowSpec]) -> Iterable[RowResult]:
        """Yield the result of each row of `todo` once, in any order. Raises `EngineError`, `SourceError`."""

    @property
    def spans_shards(self) -> bool:
        """Return whether one call may be given the rows of several shards; see `Engine.spans_shards`."""
        return False

    def describe(self, shard: str, table: pa.Table) -> Metadata:
        """Return what the UI plots and shows of the table besides counts and costs."""
        return {}

    def problems(self, made: ShardResult) -> Mapping[str, str | None]:
        """Return what is wrong with a made table, by check, besides what every table is checked for."""
        return {}

    def take_figures(self) -> Mapping[str, float]:
        """Return what was counted for the rows that were made since the last call."""
        return {}

    def figures(self) -> Mapping[str, float | str]:
        """Return what the UI plots of the rows that were just made."""
        return {}

    def regions_by_task(self, table: pa.Table) -> Mapping[str, int] | None:
        """Return how many regions the table holds, so that a plan need not read it; None where it holds none."""
        return None

    def keep(self, shard: str, run: RunContext, stamp: Provenance) -> PublishedShard | None:
        stored = self.store.find(self.name, shard)
        if stored is None or not stored[0].schema.equals(self.schema):
            return None
        table = stored[0].replace_schema_metadata(None)
        retried = {State.FAILED, *([State.PARTIAL] if retries_partial(run) else [])}
        if retried & set(table["state"].to_pylist()) or not stamp.metadata(table).items() <= stored[1].items():
            return None
        # What is read of the corpus itself is proved to be there as it was; parents' tables say what they are.
        if not self.reads and self.unfinished(list(self.rows(shard)), table):
            return None
        made = ShardResult(table, self.table.key, (), table, Work({}, (), 0.0))
        found = {ACCOUNTED.name: None, **self.problems(made)}
        for check, problem in found.items():
            run.problems.note(check, shard, problem)
        run.problems.stop_at(shard)
        counts = {"dagster/row_count": table.num_rows, **made.states, "computed": 0, "kept": table.num_rows}
        return PublishedShard(stamp.recipe, counts | self.describe(shard, table))

    def finish(self, run: RunContext, finished: Mapping[str, PublishedShard]) -> None:
        """`nothing_lost` speaks for every shard of the corpus, made in this run or before."""
        run.problems.count_losses(self.store, self.name, self.table.key, self.corpus.manifest.keys)

    def unfinished(self, specs: Sequence[RowSpec], *known: pa.Table, retry_partial: bool = False) -> list[RowSpec]:
        """Return the rows of `specs` that no `known` table holds finished; `failed` rows are tried again."""
        return unfinished(specs, known, self.table.key, retry_partial)

    @cached_property
    def moved_rows(self) -> MovedRows:
        """The rows that other shards hold, as they were when the first of them was wanted."""
        return MovedRows(self.store, self.name, self.schema, self.table.key, self.corpus.manifest.keys)


class EngineTable(RowTable):
    """A `RowTable` whose rows are the results of its engine."""

    @abstractmethod
    def inputs(self, shard: str, todo: Sequence[RowSpec]) -> Iterable[Any]:
        """Return what the engine needs for each row of `todo`, in their order. Raises `SourceError`, `StoreError`."""

    @abstractmethod
    def results(self, inputs: Iterator[Any]) -> Iterable[Any]:
        """Return the engine's result for each input, in any order. Raises `EngineError`."""

    @abstractmethod
    def row_id(self, result: Any) -> str:
        """Return the id of the row that a result is for."""

    def take_figures(self) -> Mapping[str, float]:
        return self.engine.take_figures()

    def figures(self) -> Mapping[str, float | str]:
        return self.engine.report()

    @abstractmethod
    def row(self, spec: RowSpec, result: Any) -> RowResult:
        """Return the columns of a row, its cost and its figures, of the engine's result."""

    @property
    def spans_shards(self) -> bool:
        return self.engine.spans_shards

    def make(self, shard: str, todo: Sequence[RowSpec]) -> Iterator[RowResult]:
        specs = {spec.id: spec for spec in todo}
        for result in self.results(iter(self.inputs(shard, todo))):
            row_id = self.row_id(result)
            if row_id not in specs:
                raise unasked(row_id)
            yield self.row(specs[row_id], result)


def retries_partial(run: RunContext) -> bool:
    return run.has_tag(RETRY_PARTIAL_TAG) or getattr(run.config, "retry_partial", False)


def unasked(row_id: str) -> EngineError:
    """Return the error of a result that was not asked for."""
    return EngineError(f"the engine answered twice, or unasked, for {row_id!r}; this is a bug in it")
