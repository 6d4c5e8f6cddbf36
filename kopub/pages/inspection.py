"""The inspection of page images: format, size, damage, and what sets them upright.

Machines with 16 cores or more inspect pages in a process for each core, not in threads. Pillow releases the interpreter
lock for each of a PNG's 150 chunks and then waits for it with all other threads, so threads keep about 13 cores busy
(docs/benchmarks/whole_graph.md). The processes are confined, as are all that open documents; threads cannot be.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from threading import BoundedSemaphore
from typing import Self

import cv2

from kopub.errors import UndecodableImage, UnreadImage, first_line, is_of_machine
from kopub.pages.page import PackedPixels, decode, inspect, room_for
from kopub.pages.straightening import find_transform
from kopub.pages.upright import UprightTransform
from kopub.parallel import tuned_for_decoding, usable_cores
from kopub.processes import ChildPool, LostAnswer, answer_requests, keep_blocks
from kopub.states import Reason

CHECKERS = 2
"""Threads of one process that check pages at once: more would only wait for the interpreter lock."""
MOST_PROCESSES = 32
_FEWEST_CORES = 16
"""Cores from which processes are used; threads keep 13 busy, and share the memory of what they import."""
_PAGES_PER_PROCESS = 8
"""Fewest pages for each process, which takes about as long to start as five pages to inspect."""
_SECONDS = 600.0
"""Most seconds for one page."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """The findings about a page; `width` and `height` are of the upright page, in pixels.

    `pixels` are those of a page that is upright as it is, if a process of its own has decoded it.
    """

    format: str
    width: int
    height: int
    upright: UprightTransform | None
    damage: str | None
    pixels: PackedPixels | None = None


class Inspector:
    """A context manager that inspects pages, for `threads` callers at once.

    `pages` is how many are to be inspected, and `upright` whether any is set upright. With 0 `processes`, it uses one
    for each core, at most 32, where that is faster than threads of this process; 1 means threads.
    """

    def __init__(self, pages: int, upright: bool, processes: int = 0) -> None:
        cores = usable_cores()
        if not processes:
            most = min(cores, MOST_PROCESSES)
            pays = upright and cores >= _FEWEST_CORES and pages >= _PAGES_PER_PROCESS * most
            processes = most if pays else 1
        self._processes = ChildPool(f"{__name__}:work", processes, _SECONDS, confined={}) if processes > 1 else None
        self.threads = processes if self._processes else cores if upright else CHECKERS
        self._upright = upright
        self._checking = BoundedSemaphore(CHECKERS)
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        if self._upright:
            self._exit.enter_context(tuned_for_decoding())
        if self._processes:
            self._exit.callback(self._processes.end)
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def inspect(self, data: bytes | memoryview, may_turn: bool) -> Inspection:
        """Inspect an encoded image, and set it upright if it `may_turn`. Raises `UndecodableImage`.

        An image that crashes its process, or takes too long, raises `UnreadImage`.
        """
        if self._processes is None:
            with room_for(data):
                return _inspect(data, may_turn, self._checking)
        try:
            # A view of a mapped file cannot be sent to another process.
            answer = self._processes.ask((bytes(data), may_turn))
        except LostAnswer as error:
            raise UnreadImage("the image was not read: {error}", error=str(error)) from None
        if isinstance(answer, UndecodableImage):
            raise answer
        return answer


def _inspect(data: bytes | memoryview, may_turn: bool, checking: BoundedSemaphore, packs: bool = False) -> Inspection:
    with checking:
        info = inspect(data)
    transform, packed = None, None
    if may_turn:
        try:
            pixels = decode(data)
            transform = find_transform(pixels)
            packed = PackedPixels.of(pixels) if packs and transform is None else None
        except UnreadImage:
            raise
        except UndecodableImage:
            pass  # the assets that read the image report why it cannot be used
        except Exception as error:
            # The failure may be the machine's, such as a lack of memory.
            if is_of_machine(error):
                raise UnreadImage("the page was not set upright: {error}", error=first_line(error)) from None
            raise
    width, height = (info.width, info.height) if transform is None else (transform.width, transform.height)
    damage = info.damage and Reason("the image is damaged: {error}", error=info.damage)
    return Inspection(info.format, width, height, transform, damage, packed)


def work(connection: Connection) -> None:
    """Inspect pages until the parent closes the pipe or exits."""
    alone = BoundedSemaphore()

    def answer(request: tuple[bytes, bool]) -> Inspection | UndecodableImage:
        try:
            return _inspect(*request, alone, packs=True)
        except UndecodableImage as error:
            return error

    # BLAS has one thread, too, in the environment of a confined process.
    cv2.setNumThreads(1)
    keep_blocks()
    answer_requests(connection, answer)
