"""The process that dies while a sink is changed."""

import os
import signal
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from kopub.config.choices import Documents
from kopub.sinks import base
from tests.support.harness import Platform

PUT_BEFORE = 3


def change_and_die(home: str, sink: base.Sink) -> None:
    """Bring the chunks into a sink one by one, and die after `PUT_BEFORE` of them."""
    platform = Platform(Path(home), {"documents": Documents(chunks=True), "sinks": sink})
    base.BATCH = 1
    done = count(1)
    for table in base.SinkTable.__subclasses__():
        _let_die(table, done)
    platform.make("search_sink")


def _let_die(table: Any, done: "count[int]") -> None:
    put = table.put

    def dying(self: Any, records: pa.Table) -> None:
        put(self, records)
        if next(done) == PUT_BEFORE:
            os.kill(os.getpid(), signal.SIGKILL)

    table.put = dying
