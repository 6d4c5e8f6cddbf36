"""The base of engines whose model runs on a server."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, ClassVar, TypeVar

from pydantic import Field, PrivateAttr

from kopub.engine import Engine, require_installed
from kopub.vllm.client.client import RetryPolicy
from kopub.vllm.client.requests import JobFigures
from kopub.vllm.client.worker_pool import Worker, WorkerPool, boot_process, process_count
from kopub.vllm.client.worker_process import Handler, WarmUp
from kopub.vllm.server import VLLMServer

Job = TypeVar("Job")
Made = TypeVar("Made")

_IN_FLIGHT = 1.5
"""Requests in flight per sequence that the server runs, which decodes and normalises the surplus meanwhile."""


@dataclass(frozen=True, slots=True)
class ModelMemory:
    """The bytes of GPU memory that a model takes.

    They are its weights, and the bytes per token in the KV cache and in a step. `picture` is the part of a picture's
    encoder pass that does not grow with the step. All except the weights are estimates.
    """

    weights: int
    cached_token: int
    step_token: int
    picture: int = 0


class ServedEngine(Engine):
    """An engine whose model is on a `VLLMServer`, used from several client processes."""

    speed_only: ClassVar[frozenset[str]] = frozenset(
        {"server", "processes", "threads", "in_flight", "request_seconds", "retry_seconds"}
    )

    spans_shards: ClassVar[bool] = True

    needs_server: ClassVar[bool] = True

    server: VLLMServer = Field(description="The server that the model runs on.")
    processes: int = Field(default=0, ge=0, description="Client processes; 0: one for every four cores, 1: a thread.")
    threads: int = Field(default=2, ge=1, description="Pages prepared at once in each client process.")
    in_flight: int = Field(
        default=0,
        ge=0,
        description="Requests in flight for each GPU, or each external server; 0: from the server's max_num_seqs.",
    )
    request_seconds: float = Field(default=600.0, gt=0, description="Longest wait for the answer to one request.")
    retry_seconds: float = Field(default=0.5, ge=0, description="First wait before a request is sent again.")

    model_memory: ClassVar[ModelMemory | None] = None
    """The GPU memory that the usual model of this engine takes, or None if unknown."""

    large_memory: ClassVar[ModelMemory | None] = None
    """The GPU memory of its model of 8 billion parameters, if it has one."""

    worker_modules: ClassVar[tuple[str, ...]] = ()
    """Modules that a client process imports while it is idle, so that no page waits for them."""

    _spares: list[Worker] = PrivateAttr(default_factory=list)
    _leaving: list[threading.Thread] = PrivateAttr(default_factory=list)
    _pool: "WorkerPool[Any, Any, Any] | None" = PrivateAttr(default=None)
    _figures: JobFigures = PrivateAttr(default_factory=lambda: defaultdict(float))

    def prepare(self) -> None:
        self.prepare_workers(self.worker_modules)

    def prepare_workers(self, modules: Sequence[str], *calls: Callable[[], object]) -> None:
        """Request the server, and client processes that warm up with `modules` and `calls`."""
        self.server.prepare()
        self.boot_workers(modules, *calls)

    def boot_workers(self, modules: Sequence[str], *calls: Callable[[], object]) -> None:
        """Start client processes that warm up with `modules` and `calls`, without waiting."""
        count = process_count(self.processes)
        if count > 1:
            with suppress(OSError):  # the pool reports the error
                self._spares += [boot_process() for _ in range(count - len(self._spares))]
            warm_up = WarmUp((*(partial(import_module, name) for name in modules), *calls))
            for spare in self._spares:
                spare.send(warm_up)

    @property
    def start_seconds(self) -> float:
        return self.server.start_seconds

    def not_installed(self) -> list[str]:
        missing = self.server.mode == "managed" and self.server.find_program() is None
        return [self.server.command[0]] if missing else []

    def release(self) -> None:
        """End client processes that were started in vain."""
        spares = self._spares[:]
        self._spares.clear()
        for spare in spares:
            spare.end()
        for spare in spares:
            spare.join()

    def teardown(self) -> None:
        super().teardown()
        for thread in self._leaving:
            thread.join()
        self.server.teardown()

    @property
    def gpus(self) -> int:
        return self.server.gpus_held

    @property
    def serves_beside_others(self) -> bool:
        return self.server.share_gpu or self.server.mode == "external"

    @property
    def cards(self) -> tuple[str, ...]:
        return self.server.cards

    def weights(self) -> dict[str, str]:
        return self.server.recipe_parts()

    @property
    def memory(self) -> ModelMemory | None:
        """The model's GPU memory, or None if unknown."""
        return self.large_memory if self.large_memory and "8B" in self.server.model else self.model_memory

    def take_figures(self) -> JobFigures:
        """Return the sums of the handlers' figures over the results since the last call."""
        figures, self._figures = self._figures, defaultdict(float)
        return figures

    def report(self) -> dict[str, float | str]:
        """Return the figures of `take_figures`, and the server's own since the last report."""
        return {**self._figures, **(self._pool.metrics() if self._pool else {})}

    def run_jobs(
        self,
        jobs: Iterable[Job],
        make: Callable[[], Handler[Job, Any, tuple[Made, JobFigures]]],
        lost: Callable[[Job, str], Made],
    ) -> Iterator[Made]:
        """Run jobs in a `WorkerPool` and yield their results, in order of completion."""
        require_installed([self])
        self._figures.clear()
        self._pool = pool = WorkerPool(
            server=self.server,
            make=make,
            lost=lambda job, reason: (lost(job, reason), defaultdict(float)),
            slots=self.slots,
            retry=RetryPolicy(self.request_seconds, wait=self.retry_seconds),
            processes=self.processes,
            threads=self.threads,
            spares=self._spares,
            leaving=self._leaving,
        )
        for result, figures in pool.run(jobs):
            self.count(figures)
            yield result

    def run_further(self, job: Any) -> None:
        """Add a job that follows from a result of the present `run_jobs`."""
        assert self._pool is not None
        self._pool.add(job)

    def count(self, figures: Mapping[str, float]) -> None:
        """Add to the figures of the next result."""
        for name, value in figures.items():
            self._figures[name] += value

    @property
    def slots(self) -> int:
        """Number of requests in flight at once, over all GPUs of the server."""
        if self.in_flight:
            return self.in_flight * max(1, self.server.gpus_held)
        return round(_IN_FLIGHT * self.server.max_num_seqs * self.server.replica_count)
