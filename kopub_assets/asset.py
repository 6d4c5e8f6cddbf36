"""The base classes of the graph's assets: table, parents, engine, version and rows."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, cast

import pyarrow as pa
from pydantic import Field

from kopub_assets.checks import ACCOUNTED, NOTHING_LOST, Check, Problems
from kopub_assets.metadata import GpuWatch
from kopub_assets.provenance import Provenance, StoredProvenance, footer_of, newer_code
from kopub_assets.rows import RowResult, RowSpec, ShardResult, Work, unfinished
from resources.config.settings import Resources
from resources.engine import Engine, Resource
from resources.errors import EngineError, StoreError
from resources.fingerprints import CodeVersion, canonical_json, fingerprint
from resources.states import State
from resources.store.corpus_tables import Table
from resources.store.rows import MovedRows
from resources.store.table_source import SOURCE

Metadata = dict[str, Any]
_UNMEASURED = 0.002
"""Seconds of a row that no engine makes."""


@dataclass(frozen=True, slots=True)
class PublishedShard:
    """A shard whose table is published, with its recipe and metadata."""

    recipe: str
    metadata: Metadata


class StoppedAhead(BaseException):
    """Ends the making of shards as an interrupt does; what is finished is kept."""


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
    """To be called when the engine has been given its last row, and works on what is in flight."""
    require_going_on: Callable[[], None] = lambda: None
    """Raises `StoppedAhead` where the shards are not wanted any more."""

    def has_tag(self, tag: str) -> bool:
        """Return whether the run carries `tag` with the value true."""
        return self.tags.get(tag, "").lower() == "true"


class ShardAsset(ABC):
    """An asset that is made shard by shard.

    A subclass declares it in class attributes and makes it in methods. An instance works with the resources of one run,
    or of the settings when only its recipe is wanted. Its docstring is the description in the UI.
    """

    table: ClassVar[Table]
    code_version: ClassVar[CodeVersion]
    """Version of the code that shapes the rows, besides the engine's own."""
    parents: ClassVar[tuple[type["ShardAsset"], ...]] = ()
    """The assets whose tables may be read to make this one; `reads` are those that are."""
    after: ClassVar[tuple[str, ...]] = ()
    """Assets of scores to wait for in a run, by name, where the platform has them; they decide no row."""
    engine_section: ClassVar[str | None] = None
    """The resource, and section of a profile, whose engine makes the rows; None where code alone makes them."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Resources by name, besides the store, the corpus and the engine."""
    kinds: ClassVar[frozenset[str]] = frozenset()
    checks: ClassVar[tuple[Check, ...]] = ()
    config: ClassVar[type[Resource] | None] = None
    """The configuration of a run that the Launchpad offers."""
    reads_regions_of: ClassVar[type["ShardAsset"] | None] = None
    """The asset whose regions are the unit of work; None where it is the page."""

    engine: Any
    """The engine of `engine_section`; a subclass states its type."""

    def __init__(self, resources: Resources) -> None:
        self.store = resources["store"]
        self.corpus = resources["corpus"]
        self.resources = resources
        # Each subclass states the type of the engine of its section.
        self.engine = cast("Mapping[str, Any]", resources)[self.engine_section] if self.engine_section else None

    @classmethod
    def off(cls, resources: Resources) -> str | None:
        """Return why these resources do not want the asset; None where they do.

        What is off is in no run and no plan.
        """
        return None

    @property
    def reads(self) -> tuple[type["ShardAsset"], ...]:
        """The parents whose tables are read with these resources."""
        return tuple(parent for parent in self.parents if parent.off(self.resources) is None)

    @property
    def settings(self) -> Mapping[str, Any]:
        """Values of the profile, besides the engine's, that decide rows, by their names in it."""
        return {}

    @classmethod
    def resource_keys(cls) -> set[str]:
        """Return the names of the resources that an instance is made of."""
        engine = (cls.engine_section, "gates") if cls.engine_section else ()
        return {"store", "corpus", *cls.needs, *engine}

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        assert isinstance(self.table.schema, pa.Schema), "a table of vectors says its width"
        return self.table.schema

    @property
    def engines(self) -> tuple[Engine, ...]:
        return () if self.engine is None else (self.engine,)

    def prepare(self) -> None:
        """Start in the background what its engines need; see `Engine.prepare`."""
        for engine in self.engines:
            engine.prepare()

    def typical_seconds(self, megabytes: float) -> float:
        """Return the expected seconds of a row by the size of its page's picture."""
        return _UNMEASURED if self.engine is None else self.engine.expected_seconds(megabytes)

    @property
    def gpus(self) -> int:
        """GPUs that are held while a shard is made."""
        return sum(engine.gpus for engine in self.engines)

    @cached_property
    def made_with(self) -> str:
        """Return what determines a row besides its inputs, as JSON.

        That is the code's version and the engine's recipe.
        """
        engines = [engine.recipe() for engine in self.engines]
        settings = {"settings": dict(self.settings)} if self.settings else {}
        return canonical_json({"version": self.code_version.number, "engines": engines, **settings})

    @cached_property
    def recipe_hash(self) -> str:
        """Fingerprint of `made_with`."""
        return fingerprint(self.made_with)

    @property
    def versions(self) -> dict[str, CodeVersion]:
        """The versions behind the rows, by their names in a plan."""
        own = {f"{self.name}.version": self.code_version}
        return own | {f"{self.engine_section}.version": engine.code_version for engine in self.engines}

    def source(self, shard: str) -> str | None:
        """Return the fingerprint of what a shard reads of the corpus.

        None where only parents are read.
        """
        return None

    def shard_settings(self, shard: str) -> Mapping[str, str]:
        """Return the settings that decide a shard's rows, by dotted key.

        The engine's section counts by itself. Empty where nothing of it does, so that another value makes stale what it
        changes and no other shard.
        """
        return {}

    def extra_inputs(self, shard: str) -> dict[str, str]:
        """Return what a shard's table is made from besides its parents.

        That is the source and settings.
        """
        source = self.source(shard)
        return {**({} if source is None else {SOURCE: source}), **self.shard_settings(shard)}

    def other_shards(self, shard: str) -> Collection[str]:
        """Return the other shards whose tables are read to make that of a shard."""
        return ()

    def expected_rows(self, shard: str, made: int | None) -> int:
        """Return the rows that a shard would have if it were made now.

        `made` is how many it has, None when it was never made.
        """
        return self.corpus.manifest.shard(shard).rows if made is None else made

    def provenance(self, shard: str) -> Provenance:
        """Return how a table that is about to be made comes to be.

        Raises `StoreError` when a parent is missing, or was made from another table than one that is read here too.
        """
        return self.provenance_of(
            shard, {parent.table.name: footer_of(self.store, parent.table.name, shard) for parent in self.reads}
        )

    def provenance_of(self, shard: str, footers: Mapping[str, StoredProvenance]) -> Provenance:
        contents = {parent: footer.content for parent, footer in footers.items()}
        for parent, footer in footers.items():
            for ancestor, content in footer.made_from.items():
                if contents.get(ancestor, content) != content:
                    raise StoreError(
                        f"{parent} of {shard} was made from another {ancestor} than the one there is: "
                        f"materialize {parent} again"
                    )
        return Provenance.of(self.name, self.recipe_hash, self.made_with, footers, self.extra_inputs(shard))

    def require_not_newer(self, shard: str, made_with: str) -> None:
        """Raise `StoreError` where the table was `made_with` later code than this.

        Two releases are then at work at once.
        """
        if not self.store.allow_downgrade and (newer := newer_code(made_with, self.made_with)):
            raise StoreError(
                f"{self.name} of {shard} was made by a newer release of KoPub ({newer}) and is left as it is: upgrade "
                "this machine; store.allow_downgrade replaces it"
            )

    def require_possible(self) -> None:  # noqa: B027 - most assets can be made whatever the settings say
        """Raise `KopubError` where a run could only fail, before it begins."""

    def keep(self, shard: str, run: RunContext, stamp: Provenance) -> PublishedShard | None:
        """Return the published table of a shard where it is up to date.

        None where a part of it is to be made or looked at again. Its recipe is that of `stamp`. Raises `KopubError`.
        """
        return None

    def make_shard(self, shard: str, run: RunContext) -> PublishedShard:
        """Make and publish the table of a shard as a whole.

        For tables whose rows are not made one by one. Raises `KopubError`.
        """
        raise NotImplementedError

    @abstractmethod
    def finish(self, run: RunContext, finished: Mapping[str, PublishedShard]) -> None:
        """Finish a run once all its shards are done.

        Raises `KopubError`.
        """


RETRY_PARTIAL_TAG = "kopub/retry_partial"
"""Run tag that asks for another try of partial rows, as the field does; for backfills."""


class RetryPartial(Resource):
    """The run's choice to make `partial` rows again."""

    retry_partial: bool = Field(default=False, description="Read the lost regions of partial pages again.")


class RowTable(ShardAsset):
    """A `ShardAsset` whose rows are made one by one.

    They are journalled, so that a killed run costs what was in flight.
    """

    checks: ClassVar[tuple[Check, ...]] = (ACCOUNTED, NOTHING_LOST)

    @abstractmethod
    def rows(self, shard: str) -> Iterable[RowSpec]:
        """Return the rows that the shard must end up with, in order.

        Raises `StoreError`, `SourceError`.
        """

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
        """Return what is wrong with a made table, by check.

        These come besides what every table is checked for.
        """
        return {}

    def take_figures(self) -> Mapping[str, float]:
        """Return what was counted for the rows that were made since the last call."""
        return {}

    def figures(self) -> Mapping[str, float | str]:
        """Return what the UI plots of the rows that were just made."""
        return {}

    def regions_by_task(self, table: pa.Table) -> Mapping[str, int] | None:
        """Return how many regions a table holds; None where it holds none.

        A plan then need not read it.
        """
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
        """Count what is lost in every shard of the corpus, for `nothing_lost`."""
        run.problems.count_losses(self.store, self.name, self.table.key, self.corpus.manifest.keys)

    def unfinished(self, specs: Sequence[RowSpec], *known: pa.Table, retry_partial: bool = False) -> list[RowSpec]:
        """Return the rows of `specs` that no `known` table holds finished.

        `failed` rows are tried again.
        """
        return unfinished(specs, known, self.table.key, retry_partial)

    @cached_property
    def moved_rows(self) -> MovedRows:
        """The rows of other shards, as they were when first wanted."""
        return MovedRows(self.store, self.name, self.schema, self.table.key, self.corpus.manifest.keys)


class EngineTable(RowTable):
    """A `RowTable` whose rows are the results of its engine."""

    @abstractmethod
    def inputs(self, shard: str, todo: Sequence[RowSpec]) -> Iterable[Any]:
        """Return the engine's input for each row of `todo`, in order.

        Raises `SourceError`, `StoreError`.
        """

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
