"""A bounded number of requests at a time, given out fairly."""

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Awaitable, Hashable, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar

Answer = TypeVar("Answer")


async def together(asked: Iterable[Awaitable[Answer]]) -> list[Answer]:
    """All answers, or the first error, once every one has ended: none goes on for a job that is done."""
    ended = await asyncio.gather(*asked, return_exceptions=True)
    answers: list[Answer] = []
    for each in ended:
        if isinstance(each, BaseException):
            raise each
        answers.append(each)
    return answers


class Turns:
    """A bounded number of requests at a time, given out fairly between flows.

    Start-time fair queueing (Goyal, Vin, Cheng 1996): a flow's next request may start when the
    others have had as much as it had. A flow of many or costly requests delays itself only, and
    none starves.
    """

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._now = 0.0
        self._finish: dict[Hashable, float] = {}
        self._open: dict[Hashable, int] = {}
        self._moved = asyncio.Event()

    async def fewer_waiting(self, than: int) -> None:
        """Return once fewer than `than` requests wait for their turn."""
        while len(self._waiting) >= than:
            self._moved.clear()
            await self._moved.wait()

    @asynccontextmanager
    async def turn(self, flow: Hashable, cost: float) -> AsyncIterator[None]:
        """Hold one of the slots; `cost` is in any unit that is the same for all flows."""
        start = max(self._now, self._finish.get(flow, 0.0))
        self._finish[flow] = start + cost
        self._open[flow] = self._open.get(flow, 0) + 1
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (start, next(self._numbers), mine))
        self._give()
        try:
            await mine
            yield
        finally:
            if mine.done() and not mine.cancelled():
                self._free += 1
            self._open[flow] -= 1
            if not self._open[flow]:
                del self._open[flow], self._finish[flow]
            self._give()

    def _give(self) -> None:
        while self._free and self._waiting:
            start, _, next_one = heapq.heappop(self._waiting)
            self._moved.set()
            if next_one.done():
                continue
            self._now = start
            self._free -= 1
            next_one.set_result(None)
