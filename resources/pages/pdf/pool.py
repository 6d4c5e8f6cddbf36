"""Processes that draw pages of PDFs, each one page at a time; a PDF that ends its process costs one page.

A pool of `concurrent.futures` breaks with its first process, and knows no time limit. So each process
has a pipe of its own, which nobody else waits for.
"""

import multiprocessing as mp
import os
import signal
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self

from resources.errors import UndecodableImage
from resources.pages.pdf.rendering import Renderer

PAGE_SECONDS = 600.0
"""Longest time for one page. The most laden maps take seconds; a PDF that never ends would hold up all others."""
_ATTEMPTS = 2
"""How often a page may end its process: the first time it may have been the machine's want of memory."""
_STOP_SECONDS = 10.0
"""How long a process that has closed its end may take to be gone."""
_MOST = 16
"""More processes draw no faster: one writes what they all draw."""
_AHEAD = 2
"""Pages asked for, for each process: what is drawn waits in order, and must not pile up behind a slow page."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Why there is no answer."""

    reason: str


class PdfCrew:
    """A context; `processes` of 0 are one for each core, at most 16, started when there is work for them."""

    def __init__(self, processes: int = 0, seconds: float = PAGE_SECONDS) -> None:
        self._count = processes or min(os.cpu_count() or 1, _MOST)
        self._threads = ThreadPoolExecutor(self._count)
        self._members = [_Member(seconds) for _ in range(self._count)]
        self._idle: SimpleQueue[_Member] = SimpleQueue()
        for member in self._members:
            self._idle.put(member)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for member in self._members:
            member.dismiss()
        self._threads.shutdown()
        for member in self._members:
            member.end()

    def pages(self, paths: Iterable[Path]) -> Iterator[int | Failed]:
        """How many pages each PDF has, in order."""
        return self._answers(("pages", path) for path in paths)

    def draw(self, pages: Iterable[tuple[Path, int]], dpi: int) -> Iterator[bytes | Failed]:
        """The PNG of each page, counted from 0, in order."""
        return self._answers(("draw", path, page, dpi) for path, page in pages)

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
        member = self._idle.get()
        try:
            return member.ask(request)
        finally:
            self._idle.put(member)


class _Member:
    """One process, as the parent sees it: started for its first request, and again when it died."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._dismissed = False
        self._process: BaseProcess | None = None

    def ask(self, request: tuple[Any, ...]) -> Any:
        code = None
        for _ in range(_ATTEMPTS):
            if self._dismissed:
                break
            process = self._process or self._start()
            with suppress(EOFError, OSError):
                self._connection.send(request)
                if not self._connection.poll(self._seconds):
                    self.end()
                    return Failed(f"given up after {self._seconds:,.0f} seconds")
                return self._connection.recv()
            process.join(_STOP_SECONDS)
            code = self.end()
        return Failed(f"it ended the process that read it ({_death(code)})")

    def dismiss(self) -> None:
        """Whoever waits for an answer then gets a `Failed`."""
        self._dismissed = True
        if (process := self._process) is not None:
            process.kill()

    def end(self) -> int | None:
        """Stop the process, if there is one, and return how it ended."""
        if self._process is None:
            return None
        self._connection.close()
        self._process.kill()
        self._process.join()
        code, self._process = self._process.exitcode, None
        return code

    def _start(self) -> BaseProcess:
        spawn = mp.get_context("spawn")
        self._connection, theirs = spawn.Pipe()
        process = spawn.Process(target=_work, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        self._process = process
        return process


def _death(code: int | None) -> str:
    return signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"


def _work(connection: Connection) -> None:
    """Answer until the parent has closed its end, or is gone."""
    # An interrupt from the keyboard reaches all processes; the parent then closes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    renderer = Renderer()
    with suppress(EOFError, ConnectionError):
        while True:
            method, *arguments = connection.recv()
            try:
                answer = getattr(renderer, method)(*arguments)
            except UndecodableImage as error:
                answer = Failed(str(error))
            connection.send(answer)
