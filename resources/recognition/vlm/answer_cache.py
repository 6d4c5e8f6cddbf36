"""Answers kept by what they answer: a region that looks the same and is asked the same is not read again."""

import hashlib
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from resources.errors import EngineError
from resources.recognition.vlm.chat_requests import Answer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_BUSY_SECONDS = 60.0
"""A page's answers are written in a millisecond; a writer that waits this long waits for a stopped process."""


def region_key(pixels: "NDArray[np.uint8]", asked: str) -> bytes:
    """SHA-256 over the pixels and shape of a crop and `asked`, the fingerprint of all else that shapes its answer."""
    digest = hashlib.sha256(f"{asked} {pixels.shape}".encode())
    digest.update(pixels.data)
    return digest.digest()


class RegionReuse:
    """A SQLite file that processes and threads share. Losing it costs time, never results.

    Answers are the model's own words with the number of tries and the seconds they took, so that a
    row made from them equals the row made then. At most `most` are left when it is closed: those
    that were not found or kept for the longest time go. Raises `EngineError` when the file cannot
    be used.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self._path = folder / "regions.sqlite"
        self._most = most
        # Readers and one writer at a time never wait for each other, and a killed process leaves whole transactions.
        with _usable(self._path):
            folder.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=NORMAL")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS kept ("
                "key BLOB PRIMARY KEY, text TEXT NOT NULL, finish_reason TEXT NOT NULL,"
                " tokens INTEGER NOT NULL, attempts INTEGER NOT NULL, seconds REAL NOT NULL,"
                " day INTEGER NOT NULL) WITHOUT ROWID"
            )
        self._turn = threading.Lock()

    def find(self, keys: Iterable[bytes]) -> dict[bytes, tuple[Answer, int, float]]:
        """What is known of `keys`: the answer, its tries and its seconds."""
        wanted = list(keys)
        marks = ",".join("?" * len(wanted))
        with self._turn, _usable(self._path), self._database:
            found = self._database.execute(f"SELECT * FROM kept WHERE key IN ({marks})", wanted).fetchall()
            today = _today()
            if any(row[6] < today for row in found):
                self._database.execute(f"UPDATE kept SET day = ? WHERE key IN ({marks})", [today, *wanted])
        return {row[0]: (Answer(row[1], row[2], row[3]), row[4], row[5]) for row in found}

    def keep(self, answers: Mapping[bytes, tuple[Answer, int, float]]) -> None:
        """Add a page's answers, all or none."""
        rows = [
            (key, answer.text, answer.finish_reason, answer.tokens, attempts, seconds, _today())
            for key, (answer, attempts, seconds) in answers.items()
        ]
        with self._turn, _usable(self._path), self._database:
            self._database.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def close(self) -> None:
        """Remove what is beyond the limit, and let the file go."""
        with self._turn, _usable(self._path):
            (count,) = self._database.execute("SELECT count(*) FROM kept").fetchone()
            if count > self._most:
                with self._database:
                    self._database.execute(
                        "DELETE FROM kept WHERE key IN (SELECT key FROM kept ORDER BY day DESC, key LIMIT -1 OFFSET ?)",
                        [self._most],
                    )
            self._database.close()


def _today() -> int:
    """Days since 1970: finer than that, every answer found would be a row written."""
    return int(time.time() // 86_400)


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    """What SQLite and the file system say, as one line."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise EngineError(
            f"{path} cannot be used ({error}): delete it, it only saves time, or free the disk it is on"
        ) from error
