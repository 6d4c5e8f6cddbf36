"""The answer cache: a region with the same pixels and the same request is not read again."""

import hashlib
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from resources.errors import EngineError
from resources.recognition.vlm.chat_requests import Answer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_DAY = 7
"""Column of the day on which an answer was last used."""
_BUSY_SECONDS = 60.0
"""A page's answers are written in a millisecond; a writer that waits this long waits for a stopped process."""


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """A model's own words for a region, with the attempts and the seconds they took, and the scale of the image."""

    answer: Answer
    attempts: int
    seconds: float
    scale: float


def region_key(pixels: "NDArray[np.uint8]", request: str) -> bytes:
    """SHA-256 of a crop's pixels and shape and of `request`, the fingerprint of all else that shapes its answer."""
    digest = hashlib.sha256(f"{request} {pixels.shape}".encode())
    digest.update(pixels.data)
    return digest.digest()


class AnswerCache:
    """A SQLite file that processes and threads share. Losing it costs time, never results.

    It holds good answers only: a region that failed is requested again by the next reading of its page.
    `close` leaves at most `size` answers; those not used for the longest time go. Raises `EngineError`
    when the file cannot be used.
    """

    def __init__(self, folder: Path, size: int) -> None:
        self._path = folder / "answers.sqlite"
        self._size = size
        # SQLite waits for no other process while a file becomes one with a write-ahead log, or ceases to be.
        self._alone = FileLock(f"{self._path}.lock", timeout=_BUSY_SECONDS)
        # Readers and one writer at a time never wait for each other, and a killed process leaves whole transactions.
        with _usable(self._path):
            folder.mkdir(parents=True, exist_ok=True)
        with _usable(self._path), self._alone:
            self._database = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=NORMAL")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS readings ("
                "key BLOB PRIMARY KEY, text TEXT NOT NULL, finish_reason TEXT NOT NULL,"
                " tokens INTEGER NOT NULL, attempts INTEGER NOT NULL, seconds REAL NOT NULL, scale REAL NOT NULL,"
                " day INTEGER NOT NULL) WITHOUT ROWID"
            )
        self._lock = threading.Lock()

    def find(self, keys: Iterable[bytes]) -> dict[bytes, CachedAnswer]:
        """The answers to those of `keys` that are in the cache."""
        wanted = list(keys)
        marks = ",".join("?" * len(wanted))
        with self._lock, _usable(self._path), self._database:
            found = self._database.execute(f"SELECT * FROM readings WHERE key IN ({marks})", wanted).fetchall()
            today = _today()
            if any(row[_DAY] < today for row in found):
                self._database.execute(f"UPDATE readings SET day = ? WHERE key IN ({marks})", [today, *wanted])
        return {row[0]: CachedAnswer(Answer(row[1], row[2], row[3]), *row[4:_DAY]) for row in found}

    def add(self, answers: Mapping[bytes, CachedAnswer]) -> None:
        """Add a page's answers, all or none."""
        today = _today()
        rows = [
            (
                key,
                each.answer.text,
                each.answer.finish_reason,
                each.answer.tokens,
                each.attempts,
                each.seconds,
                each.scale,
                today,
            )
            for key, each in answers.items()
        ]
        with self._lock, _usable(self._path), self._database:
            self._database.executemany("INSERT OR REPLACE INTO readings VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def close(self) -> None:
        """Remove what exceeds the size, and close the file."""
        with self._lock, _usable(self._path), self._alone:
            (count,) = self._database.execute("SELECT count(*) FROM readings").fetchone()
            if count > self._size:
                with self._database:
                    self._database.execute(
                        "DELETE FROM readings WHERE key IN"
                        " (SELECT key FROM readings ORDER BY day DESC, key LIMIT -1 OFFSET ?)",
                        [self._size],
                    )
            self._database.close()


def _today() -> int:
    """Days since 1970: anything finer would write a row for every answer that is found."""
    return int(time.time() // 86_400)


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    """Turn what SQLite and the file system raise into one line."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:  # a lock that is not had in time is an OSError
        raise EngineError(
            f"{path} cannot be used ({error}): delete it, it only saves time, or free the disk it is on"
        ) from error
