"""Reports of a client process on its CPU time and imports; this module itself imports little."""

import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

HEAVY = ("dagster", "torch", "transformers", "vllm", "pandas")
"""Packages that no client process may import at its start."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The CPU seconds (user and system) of a process so far, its number of modules, and the `HEAVY` ones."""

    cpu_seconds: float
    modules: int
    heavy: tuple[str, ...]

    @classmethod
    def now(cls) -> "Moment":
        return cls(time.process_time(), len(sys.modules), tuple(name for name in HEAVY if name in sys.modules))


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """The state of a client process when it was ready for its first job, and after preparing it."""

    ready: Moment
    prepared: Moment


class ReportingHandler:
    """A wrapper of a real `Handler` that prepares a job and returns a `WorkerReport` without requests."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._handler = make()
        self._ready = Moment.now()

    def prepare(self, job: Any) -> WorkerReport:
        self._handler.prepare(job)
        return WorkerReport(self._ready, Moment.now())

    async def finish(self, ready: WorkerReport, client: Any) -> tuple[WorkerReport, defaultdict[str, float]]:
        return ready, defaultdict(float)

    def close(self) -> None:
        self._handler.close()
