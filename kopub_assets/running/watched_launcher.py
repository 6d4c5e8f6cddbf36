"""Dagster's own launcher of runs as processes of a code server, which also sees that the process of a run is gone.

A code server reports a process of its own that died. When it dies with it, as in a reboot, nobody does, and Dagster
would show the run as started until its `max_runtime_seconds`. Here its monitoring daemon asks after the process itself.
"""

import json
import platform
import time
from collections.abc import Mapping
from typing import Any

import dagster as dg
import psutil
from dagster._core.launcher import CheckRunHealthResult, WorkerStatus
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._serdes import ConfigurableClassData

MACHINE_TAG = "kopub/machine"
"""The tag of a run of the command line: the machine that its process is on."""
_OWN_SERVER = ("localhost", "127.0.0.1")
_CLOCK_SECONDS = 30.0
"""By so much the clock may have been set while a run went on; a process that is younger has its number by chance."""


class WatchedRunLauncher(dg.DefaultRunLauncher):
    """`DefaultRunLauncher` with a check of the processes that are on this machine.

    Of runs elsewhere it knows nothing; `max_runtime_seconds` is their end. With `one_machine`, no run is elsewhere.
    A process counts as gone after `gone_seconds`: Dagster tries a run again at once or never, and cannot without the
    code server, which it starts anew within a minute.
    """

    def __init__(
        self, one_machine: bool = False, gone_seconds: int = 120, inst_data: ConfigurableClassData | None = None
    ) -> None:
        super().__init__(inst_data)
        self._one_machine = one_machine
        self._gone_seconds = gone_seconds
        self._gone: dict[str, float] = {}

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        one = "Every process that writes into this instance runs on one machine."
        gone = "Seconds that the process of a run must be gone, until the run is given up."
        return {
            "one_machine": dg.Field(bool, default_value=False, description=one),
            "gone_seconds": dg.Field(int, default_value=120, description=gone),
        }

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData, config_value: Mapping[str, Any]
    ) -> "WatchedRunLauncher":
        return cls(**config_value, inst_data=inst_data)

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        """Whether the process of a started run is alive; a run that nothing is known of counts as running."""
        if not self._is_here(run.tags):
            return CheckRunHealthResult(WorkerStatus.RUNNING, "on another machine")
        events = self._instance.event_log_storage.get_logs_for_run(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)
        for entry in events:
            event = entry.dagster_event
            # The first that tells a process is of the one that waits for all steps.
            if event is not None and "pid" in event.engine_event_data.metadata:
                pid = int(str(event.engine_event_data.metadata["pid"].value))
                return self._health(run.run_id, pid, entry.timestamp)
        return CheckRunHealthResult(WorkerStatus.RUNNING, "its process is not known yet")

    def _health(self, run_id: str, pid: int, since: float) -> CheckRunHealthResult:
        if is_alive(pid, since):
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        now = time.monotonic()
        if now - self._gone.setdefault(run_id, now) < self._gone_seconds:
            return CheckRunHealthResult(WorkerStatus.RUNNING, f"process {pid} is gone, for a short time")
        del self._gone[run_id]
        return CheckRunHealthResult(WorkerStatus.NOT_FOUND, f"process {pid} is gone")

    def _is_here(self, tags: Mapping[str, str]) -> bool:
        if self._one_machine:
            return True
        if GRPC_INFO_TAG in tags:
            return json.loads(tags[GRPC_INFO_TAG]).get("host") in _OWN_SERVER
        return tags.get(MACHINE_TAG) == platform.node()


def is_alive(pid: int, since: float) -> bool:
    """Whether the process that had the number `pid` at the time `since`, in seconds of the epoch, still runs."""
    try:
        process = psutil.Process(pid)
        return process.create_time() <= since + _CLOCK_SECONDS and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
