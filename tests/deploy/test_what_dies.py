"""The daemon of `deploy/local` ends or retries every run when a process or machine dies."""

import os
import platform
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import psutil
import pytest
from dagster import DagsterRunStatus as Status
from dagster._core.events import DagsterEventType, EngineEventData
from dagster._core.launcher import WorkerStatus
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._grpc.client import DagsterGrpcClient
from dagster._grpc.types import GetCurrentRunsResult
from dagster._serdes import serialize_value

from kopub_assets.running.execution import EXECUTOR, execute
from kopub_assets.running.watched_launcher import MACHINE_TAG, WatchedRunLauncher, is_alive
from tests.support.dagster.dagster_daemon import Daemon, with_status
from tests.support.dagster.dagster_home import make_dagster_home
from tests.support.waiting import until

RANGE = "dagster/asset_partition_range_start"
MODULE = "tests.support.dagster.waiting_assets"


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path, "local", MODULE, {"WAITING_RUNS": str(tmp_path)})
    make_dagster_home(daemon.home)
    monkeypatch.setenv("DAGSTER_HOME", str(daemon.home))
    yield daemon
    daemon.kill()


@pytest.mark.slow
@pytest.mark.services
@pytest.mark.timeout(600)
def test_whatever_is_killed_every_run_ends_and_none_makes_a_shard_beside_another(daemon: Daemon):
    with dg.DagsterInstance.get() as instance:

        def making() -> dg.DagsterRun | None:
            """Return the run whose process has begun to make shard_00, if there is one."""
            started = [run for run in with_status(instance, Status.STARTED) if _shard(run) == "shard_00"]
            assert len(started) <= 1
            return next((run for run in started if _pid_file(daemon, run).exists()), None)

        def status(run: dg.DagsterRun) -> Status:
            found = instance.get_run_by_id(run.run_id)
            assert found is not None
            return found.status

        def retried() -> set[str | None]:
            """Return the ids of the runs that were retried."""
            return {run.parent_run_id for run in instance.get_runs()} - {None}

        typed = daemon.popen("tests.support.dagster.waiting_run", "shard_02")
        (of_command,) = daemon.until(lambda: with_status(instance, Status.STARTED))
        daemon.until(_pid_file(daemon, of_command).exists)
        typed.kill()
        typed.wait()

        for name in ("fails.shard_01.0", "waits.shard_00.0", "waits.shard_00.1"):
            (daemon.folder / f"{name}.ask").touch()
        daemon.start()
        first = daemon.until(making)
        daemon.until(lambda: status(of_command) is Status.FAILURE)
        (failed,) = [run for run in instance.get_runs() if _shard(run) == "shard_01"]
        daemon.until(lambda: status(failed) is Status.FAILURE)
        daemon.until(lambda: len(with_status(instance, Status.QUEUED)) == 1)

        daemon.until_it_looks()
        os.kill(int(_pid_file(daemon, first).read_text()), signal.SIGKILL)
        daemon.until(lambda: status(first) is Status.FAILURE)
        second = daemon.until(making)
        assert second.run_id != first.run_id

        daemon.kill()
        assert status(second) is Status.STARTED
        daemon.start()
        daemon.until(lambda: status(second) is Status.FAILURE)
        # The daemon does not retry a run for which it finds no code server when it looks.
        daemon.until(lambda: retried() == {first.run_id, second.run_id})
        third = daemon.until(making)

        daemon.kill_code_servers()
        (daemon.folder / "go").touch()
        daemon.until(lambda: status(third) is Status.SUCCESS)
        daemon.until(lambda: len(with_status(instance, Status.SUCCESS)) == 2)

        assert {run.status for run in instance.get_runs()} == {Status.SUCCESS, Status.FAILURE}
        assert retried() == {first.run_id, second.run_id}
        assert failed.run_id not in retried()


def test_a_process_is_known_by_its_number_and_its_age():
    now, begun = time.time(), psutil.Process().create_time()
    assert is_alive(os.getpid(), now)
    assert not is_alive(os.getpid(), begun - 3600)
    child = os.fork()
    if not child:
        os._exit(0)
    until(lambda: psutil.Process(child).status() == psutil.STATUS_ZOMBIE)
    assert not is_alive(child, now + 1)
    os.waitpid(child, 0)
    assert not is_alive(child, now + 1)


@pytest.mark.parametrize(
    ("tags", "patience", "status"),
    [
        ({GRPC_INFO_TAG: '{"host": "localhost", "port": 4000}'}, 0, WorkerStatus.NOT_FOUND),
        ({GRPC_INFO_TAG: '{"host": "localhost", "port": 4000}'}, 60, WorkerStatus.RUNNING),
        ({MACHINE_TAG: platform.node()}, 0, WorkerStatus.NOT_FOUND),
        ({MACHINE_TAG: "another"}, 0, WorkerStatus.RUNNING),
        ({}, 0, WorkerStatus.RUNNING),
        # Nothing listens at this address.
        ({GRPC_INFO_TAG: '{"host": "127.0.0.2", "port": 1}'}, 0, WorkerStatus.RUNNING),
    ],
)
def test_a_run_is_given_up_where_its_process_is_known_to_be_gone(
    tags: dict[str, str], patience: int, status: WorkerStatus
):
    with dg.DagsterInstance.ephemeral() as instance:
        run = instance.create_run_for_job(_nothing, tags=tags)
        instance.report_engine_event("Started", run, EngineEventData(metadata={"pid": "999999999"}))
        assert _launcher(instance, patience).check_run_worker_health(run).status is status


def test_a_run_that_is_given_up_is_failed_by_the_time_an_event_says_so(monkeypatch: pytest.MonkeyPatch):
    with dg.DagsterInstance.ephemeral() as instance:
        run = instance.create_run_for_job(_nothing, tags={MACHINE_TAG: platform.node()})
        instance.report_engine_event("Started", run, EngineEventData(metadata={"pid": "999999999"}))
        store, seen = instance.event_log_storage.store_event, []

        def look_and_store(event: dg.EventLogEntry) -> None:
            found = instance.get_run_by_id(run.run_id)
            seen.append((event.dagster_event and event.dagster_event.event_type, found and found.status))
            store(event)

        monkeypatch.setattr(instance.event_log_storage, "store_event", look_and_store)
        _launcher(instance, 0).check_run_worker_health(run)
        assert seen == [(DagsterEventType.RUN_FAILURE, Status.FAILURE)]


@pytest.mark.parametrize("listed", [True, False])
def test_the_code_server_of_another_machine_says_which_runs_it_has(listed: bool, monkeypatch: pytest.MonkeyPatch):
    with dg.DagsterInstance.ephemeral() as instance:
        run = instance.create_run_for_job(_nothing, tags={GRPC_INFO_TAG: '{"host": "code", "port": 4000}'})
        answer = GetCurrentRunsResult(
            current_runs=[run.run_id] if listed else ["another"], serializable_error_info=None
        )
        monkeypatch.setattr(DagsterGrpcClient, "get_current_runs", lambda _: serialize_value(answer))
        health = _launcher(instance, 0).check_run_worker_health(run)
        assert health.status is (WorkerStatus.RUNNING if listed else WorkerStatus.NOT_FOUND)


def test_a_run_of_the_command_line_says_on_which_machine_its_process_is():
    with dg.DagsterInstance.ephemeral() as instance:
        assert execute(dg.Definitions([_made], executor=EXECUTOR), instance, ["_made"], ["shard_00"]) == []
        (run,) = instance.get_runs()
        assert run.tags[MACHINE_TAG] == platform.node()
        # The run's recorded process is this one, which is alive.
        assert _launcher(instance, 0).check_run_worker_health(run).status is WorkerStatus.RUNNING


def test_a_run_that_is_stopped_before_it_starts_is_canceled(monkeypatch: pytest.MonkeyPatch):
    with dg.DagsterInstance.ephemeral() as instance:
        store = instance.run_storage.add_run

        def store_and_interrupt(run: dg.DagsterRun) -> dg.DagsterRun:
            store(run)
            raise KeyboardInterrupt

        monkeypatch.setattr(instance.run_storage, "add_run", store_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            execute(dg.Definitions([_made], executor=EXECUTOR), instance, ["_made"], ["shard_00"])
        assert [run.status for run in instance.get_runs()] == [Status.CANCELED]


@pytest.mark.parametrize("event", ["PIPELINE_START", "RESOURCE_INIT_STARTED", "STEP_START", "STEP_SUCCESS"])
def test_a_run_that_is_stopped_between_its_steps_is_canceled(event: str, monkeypatch: pytest.MonkeyPatch):
    with dg.DagsterInstance.ephemeral() as instance:
        store = instance.event_log_storage.store_event

        def store_and_interrupt(entry: dg.EventLogEntry) -> None:
            store(entry)
            if entry.dagster_event and entry.dagster_event.event_type_value == event:
                signal.raise_signal(signal.SIGINT)

        monkeypatch.setattr(instance.event_log_storage, "store_event", store_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            execute(dg.Definitions([_made], executor=EXECUTOR), instance, ["_made"], ["shard_00"])
        assert [run.status for run in instance.get_runs()] == [Status.CANCELED]


def _launcher(instance: dg.DagsterInstance, patience: int) -> WatchedRunLauncher:
    launcher = WatchedRunLauncher(gone_seconds=patience)
    launcher.register_instance(instance)
    return launcher


@dg.asset(partitions_def=dg.StaticPartitionsDefinition(["shard_00"]), backfill_policy=dg.BackfillPolicy.single_run())
def _made() -> None:
    """An asset that is made at once."""


@dg.job
def _nothing() -> None:
    """A job without steps."""


def _shard(run: dg.DagsterRun) -> str | None:
    return run.tags.get(RANGE)


def _pid_file(daemon: Daemon, run: dg.DagsterRun) -> Path:
    return daemon.folder / f"{run.run_id}.pid"
