"""The base class of the graph's assets: table, parents, engine and version."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, cast

import pyarrow as pa

from kopub_assets.checks import Check, Problems
from kopub_assets.metadata import GpuWatch
from kopub_assets.provenance import Provenance, StoredProvenance, footer_of, newer_code
from resources.config.settings import Resources
from resources.engine import Engine, Resource
from resources.errors import StoreError
from resources.fingerprints import CodeVersion, canonical_json, fingerprint
from resources.store.corpus_tables import Table
from resources.store.table_source import SOURCE

Metadata = dict[str, Any]
_UNMEASURED = 0.002
"""Seconds of a row that no engine makes."""


@dataclass(frozen=True, slots=True)
class PublishedShard:
    """A shard whose table is published: the recipe of its table, and metadata for the UI."""

    recipe: str
    metadata: Metadata


@dataclass(frozen=True)
class RunContext:
    """One run of one asset: its id, its shards, what its checks find, what it was asked for, and what its GPUs do."""

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

    def has_tag(self, tag: str) -> bool:
        """Return whether the run carries `tag` with the value true."""
        return self.tags.get(tag, "").lower() == "true"


class ShardAsset(ABC):
    """An asset that is made shard by shard. A subclass declares it in class attributes and makes it in methods.

    An instance works with the resources of one run, or of the settings when only its recipe is wanted.
    Its docstring is the description in the UI.
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
        """Return why these resources want nothing of it; None where they do. What is off is in no run and no plan."""
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
        """Begin in the background what its engines take long for before a first row; see `Engine.prepare`."""
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
        """Return what determines a row besides its inputs, as JSON: the code's version and the engine's recipe."""
        engines = [engine.recipe() for engine in self.engines]
        settings = {"settings": dict(self.settings)} if self.settings else {}
        return canonical_json({"version": self.code_version.number, "engines": engines, **settings})

    @cached_property
    def recipe_hash(self) -> str:
        """Fingerprint of `made_with`."""
        return fingerprint(self.made_with)

    @property
    def versions(self) -> dict[str, CodeVersion]:
        """The versions behind the rows, by the names that `made_with` has for them in a plan."""
        own = {f"{self.name}.version": self.code_version}
        return own | {f"{self.engine_section}.version": engine.code_version for engine in self.engines}

    def source(self, shard: str) -> str | None:
        """Fingerprint of what is read of the corpus itself for a shard; None where only parents are read."""
        return None

    def shard_settings(self, shard: str) -> Mapping[str, str]:
        """Return what of the profile decides the rows of a shard besides the engine's section, by dotted key.

        Empty where nothing of it does, so that another value makes stale what it changes and no other shard.
        """
        return {}

    def extra_inputs(self, shard: str) -> dict[str, str]:
        """Return what a table of the shard is made from besides its parents: the source and settings."""
        source = self.source(shard)
        return {**({} if source is None else {SOURCE: source}), **self.shard_settings(shard)}

    def other_shards(self, shard: str) -> Collection[str]:
        """Return the other shards whose tables are read to make that of a shard."""
        return ()

    def expected_rows(self, shard: str, made: int | None) -> int:
        """Rows that a shard would have if it were made now; `made` it has, None when it was never made."""
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
        """Raise `StoreError` where the table was `made_with` later code than this: two releases are at work at once."""
        if not self.store.allow_downgrade and (newer := newer_code(made_with, self.made_with)):
            raise StoreError(
                f"{self.name} of {shard} was made by a newer release of KoPub ({newer}) and is left as it is: upgrade "
                "this machine; store.allow_downgrade replaces it"
            )

    def require_possible(self) -> None:  # noqa: B027 - most assets can be made whatever the settings say
        """Raise `KopubError` where a run that is to make it could only fail; asked before its first step begins."""

    def keep(self, shard: str, run: RunContext, stamp: Provenance) -> PublishedShard | None:
        """Return the published table of a shard as it is; None where a part of it is to be made or looked at again.

        Its recipe is that of `stamp`. Raises `KopubError`.
        """
        return None

    def make_shard(self, shard: str, run: RunContext) -> PublishedShard:
        """Make and publish the table of a shard, where its rows are not made one by one. Raises `KopubError`."""
        raise NotImplementedError

    @abstractmethod
    def finish(self, run: RunContext, finished: Mapping[str, PublishedShard]) -> None:
        """Do what has to be done once, when all shards of a run are through. Raises `KopubError`."""
