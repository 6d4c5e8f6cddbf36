"""A pool of client processes, so that Python never starves a GPU.

Jobs are taken lazily, and results are yielded as they are made. The pool holds the server's lease and gives endpoints
to its workers; a worker prepares jobs in threads and sends requests from one event loop. No server is started before
the first request is ready.
"""

import logging
import os
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from kopub.errors import EngineError
from kopub.parallel import usable_cores
from kopub.processes import STOP_SECONDS, end_child, start_child
from kopub.vllm.client.client import ModelServer, RetryPolicy
from kopub.vllm.client.worker_process import (
    EndpointRequest,
    FromWorker,
    Handler,
    JobRequest,
    JobResult,
    LostJob,
    NewEndpoint,
    NewJob,
    ToWorker,
    UnhealthyReport,
    WarmUp,
    WorkerFailure,
    WorkerSettings,
    WorkerStart,
    run_worker,
)
from kopub.vllm.endpoint import BadProbe, Endpoint, Meter, UnreachableServer

_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENCV_FOR_THREADS_NUM": "1"}
"""The environment that gives numerical libraries no threads, because a worker's own threads are the parallelism."""


class Worker:
    """A worker as the pool sees it; `jobs` are the numbers of its present jobs."""

    def __init__(self, connection: Connection, runner: "threading.Thread | subprocess.Popen[bytes]") -> None:
        self.connection = connection
        self.jobs: set[int] = set()
        self.isolated = False
        """Whether its only job may have killed a worker before, so that it gets no second job."""
        self._runner = runner

    def send(self, message: WarmUp | WorkerStart | ToWorker) -> None:
        """Send a message; a dead worker is noticed only when its pipe is read."""
        try:
            self.connection.send(message)
        except OSError:
            return

    def close(self) -> None:
        """Close the pipe, which ends the worker once its threads finish their present work."""
        self.connection.close()

    def end(self) -> None:
        """End a process that has no work, even while it is importing."""
        if not isinstance(self._runner, threading.Thread):
            self._runner.terminate()
        self.close()

    def join(self) -> None:
        """Wait until a closed worker ends, and kill a process that takes too long."""
        if isinstance(self._runner, threading.Thread):
            self._runner.join(STOP_SECONDS)
            return
        end_child(self._runner)


def start_process(make: Callable[[], Handler[Any, Any, Any]], settings: WorkerSettings, spares: list[Worker]) -> Worker:
    """Start a worker in a process: one of the `spares`, or a new one."""
    worker = spares.pop() if spares else boot_process()
    worker.send(WorkerStart(make, settings))
    return worker


def boot_process() -> Worker:
    """Start a process that waits for its `WorkerStart`, and for any `WarmUp` before.

    It ends when its pipe is closed. It has its own process group, so that Ctrl-C reaches only the pool, which ends it.
    """
    environment = {**os.environ, **_ONE_THREAD}
    return Worker(*start_child("kopub.vllm.client.worker_process:main", group=0, environment=environment))


Job = TypeVar("Job")
Ready = TypeVar("Ready")
Result = TypeVar("Result")

_log = logging.getLogger(__name__)
_CORES_PER_PROCESS = 4
"""Cores per client process: one prepares pages, one sends them, and the server's own processes use the others."""
_DEATHS_PER_PROCESS = 2
_JOBS_PER_DEATH = 100
"""Finished jobs per tolerated death: a run of a thousand jobs survives ten deaths, one without progress soon ends."""


def process_count(configured: int) -> int:
    """Return the number of client processes: as `configured`, or one for every four cores."""
    return configured or max(1, usable_cores() // _CORES_PER_PROCESS)


@dataclass
class WorkerPool(Generic[Job, Ready, Result]):
    """Workers that together have `slots` requests in flight.

    With `processes` 1, the worker is a thread of this process. `make` makes the handler in each worker; it must be
    picklable and importable, like jobs and results. `lost` makes the result of a job that could not be done, from the
    reason. `spares` are processes that already run and are used first. The pool has one run at a time. After the last
    result of a run, its processes end on their own: the threads in `leaving` wait for them, and this process waits for
    the threads.
    """

    server: ModelServer
    make: Callable[[], Handler[Job, Ready, Result]]
    lost: Callable[[Job, str], Result]
    slots: int
    retry: RetryPolicy
    processes: int = 0
    threads: int = 2
    spares: list[Worker] = field(default_factory=list)
    leaving: list[threading.Thread] = field(default_factory=list)
    _run: "PoolRun[Job, Result] | None" = field(default=None, init=False)
    _metrics: dict[str, float | str] = field(default_factory=dict, init=False)

    def run(self, jobs: Iterable[Job]) -> Iterator[Result]:
        """Yield one result for each job, in order of completion.

        Raises `EngineError` if no server is available. `jobs` may be endless, because they are taken only when workers
        have room for them. The consumer of a result may `add` a job that follows from it.
        """
        processes = process_count(self.processes)
        settings = WorkerSettings(-(-self.slots // processes), self.retry, self.threads)

        def start() -> Worker:
            if processes > 1:
                return start_process(self.make, settings, self.spares)
            ours, theirs = Pipe()
            thread = threading.Thread(target=run_worker, args=(theirs, self.make, settings), daemon=True)
            thread.start()
            return Worker(ours, thread)

        with ExitStack() as lease:
            run = self._run = PoolRun(self.server, lease, iter(jobs), self.lost, start)
            finished = False
            try:
                yield from run.results(processes)
                self.metrics()
                finished = True
            finally:
                self._run = None
                leaving = run.stop()
                if finished:
                    self.leaving[:] = [*(thread for thread in self.leaving if thread.is_alive()), leaving]
                else:
                    leaving.join()

    def add(self, job: Job) -> None:
        """Add a job to the present run, ahead of those not taken yet."""
        assert self._run is not None
        self._run.add(job)

    def metrics(self) -> dict[str, float | str]:
        """Return the server's figures since the last call or, after a run, the last ones."""
        if self._run is not None:
            self._metrics = self._run.metrics()
        return self._metrics


class PoolRun(Generic[Job, Result]):
    """One run of a pool: its workers, their jobs, and the endpoint they use."""

    def __init__(
        self,
        server: ModelServer,
        lease: ExitStack,
        jobs: Iterator[Job],
        lost: Callable[[Job, str], Result],
        start: Callable[[], Worker],
    ) -> None:
        self._server, self._lease, self._lost, self._start = server, lease, lost, start
        self._numbers = count()
        self._jobs = zip(self._numbers, jobs, strict=False)
        self._added: deque[tuple[int, Job]] = deque()
        self._workers: list[Worker] = []
        self._in_flight: dict[int, Job] = {}
        self._suspects: deque[int] = deque()
        """Jobs that were in a worker when it died."""
        self._exhausted = False
        self._generation = 0
        self._endpoint: Endpoint | None = None
        self._meter: Meter | None = None
        self._processes = self._deaths = self._done = 0

    def results(self, processes: int) -> Iterator[Result]:
        """Start the workers with the first job, and yield results until none is left."""
        first = next(self._jobs, None)
        if first is None:
            return
        self._added.append(first)
        self._processes = processes
        for _ in range(processes):
            self._workers.append(self._start())
        idle: list[Worker] = []
        while True:
            idle = [worker for worker in idle if not self._give_job(worker)]
            if self._exhausted and not self._in_flight and not self._added:
                return
            workers: dict[Any, Worker] = {worker.connection: worker for worker in self._workers}
            for connection in wait(list(workers)):
                worker = workers[connection]
                try:
                    message: FromWorker = worker.connection.recv()
                except (EOFError, OSError):
                    yield from self._replace_dead_worker(worker)
                    idle = [other for other in idle if other is not worker]
                    continue
                match message:
                    case JobRequest():
                        idle.append(worker)
                    case JobResult(number, result):
                        self._take_job_from(worker, number)
                        yield result
                    case LostJob(number, reason):
                        yield self._lost(self._take_job_from(worker, number), reason)
                    case EndpointRequest(generation, reason):
                        self._renew_endpoint(generation, reason)
                    case UnhealthyReport(generation, url, reason):
                        self._restart_replica(generation, url, reason)
                    case WorkerFailure(reason):
                        raise EngineError(reason)

    def add(self, job: Job) -> None:
        """Add a job ahead of those not taken yet."""
        self._added.append((next(self._numbers), job))

    def metrics(self) -> dict[str, float | str]:
        """Return the server's figures since the last call; none before the first request."""
        return {} if self._endpoint is None or self._meter is None else self._meter.report(self._endpoint)

    def stop(self) -> threading.Thread:
        """End all workers; return a thread that waits for them, for at least 0.1 s."""
        for worker in self._workers:
            worker.close()
        waiting = threading.Thread(target=self._join, name="leaving")
        waiting.start()
        return waiting

    def _join(self) -> None:
        for worker in self._workers:
            worker.join()

    def _give_job(self, worker: Worker) -> bool:
        """Give a worker its next job, if there is one for it.

        A job that was in a worker when it died is done alone, so that a second death shows which job kills.
        """
        if worker.isolated:
            return False
        if self._suspects and not worker.jobs:
            number = self._suspects.popleft()
            worker.isolated = True
        elif self._added:
            number, self._in_flight[number] = self._added.popleft()
        else:
            job = None if self._exhausted else next(self._jobs, None)
            self._exhausted = job is None
            if job is None:
                return False
            number, self._in_flight[number] = job
        worker.jobs.add(number)
        worker.send(NewJob(number, self._in_flight[number]))
        return True

    def _take_job_from(self, worker: Worker, number: int) -> Job:
        worker.jobs.discard(number)
        worker.isolated = False
        self._done += 1
        return self._in_flight.pop(number)

    def _renew_endpoint(self, generation: int, reason: str) -> None:
        """Get the endpoint that follows `generation`, once for all workers that request it."""
        if generation < self._generation:
            return
        if self._endpoint is None:
            self._endpoint = self._lease.enter_context(self._server.lease())
            try:
                self._meter = Meter(self._endpoint)
            except (UnreachableServer, BadProbe, TimeoutError) as error:
                # The server has no figures, or has died since; the requests will show which.
                _log.warning("the server's figures are not available: %s", error)
        else:
            _log.warning("another server is asked for: %s", reason)
            self._endpoint = self._server.restart(self._endpoint)
        self._announce_endpoint()

    def _restart_replica(self, generation: int, url: str, reason: str) -> None:
        """Request a replica's restart; a new URL of it makes a new endpoint."""
        if generation < self._generation or self._endpoint is None:
            return
        before = self._endpoint
        self._endpoint = self._server.restart_replica(before, url, reason)
        if self._endpoint.targets != before.targets:
            self._announce_endpoint()

    def _announce_endpoint(self) -> None:
        self._generation += 1
        assert self._endpoint is not None
        for worker in self._workers:
            worker.send(NewEndpoint(self._generation, self._endpoint))

    def _replace_dead_worker(self, worker: Worker) -> Iterator[Result]:
        """Replace a dead worker; others get its jobs, unless it had a single suspected one."""
        self._workers.remove(worker)
        worker.close()
        worker.join()
        self._deaths += 1
        if self._deaths > _DEATHS_PER_PROCESS * self._processes + self._done // _JOBS_PER_DEATH:
            raise EngineError("the client processes keep dying: look for the out-of-memory killer in the system's log")
        self._workers.append(self._start())
        if self._endpoint is not None:
            self._workers[-1].send(NewEndpoint(self._generation, self._endpoint))
        if worker.isolated:
            job = self._in_flight.pop(worker.jobs.pop())
            yield self._lost(job, "a client process died while it worked on nothing else")
        self._suspects.extend(sorted(worker.jobs))
