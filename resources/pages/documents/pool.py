"""A pool of processes that make pages of documents; a file that crashes its process costs one page.

`concurrent.futures` has no such pool: a crash breaks all of it, and a task has no time limit. Here
every process has a pipe of its own, and one thread waits for one answer.
"""

import os
import signal
import subprocess
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from multiprocessing.connection import Connection
from queue import LifoQueue
from typing import Any, Self

from resources.child_process import end_child, how_it_ended, start_child
from resources.errors import UndecodableImage
from resources.pages.documents.conversion import Conversions, is_converted
from resources.pages.documents.made_page import Failed, MadePage, PageCount
from resources.pages.documents.pdf import Pdfs, is_pdf
from resources.pages.documents.pictures import Pictures
from resources.pages.places.object_paths import SourcePath, on_disk
from resources.printable import first_line

PAGE_SECONDS = 600.0
"""Longest time for one page. Dense maps take seconds; a file that loops would hold up all others."""
_ATTEMPTS = 2
"""How often a page is tried whose process crashed: the first time the machine may have run out of memory."""
_MOST = 16
"""More processes are no faster: one process writes what they all make."""
_AHEAD = 2
"""Tasks in flight for each process: results wait in order, and must not pile up behind a slow page."""


class DocumentPool:
    """A context manager. 0 `processes` are one for each core, at most 16; each starts with its first task."""

    def __init__(self, processes: int = 0, seconds: float = PAGE_SECONDS) -> None:
        self._count = processes or min(os.cpu_count() or 1, _MOST)
        self._threads = ThreadPoolExecutor(self._count)
        self._workers = [_Worker(seconds) for _ in range(self._count)]
        self._conversions = Conversions()
        # The one that worked last is asked first, so that no process starts while another has nothing to do.
        self._idle: LifoQueue[_Worker] = LifoQueue()
        for worker in self._workers:
            self._idle.put(worker)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._conversions.cancel()
        for worker in self._workers:
            worker.cancel()
        self._threads.shutdown()
        for worker in self._workers:
            worker.end()
        self._conversions.end()

    def count(self, paths: Iterable[SourcePath]) -> Iterator[PageCount | Failed]:
        """The number of pages of each document, in order. Raises what fetching one raises."""
        return self._answers(("count", path) for path in paths)

    def render(self, pages: Iterable[tuple[SourcePath, int]], dpi: int) -> Iterator[MadePage | Failed]:
        """Each page, counted from 0, in order; those of PDFs are drawn at `dpi`. Raises the same."""
        return self._answers(("make", path, page, dpi) for path, page in pages)

    def _answers(self, requests: Iterator[tuple[Any, ...]]) -> Iterator[Any]:
        asked: deque[Future[Any]] = deque()
        try:
            while True:
                ahead = islice(requests, _AHEAD * self._count - len(asked))
                asked.extend(self._threads.submit(self._ask, request) for request in ahead)
                if not asked:
                    return
                yield asked.popleft().result()
        finally:
            for future in asked:
                future.cancel()

    def _ask(self, request: tuple[Any, ...]) -> Any:
        method, path, *arguments = request
        lost: str | None = None
        with on_disk(path) as found:
            file = found
            if is_converted(found):
                converted = self._conversions.pdf(str(path), found)
                if isinstance(converted, Failed):
                    return converted
                file = converted.pdf
                lost = converted.lost.get(arguments[0]) if arguments else None
            worker = self._idle.get()
            try:
                answer = worker.ask((method, file, *arguments))
            finally:
                self._idle.put(worker)
        return replace(answer, damage=lost) if lost and isinstance(answer, MadePage) else answer


class _Worker:
    """One process, seen from the parent. It starts with its first task, and again after a crash."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._cancelled = False
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, request: tuple[Any, ...]) -> Any:
        failed = Failed("nobody wants it any more", may_pass=True)
        for _ in range(_ATTEMPTS):
            if self._cancelled:
                break
            process = self._process or self._start()
            with suppress(EOFError, OSError):
                self._connection.send(request)
                if not self._connection.poll(self._seconds):
                    self.end()
                    return Failed(f"given up after {self._seconds:,.0f} seconds", may_pass=True)
                return self._connection.recv()
            end_child(process)
            self.end()
            failed = Failed(f"the process that read it ended {how_it_ended(process.wait())}", may_pass=True)
        return failed

    def cancel(self) -> None:
        """Kill the process; a thread that waits for its answer gets a `Failed`."""
        self._cancelled = True
        if (process := self._process) is not None:
            process.kill()

    def end(self) -> None:
        """Kill the process, if there is one."""
        if self._process is None:
            return
        self._connection.close()
        self._process.kill()
        self._process.wait()
        self._process = None

    def _start(self) -> "subprocess.Popen[bytes]":
        self._connection, self._process = start_child("resources.pages.documents.pool:work")
        return self._process


def work(connection: Connection) -> None:
    """Answer requests until the parent closes the pipe or exits."""
    # Ctrl-C reaches all processes of a terminal; the parent then closes the pipes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pdfs, pictures = Pdfs(), Pictures()
    with suppress(EOFError, ConnectionError):
        while True:
            method, path, *arguments = connection.recv()
            try:
                answer = getattr(pdfs if is_pdf(path) else pictures, method)(path, *arguments)
            except UndecodableImage as error:
                answer = Failed(str(error))
            except OSError as error:
                answer = Failed(f"the file cannot be read: {error.strerror or first_line(error)}", may_pass=True)
            # A fault here that nobody foresaw, as lack of memory, costs a page, not the process.
            except Exception as error:
                reason = first_line(error) or type(error).__name__
                answer = Failed(f"it cannot be made into pages: {reason}", may_pass=True)
            connection.send(answer)
