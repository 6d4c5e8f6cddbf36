"""The platform as Ray nodes load it, with a reader that a test can hold."""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import dagster as dg
from dagster._core.execution.backfill import PartitionBackfill
from kopub.layout.regions import Region
from kopub.pages.page import Page
from kopub.recognition.regions import PageReading
from kopub_assets.definitions import definitions_of
from tests.doubles.engines import SlowReader
from tests.support.harness import STANDARD, Platform

RELEASE = "hf_release"
READ_FIRST = 3
GO = "go"


class HeldReader(SlowReader):
    """A reader that waits for a file after the first pages of a shard."""

    speed_only: ClassVar[frozenset[str]] = SlowReader.speed_only | {"go"}

    go: str

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        return super().read(self._held(pages))

    def _held(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[tuple[Page, Sequence[Region]]]:
        for number, page in enumerate(pages):
            while number >= READ_FIRST and not Path(self.go).exists():
                time.sleep(0.05)
            yield page


def platform_of(home: Path) -> Platform:
    platform = Platform(home)
    diary = str(home / "recognition.diary")
    platform.engines["recognition"] = HeldReader(diary=diary, go=str(home / GO), prompt="read")
    return platform


def definitions_at(home: Path) -> dg.Definitions:
    return definitions_of(replace(platform_of(home).settings, shards_per_run=1))


@dg.definitions
def defs() -> dg.Definitions:
    """Return the definitions that Ray nodes load, whose home is in their environment."""
    return definitions_at(Path(os.environ["KOPUB_HOME"]))


def two_small_nodes(written: dict[str, Any]) -> None:
    """Reduce the settings of eight GPUs to two concurrent runs of one core each."""
    written["run_launcher"]["config"]["ray"]["num_cpus"] = 1
    written["concurrency"]["runs"]["max_concurrent_runs"] = 2


def ask_for_tables(instance: dg.DagsterInstance, definitions: dg.Definitions, shards: Sequence[str]) -> None:
    """Request a backfill of all tables but the release, as the UI does."""
    backfill = PartitionBackfill.from_asset_partitions(
        backfill_id="tables",
        asset_graph=definitions.resolve_asset_graph(),
        partition_names=list(shards),
        asset_selection=[dg.AssetKey(name) for name in STANDARD if name != RELEASE],
        backfill_timestamp=time.time(),
        tags={},
        dynamic_partitions_store=instance,
        all_partitions=False,
        title=None,
        description=None,
        run_config=None,
    )
    instance.add_backfill(backfill)


def backfill_of(instance: dg.DagsterInstance) -> PartitionBackfill:
    (backfill,) = instance.get_backfills()
    return backfill
