"""Dagster's launcher of run processes, which also notices when one is gone.

A code server reports the death of a run process that it started. If the server dies as well, as in a reboot, nobody
does, and Dagster would show the run as started until its `max_runtime_seconds`. With this launcher, Dagster's
monitoring daemon checks the process itself.
"""

import json
import logging
import platform
import time
from collections.abc import Mapping
from typing import Any

import dagster as dg
import psutil

from kopub_assets.private import CheckRunHealthResult, WorkerStatus

GRPC_INFO_TAG = ".dagster/grpc_info"
"""Dagster's system tag that says which code server started a run."""
MACHINE_TAG = "kopub/machine"
"""The tag of a command-line run that names the machine of its process."""
_GONE = "the process of the run is gone"
_OWN_SERVER = ("localhost", "127.0.0.1")
_CLOCK_SECONDS = 30.0
"""Most seconds that the clock may have been moved during a run; a younger process has only reused the number."""


class WatchedRunLauncher(dg.DefaultRunLauncher):
    """A `DefaultRunLauncher` that also checks the processes of runs.

    It looks for the processes of this machine, and asks the code servers of other machines. If neither has an answer,
    a run ends after `max_runtime_seconds`. A process counts as gone only after `gone_seconds`, because Dagster retries
    a run at once or never, and needs the code server for it, which it restarts within a minute.
    """

    def __init__(self, gone_seconds: int = 120, inst_data: Any = None) -> None:
        super().__init__(inst_data)
        self._gone_seconds = gone_seconds
        self._gone: dict[str, float] = {}

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        about = "Seconds that the process of a run must be gone before the run is given up."
        return {"gone_seconds": dg.Field(int, default_value=120, description=about)}

    @classmethod
    def from_config_value(cls, inst_data: Any, config_value: Mapping[str, Any]) -> "WatchedRunLauncher":
        return cls(**config_value, inst_data=inst_data)

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        """Return whether a run's process is alive.

        A run of which nothing is known counts as running. A run that is given up is reported as failed here, before
        the daemon that asks can do so.
        """
        if self._is_gone(run):
            now = time.monotonic()
            if now - self._gone.setdefault(run.run_id, now) >= self._gone_seconds:
                del self._gone[run.run_id]
                stored = self._instance.get_run_by_id(run.run_id)
                if stored is not None and stored.status is run.status:  # otherwise its end has been reported already
                    failure = dg.DagsterEvent(
                        dg.DagsterEventType.RUN_FAILURE.value, run.job_name, message=f"Failed: {_GONE}."
                    )
                    # The status comes first, whereas Dagster's own report begins with the event: its daemon reads each
                    # event once, and retries a run only if the status is set by then.
                    self._instance.run_storage.handle_run_event(run.run_id, failure)
                    self._instance.report_dagster_event(failure, run.run_id, logging.ERROR)
                return CheckRunHealthResult(WorkerStatus.NOT_FOUND, _GONE)
        else:
            self._gone.pop(run.run_id, None)
        return CheckRunHealthResult(WorkerStatus.RUNNING)

    def _is_gone(self, run: dg.DagsterRun) -> bool:
        if GRPC_INFO_TAG in run.tags:
            if json.loads(run.tags[GRPC_INFO_TAG]).get("host") in _OWN_SERVER:
                return self._has_no_process(run.run_id)
            # A server that does not answer may be restarting; `dagster code-server` never restarts.
            client = self._get_grpc_client_for_termination(run.run_id)
            try:
                return client is not None and run.run_id not in json.loads(client.get_current_runs())["current_runs"]
            except dg.DagsterError:
                return False
        return run.tags.get(MACHINE_TAG) == platform.node() and self._has_no_process(run.run_id)

    def _has_no_process(self, run_id: str) -> bool:
        for entry in self._instance.event_log_storage.get_logs_for_run(
            run_id, of_type=dg.DagsterEventType.ENGINE_EVENT
        ):
            event = entry.dagster_event
            # The first event that names a process is about the one that waits for all steps.
            if event is not None and "pid" in event.engine_event_data.metadata:
                return not is_alive(int(str(event.engine_event_data.metadata["pid"].value)), entry.timestamp)
        return False


def is_alive(pid: int, since: float) -> bool:
    """Return whether process `pid`, started by `since` in epoch seconds, still runs."""
    try:
        process = psutil.Process(pid)
        return process.create_time() <= since + _CLOCK_SECONDS and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
