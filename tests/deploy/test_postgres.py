"""The instance of `deploy/postgres` on a real Postgres, with a worker that is killed."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterRunStatus as Status

from tests.support.dagster.dagster_daemon import Daemon, with_status
from tests.support.installed import NO_POSTGRES, imported
from tests.support.servers import postgres

pytestmark = [
    pytest.mark.slow,
    pytest.mark.services,
    pytest.mark.skipif(postgres.programs() is None, reason=NO_POSTGRES),
]


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    imported("dagster_postgres")
    with postgres.postgres() as variables:
        environment = {"WAITING_RUNS": str(tmp_path), **variables}
        daemon = Daemon(tmp_path, "postgres", "tests.support.dagster.waiting_assets", environment)
        for name, value in {**variables, "DAGSTER_HOME": str(daemon.home)}.items():
            monkeypatch.setenv(name, value)
        yield daemon
        daemon.kill()


@pytest.mark.timeout(300)
def test_a_run_whose_worker_is_killed_is_tried_again_and_its_history_is_in_postgres(daemon: Daemon):
    with dg.DagsterInstance.get() as instance:
        assert type(instance.run_storage).__name__ == "PostgresRunStorage"
        (daemon.folder / "waits.shard_00.0.ask").touch()
        daemon.start()
        (first,) = daemon.until(lambda: with_status(instance, Status.STARTED))
        process = daemon.folder / f"{first.run_id}.pid"
        daemon.until(process.exists)
        daemon.until_it_looks()
        os.kill(int(process.read_text()), signal.SIGKILL)
        daemon.until(lambda: with_status(instance, Status.FAILURE))
        (daemon.folder / "go").touch()
        (second,) = daemon.until(lambda: with_status(instance, Status.SUCCESS))
        assert second.parent_run_id == first.run_id
        made = instance.get_materialized_partitions(dg.AssetKey("waits"))
        assert made == {"shard_00"}
    assert not list(daemon.home.glob("**/*.db"))
