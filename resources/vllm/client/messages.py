"""The work of a client process, and the messages between it and its pool."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from resources.vllm.client.client import Client, RetryPolicy
from resources.vllm.endpoint import Endpoint

Job_contra = TypeVar("Job_contra", contravariant=True)
Ready = TypeVar("Ready")
Result_co = TypeVar("Result_co", covariant=True)


class Handler(Protocol[Job_contra, Ready, Result_co]):
    """Prepares jobs and finishes them with requests.

    Each worker makes its own and closes it at its end.
    """

    def prepare(self, job: Job_contra) -> Ready:
        """Return the work before the first request; runs in one of the worker's threads.

        `EngineError` ends the run.
        """
        ...

    async def finish(self, ready: Ready, client: Client) -> Result_co:
        """Send the job's requests and return its result.

        All requests of one job share a flow of the queue.
        """
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """`slots` requests may be in flight in the worker; `threads` prepare jobs."""

    slots: int
    retry: RetryPolicy
    threads: int


# --- from the pool to a worker ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WarmUp:
    """What a worker process does before its `Start`, so that no job waits for it; a call that fails is left."""

    calls: tuple[Callable[[], object], ...]


@dataclass(frozen=True, slots=True)
class Start:
    """What makes a process a worker."""

    make: Callable[[], Handler[Any, Any, Any]]
    settings: WorkerSettings


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job for the worker; `number` identifies it in the answers."""

    number: int
    job: Any


@dataclass(frozen=True, slots=True)
class NewEndpoint:
    """The endpoint to use from now on. Each new one has a higher `generation`."""

    generation: int
    endpoint: Endpoint


# --- from a worker to the pool ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobRequest:
    """The worker has room for one more job."""


@dataclass(frozen=True, slots=True)
class JobDone:
    """The result of a job."""

    number: int
    result: Any


@dataclass(frozen=True, slots=True)
class JobLost:
    """The job could not be done; the run goes on."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class EndpointRequest:
    """The worker needs an endpoint newer than `generation`."""

    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class UnhealthyReport:
    """The replica at `url` is gone or hangs, while other replicas of `generation` answer."""

    generation: int
    url: str
    reason: str


@dataclass(frozen=True, slots=True)
class WorkerFailed:
    """The run cannot go on; `reason` is one line for a person."""

    reason: str


ToWorker = NewJob | NewEndpoint
FromWorker = JobRequest | JobDone | JobLost | EndpointRequest | UnhealthyReport | WorkerFailed
