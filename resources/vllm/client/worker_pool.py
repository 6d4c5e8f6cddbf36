"""Several client processes, so that Python never starves a GPU: jobs go in lazily, results come out as they are made.

The parent holds the server's lease and hands out endpoints; a worker prepares jobs in threads and
asks the server from one event loop. Nothing starts a server before the first request is ready.
"""

import asyncio
import logging
import multiprocessing as mp
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, Protocol, TypeVar

from resources.errors import EngineError
from resources.vllm.client.client import Client, Patience, Server
from resources.vllm.endpoint import Endpoint, Meter
from resources.vllm.supervisor.probe import BadProbe, NotListening

Job = TypeVar("Job")
Ready = TypeVar("Ready")
Result = TypeVar("Result")
Job_contra = TypeVar("Job_contra", contravariant=True)
Result_co = TypeVar("Result_co", covariant=True)

_log = logging.getLogger(__name__)
_STOP_SECONDS = 10.0
_CORES_PER_PROCESS = 4
"""One core prepares pages and one sends them; the server's own processes have the others."""


class Handler(Protocol[Job_contra, Ready, Result_co]):
    """What a worker does with a job. Made anew in every worker; `close` is called at its end."""

    def prepare(self, job: Job_contra) -> Ready:
        """The work before the first request; runs in one of the worker's threads. `EngineError` ends the run."""
        ...

    async def finish(self, ready: Ready, client: Client) -> Result_co:
        """Ask what is to be asked. Requests of one job share a flow."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Crew(Generic[Job, Ready, Result]):
    """`slots` requests are under way in all workers together; one process means a thread of this one.

    `make` is called in each worker and must be picklable, as jobs and results must be. `lost` gives
    the result of a job that could not be done, with the reason. `told` gets the server's own figures
    of the run at its end, unless no request was made.
    """

    server: Server
    make: Callable[[], Handler[Job, Ready, Result]]
    lost: Callable[[Job, str], Result]
    slots: int
    patience: Patience
    processes: int = 0
    threads: int = 2
    told: Callable[[dict[str, float | str]], None] = lambda figures: None

    def run(self, jobs: Iterable[Job]) -> Iterator[Result]:
        """One result for each job, in order of completion. Raises `EngineError` when there is no server to be had."""
        processes = self.processes or max(1, (os.cpu_count() or 1) // _CORES_PER_PROCESS)
        settings = _Settings(-(-self.slots // processes), self.patience, self.threads)
        start = partial(_start, self.make, settings, in_process=processes == 1)
        with ExitStack() as lease:
            run = _Run(self.server, lease, iter(jobs), self.lost, start)
            try:
                yield from run.results(processes)
                self.told(run.figures())
            finally:
                run.stop()


@dataclass(frozen=True, slots=True)
class _Settings:
    slots: int
    patience: Patience
    threads: int


class _Worker:
    """A worker as the parent sees it."""

    def __init__(self, connection: Connection, runner: threading.Thread | BaseProcess) -> None:
        self.connection = connection
        self.runner = runner
        self.jobs: set[int] = set()
        self.alone = False
        """Whether its one job is a suspect."""

    def send(self, message: tuple[Any, ...]) -> None:
        """A worker that died is noticed when its end of the pipe is read."""
        try:
            self.connection.send(message)
        except OSError:
            return

    def stop(self) -> None:
        self.connection.close()
        self.runner.join(_STOP_SECONDS)
        if isinstance(self.runner, BaseProcess) and self.runner.is_alive():
            self.runner.kill()
            self.runner.join()


class _Run(Generic[Job, Result]):
    """One run of a crew, on the parent's side."""

    def __init__(
        self,
        server: Server,
        held: ExitStack,
        jobs: Iterator[Job],
        lost: Callable[[Job, str], Result],
        start: Callable[[], _Worker],
    ) -> None:
        self._server, self._held, self._lost, self._start = server, held, lost, start
        self._jobs = enumerate(jobs)
        self._workers: list[_Worker] = []
        self._under_way: dict[int, Job] = {}
        self._suspects: deque[int] = deque()
        self._exhausted = False
        self._generation = 0
        self._endpoint: Endpoint | None = None
        self._meter: Meter | None = None
        self._replacements = 0

    def results(self, processes: int) -> Iterator[Result]:
        first = next(self._jobs, None)
        if first is None:
            return
        self._jobs = chain([first], self._jobs)
        self._workers = [self._start() for _ in range(processes)]
        self._replacements = 2 * processes
        idle: deque[_Worker] = deque()
        while True:
            idle = deque(worker for worker in idle if not self._give(worker))
            if self._exhausted and not self._under_way:
                return
            for ready in wait([worker.connection for worker in self._workers]):
                worker = next(worker for worker in self._workers if worker.connection is ready)
                try:
                    kind, *content = worker.connection.recv()
                except (EOFError, OSError):
                    yield from self._buried(worker)
                    idle = deque(other for other in idle if other is not worker)
                    continue
                if kind == "want":
                    idle.append(worker)
                elif kind == "renew":
                    self._renew(*content)
                elif kind == "doubt":
                    self._heal(*content)
                elif kind == "broken":
                    raise EngineError(content[0])
                else:
                    number, result = content
                    worker.jobs.discard(number)
                    worker.alone = False
                    job = self._under_way.pop(number)
                    yield self._lost(job, result) if kind == "lost" else result

    def figures(self) -> dict[str, float | str]:
        return {} if self._endpoint is None or self._meter is None else self._meter.report(self._endpoint)

    def stop(self) -> None:
        for worker in self._workers:
            worker.stop()

    def _give(self, worker: _Worker) -> bool:
        """Give a worker its next job, if there is one for it.

        A job that was in a worker when it died is done next to no other, so that a second death tells which one kills.
        """
        if worker.alone:
            return False
        if self._suspects and not worker.jobs:
            number = self._suspects.popleft()
            worker.alone = True
        else:
            found = None if self._exhausted else next(self._jobs, None)
            if found is None:
                self._exhausted = True
                return False
            number, self._under_way[number] = found
        worker.jobs.add(number)
        worker.send(("job", number, self._under_way[number]))
        return True

    def _renew(self, generation: int, reason: str) -> None:
        """Get the endpoint that follows `generation`; one that several workers ask for is got once."""
        if generation < self._generation:
            return
        if self._endpoint is None:
            self._endpoint = self._held.enter_context(self._server.lease())
            try:
                self._meter = Meter(self._endpoint)
            except (NotListening, BadProbe, TimeoutError) as error:
                # It has no figures, or died since: the requests will tell.
                _log.warning("the server's figures are not available: %s", error)
        else:
            _log.warning("another server is asked for: %s", reason)
            self._endpoint = self._server.restart(self._endpoint)
        self._announce()

    def _heal(self, generation: int, url: str, reason: str) -> None:
        """Have one replica looked after. One that came back at another URL makes another endpoint."""
        if generation < self._generation or self._endpoint is None:
            return
        before = self._endpoint
        self._endpoint = self._server.heal(before, url, reason)
        if self._endpoint.targets != before.targets:
            self._announce()

    def _announce(self) -> None:
        self._generation += 1
        for each in self._workers:
            each.send(("endpoint", self._generation, self._endpoint))

    def _buried(self, worker: _Worker) -> Iterator[Result]:
        """Replace a worker that died; its jobs go to the others, except those that keep killing."""
        self._workers.remove(worker)
        worker.stop()
        if not self._replacements:
            raise EngineError("the client processes keep dying: look for the out-of-memory killer in the system's log")
        self._replacements -= 1
        self._workers.append(self._start())
        if self._endpoint is not None:
            self._workers[-1].send(("endpoint", self._generation, self._endpoint))
        if worker.alone:
            job = self._under_way.pop(worker.jobs.pop())
            yield self._lost(job, "a client process died while it worked on nothing else")
        self._suspects.extend(sorted(worker.jobs))


def _start(make: Callable[[], Handler[Any, Any, Any]], settings: _Settings, in_process: bool) -> _Worker:
    context = mp.get_context("spawn")
    ours, theirs = context.Pipe()
    arguments = (theirs, make, settings)
    if in_process:
        runner: threading.Thread | BaseProcess = threading.Thread(target=_work, args=arguments, daemon=True)
        runner.start()
    else:
        runner = context.Process(target=_work_alone, args=arguments, daemon=True)
        runner.start()
        # Only the worker holds its end now, so that its death closes the pipe.
        theirs.close()
    return _Worker(ours, runner)


def _work_alone(connection: Connection, make: Callable[[], Handler[Any, Any, Any]], settings: _Settings) -> None:
    """A worker process: its threads are the parallelism, so OpenCV and PyTorch get none of their own."""
    import signal

    import cv2

    os.environ["OMP_NUM_THREADS"] = "1"  # read when PyTorch is imported, which is later if at all
    # Ctrl-C reaches the whole group; the parent decides, and closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cv2.setNumThreads(1)
    _work(connection, make, settings)


def _work(connection: Connection, make: Callable[[], Handler[Any, Any, Any]], settings: _Settings) -> None:
    with connection, ThreadPoolExecutor(1, "outbox") as outbox:
        desk = _Desk(connection, outbox, settings)
        try:
            handler = make()
            try:
                asyncio.run(desk.run(handler))
            finally:
                handler.close()
        except EngineError as error:
            desk.send("broken", str(error))
        except Exception as error:
            desk.send("broken", f"a client process failed ({type(error).__name__}: {error}); this is a bug in it")


class _Desk:
    """The worker's side of the pipe, and its event loop. It is the `Link` of its client."""

    def __init__(self, connection: Connection, outbox: ThreadPoolExecutor, settings: _Settings) -> None:
        self._connection, self._outbox, self._settings = connection, outbox, settings
        self._generation = 0
        self._endpoint: Endpoint | None = None
        self._renewing = -1
        self._failure: asyncio.Future[None]
        self._jobs: asyncio.Queue[tuple[int, Any]]
        self._room: asyncio.Condition
        self._news: asyncio.Condition

    def send(self, *message: Any) -> None:
        self._outbox.submit(self._send, message)

    def _send(self, message: tuple[Any, ...]) -> None:
        """A parent that is gone needs no message; the reader ends the worker then."""
        try:
            self._connection.send(message)
        except OSError:
            return
        except Exception as error:
            reason = f"a result cannot be handed over ({type(error).__name__}: {error}); this is a bug in its handler"
            self._connection.send(("broken", reason))

    async def run(self, handler: Handler[Any, Any, Any]) -> None:
        """Work until the parent closes the pipe. Raises what ends all work."""
        loop = asyncio.get_running_loop()
        self._jobs = asyncio.Queue()
        self._news = asyncio.Condition()
        self._failure = loop.create_future()
        closed = asyncio.Event()
        threading.Thread(target=self._listen, args=(loop, closed), daemon=True).start()
        with ThreadPoolExecutor(self._settings.threads, "prepare") as threads:
            loop.set_default_executor(threads)
            async with Client(self, self._settings.slots, self._settings.patience) as client:
                finishing: set[asyncio.Task[None]] = set()
                feeders = [
                    asyncio.create_task(self._feed(handler, client, finishing)) for _ in range(self._settings.threads)
                ]
                ending = asyncio.create_task(closed.wait())
                await asyncio.wait({ending, self._failure, *feeders}, return_when=asyncio.FIRST_COMPLETED)
                for task in (*feeders, *finishing, ending):
                    task.cancel()
                await asyncio.gather(*feeders, *finishing, return_exceptions=True)
        for task in (self._failure, *feeders):
            if task.done() and not task.cancelled():
                task.result()

    async def current(self) -> tuple[int, Endpoint]:
        if self._endpoint is None:
            await self.renew(0, "the first request")
        assert self._endpoint is not None
        return self._generation, self._endpoint

    async def renew(self, generation: int, reason: str) -> None:
        if generation == self._generation and self._renewing < generation:
            self._renewing = generation
            self.send("renew", generation, reason)
        async with self._news:
            await self._news.wait_for(lambda: self._generation > generation)

    def doubt(self, generation: int, url: str, reason: str) -> None:
        self.send("doubt", generation, url, reason)

    def _listen(self, loop: asyncio.AbstractEventLoop, closed: asyncio.Event) -> None:
        """Runs in a thread of its own until the parent closes the pipe."""
        try:
            while True:
                kind, *content = self._connection.recv()
                if kind == "job":
                    loop.call_soon_threadsafe(self._jobs.put_nowait, tuple(content))
                else:
                    asyncio.run_coroutine_threadsafe(self._move(*content), loop)
        except (EOFError, OSError):
            pass
        try:
            loop.call_soon_threadsafe(closed.set)
        except RuntimeError:
            return  # The loop has ended by itself.

    async def _move(self, generation: int, endpoint: Endpoint) -> None:
        async with self._news:
            self._generation, self._endpoint = generation, endpoint
            self._news.notify_all()

    async def _feed(self, handler: Handler[Any, Any, Any], client: Client, finishing: set[asyncio.Task[None]]) -> None:
        """Take a job whenever fewer requests wait for their turn than are under way."""
        loop = asyncio.get_running_loop()
        while True:
            await client.turns.fewer_waiting(self._settings.slots)
            self.send("want")
            number, job = await self._jobs.get()
            try:
                ready = await loop.run_in_executor(None, handler.prepare, job)
            except EngineError:
                raise  # it would be the same for every job
            except Exception as error:
                self.send("lost", number, f"preparing it failed: {type(error).__name__}: {error}")
                continue
            task = asyncio.create_task(self._finish(handler, client, number, ready))
            finishing.add(task)
            task.add_done_callback(finishing.discard)
            # Let it queue its requests before room is looked for again.
            await asyncio.sleep(0)

    async def _finish(self, handler: Handler[Any, Any, Any], client: Client, number: int, ready: Any) -> None:
        try:
            self.send("done", number, await handler.finish(ready, client))
        except EngineError as error:
            if not self._failure.done():
                self._failure.set_exception(error)
        except Exception as error:
            self.send("lost", number, f"{type(error).__name__}: {error}")
