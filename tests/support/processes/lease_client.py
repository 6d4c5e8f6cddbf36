"""A process that takes a lease on a server, reports it and holds it."""

import os
import time
from multiprocessing.connection import Connection
from typing import Any

from kopub.vllm.server import VLLMServer
from tests.support.processes.forked import CONTEXT

CLIENT = """
import json, sys, time
from kopub.vllm.server import VLLMServer
with VLLMServer(**json.loads(sys.argv[1])).lease() as endpoint:
    print(endpoint.boot, endpoint.urls[0], flush=True)
    time.sleep(float(sys.argv[2]))
"""


class LeaseClient:
    """A forked process that holds a lease on the server with these `fields`."""

    def __init__(self, fields: dict[str, Any], seconds: float) -> None:
        self._heard, told = CONTEXT.Pipe(duplex=False)
        self._process = CONTEXT.Process(target=_hold, args=(fields, seconds, dict(os.environ), told))
        self._process.start()
        told.close()

    @property
    def said(self) -> list[str]:
        return self._heard.recv()

    def kill(self) -> None:
        self._process.kill()

    def wait(self, seconds: float) -> int | None:
        self._process.join(seconds)
        return self._process.exitcode


def _hold(fields: dict[str, Any], seconds: float, environment: dict[str, str], told: Connection) -> None:
    os.environ.clear()
    os.environ.update(environment)
    with VLLMServer(**fields).lease() as endpoint:
        told.send([str(endpoint.boot), endpoint.urls[0]])
        time.sleep(seconds)
