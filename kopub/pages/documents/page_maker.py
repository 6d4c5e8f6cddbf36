"""The process that makes pages of the files it is sent, within bounds."""

import io
import os
import resource
import signal
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from pathlib import Path
from typing import Any, BinaryIO, cast

from kopub.errors import UndecodableImage, first_line
from kopub.pages.documents.pdf import Pdfs, is_pdf
from kopub.pages.documents.pictures import Pictures
from kopub.pages.documents.text_layer import Failure
from kopub.processes import answer_requests, give_back
from kopub.states import Reason

SECONDS = 60
"""Most seconds of computing for one page, whatever else the machine does. Dense maps take some seconds."""
MEMORY = 1536 << 20
"""Most bytes of memory, enough for a page of `MAX_PIXELS`."""


_MUCH = 512 << 10
"""Most KB that a process ever used, from which on it gives back after each page what it might keep for the next."""


class SentFile(io.RawIOBase):
    """A file that another process opened, with a position of its own."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._at = os.dup(descriptor), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        size = os.fstat(self._descriptor).st_size
        self._at = offset + (0, self._at, size)[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        count = os.preadv(self._descriptor, [buffer], self._at)
        self._at += count
        return count

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()


def work(connection: Connection) -> None:
    """Make and count pages within bounds until the parent closes the pipe or exits."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(ValueError, OSError):  # macOS has no limit of memory
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    answer_all(connection)


def answer_all(connection: Connection) -> None:
    """Do what `work` does, without a bound of memory."""
    descriptor = -1

    def open_file(_: Path) -> BinaryIO:
        return cast("BinaryIO", io.BufferedReader(SentFile(descriptor)))

    pdfs, pictures = Pdfs(open_file), Pictures(open_file)

    def answer(request: tuple[Any, ...]) -> Any:
        nonlocal descriptor
        method, path, *arguments = request
        descriptor = recv_handle(connection)
        # Its signal ends the process even within a library, and the parent says why.
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            return getattr(pdfs if is_pdf(path) else pictures, method)(path, *arguments)
        except UndecodableImage as error:
            return Failure(str(error))
        except OSError as error:
            return Failure.unreadable(error)
        except MemoryError:
            # Pages before it may have left little, so the parent tries again with a new process.
            os.abort()
        # An unforeseen fault costs a page, not the process.
        except Exception as error:
            return Failure(Reason("it cannot be made into pages: {error}", error=first_line(error)), may_pass=True)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            os.close(descriptor)
            if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > _MUCH:
                give_back()

    answer_requests(connection, answer)
