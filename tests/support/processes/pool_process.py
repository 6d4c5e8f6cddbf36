"""A process with a pool of endless jobs, for tests that interrupt or kill it."""

import asyncio
import atexit
import itertools
import os
import sys
import time
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from kopub.vllm.client.client import Client, RetryPolicy
from kopub.vllm.client.worker_pool import WorkerPool
from kopub.vllm.endpoint import Endpoint

COMMAND = "import sys; from tests.support.processes.pool_process import main; main(sys.argv[1])"


class Endless:
    """A handler that writes a file when a job begins, and never finishes a job."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def prepare(self, job: int) -> int:
        return job

    async def finish(self, ready: int, client: Client) -> int:
        async with client.queue.slot(ready, 1.0):
            (self._folder / str(ready)).touch()
            await asyncio.sleep(3600)
        return ready

    def close(self) -> None:
        (self._folder / "closed").touch()


class ProcessNamer:
    """A handler that returns its process id, and whether `sqlite3` was imported before any job."""

    def __init__(self) -> None:
        self._imported = "sqlite3" in sys.modules

    def prepare(self, job: int) -> int:
        return job

    async def finish(self, ready: int, client: Client) -> tuple[int, bool]:
        return os.getpid(), self._imported

    def close(self) -> None:
        """Do nothing, since nothing is open."""


class SlowToClose(ProcessNamer):
    def close(self) -> None:
        time.sleep(1.0)


def slow_to_exit() -> None:
    """Make the interpreter of this process wait a minute at its exit."""
    atexit.register(time.sleep, 60)


class NoServer:
    """A `ModelServer` that is never used."""

    def lease(self) -> AbstractContextManager[Endpoint]:
        raise NotImplementedError

    def restart(self, endpoint: Endpoint) -> Endpoint:
        raise NotImplementedError

    def restart_replica(self, endpoint: Endpoint, url: str, reason: str) -> Endpoint:
        raise NotImplementedError


def main(folder: str) -> None:
    make = partial(Endless, Path(folder))
    pool = WorkerPool(NoServer(), make, lambda job, reason: job, 4, RetryPolicy(), processes=2)
    try:
        list(pool.run(itertools.count()))
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
