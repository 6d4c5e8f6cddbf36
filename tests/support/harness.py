"""The platform on a small corpus, with a store of its own."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import pyarrow as pa

from kopub.config.choices import Documents, Figures, Pdf
from kopub.config.environment import Location
from kopub.config.settings import Settings
from kopub.embedding.hashed import HashedEmbedder
from kopub.figures.figure import NoNotes
from kopub.pages.corpus import Corpus
from kopub.pages.indexing import index
from kopub.release.gates import Gates
from kopub.release.hub import HubTarget
from kopub.release.local import LocalRelease
from kopub.reranking.base import NoReranking
from kopub.sinks.base import NoSink
from kopub.store.table_store import ShardStore
from kopub.tables.asset import RunContext
from kopub.tables.checks import Problems
from kopub.tables.graph import GRAPH, Graph
from kopub.tables.shard_loop import make_all
from kopub_assets.definitions import build_assets, definitions_of
from kopub_assets.private import execute_here
from kopub_assets.running.engines import range_tags
from kopub_assets.running.execution import EXECUTOR
from resources.profile import dagster_resources
from tests.doubles.engines import Diary, OneRegionLayout, SlowReader, UnitEmbedder
from tests.support.cpu_engines import CPU
from tests.support.sources.corpora import Page, write_corpus

_OPTIONS: Any = {
    "figures": Figures(),
    "documents": Documents(),
    "notes": NoNotes(),
    "sinks": NoSink(),
    "embedding": HashedEmbedder(),
}
STANDARD = GRAPH.on(_OPTIONS).names
"""The assets that every platform makes, in graph order."""
QUIET: dict[str, Any] = {"loggers": {"console": {"config": {"log_level": "WARNING"}}}}
"""Run configuration that keeps Dagster from formatting log lines that nobody reads."""


@dataclass
class Platform:
    """A home with an indexed corpus and engines that can be swapped.

    The engines are doubles that count their calls, except those that `engines` replaces.
    """

    home: Path
    engines: dict[str, Any] = field(default_factory=dict)
    recorded: dg.DagsterInstance | None = None
    """The Dagster instance that records its runs, made by the first one."""
    graph: Graph = GRAPH

    @classmethod
    def of(cls, home: Path, shards: Sequence[Sequence[Page]], queries: Sequence[dict[str, Any]] | None = None):
        platform = cls(home)
        platform.reindex(shards, queries)
        return platform

    def reindex(self, shards: Sequence[Sequence[Page]], queries: Sequence[dict[str, Any]] | None = None) -> None:
        index(str(write_corpus(self.home / "source", shards, queries)), self.home)

    @property
    def instance(self) -> dg.DagsterInstance:
        if self.recorded is None:
            self.recorded = dg.DagsterInstance.ephemeral()
        return self.recorded

    @property
    def store(self) -> ShardStore:
        return ShardStore(url=str(self.home / "store"))

    def diary(self, engine: str) -> Diary:
        """Return what an engine double has worked on so far."""
        return Diary(str(self.home / f"{engine}.diary"))

    @property
    def located(self) -> Location:
        """Return the home and its store, for code that needs no engine."""
        return Location(self.home, "cpu", self.store.url)

    @property
    def settings(self) -> Settings:
        """Return the settings of a process that starts now, with the current engines."""
        engines = {name: resource for name, resource in self.resources().items() if name != "profile"}
        return replace(_settings(), home=self.home, **engines)

    @property
    def definitions(self) -> dg.Definitions:
        """Return the definitions that Dagster would load with these settings."""
        return definitions_of(self.settings, self.graph)

    @property
    def assets(self) -> list[dg.AssetsDefinition | dg.AssetSpec]:
        return build_assets(self.settings, self.graph)

    def resources(self) -> Any:
        made = {name: make(self) for name, make in _DOUBLES.items() if name not in self.engines}
        return {"profile": "cpu", **_choices(), **made, **self.engines}

    def run(
        self,
        select: str = "*",
        first: str | None = "shard_00",
        last: str | None = None,
        launchpad: dict[str, dict[str, Any]] | None = None,
        tags: dict[str, str] | None = None,
    ) -> dg.ExecuteInProcessResult:
        """Materialize a selection for one shard or a range of shards, in one run.

        `launchpad` overrides fields of resources. Pass `first=None` to run unpartitioned assets alone.
        """
        overrides = {name: {"config": fields} for name, fields in (launchpad or {}).items()}
        definitions = dg.Definitions(self.assets, resources=dagster_resources(self.resources()), executor=EXECUTOR)
        graph = definitions.resolve_asset_graph()
        selection = dg.AssetSelection.from_coercible(select.split(",")).resolve(graph) & graph.materializable_asset_keys
        shards = {} if first is None else {"dagster/partition": first} if last is None else range_tags(first, last)
        return execute_here(
            definitions.resolve_implicit_global_asset_job_def(),
            self.instance,
            [key.to_user_string() for key in selection],
            {**shards, **(tags or {})},
            {"resources": overrides, **QUIET},
        )

    def make(self, *assets: str) -> None:
        """Make tables of all shards without a Dagster run, in half the time."""
        declared = self.graph.on(self.resources()).declared(self.resources())
        shards = tuple(next(iter(declared.values())).corpus.manifest.keys)
        made_by = str(uuid4())
        for name in declared:
            if name in assets:
                asset = declared[name]
                run = RunContext(made_by, shards, Problems(asset.checks, {}), _silent, _silent)
                make_all(asset, run)

    def rows(self, asset: str, shard: str = "shard_00") -> dict[str, dict[str, Any]]:
        """Return the rows of a table by page or query id."""
        table = self.store.read(asset, shard)
        key = "query_id" if "query_id" in table.column_names else "page_id"
        return {row[key]: row for row in table.to_pylist()}

    def states(self, asset: str, shard: str = "shard_00") -> dict[str, str]:
        return {row_id: row["state"] for row_id, row in self.rows(asset, shard).items()}

    def tables(self) -> dict[tuple[str, str], pa.Table]:
        return {
            (asset, shard): self.store.read(asset, shard)
            for asset in self.graph.names
            for shard in self.store.published(asset)
        }


class Prepared:
    """A platform that is built once and restored in the same folder for every test."""

    def __init__(self, built: Platform) -> None:
        self._built = built
        self._kept = built.home.with_name(f"{built.home.name}-as-built")
        shutil.copytree(built.home, self._kept, symlinks=True)

    def renewed(self) -> Platform:
        """Return the platform as it was built, with the changes of the last test undone."""
        shutil.rmtree(self._built.home)
        shutil.copytree(self._kept, self._built.home, symlinks=True)
        recorded = _copy(self._built.recorded) if self._built.recorded else None
        return replace(self._built, engines=dict(self._built.engines), recorded=recorded)


def _copy(instance: dg.DagsterInstance) -> dg.DagsterInstance:
    """Return an in-memory copy of an instance; no public API is as fast."""
    copy = dg.DagsterInstance.ephemeral()
    for source, target in (
        (instance.run_storage, copy.run_storage),
        (instance.event_log_storage, copy.event_log_storage),
    ):
        before, after = (storage._engine.raw_connection() for storage in (source, target))  # type: ignore[attr-defined]
        before.driver_connection.backup(after.driver_connection)
        before.close()
        after.close()
    return copy


_DOUBLES: dict[str, Callable[[Platform], Any]] = {
    "store": lambda platform: platform.store,
    "corpus": lambda platform: Corpus(home=str(platform.home)),
    "layout": lambda platform: OneRegionLayout(diary=str(platform.home / "layout.diary")),
    "recognition": lambda platform: SlowReader(diary=str(platform.home / "recognition.diary"), prompt="read"),
    "embedding": lambda platform: UnitEmbedder(),
    "release": lambda platform: LocalRelease(folder=str(platform.home / "release")),
}
"""The default resources of a platform, each made in milliseconds."""


@cache
def _choices() -> dict[str, Any]:
    """Return the resources that only hold options, which all platforms share."""
    return {
        "notes": NoNotes(),
        "reranking": NoReranking(),
        "sinks": NoSink(),
        "figures": Figures(),
        "documents": Documents(),
        "hub": HubTarget(),
        "pdf": Pdf(),
        "gates": Gates(),
    }


@cache
def _settings() -> Settings:
    """Return the settings of a platform apart from its home and its resources."""
    return Settings.of(Path("home"), CPU, "cpu")


def _silent(line: str) -> None:
    """Discard a log line."""


def failure(result: dg.ExecuteInProcessResult) -> str:
    """Return the error messages of a run's failed steps, one line for each shard."""
    errors = [event.step_failure_data.error for event in result.all_events if event.is_step_failure]
    return "\n".join(error.message.partition(": ")[2].strip() for error in errors if error)
