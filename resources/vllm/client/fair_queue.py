"""A queue that bounds the requests in flight and shares them fairly between jobs."""

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Awaitable, Hashable, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar

Answer = TypeVar("Answer")


async def gather_all(requests: Iterable[Awaitable[Answer]]) -> list[Answer]:
    """Return all answers, or the first error, once every request has ended: none goes on for a job that is done."""
    ended = await asyncio.gather(*requests, return_exceptions=True)
    answers: list[Answer] = []
    for each in ended:
        if isinstance(each, BaseException):
            raise each
        answers.append(each)
    return answers


class FairQueue:
    """`slots` for requests in flight, given out fairly between flows.

    Start-time fair queueing (Goyal, Vin, Cheng 1996): a flow's next request starts once the others have had as much
    as it had. A flow of many or costly requests delays itself only, and none starves.
    """

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._virtual_time = 0.0
        self._finish: dict[Hashable, float] = {}
        """Virtual time at which a flow's last request ends."""
        self._open: dict[Hashable, int] = {}
        """Requests of a flow that wait or are in flight."""
        self._shrunk = asyncio.Event()

    async def wait_below(self, limit: int) -> None:
        """Return once fewer than `limit` requests wait for a slot."""
        while len(self._waiting) >= limit:
            self._shrunk.clear()
            await self._shrunk.wait()

    @asynccontextmanager
    async def slot(self, flow: Hashable, cost: float) -> AsyncIterator[None]:
        """Hold a slot; `cost` is in any unit that is the same for all flows."""
        start = max(self._virtual_time, self._finish.get(flow, 0.0))
        self._finish[flow] = start + cost
        self._open[flow] = self._open.get(flow, 0) + 1
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (start, next(self._numbers), granted))
        self._grant()
        try:
            await granted
            yield
        finally:
            if granted.done() and not granted.cancelled():
                self._free += 1
            self._open[flow] -= 1
            if not self._open[flow]:
                del self._open[flow], self._finish[flow]
            self._grant()

    def _grant(self) -> None:
        while self._free and self._waiting:
            start, _, granted = heapq.heappop(self._waiting)
            self._shrunk.set()
            if granted.done():
                continue
            self._virtual_time = start
            self._free -= 1
            granted.set_result(None)
