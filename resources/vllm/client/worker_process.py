"""The start of a worker process."""

import pickle
import signal
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection

from resources.vllm.client.messages import Start, WorkerFailed
from resources.vllm.client.worker_loop import run_worker


def main(descriptor: int, names: str) -> None:
    """Import the modules of `names`, then work for the pool at the other end of the pipe until it closes the pipe."""
    # The pool decides when a worker ends, and closes the pipe then.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = Connection(descriptor)
    for name in filter(None, names.split(",")):
        # What is missing is told by the page that needs it.
        with suppress(ImportError):
            import_module(name)
    try:
        message = connection.recv_bytes()
    except (EOFError, OSError):
        return  # the pool has ended meanwhile
    try:
        start: Start = pickle.loads(message)
    except Exception as error:
        reason = f"a client process cannot load its handler ({type(error).__name__}: {error})"
        with suppress(OSError):
            connection.send(WorkerFailed(f"{reason}; define it in a module that can be imported, not in a script"))
        return
    run_worker(connection, start.make, start.settings)
