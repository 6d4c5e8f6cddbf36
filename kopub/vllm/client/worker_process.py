"""A worker process of a pool: its messages, its handler, and its loop over jobs."""

import asyncio
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol, TypeVar

from kopub.errors import EngineError
from kopub.processes import keep_blocks
from kopub.states import Reason
from kopub.vllm.client.client import Client, RetryPolicy
from kopub.vllm.endpoint import Endpoint

Job_contra = TypeVar("Job_contra", contravariant=True)
Ready = TypeVar("Ready")
Result_co = TypeVar("Result_co", covariant=True)


class Handler(Protocol[Job_contra, Ready, Result_co]):
    """The preparation and completion of jobs; each worker makes and closes its own."""

    def prepare(self, job: Job_contra) -> Ready:
        """Do the work before the first request, in one of the worker's threads.

        `EngineError` ends the run.
        """
        ...

    async def finish(self, ready: Ready, client: Client) -> Result_co:
        """Send the job's requests, which share a flow of the queue, and return its result."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The settings of a worker: requests in flight, retries, and threads that prepare jobs."""

    slots: int
    retry: RetryPolicy
    threads: int


# --- from the pool to a worker ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Calls for a process to make, if it can, before its `WorkerStart`."""

    calls: tuple[Callable[[], object], ...]


@dataclass(frozen=True, slots=True)
class WorkerStart:
    """The handler and settings that turn a process into a worker."""

    make: Callable[[], Handler[Any, Any, Any]]
    settings: WorkerSettings


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job for the worker; `number` identifies it in the answers."""

    number: int
    job: Any


@dataclass(frozen=True, slots=True)
class NewEndpoint:
    """The endpoint to use from now on; each new one has a higher `generation`."""

    generation: int
    endpoint: Endpoint


# --- from a worker to the pool ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobRequest:
    """The message that the worker has room for one more job."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """The result of a job."""

    number: int
    result: Any


@dataclass(frozen=True, slots=True)
class LostJob:
    """The message that a job could not be done, although the run continues."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class EndpointRequest:
    """A request for an endpoint newer than `generation`."""

    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class UnhealthyReport:
    """The report that the replica at `url` is lost while others of `generation` answer."""

    generation: int
    url: str
    reason: str


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """The message that the run cannot continue; `reason` is one line for a person."""

    reason: str


ToWorker = NewJob | NewEndpoint
FromWorker = JobRequest | JobResult | LostJob | EndpointRequest | UnhealthyReport | WorkerFailure


def main(connection: Connection) -> None:
    """Warm up, then work for the pool until it closes the pipe."""
    # The pool decides when a worker ends, by closing the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The worker's threads decode pages, and each page frees three blocks as large as itself.
    keep_blocks()
    while True:
        try:
            message: WarmUp | WorkerStart = pickle.loads(connection.recv_bytes())
        except (EOFError, OSError):
            break  # the pool has ended
        except Exception as error:
            reason = f"a client process cannot load its handler ({type(error).__name__}: {error})"
            with suppress(OSError):
                connection.send(WorkerFailure(f"{reason}; define it in a module that can be imported, not in a script"))
            break
        if isinstance(message, WorkerStart):
            run_worker(connection, message.make, message.settings)
            break
        for call in message.calls:
            # A job that needs something missing or broken will report it.
            with suppress(Exception):
                call()
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything is closed. Shutting down the interpreter would take 0.7 s with PyTorch, for which the pool would wait.
    os._exit(0)


def run_worker(connection: Connection, make: Callable[[], Handler[Any, Any, Any]], settings: WorkerSettings) -> None:
    """Work until the pool closes the pipe; a failure is sent as the last message."""
    with connection, ThreadPoolExecutor(1, "outbox") as outbox:
        loop = WorkerLoop(connection, outbox, settings)
        try:
            handler = make()
            try:
                asyncio.run(loop.run(handler))
            finally:
                handler.close()
        except EngineError as error:
            loop.send(WorkerFailure(str(error)))
        except Exception as error:
            reason = f"a client process failed ({type(error).__name__}: {error}); this is a bug in it"
            loop.send(WorkerFailure(reason))


class WorkerLoop:
    """The worker's side of the pipe, and the `EndpointSource` of its client."""

    def __init__(self, connection: Connection, outbox: ThreadPoolExecutor, settings: WorkerSettings) -> None:
        self._connection, self._outbox, self._settings = connection, outbox, settings
        self._generation = 0
        self._endpoint: Endpoint | None = None
        self._requested = -1
        """The generation whose successor was requested."""
        self._failure: asyncio.Future[None]
        self._jobs: asyncio.Queue[NewJob]
        self._moved: asyncio.Condition

    def send(self, message: FromWorker) -> None:
        """Send a message to the pool, in the thread that writes to the pipe."""
        self._outbox.submit(self._send, message)

    def _send(self, message: FromWorker) -> None:
        try:
            self._connection.send(message)
        except OSError:
            return  # the pool has ended, so the listener will end the worker
        except Exception as error:
            reason = f"a result cannot be handed over ({type(error).__name__}: {error}); this is a bug in its handler"
            self._connection.send(WorkerFailure(reason))

    async def run(self, handler: Handler[Any, Any, Any]) -> None:
        """Work until the pool closes the pipe. Raises any error that ends all work."""
        loop = asyncio.get_running_loop()
        self._jobs = asyncio.Queue()
        self._moved = asyncio.Condition()
        self._failure = loop.create_future()
        closed = asyncio.Event()
        threading.Thread(target=self._listen, args=(loop, closed), daemon=True).start()
        with ThreadPoolExecutor(self._settings.threads, "prepare") as threads:
            loop.set_default_executor(threads)
            async with Client(self, self._settings.slots, self._settings.retry) as client:
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
        if generation == self._generation and self._requested < generation:
            self._requested = generation
            self.send(EndpointRequest(generation, reason))
        async with self._moved:
            await self._moved.wait_for(lambda: self._generation > generation)

    def report_unhealthy(self, generation: int, url: str, reason: str) -> None:
        self.send(UnhealthyReport(generation, url, reason))

    def _listen(self, loop: asyncio.AbstractEventLoop, closed: asyncio.Event) -> None:
        """Read messages in a separate thread until the pool closes the pipe."""
        try:
            while True:
                message: ToWorker = self._connection.recv()
                if isinstance(message, NewJob):
                    loop.call_soon_threadsafe(self._jobs.put_nowait, message)
                else:
                    asyncio.run_coroutine_threadsafe(self._move(message), loop)
        except (EOFError, OSError):
            pass
        except Exception as error:
            if self._connection.closed:
                return  # this worker has ended, and closed the pipe during the read
            reason = f"a job cannot be loaded ({type(error).__name__}: {error}); this is a bug in its handler"
            self.send(WorkerFailure(reason))
            return
        try:
            loop.call_soon_threadsafe(closed.set)
        except RuntimeError:
            return  # the loop has already ended

    async def _move(self, message: NewEndpoint) -> None:
        async with self._moved:
            self._generation, self._endpoint = message.generation, message.endpoint
            self._moved.notify_all()

    async def _feed(self, handler: Handler[Any, Any, Any], client: Client, finishing: set[asyncio.Task[None]]) -> None:
        """Take a job whenever fewer requests wait than there are slots."""
        loop = asyncio.get_running_loop()
        while True:
            await client.queue.wait_below(self._settings.slots)
            self.send(JobRequest())
            job = await self._jobs.get()
            try:
                ready = await loop.run_in_executor(None, handler.prepare, job.job)
            except EngineError:
                raise  # every job would fail in the same way
            except Exception as error:
                reason = Reason("preparing it failed: {error}", error=f"{type(error).__name__}: {error}")
                self.send(LostJob(job.number, reason))
                continue
            task = asyncio.create_task(self._finish(handler, client, job.number, ready))
            finishing.add(task)
            task.add_done_callback(finishing.discard)
            # The task must queue its requests before the queue is measured again.
            await asyncio.sleep(0)

    async def _finish(self, handler: Handler[Any, Any, Any], client: Client, number: int, ready: Any) -> None:
        try:
            self.send(JobResult(number, await handler.finish(ready, client)))
        except EngineError as error:
            if not self._failure.done():
                self._failure.set_exception(error)
        except Exception as error:
            self.send(LostJob(number, f"{type(error).__name__}: {error}"))
