"""Writing without a wait for the disk.

No test cuts the power, and each wait until the disk has what was written takes milliseconds.
"""

import os
import sqlite3

from sqlalchemy import event
from sqlalchemy.engine import Engine


def wait_for_no_disk() -> None:
    """Let this process write files and Dagster's databases without a wait for the disk."""
    os.fsync = _written  # a test of what is on the disk, and when, has its own
    event.listen(Engine, "connect", _connected)


def _written(descriptor: int) -> None:
    os.fstat(descriptor)


def _connected(connection: object, _: object) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")
