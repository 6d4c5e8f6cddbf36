"""A profile edited under running services leads to exactly one backfill at night."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.scheduler.instigation import TickStatus

from kopub.pages.indexing import Others, index
from kopub.store.table_store import ShardStore
from kopub_assets.sensors import MODEL_UPGRADES, PROFILE_WATCH
from tests.support.dagster.dagster_home import make_dagster_home
from tests.support.dagster.services import quick_services
from tests.support.dagster.ui import Ui
from tests.support.processes import forked
from tests.support.sources.corpora import pages, query, write_corpus
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.services]

PATIENCE = 300.0
"""Seconds: a run is a process of its own."""
SHARDS = ["shard_00", "shard_01", "shard_02", "shard_03"]
SHOWN = '{ assetNodes(assetKeys: [{path: ["corpus_image_embeddings"]}]) { opVersion partitionKeys } }'
BUILT = "raw_pages,corpus_image_embeddings,query_embeddings"
PROFILE = """
layout: {{engine: cpu}}
recognition: {{engine: tesseract}}
embedding: {{engine: hashed, dim: {dim}}}
upgrades: {{enabled: true, start: "{start:%H:%M}", end: "{end:%H:%M}", timezone: UTC}}
"""


class Live:
    """A home with its own Dagster instance and profile."""

    log: Path
    """The daemon's output."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = ShardStore(url=str(folder / "home" / "store"))
        make_dagster_home(folder / "dagster")
        self.index()
        self._start = datetime.now(UTC)

    def index(self, more: Sequence[str] = ()) -> None:
        shards = [pages("a_1"), pages("b_1", "b_2"), pages("c_1"), *map(pages, more)]
        source = self.folder / f"source_{len(shards)}"
        written = write_corpus(source, shards, [query("q1", "무엇인가?", "b_1")])
        index(str(written), self.folder / "home", others=Others.REPLACE)

    def profile(self, dim: int) -> None:
        text = PROFILE.format(dim=dim, start=self._start, end=self._start + timedelta(hours=6))
        (self.folder / "mine.yaml").write_text(text)

    @property
    def environment(self) -> dict[str, str]:
        return forked.inherited() | {
            "KOPUB_HOME": str(self.folder / "home"),
            "KOPUB_PROFILE": str(self.folder / "mine.yaml"),
            "DAGSTER_HOME": str(self.folder / "dagster"),
        }

    def build(self, shards: str) -> None:
        command = ["dagster", "asset", "materialize", "--select", BUILT, "--partition-range", shards]
        done = forked.run([*command, "-m", "definitions"], self.environment)
        assert done.returncode == 0, done.stderr[-3000:]

    @contextmanager
    def services(self) -> Iterator[Ui]:
        """Run a code server, daemon and web server as in deploy/docker until exit."""
        with quick_services(self.folder, self.environment) as (ui, self.log):
            yield ui

    def failed_ticks(self, instance: dg.DagsterInstance) -> bool:
        """Return whether the profile watch has reported that the profile cannot be used."""
        return any(
            tick.status is TickStatus.FAILURE and "mine.yaml is not YAML" in str(tick.error)
            for state in instance.all_instigator_state()
            if state.name == PROFILE_WATCH
            for tick in instance.get_ticks(state.instigator_origin_id, state.selector_id)
        )

    def until(self, condition: Callable[[], bool]) -> None:
        until(condition, PATIENCE, 1, lambda: self.log.read_text()[-3000:])


@pytest.mark.timeout(1200)
def test_an_edited_profile_is_one_backfill_of_what_it_made_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    live = Live(tmp_path)
    live.profile(dim=64)
    live.build("shard_00...shard_01")
    monkeypatch.setenv("DAGSTER_HOME", live.environment["DAGSTER_HOME"])
    with dg.DagsterInstance.get() as instance, live.services() as ui:

        def ticked(since: float = 0.0) -> bool:
            """Return whether an evaluation of the sensor began after `since` and has ended."""
            ended = (TickStatus.SUCCESS, TickStatus.SKIPPED)
            return any(
                tick.status in ended and tick.timestamp > since
                for state in instance.all_instigator_state()
                if state.name == MODEL_UPGRADES
                for tick in instance.get_ticks(state.instigator_origin_id, state.selector_id)
            )

        def backfills() -> list[PartitionBackfill]:
            return list(instance.get_backfills())

        def shown() -> tuple[str, list[str]]:
            """Return the vectors' code version and the shards, as the UI shows them."""
            (node,) = ui.ask(SHOWN)["assetNodes"]
            return node["opVersion"], node["partitionKeys"]

        live.until(ticked)
        assert backfills() == []
        version, shards = shown()
        assert shards == SHARDS[:3]

        live.profile(dim=128)
        live.until(lambda: len(backfills()) > 0)
        live.until(lambda: backfills()[0].status is not BulkActionStatus.REQUESTED)
        done = time.time()
        live.until(lambda: ticked(done))
        (backfill,) = backfills()
        assert backfill.status is BulkActionStatus.COMPLETED_SUCCESS, backfill.error
        assert {key.path[-1] for key in backfill.asset_selection or ()} == {
            "corpus_image_embeddings",
            "query_embeddings",
        }
        assert len(instance.get_runs()) == 2
        assert shown()[0] != version

        # A profile that cannot be loaded changes nothing; once it is valid again, the added shard appears.
        (tmp_path / "mine.yaml").write_text("layout: [")
        live.index(["d_1"])
        live.until(lambda: live.failed_ticks(instance))
        assert shown()[1] == SHARDS[:3]
        live.profile(dim=128)
        live.until(lambda: shown()[1] == SHARDS)
    for asset in ("corpus_image_embeddings", "query_embeddings"):
        for shard in ("shard_00", "shard_01"):
            assert live.store.read(asset, shard).schema.field("vector").type.list_size == 128
        assert not live.store.has(asset, "shard_02")
