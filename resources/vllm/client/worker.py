"""A worker as the pool sees it: its pipe, its jobs, and the thread or process that it runs in."""

import os
import subprocess
import threading
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from resources.child_process import STOP_SECONDS, end_child, start_child
from resources.vllm.client.handler import Handler
from resources.vllm.client.messages import FromWorker, NewJob, Start, ToWorker, WarmUp, WorkerSettings
from resources.vllm.client.worker_loop import run_worker

Make = Callable[[], Handler[Any, Any, Any]]

_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENCV_FOR_THREADS_NUM": "1"}
"""A worker's own threads are the parallelism, so numerical libraries get none of their own."""


class Worker:
    """`jobs` are the numbers of the jobs that the worker has."""

    def __init__(self, connection: Connection, runner: "threading.Thread | subprocess.Popen[bytes]") -> None:
        self.connection = connection
        self.jobs: set[int] = set()
        self.isolated = False
        """Whether its one job may have killed a worker, so that it gets no other beside it."""
        self._runner = runner

    def receive(self) -> FromWorker:
        """The next message. Raises `EOFError` or `OSError` when the worker has ended."""
        return self.connection.recv()

    def send(self, message: WarmUp | Start | ToWorker) -> None:
        """Send a message. A worker that died is noticed when its end of the pipe is read."""
        try:
            self.connection.send(message)
        except OSError:
            return

    def give(self, number: int, job: Any) -> None:
        self.jobs.add(number)
        self.send(NewJob(number, job))

    def close(self) -> None:
        """Close the pipe, which ends the worker after what its threads are at."""
        self.connection.close()

    def end(self) -> None:
        """End a process that has no work, whatever it imports."""
        if not isinstance(self._runner, threading.Thread):
            self._runner.terminate()
        self.close()

    def join(self) -> None:
        """Wait until a closed worker has ended; kill a process that takes too long."""
        if isinstance(self._runner, threading.Thread):
            self._runner.join(STOP_SECONDS)
            return
        end_child(self._runner)


def start_thread(make: Make, settings: WorkerSettings) -> Worker:
    """A worker in a thread of this process."""
    ours, theirs = Pipe()
    thread = threading.Thread(target=run_worker, args=(theirs, make, settings), daemon=True)
    thread.start()
    return Worker(ours, thread)


def start_process(make: Make, settings: WorkerSettings, spares: list[Worker]) -> Worker:
    """A worker in a process of its own: one of the `spares`, or a new one."""
    worker = spares.pop() if spares else boot_process()
    worker.send(Start(make, settings))
    return worker


def boot_process() -> Worker:
    """A process that waits for its `Start`, and for what it may do before. It ends when its pipe is closed.

    It is in a process group of its own, so Ctrl-C reaches the pool alone, which ends it.
    """
    environment = {**os.environ, **_ONE_THREAD}
    return Worker(*start_child("resources.vllm.client.worker_process:main", group=0, environment=environment))
