"""The reading of an uploaded file in a child process with its own home."""

import os
import re
import shutil
import signal
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from subprocess import Popen
from threading import Lock, Thread
from typing import Any, BinaryIO

from kopub.api.reading import Reading
from kopub.api.search import home_searcher
from kopub.config.settings import read_settings
from kopub.errors import KopubError, first_line
from kopub.pages.corpus import Corpus
from kopub.pages.manifest import shard_source
from kopub.processes import end_child, how_it_ended, start_child
from kopub.store.table_source import CorpusCheck
from kopub.store.table_store import ShardStore
from kopub.web.own_pages import Editor
from kopub.web.room import Room

LARGEST = 100_000_000
"""Most bytes of a file."""
MOST_PAGES = 20
"""Most pages of a file that are read; for more, there is `kopub read`, or a corpus."""
SECONDS = 900.0
"""Seconds after which a reading is abandoned."""
_LONGEST_NAME = 200
"""Most bytes of a file's name that are kept, of the 255 that a file system takes; a Korean letter has three."""


class BusyReader(KopubError):
    """The error that another file is being read."""


@dataclass(slots=True)
class FileReading:
    """A file being read, or one already read, which has a `room` or an `error`."""

    name: str
    folder: Path
    began: float = field(default_factory=time.monotonic)
    process: Popen[bytes] | None = None
    room: Room | None = None
    app: Any = None
    """The application of the room, made at the first visit."""
    error: str = ""


class FileReader:
    """A reader of one file at a time, for people with the `editor`'s right.

    Threads may share it. The result is kept until the next file, or until `close`.
    """

    def __init__(self, editor: Editor, seconds: float = SECONDS) -> None:
        self.editor = editor
        self.reading: FileReading | None = None
        self._seconds = seconds
        self._lock = Lock()

    def begin(self, name: str, content: BinaryIO) -> None:
        """Begin to read a file.

        Raises `BusyReader` while another file is being read, and `KopubError` if reading cannot begin.
        """
        with self._lock:
            if self.reading is not None and self.reading.room is None and not self.reading.error:
                raise BusyReader("{file} is being read: wait until it is done", self.reading.name)
            self._remove()
            folder = Path(tempfile.mkdtemp(prefix="kopub-room-"))
            # No part of the name can lead out of the folder; its end, the suffix, gives the kind of file.
            plain = re.sub(r"[^\w.\- ]", "_", name.replace("\\", "/").rpartition("/")[2]).lstrip(".")
            end = plain.encode()[-_LONGEST_NAME:].decode(errors="ignore").lstrip(".")
            reading = FileReading(end or "file", folder)
            path = folder / reading.name
            # The results are in the folder, too, and are removed with it.
            environment = {**os.environ, "TMPDIR": str(folder)}
            try:
                with path.open("wb") as file:
                    shutil.copyfileobj(content, file)
                pipe, process = start_child("kopub.web.file_reading:read_in_child", group=0, environment=environment)
            except OSError as error:
                shutil.rmtree(folder, ignore_errors=True)
                raise KopubError("{file} cannot be read now: {error}", reading.name, error.strerror or error) from None
            reading.process, self.reading = process, reading
            following = (reading, pipe, process, path)
            Thread(target=self._follow, args=following, name="file", daemon=True).start()

    def close(self) -> None:
        """End any reading, and remove its result."""
        with self._lock:
            self._remove()

    def _remove(self) -> None:
        if self.reading is not None:
            _end(self.reading.process)
            shutil.rmtree(self.reading.folder, ignore_errors=True)
            self.reading = None

    def _follow(self, reading: FileReading, pipe: Connection, process: Popen[bytes], path: Path) -> None:
        try:
            with pipe:
                pipe.send(str(path))
                if not pipe.poll(self._seconds):
                    raise KopubError("it took more than {seconds:,.0f} s", self._seconds)
                home, error = pipe.recv()
            if error:
                raise KopubError(error)
            settings = read_settings({**os.environ, "KOPUB_HOME": home})
            corpus, store = Corpus(home=home), ShardStore(url=f"{home}/store", keep_versions=0)
            settings = replace(settings, corpus=corpus, store=store)
            check = CorpusCheck(store, lambda asset, shard: shard_source(corpus.manifest.shard(shard)))
            reading.room = Room(settings, home_searcher(settings, corpus, store), check)
        except (EOFError, ConnectionError):
            _end(process)
            reading.error = f"its process ended {how_it_ended(process.returncode)}"
        except KopubError as error:
            reading.error = str(error)
        # A reading that never ended would block every other file.
        except Exception as error:
            reading.error = f"{type(error).__name__}: {first_line(error)}"
        finally:
            _end(process)


def read_in_child(pipe: Connection) -> None:
    """Read the file whose path comes through the pipe, and send back the result.

    The result is the home with the tables, or an error.
    """
    try:
        reading = Reading([pipe.recv()], pages=f"1-{MOST_PAGES}")
        (part,) = reading.parts(at_once=reading.pages)
        pipe.send((str(part.home), ""))
    except KopubError as error:
        pipe.send(("", str(error)))


def _end(process: Popen[bytes] | None) -> None:
    """End a process and the processes that it started, unless it has ended already."""
    # After its end was noticed, its number may be that of another process.
    if process is not None and process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        end_child(process)
