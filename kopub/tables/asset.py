"""The base classes of the graph's assets: table, parents, engine, version and rows."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, cast

import pyarrow as pa
from pydantic import Field

from kopub.config.settings import Resources
from kopub.engine import Engine, Resource
from kopub.errors import EngineError, StoreError
from kopub.fingerprints import CodeVersion, canonical_json, fingerprint
from kopub.states import State
from kopub.store.corpus_tables import Table
from kopub.store.earlier_rows import MovedRows
from kopub.store.table_source import SOURCE
from kopub.tables.checks import ACCOUNTED, NOTHING_LOST, Check, Problems
from kopub.tables.metadata import GpuWatch
from kopub.tables.provenance import Provenance, StoredProvenance, footer_of, newer_code
from kopub.tables.rows import RowResult, RowSpec, ShardResult, tried_again, unfinished

Metadata = dict[str, Any]
_UNMEASURED = 0.002
"""Expected seconds for a row made without an engine."""


@dataclass(frozen=True, slots=True)
class PublishedShard:
    """A shard whose table is published, with its recipe and metadata."""

    recipe: str
    metadata: Metadata


class EngineCalls:
    """The calls of an asset's engine, each begun when its step asks."""

    seconds_before_step: float = 0.0
    """How long before the step the first call was begun."""

    def has_been_given(self, spec: RowSpec) -> bool:
        """Return whether the engine already has a row. Raises `StoreError` if it has changed since."""
        return False

    def results(self, asset: "EngineTable", inputs: Iterator[Any]) -> Iterable[Any]:
        """Return the engine's results for `inputs` and for the rows that it already has."""
        return asset.results(inputs)

    def take_figures(self, asset: "RowTable") -> Mapping[str, float]:
        """Return the counts for the last result."""
        return asset.take_figures()

    def engine_figures(self, asset: "RowTable") -> Mapping[str, float | str]:
        """Return what the UI plots about the rows just made."""
        return asset.figures()


@dataclass(frozen=True)
class RunContext:
    """One run of one asset: its shards, requests, findings and use of GPUs."""

    run_id: str
    shards: tuple[str, ...]
    problems: Problems
    log: Callable[[str], None]
    warn: Callable[[str], None]
    config: Any = None
    tags: Mapping[str, str] = field(default_factory=dict)
    gpu: GpuWatch = field(default_factory=GpuWatch)
    inputs_exhausted: Callable[[], None] = lambda: None
    """Called once the engine has taken its last row and only has rows in flight left."""
    calls: EngineCalls = field(default_factory=EngineCalls)

    def has_tag(self, tag: str) -> bool:
        """Return whether the run carries `tag` with the value true."""
        return self.tags.get(tag, "").lower() == "true"


class ShardAsset(ABC):
    """An asset that is made shard by shard.

    A subclass describes the asset in class attributes and makes it in methods. An instance holds the resources of one
    run, or those of the settings if only the recipe is needed. The class's docstring is the description in the UI.
    """

    table: ClassVar[Table]
    code_version: ClassVar[CodeVersion]
    """Version of the code that shapes the rows; the engine has its own."""
    parents: ClassVar[tuple[type["ShardAsset"], ...]] = ()
    """The assets whose tables may be read to make this one; `reads` holds the ones actually read."""
    after: ClassVar[tuple[str, ...]] = ()
    """Names of score assets that a run waits for if the platform has them; no row depends on them."""
    engine_section: ClassVar[str | None] = None
    """The resource and profile section whose engine makes the rows; None if code alone makes them."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Names of the resources needed besides the store, the corpus and the engine."""
    kinds: ClassVar[frozenset[str]] = frozenset()
    checks: ClassVar[tuple[Check, ...]] = ()
    config: ClassVar[type[Resource] | None] = None
    """The options of a run that the Launchpad offers; each has a default."""
    reads_regions_of: ClassVar[type["ShardAsset"] | None] = None
    """The asset whose regions are the unit of work; None if the unit is the page."""

    width_of: ClassVar[str] = "dim"
    """The attribute of the engine that is the width of the vectors, if the table has any."""

    engine: Any
    """The engine of `engine_section`; subclasses narrow its type."""

    def __init__(self, resources: Resources) -> None:
        self.store = resources["store"]
        self.corpus = resources["corpus"]
        self.resources = resources
        # `Resources` does not know the type of the engine; each subclass declares it.
        self.engine = cast("Mapping[str, Any]", resources)[self.engine_section] if self.engine_section else None

    @classmethod
    def off(cls, resources: Resources) -> str | None:
        """Return why these resources switch the asset off, or None if they do not.

        An asset that is off is in no run and no plan.
        """
        return None

    @property
    def reads(self) -> tuple[type["ShardAsset"], ...]:
        """The parents that these resources do not switch off, so that their tables are read."""
        return tuple(parent for parent in self.parents if parent.off(self.resources) is None)

    @property
    def tables_read(self) -> tuple[str, ...]:
        """The names of the tables of `reads`."""
        return tuple(parent.table.name for parent in self.reads)

    @property
    def settings(self) -> Mapping[str, Any]:
        """Profile values outside the engine's section that the rows depend on, by name."""
        return {}

    @classmethod
    def resource_keys(cls) -> set[str]:
        """Return the names of the resources that an instance needs."""
        engine = (cls.engine_section, "gates") if cls.engine_section else ()
        return {"store", "corpus", *cls.needs, *engine}

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table, with vectors as wide as the engine makes them."""
        schema = self.table.schema
        return schema if isinstance(schema, pa.Schema) else schema(getattr(self.engine, self.width_of))

    @property
    def engines(self) -> tuple[Engine, ...]:
        return () if self.engine is None else (self.engine,)

    def prepare(self) -> None:
        """Start what the engines need in the background; see `Engine.prepare`."""
        for engine in self.engines:
            engine.prepare()

    def typical_seconds(self, megabytes: float) -> float:
        """Return the expected seconds for a row whose page image has `megabytes`."""
        return _UNMEASURED if self.engine is None else self.engine.expected_seconds(megabytes)

    @property
    def gpus(self) -> int:
        """Number of GPUs held while a shard is made."""
        return sum(engine.gpus for engine in self.engines)

    @property
    def engine_recipes(self) -> list[dict[str, Any]]:
        """The recipes of the engines, which determine a row."""
        return [engine.recipe() for engine in self.engines]

    @cached_property
    def made_with(self) -> str:
        """The code version, engine recipes and settings that determine a row, as JSON."""
        engines = self.engine_recipes
        settings = {"settings": dict(self.settings)} if self.settings else {}
        return canonical_json({"version": self.code_version.number, "engines": engines, **settings})

    @cached_property
    def recipe_hash(self) -> str:
        """Fingerprint of `made_with`."""
        return fingerprint(self.made_with)

    @property
    def versions(self) -> dict[str, CodeVersion]:
        """The code versions behind the rows, by the names that a plan uses for them."""
        own = {f"{self.name}.version": self.code_version}
        return own | {f"{self.engine_section}.version": engine.code_version for engine in self.engines}

    def source(self, shard: str) -> str | None:
        """Return the fingerprint of what a shard reads from the corpus; None if nothing."""
        return None

    def shard_settings(self, shard: str) -> Mapping[str, str]:
        """Return the settings that decide a shard's rows, by dotted key, without its engine's.

        Empty if this shard does not depend on them, so that a new value makes only the affected shards stale.
        """
        return {}

    def extra_inputs(self, shard: str) -> dict[str, str]:
        """Return what a shard's table is made from besides its parents: source and settings."""
        source = self.source(shard)
        return {**({} if source is None else {SOURCE: source}), **self.shard_settings(shard)}

    def other_shards(self, shard: str) -> Collection[str]:
        """Return the other shards whose tables are read to make the one of `shard`."""
        return ()

    def expected_rows(self, shard: str, rows_now: int | None) -> int:
        """Return how many rows a shard would have if it were made now.

        `rows_now` is its present number of rows, None if it was never made.
        """
        return self.corpus.manifest.shard(shard).rows if rows_now is None else rows_now

    def provenance(self, shard: str) -> Provenance:
        """Return the provenance of a table that is about to be made.

        Raises `StoreError` if a parent is missing, or was made from a different version of a table also read here.
        """
        return self.provenance_of(shard, {name: footer_of(self.store, name, shard) for name in self.tables_read})

    def provenance_of(self, shard: str, footers: Mapping[str, StoredProvenance]) -> Provenance:
        contents = {parent: footer.content for parent, footer in footers.items()}
        for parent, footer in footers.items():
            for ancestor, content in footer.made_from.items():
                if contents.get(ancestor, content) != content:
                    form = (
                        "{parent} of {shard} was made from another {ancestor} than the one there is: materialize "
                        "{parent} again"
                    )
                    raise StoreError(form, parent, shard, ancestor)
        return Provenance.of(self.name, self.recipe_hash, self.made_with, footers, self.extra_inputs(shard))

    def require_not_newer(self, shard: str, made_with: str) -> None:
        """Raise `StoreError` if newer code made the table: two releases are at work."""
        if not self.store.allow_downgrade and (newer := newer_code(made_with, self.made_with)):
            form = (
                "{asset} of {shard} was made by a newer release of KoPub ({newer}) and is left as it is: upgrade this "
                "machine; store.allow_downgrade replaces it"
            )
            raise StoreError(form, self.name, shard, newer)

    def require_possible(self) -> None:  # noqa: B027 - most assets can be made whatever the settings say
        """Raise `KopubError` before a run begins if it could only fail."""

    def keep(self, shard: str, run: RunContext, stamp: Provenance) -> PublishedShard | None:
        """Return the published table of a shard if it is up to date.

        None if any part of it must be made or checked again. Its recipe is that of `stamp`. Raises `KopubError`.
        """
        return None

    def make_shard(self, shard: str, run: RunContext) -> PublishedShard:
        """Make and publish a shard's table as a whole, not row by row. Raises `KopubError`."""
        raise NotImplementedError

    @abstractmethod
    def finish(self, run: RunContext, finished: Mapping[str, PublishedShard]) -> None:
        """Finish a run once all its shards are done. Raises `KopubError`."""


RETRY_PARTIAL_TAG = "kopub/retry_partial"
"""Run tag with the effect of the field `retry_partial`, for backfills."""


class RetryPartial(Resource):
    """The run's choice to make `partial` rows again."""

    retry_partial: bool = Field(default=False, description="Read the lost regions of partial pages again.")


class RowTable(ShardAsset):
    """A `ShardAsset` whose rows are made one by one.

    They are journalled, so that a killed run loses only the rows in flight.
    """

    checks: ClassVar[tuple[Check, ...]] = (ACCOUNTED, NOTHING_LOST)
    parts: ClassVar[str] = ""
    """The column that lists the parts of a row with their states; empty if a row is made whole or not at all."""

    @abstractmethod
    def rows(self, shard: str) -> Iterable[RowSpec]:
        """Return the rows that the shard must end up with, in order. Raises `StoreError`, `SourceError`."""

    def make(self, shard: str, todo: Sequence[RowSpec]) -> Iterable[RowResult]:
        """Yield one result for each row of `todo`, in any order. Raises `EngineError`, `SourceError`."""
        raise NotImplementedError

    @property
    def spans_shards(self) -> bool:
        """True if one call may be given the rows of several shards; see `Engine.spans_shards`."""
        return False

    def describe(self, shard: str, table: pa.Table) -> Metadata:
        """Return what the UI plots and shows about the table besides counts and costs."""
        return {}

    def problems(self, result: ShardResult) -> Mapping[str, str | None]:
        """Return what this asset's own checks find wrong with a finished table, by check."""
        return {}

    def take_figures(self) -> Mapping[str, float]:
        """Return the counts for the rows made since the last call."""
        return {}

    def figures(self) -> Mapping[str, float | str]:
        """Return what the UI plots about the rows just made."""
        return {}

    def regions_by_task(self, table: pa.Table) -> Mapping[str, int] | None:
        """Return how many regions a table holds, by task; None if it holds none.

        The store keeps this with the table, so that a plan need not read it.
        """
        return None

    def keep(self, shard: str, run: RunContext, stamp: Provenance) -> PublishedShard | None:
        stored = self.store.find(self.name, shard)
        if stored is None or not stored[0].schema.equals(self.schema):
            return None
        table = stored[0].replace_schema_metadata(None)
        retried = {State.FAILED, *([State.PARTIAL] if retries_partial(run) else [])}
        again = retried & set(table["state"].to_pylist()) or tried_again(table, self.table.key, self.parts)
        if again or not stamp.metadata(table).items() <= stored[1].items():
            return None
        # Rows read from the corpus itself must be shown to be unchanged; a parent's table carries its own provenance.
        if not self.reads and self.unfinished(list(self.rows(shard)), table):
            return None
        result = ShardResult(table, self.table.key, (), table)
        problems = {ACCOUNTED.name: None, **self.problems(result)}
        for check, problem in problems.items():
            run.problems.note(check, shard, problem)
        run.problems.stop_at(shard)
        counts = {"dagster/row_count": table.num_rows, **result.states, "computed": 0, "kept": table.num_rows}
        return PublishedShard(stamp.recipe, counts | self.describe(shard, table))

    def finish(self, run: RunContext, finished: Mapping[str, PublishedShard]) -> None:
        """Count the lost rows of every shard of the corpus, for `nothing_lost`."""
        run.problems.count_losses(self.store, self.name, self.table.key, self.corpus.manifest.keys)

    def unfinished(self, specs: Sequence[RowSpec], *tables: pa.Table, retry_partial: bool = False) -> list[RowSpec]:
        """Return the rows of `specs` finished in none of the `tables`; `failed` is not finished."""
        return unfinished(specs, tables, self.table.key, retry_partial, self.parts)

    @cached_property
    def moved_rows(self) -> MovedRows:
        """The rows of other shards, as they were when first asked for."""
        return MovedRows(self.store, self.name, self.schema, self.table.key, self.corpus.manifest.keys)


class EngineTable(RowTable):
    """A `RowTable` of the results of its engine, which takes inputs instead of rows."""

    id_of_result: ClassVar[str] = "page_id"
    """The attribute of a result that is the id of its row."""

    @abstractmethod
    def inputs(self, shard: str, todo: Sequence[RowSpec]) -> Iterable[Any]:
        """Return the engine's input for each row of `todo`, in order. Raises `SourceError`, `StoreError`."""

    @abstractmethod
    def results(self, inputs: Iterator[Any]) -> Iterable[Any]:
        """Return the engine's result for each input, in any order. Raises `EngineError`."""

    def take_figures(self) -> Mapping[str, float]:
        return self.engine.take_figures()

    def figures(self) -> Mapping[str, float | str]:
        return self.engine.report()

    @abstractmethod
    def row(self, spec: RowSpec, result: Any) -> RowResult:
        """Return a row's columns, cost and figures, made from the engine's result."""

    @property
    def spans_shards(self) -> bool:
        return self.engine.spans_shards


def retries_partial(run: RunContext) -> bool:
    return run.has_tag(RETRY_PARTIAL_TAG) or getattr(run.config, "retry_partial", False)


def unasked(row_id: str) -> EngineError:
    """Return the error for a result that nobody asked for."""
    return EngineError("the engine answered twice, or unasked, for {row!r}; this is a bug in it", row_id)
