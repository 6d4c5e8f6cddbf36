"""The process of the layout model: it loads the model, and runs the batches that lie in shared memory."""

import gc
import os
import signal
import sys
import threading
import traceback
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, cast

from resources.errors import EngineError
from resources.layout.pp_doclayout.model import import_packages, load, named_devices, stopped
from resources.layout.pp_doclayout.model_process import Answer, Batch, Loaded, NotLoaded, Start, parts_of
from resources.layout.pp_doclayout.page_regions import Found
from resources.layout.pp_doclayout.preprocess import Prepared
from resources.printable import first_line

_NOT_NEEDED = ("pandas", "scipy", "sklearn", "torchvision")
"""What transformers imports where it is installed, for texts and losses: a quarter of the time that imports take."""

if TYPE_CHECKING:
    from types import ModuleType

    from resources.layout.pp_doclayout.replicas import Replicas


def main(connection: Connection, memory: int) -> None:
    """Load the model, then run batches until the other end says that there are no more, or is gone."""
    # Ctrl-C reaches the run, which ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(EOFError, ConnectionError):
        _work(connection, memory)
    sys.stdout.flush()
    sys.stderr.flush()
    # To take the interpreter down takes 0.7 s with PyTorch, for which a run would wait when it ends.
    os._exit(0)


def _work(connection: Connection, memory: int) -> None:
    replicas = _loaded(connection.recv())
    if isinstance(replicas, NotLoaded):
        connection.send(replicas)
        return
    loaded = Loaded(replicas.under_way, replicas.batch_size)
    connection.send(loaded)
    parts, sending = None, threading.Lock()
    while (batch := connection.recv()) is not None:
        # The other end has given the memory its size before the first batch.
        if parts is None:
            parts = parts_of(memory, loaded)
            replicas.pin(parts)
        assert isinstance(batch, Batch)
        pixels = parts[batch.part, : len(batch.pages)]
        pages = [Prepared(*page, pixels[i], seconds=0.0) for i, page in enumerate(batch.pages)]
        made = replicas.submit(pages, pixels)
        made.add_done_callback(partial(_answer, connection, sending, replicas, batch.part))


def _loaded(start: Start) -> "Replicas | NotLoaded":
    from resources.layout.pp_doclayout.replicas import Replicas

    # None is Python's way to say that there is no such package.
    sys.modules.update(cast("dict[str, ModuleType]", dict.fromkeys(_NOT_NEEDED)))
    try:
        devices = named_devices(start.device)
        import_packages(devices)
        gc.freeze()  # what is imported stays, so no collection of garbage need go through it
        return Replicas(load(start.repo, start.revision), devices, start.rules, **start.options)
    except EngineError as error:
        return NotLoaded(str(error))
    # Imports, a driver, memory: whatever it is, the run says it in one line, and its log has the whole.
    except Exception as error:
        traceback.print_exc()
        return NotLoaded(f"the layout model cannot be loaded: {first_line(f'{type(error).__name__}: {error}')}")


def _answer(
    connection: Connection, sending: threading.Lock, replicas: "Replicas", part: int, made: Future[list[Found]]
) -> None:
    error = made.exception()
    found = made.result() if error is None else str(stopped(error))
    try:
        with sending, suppress(ConnectionError):
            now = (replicas.batch_size, replicas.fallbacks, replicas.memory_peak, dict(replicas.seconds))
            connection.send(Answer(part, found, *now))
    except Exception:
        # The run would wait for this answer for ever; that the process has ended, it notices.
        traceback.print_exc()
        os._exit(1)
