"""The start and the end of a worker process."""

import os
import pickle
import signal
import sys
from contextlib import suppress
from multiprocessing.connection import Connection

from resources.freed_memory import keep_blocks
from resources.vllm.client.messages import Start, WarmUp, WorkerFailed
from resources.vllm.client.worker_loop import run_worker


def main(connection: Connection) -> None:
    """Warm up, then work for the pool at the other end of the pipe until it closes the pipe."""
    # The pool decides when a worker ends, and closes the pipe then.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Its threads decode pages: each frees three blocks as large as one.
    keep_blocks()
    start = _started(connection)
    if start is not None:
        run_worker(connection, start.make, start.settings)
    sys.stdout.flush()
    sys.stderr.flush()
    # All is closed. To take the interpreter down as well takes 0.7 s where PyTorch is imported, and the pool waits.
    os._exit(0)


def _started(connection: Connection) -> Start | None:
    """The `Start`, once it comes; None where none can come any more."""
    while True:
        try:
            message: WarmUp | Start = pickle.loads(connection.recv_bytes())
        except (EOFError, OSError):
            return None  # the pool has ended meanwhile
        except Exception as error:
            reason = f"a client process cannot load its handler ({type(error).__name__}: {error})"
            with suppress(OSError):
                connection.send(WorkerFailed(f"{reason}; define it in a module that can be imported, not in a script"))
            return None
        if isinstance(message, Start):
            return message
        for call in message.calls:
            # What is missing or broken is told by the job that needs it.
            with suppress(Exception):
                call()
