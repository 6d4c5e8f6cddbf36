"""Processes that make the same shards in one store on object storage."""

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kopub.errors import KopubError
from kopub.store import locks as object_locks
from kopub.store.locks import ObjectLock
from kopub.store.objects import Objects
from kopub.store.table_store import ShardStore
from tests.doubles.engines import SlowReader
from tests.support.harness import Platform

ASSETS = ("raw_pages", "layout_regions", "ocr_results")
LIVES = 8.0
"""Seconds that a lock lives, longer than any pause of a process on a loaded machine."""


@dataclass
class OnObjects(Platform):
    """A platform whose tables are at `url`."""

    url: str = ""

    @property
    def store(self) -> ShardStore:
        return ShardStore(url=self.url)


def platform(home: str, url: str, seconds: float, prompt: str = "read") -> OnObjects:
    """Return a platform that reads a page in `seconds`."""
    made = OnObjects(Path(home), url=url)
    diary = str(made.home / "recognition.diary")
    made.engines["recognition"] = SlowReader(diary=diary, seconds=seconds, prompt=prompt)
    return made


def make(
    environment: Mapping[str, str], home: str, url: str, seconds: float, stop: str = "", prompt: str = "read"
) -> None:
    """Make the tables; an error's message goes to a file beside the home.

    The process stops itself before the step `stop` of the publication of the readings.
    """
    _begin(environment)
    if stop:
        _stop_before(stop)
    try:
        platform(home, url, seconds, prompt).make(*ASSETS)
    except KopubError as error:
        Path(f"{home}.{os.getpid()}").write_text(str(error))


def make_rounds(environment: Mapping[str, str], home: str, url: str, rounds: int, together: Any) -> None:
    """Make the tables of a new store in every round, together with all writers."""
    _begin(environment)
    for number in range(rounds):
        together.wait(60)
        platform(home, f"{url}/{number}", 0.01).make(*ASSETS)


def _stop_before(step: str) -> None:
    """Let this process stop itself when it publishes the readings.

    A step is a method of the lock or of the storage.
    """
    owner = ObjectLock if hasattr(ObjectLock, step) else Objects
    call, publish = getattr(owner, step), ObjectLock.publish

    def stopped(*given: Any, **named: Any) -> Any:
        setattr(owner, step, call)
        os.kill(os.getpid(), signal.SIGSTOP)
        return call(*given, **named)

    def armed(lock: ObjectLock, path: str, *given: Any) -> None:
        if "/ocr_results/" in path:
            setattr(owner, step, stopped)
        publish(lock, path, *given)

    setattr(ObjectLock, "publish", armed)  # noqa: B010 - its own type is that of a method


def _begin(environment: Mapping[str, str]) -> None:
    os.environ.update(environment)
    object_locks.LEASE_TTL_S = LIVES
