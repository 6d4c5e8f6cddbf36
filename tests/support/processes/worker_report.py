"""Reports of a client process, which imports this light module, on CPU time and imports."""

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
    """The CPU seconds (user and system), module count and `HEAVY` modules of a process."""

    cpu_seconds: float
    modules: int
    heavy: tuple[str, ...]

    @classmethod
    def now(cls) -> "Moment":
        return cls(time.process_time(), len(sys.modules), tuple(name for name in HEAVY if name in sys.modules))


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """The state of a client process before its first job, and after preparing it."""

    ready: Moment
    prepared: Moment


class ReportingHandler:
    """A wrapper of a `Handler` that returns a `WorkerReport` instead of sending requests."""

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
