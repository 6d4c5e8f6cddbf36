"""Dagster's history in this process, without work that it repeats and no test looks at."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Engine

import dagster._core.storage.event_log.in_memory as events_in_memory
import dagster._core.storage.event_log.sqlite.sqlite_event_log as events
import dagster._core.storage.runs.in_memory as runs_in_memory
import dagster._core.storage.runs.sqlite.sqlite_run_storage as runs
import dagster._core.storage.schedules.sqlite.sqlite_schedule_storage as schedules
from dagster._core.storage.sql import create_engine

_read_migrations = ScriptDirectory.from_config
_migrations: dict[str | None, ScriptDirectory] = {}


def make_history_quick() -> None:
    """Let this process open Dagster's databases quickly, in memory and in files.

    In memory, Alembic's stamp, which nobody reads, costs seven times as much as the rest, so it is left out, and events
    are written through the connection that is held anyway, not through a new one each. For files, Dagster makes an
    engine for every event, and reads all migrations whenever it opens a database: both are kept. No connection to a
    file is kept, so it may be removed, or written by another process.
    """
    for storage in (runs_in_memory, events_in_memory):
        _replace(storage, "stamp_alembic_rev", lambda *_: None)
    # Some tests run Dagster in another thread.
    _replace(events_in_memory, "create_engine", partial(create_engine, connect_args={"check_same_thread": False}))
    _replace(events_in_memory.InMemoryEventLogStorage, "_connect", _held_connection)
    for module in (events, runs, schedules):
        _replace(module, "create_engine", _engine)
    _replace(ScriptDirectory, "from_config", _migrations_of)


def _replace(owner: Any, name: str, value: Any) -> None:
    setattr(owner, name, value)


@contextmanager
def _held_connection(storage: Any) -> Iterator[Any]:
    with storage._db_lock, storage._held_conn.begin():
        yield storage._held_conn


def _engine(url: str, poolclass: Any, connect_args: dict[str, Any] | None = None) -> Engine:
    return _kept_engine(url, poolclass, **(connect_args or {}))


@cache
def _kept_engine(url: str, poolclass: Any, **connect_args: Any) -> Engine:
    return create_engine(url, poolclass=poolclass, connect_args=connect_args)


def _migrations_of(config: Config) -> ScriptDirectory:
    folder = config.get_main_option("script_location")
    if folder not in _migrations:
        _migrations[folder] = _read_migrations(config)
    return _migrations[folder]
