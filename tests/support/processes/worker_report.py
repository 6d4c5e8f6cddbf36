"""The cost and the imports of a client process, which imports this light module."""

import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

HEAVY = ("dagster", "torch", "transformers", "vllm", "pandas")
"""Packages that no client process may import for its start."""


@dataclass(frozen=True, slots=True)
class Moment:
    """CPU seconds (user and system) of the process so far, the number of its modules, and which are `HEAVY`."""

    cpu_seconds: float
    modules: int
    heavy: tuple[str, ...]

    @classmethod
    def now(cls) -> "Moment":
        return cls(time.process_time(), len(sys.modules), tuple(name for name in HEAVY if name in sys.modules))


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """The moments when a client process was ready for its first job, and when it had prepared it."""

    ready: Moment
    prepared: Moment


class ReportingHandler:
    """A `Handler` around a real one: it prepares the job and returns a `WorkerReport` instead of sending requests."""

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
