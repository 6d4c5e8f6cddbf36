"""What a worker of the pool does with a job."""

from typing import Protocol, TypeVar

from resources.vllm.client.client import Client

Job_contra = TypeVar("Job_contra", contravariant=True)
Ready = TypeVar("Ready")
Result_co = TypeVar("Result_co", covariant=True)


class Handler(Protocol[Job_contra, Ready, Result_co]):
    """Prepares jobs and finishes them with requests. Each worker makes its own and closes it at its end."""

    def prepare(self, job: Job_contra) -> Ready:
        """The work before the first request; runs in one of the worker's threads. `EngineError` ends the run."""
        ...

    async def finish(self, ready: Ready, client: Client) -> Result_co:
        """Send the job's requests and return its result. All requests of one job share a flow of the queue."""
        ...

    def close(self) -> None: ...
