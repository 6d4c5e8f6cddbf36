"""The account of the host: core seconds of each kind of process, sampled from the processes' own times."""

import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Self

import psutil

from kopub.profiling.timeline import Span

_SECONDS = 0.5
"""Seconds between two readings; a process that ends loses its time since the last one."""
KINDS: Mapping[str, str] = {
    "kopub.vllm.client.worker_process": "clients",
    "kopub.pages.inspection": "inspection",
    "kopub.layout.pp_doclayout": "layout",
    "kopub.vllm.supervisor": "supervisors",
    "VLLM::APIServer": "API processes",
    "VLLM::EngineCore": "engines",
    "vllm.entrypoints.cli.main": "API processes",
    "vllm serve": "API processes",
    "dagster": "the run",
}
"""The kind of a process whose command line holds a text; the first that matches counts."""
OTHER = "other"

Sums = Mapping[str, float]
"""Core seconds so far, by kind of process."""


class HostAccount:
    """A context manager that samples the core seconds of all processes by their kind."""

    def __init__(self) -> None:
        self.samples: list[tuple[float, Sums]] = []
        """(Unix time, core seconds so far), in chronological order."""
        self._seconds: dict[tuple[int, float], float] = {}
        self._kinds: dict[tuple[int, float], str] = {}
        self._before: dict[tuple[int, float], float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._take()
        self._before = dict(self._seconds)
        self.samples = [(time.time(), {})]
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._take()

    def _watch(self) -> None:
        while not self._ended.wait(_SECONDS):
            self._take()

    def _take(self) -> None:
        for process in psutil.process_iter():
            try:
                key = process.pid, process.create_time()
                # A fork bears its parent's command line until it names itself.
                if self._kinds.get(key, OTHER) in (OTHER, "API processes"):
                    self._kinds[key] = kind_of(" ".join(process.cmdline()))
                times = process.cpu_times()
            except psutil.Error:
                continue
            self._seconds[key] = times.user + times.system
        sums: dict[str, float] = defaultdict(float)
        for key, seconds in self._seconds.items():
            sums[self._kinds.get(key, OTHER)] += max(0.0, seconds - self._before.get(key, 0.0))
        self.samples.append((time.time(), dict(sums)))


def kind_of(command: str) -> str:
    """Return the kind of the process with a command line."""
    return next((kind for text, kind in KINDS.items() if text in command), OTHER)


def by_stage(samples: Sequence[tuple[float, Sums]], stages: Sequence[tuple[str, Span]], end: float) -> dict[str, Sums]:
    """Return the core seconds by stage and kind; a stage's time ends where the next one's begins.

    `stages` are in order of their start. What comes before the first is "start".
    """
    starts = [samples[0][0], *(span.start for _, span in stages), end]
    names = ["start", *(name for name, _ in stages)]
    account: dict[str, Sums] = {}
    for name, (first, last) in zip(names, pairwise(starts), strict=True):
        before, after = _at(samples, first), _at(samples, last)
        account[name] = {kind: after[kind] - before.get(kind, 0.0) for kind in after}
    return account


def _at(samples: Sequence[tuple[float, Sums]], moment: float) -> Sums:
    """Return the sums at a moment, interpolated between the two samples around it."""
    later = next((at for at, (taken, _) in enumerate(samples) if taken >= moment), len(samples) - 1)
    if later == 0:
        return samples[0][1]
    (start, before), (end, after) = samples[later - 1], samples[later]
    share = min(1.0, (moment - start) / (end - start)) if end > start else 1.0
    return {kind: before.get(kind, 0.0) + share * (sums - before.get(kind, 0.0)) for kind, sums in after.items()}
