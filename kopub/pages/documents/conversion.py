"""Documents that are first converted to PDF, each in a process with limits.

The process converts one file, places what the file says on the pages of the PDF, and ends. It also ends with its
parent, and takes down everything that it started.
"""

import json
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock, Thread
from time import monotonic
from types import ModuleType
from typing import Any

from filelock import FileLock, Timeout
from pypdfium2 import PdfDocument, PdfiumError

from kopub.confinement import Reach
from kopub.errors import SourceError, UndecodableImage, counted, first_line, visible, without_paths
from kopub.fingerprints import CodeVersion
from kopub.folders import runtime_folder
from kopub.pages.documents import hwp, libreoffice, mail, office
from kopub.pages.documents.fonts import KOREAN_FONTS, has_korean_font
from kopub.pages.documents.pieces import Conversion, Piece
from kopub.pages.documents.placing import place_pieces
from kopub.pages.documents.text_layer import Failure
from kopub.processes import OF_REQUEST, how_it_ended, private_memory, start_child
from kopub.states import Reason

CODE = CodeVersion(
    "pages.conversion",
    {
        1: "the first release",
        2: "text that a sheet hides is not missed",
        3: "no file of the machine and no host can be drawn into a document",
    },
)
"""A new version converts every document again."""

NO_DOCUMENT = "no PDF, image, HWP, office or text file"
"""The reason to leave out a file of another kind."""

SECONDS = 600.0
"""Most seconds for one document, which a busy machine may need longer for."""
_COMPUTING_SECONDS = 120
"""Most seconds of computing for one document; office documents take one to ten."""
_POLL_SECONDS = 1.0
"""Seconds between two checks whether a conversion that waits for another is still wanted."""
_MEMORY = 2 << 30
"""Bytes of memory that each process of a conversion may have."""
_BESIDE_OTHERS, _ALONE = 768 << 20, 5 << 29
"""Bytes of memory that the processes of a conversion may have together, in one place of the pool and in two."""
_WATCH_SECONDS = 0.1
"""Seconds between two looks at the memory of a conversion."""
_TOO_LONG = Reason("its conversion took more than {seconds} seconds of computing", seconds=_COMPUTING_SECONDS)
_MOST_WRITTEN = 1 << 30
"""Bytes of the largest file that a conversion may write."""

_PIECES = "pieces{}.json"
"""The file beside a PDF with the pieces of a page."""
_SHOWN = 40
_SUFFIXES = hwp.SUFFIXES | office.SUFFIXES
"""Suffixes of files that are converted."""


def is_converted(path: os.PathLike[str] | str) -> bool:
    """Return whether a file, judged by its suffix, is first converted to PDF."""
    return os.path.splitext(os.fspath(path))[1].lower() in _SUFFIXES


def lacks(suffix: str) -> str | None:
    """Say which package this machine lacks to convert files of a suffix, else None."""
    return office.lacks(suffix) if suffix in office.SUFFIXES else hwp.lacks()


def all_lacking() -> list[str]:
    """Say what this machine lacks to convert files of any suffix, each line once."""
    return list(dict.fromkeys(filter(None, map(lacks, sorted(_SUFFIXES)))))


def converter(suffix: str) -> str | None:
    """Return what converts files of a suffix here, with its version; None if nothing does.

    If it changes, documents are converted again; so does installing a first Korean font.
    """
    if suffix not in _SUFFIXES:
        return None
    without = "" if has_korean_font() else ", no Korean font"
    return f"{_format(suffix).converter()}, {CODE.number}{without}"


def _format(suffix: str) -> ModuleType:
    return office if suffix in office.SUFFIXES else hwp


@dataclass
class _Task:
    """The conversion of one file, done by the first caller while others wait."""

    lock: Lock = field(default_factory=Lock)
    result: Conversion | Failure | None = None


class Conversions:
    """The PDFs of documents, made on first use and kept until `end`.

    A conversion holds one of `places` while it runs, as whatever else takes much memory does. One that needs more than
    others leave runs again with two, and only one at a time has two, since two could wait for each other.
    """

    def __init__(
        self, places: Callable[[int], AbstractContextManager[Any]] = nullcontext, seconds: float = SECONDS
    ) -> None:
        self._places, self._seconds = places, seconds
        self._large = Lock()
        self._folder = Path(tempfile.mkdtemp(prefix="kopub-documents-"))
        self._tasks: dict[str, _Task] = defaultdict(_Task)
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = Lock()
        self._cancelled = False

    def pdf(self, name: str, path: Path) -> Conversion | Failure:
        """Return the PDF of the document `name`, whose file is now at `path`.

        The pieces are beside it, for `pieces_of_page`: those of many documents are more than memory has room for.
        """
        with self._lock:
            task = self._tasks[name]
        with task.lock:
            if task.result is None:
                is_office = path.suffix.lower() in office.SUFFIXES
                with self._only_one() if is_office else nullcontext():
                    with self._places(1):
                        task.result = self._convert(path, _BESIDE_OTHERS)
                    if task.result is None:
                        with self._large, self._places(2):
                            task.result = self._convert(path, _ALONE)
                    task.result = task.result or _too_large(_ALONE)
            return task.result

    @contextmanager
    def _only_one(self) -> Iterator[None]:
        """Run one LibreOffice at a time, since it takes as much memory as everything else."""
        try:
            lock = FileLock(runtime_folder() / "office.lock", timeout=_POLL_SECONDS, mode=0o600)
        except OSError as error:
            raise SourceError("no folder for the lock of LibreOffice: {error}", error) from None
        while not self._cancelled:
            with suppress(Timeout):
                lock.acquire()
                break
        try:
            yield
        finally:
            lock.release()

    def cancel(self) -> None:
        """Kill all running conversions, and start no more."""
        with self._lock:
            self._cancelled = True
            for process in self._running:
                _kill(process)

    def end(self) -> None:
        """Remove the PDFs."""
        self.cancel()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _convert(self, path: Path, most: int) -> Conversion | Failure | None:
        """Convert a file, or return None if this takes more than `most` bytes of memory."""
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        with self._lock:
            if self._cancelled:
                return Failure("nobody wants it any more", may_pass=True)
            reads = [str(path)]
            # LibreOffice must be readable, wherever it is installed.
            if (program := libreoffice.program()) is not None:
                reads.append(str(program))
                if (place := program.resolve().parent).name == "program":
                    reads.append(str(place.parent))
            reach: Reach = {"reads": reads, "writes": [str(folder)]}
            connection, process = start_child(f"{__name__}:work", group=0, confined=reach)
            self._running.add(process)
        try:
            with connection:
                connection.send((path, folder))
                end = monotonic() + self._seconds
                while monotonic() < end:
                    if connection.poll(min(_WATCH_SECONDS, self._seconds)):
                        return connection.recv()
                    if private_memory(process.pid) > most:
                        return None
                form = "its conversion was given up after {seconds:,.0f} seconds"
                return Failure(Reason(form, seconds=self._seconds), may_pass=True)
        except (EOFError, OSError):
            with suppress(subprocess.TimeoutExpired):
                process.wait(1)
            if process.returncode == -signal.SIGXCPU:
                return Failure(_TOO_LONG)
            ended = "" if process.returncode is None else f" {how_it_ended(process.returncode)}"
            is_certain = process.returncode is not None and -process.returncode in OF_REQUEST
            return Failure(Reason("the process that converted it ended{how}", how=ended), may_pass=not is_certain)
        finally:
            _kill(process)
            process.wait()
            with self._lock:
                self._running.discard(process)


def pieces_of_page(conversion: Conversion, page: int) -> tuple[Piece, ...]:
    """Return the pieces on a page, from 0, of a document that `Conversions` converted."""
    stored = conversion.pdf.with_name(_PIECES.format(page))
    return tuple(map(Piece.from_json, json.loads(stored.read_text()))) if stored.exists() else ()


def _too_large(most: int) -> Failure:
    return Failure(Reason("its conversion needs more than {size:g} GB of memory", size=most / (1 << 30)))


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def work(connection: Connection) -> None:
    """Convert the one file that the parent names."""
    path, folder = connection.recv()
    Thread(target=_end_with_parent, args=(connection,), daemon=True).start()
    for limit, most in (
        (resource.RLIMIT_DATA, _MEMORY),
        (resource.RLIMIT_FSIZE, _MOST_WRITTEN),
        (resource.RLIMIT_CPU, _COMPUTING_SECONDS),
        (resource.RLIMIT_CORE, 0),
    ):
        # macOS has no limit of memory, and a lower one of this machine stays.
        with suppress(ValueError, OSError):
            resource.setrlimit(limit, (most, most + 5))
    # Converters put their temporary files into the folder, which is removed later.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # converters print only about their own workings
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    try:
        conversion = _convert_file(path, folder)
        for page, pieces in conversion.pieces.items():
            stored = json.dumps([piece.to_json() for piece in pieces])
            conversion.pdf.with_name(_PIECES.format(page)).write_text(stored)
        connection.send(replace(conversion, pieces={}))
    except UndecodableImage as error:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        is_late = used.ru_utime + used.ru_stime >= _COMPUTING_SECONDS - 1
        connection.send(Failure(_TOO_LONG if is_late else str(error)))
    except OSError as error:
        connection.send(Failure.unreadable(error))
    except MemoryError as error:
        # What filled the memory is in frames that the error still holds.
        traceback.clear_frames(error.__traceback__)
        connection.send(_too_large(_MEMORY))
    # A Rust panic is not an Exception.
    except BaseException as error:
        reason = without_paths(first_line(error))
        connection.send(Failure(Reason("it cannot be converted: {error}", error=reason)))


def _end_with_parent(connection: Connection) -> None:
    with suppress(EOFError, OSError):
        connection.poll(None)
    os.killpg(0, signal.SIGKILL)


def _convert_attachment(path: Path, folder: Path) -> Conversion:
    """Convert what is attached to a mail. Raises `UndecodableImage`."""
    if lacking := lacks(path.suffix.lower()) if is_converted(path) else NO_DOCUMENT:
        raise UndecodableImage(lacking)
    return _convert_file(path, folder)


def _convert_file(path: Path, folder: Path) -> Conversion:
    if path.suffix.lower() == mail.SUFFIX:
        return mail.convert(path, folder, _convert_attachment)
    is_office = path.suffix.lower() in office.SUFFIXES
    pieces = [] if is_office else hwp.pieces(path)
    pdf = folder / "document.pdf"
    _format(path.suffix.lower()).convert(path, pdf)
    try:
        with PdfDocument(pdf) as document:
            pages = [page.get_textpage().get_text_range().split() for page in document]
            # LibreOffice marks the first page of each sheet.
            marks = [(mark.get_title(), mark.get_dest()) for mark in document.get_toc()]
            sheets = {title: place.get_index() or 0 for title, place in marks if place is not None}
    except PdfiumError:
        raise UndecodableImage("its conversion made a damaged PDF") from None
    try:
        pieces = pieces if not is_office else office.pieces(path, pdf)
    except office.UnreadablePieces as error:
        odd = Reason("only the print of the document was read, for its structure is odd: {error}", error=str(error))
        return Conversion(pdf, {0: odd})
    placed = place_pieces(pieces, pages, sheets)
    lost: dict[int, str] = {}
    for at, texts in placed.unprinted.items():
        text = "".join(texts)
        letters = counted(sum(map(str.isalnum, text)), "letter")
        form = "{letters} of the document are in its text but not in its picture, as “{words}”"
        lost[at] = Reason(form, letters=letters, words=visible(" ".join(texts[0].split()), _SHOWN))
        # A font would print it the next time.
        if any("가" <= letter <= "힣" for letter in text) and not has_korean_font():
            lost[at] = Reason("{reason}; there is no Korean font: {advice}", reason=lost[at], advice=KOREAN_FONTS)
    return Conversion(pdf, lost, placed.pages)
