"""The one HTTP client of model servers: bounded in flight, fair between jobs, bounded in its second tries.

An error is either the request's own fault (`Refused`), a server's that may pass (retried here), or
a server that is gone, in which case a new endpoint is asked for and the request is sent again. One of
several replicas that is gone is reported, and the others are used until it answers.
"""

import asyncio
import io
import json
import time
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import aiohttp
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_random_exponential

from resources.vllm.client.fair_queue import Turns
from resources.vllm.client.http_errors import Gone, Passing, TimedOut, Unanswered, check
from resources.vllm.endpoint import Endpoint
from resources.vllm.supervisor.probe import Target, answers

Answer = TypeVar("Answer")

_MAX_DEATHS = 3
"""Servers that may die under one request before the request itself is the suspect."""
_MAX_TIME_OUTS = 2
"""A request that a living server did not answer in time twice will not be answered."""
_MAX_RETRY_AFTER = 60.0
"""Seconds a server may ask for; a longer wait is a fault of its clock or of a proxy."""
_CONNECT_SECONDS = 10.0
_PROBE_SECONDS = 30.0
"""A server under full load answers one token in a few seconds; one that hangs never does."""
_SILENT_SECONDS = 60.0
"""Without an answer to anything for so long, a server is looked after."""
_RETURN_SECONDS = 5.0
"""Between two looks at a replica that was found gone: nothing beside its start of a minute."""


class Server(Protocol):
    """What starts and keeps the servers. `lease` and `restart` raise `EngineError` when there is none to be had."""

    def lease(self) -> AbstractContextManager[Endpoint]:
        """An endpoint for as long as the context is held."""
        ...

    def restart(self, endpoint: Endpoint) -> Endpoint:
        """The endpoint that replaces one which died or hangs."""
        ...

    def heal(self, endpoint: Endpoint, url: str, reason: str) -> Endpoint:
        """Have the replica at `url` looked after while the others are used; the endpoint as it is now.

        Returns at once, and may be called until the replica answers again.
        """
        ...


class Link(Protocol):
    """Where a client gets its endpoint from. `generation` grows with every new one."""

    async def current(self) -> tuple[int, Endpoint]: ...

    async def renew(self, generation: int, reason: str) -> None:
        """Return once there is an endpoint newer than `generation`."""
        ...

    def doubt(self, generation: int, url: str, reason: str) -> None:
        """Report that one replica of `generation` is gone while others answer. Returns at once."""
        ...


@dataclass(frozen=True, slots=True)
class Patience:
    """How long and how often: `seconds` for one answer, `attempts` in all, `wait` seconds before the first repeat."""

    seconds: float = 600.0
    attempts: int = 5
    wait: float = 0.5


class _Replica:
    """One URL of an endpoint: its connections, and what is known of its health."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.up = True
        self.under_way = 0
        self.last_sign = time.monotonic()
        self.look: asyncio.Task[bool] | None = None
        self.hangs: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done from a look that finds nobody at work to the next that does."""
        self.returning: asyncio.Task[None] | None = None
        headers = {"Content-Type": "application/json"}
        if target.api_key:
            headers["Authorization"] = f"Bearer {target.api_key}"
        # The turns bound what is under way; a second bound here would only hide it.
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=headers)

    async def close(self) -> None:
        for task in (self.look, self.returning):
            if task is not None:
                task.cancel()
        await self._session.close()

    async def post(self, path: str, body: bytes, seconds: float) -> tuple[int, Any, bytes]:
        """Status, headers and body of the answer. Raises `Gone` or `Passing`."""
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=_CONNECT_SECONDS)
        try:
            async with self._session.post(self.target.url + path, data=io.BytesIO(body), timeout=timeout) as response:
                return response.status, response.headers, await response.read()
        except aiohttp.ClientConnectorError as error:
            raise Gone(f"nobody listens at {self.target.url}: {error.os_error.strerror or error.os_error}") from error
        except aiohttp.ConnectionTimeoutError as error:
            raise Gone(f"{self.target.url} takes no connection") from error
        except TimeoutError as error:
            raise TimedOut(f"no answer within {seconds:.0f} s") from error
        except aiohttp.ClientError as error:
            raise Passing(f"the connection was cut: {error or type(error).__name__}") from error


class Client:
    """Sends requests from one event loop to the endpoint of a `Link`, to the replica with the fewest under way."""

    def __init__(self, link: Link, slots: int, patience: Patience) -> None:
        self.turns = Turns(slots)
        self._repeats = 0
        self._link = link
        self._patience = patience
        self._generation = 0
        self._replicas: list[_Replica] = []
        self._former: list[_Replica] = []
        # Not the loop's own threads: a look at a server that hangs would keep one from preparing pages.
        self._looks = ThreadPoolExecutor(thread_name_prefix="look")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for replica in (*self._former, *self._replicas):
            await replica.close()
        self._looks.shutdown(wait=False, cancel_futures=True)

    async def model(self) -> str:
        """The name that requests call the model by. Asks for the endpoint when there is none yet."""
        return (await self._link.current())[1].model

    async def post(
        self, path: str, body: bytes, read: Callable[[Any], Answer], flow: Hashable, cost: float
    ) -> tuple[Answer, float]:
        """What `read` makes of the JSON that answers `body`, and the seconds it took since it was sent.

        `read` raises `LookupError`, `TypeError` or `ValueError` for an answer of another shape, which is
        then asked for again. Raises `Refused`, `Unanswered`, or `EngineError` when no request can be answered.
        """
        async with self.turns.turn(flow, cost):
            started = time.perf_counter()
            for _ in range(_MAX_DEATHS):
                generation, endpoint = await self._link.current()
                self._follow(generation, endpoint)
                try:
                    answer = await self._retried(path, body, read)
                    return answer, time.perf_counter() - started
                except Gone as error:
                    self._repeats += 1
                    await self._link.renew(generation, str(error))
            raise Unanswered(f"the server died {_MAX_DEATHS} times while it worked on this")

    def take_repeats(self) -> int:
        """Requests sent again since this was last asked, for whatever fault."""
        taken, self._repeats = self._repeats, 0
        return taken

    def _follow(self, generation: int, endpoint: Endpoint) -> None:
        """Turn to the replicas of a new endpoint. What is under way at the former ones ends by itself."""
        if generation != self._generation:
            self._generation = generation
            self._former += self._replicas
            self._replicas = [_Replica(target) for target in endpoint.targets]

    async def _retried(self, path: str, body: bytes, read: Callable[[Any], Answer]) -> Answer:
        """Raises `Gone` when no replica is left, else `Refused` or `Unanswered`."""
        may_pass = retry_if_exception_type(Passing)
        attempts = AsyncRetrying(retry=may_pass, stop=self._enough, wait=self._wait, reraise=True)
        try:
            async for attempt in attempts:
                with attempt:
                    if attempt.retry_state.attempt_number > 1:
                        self._repeats += 1
                    return await self._once(path, body, read)
        except Passing as error:
            if not any([await self._alive(replica) for replica in self._up()]):
                raise Gone(str(error)) from error
            raise Unanswered(f"{error} (after {self._limit(error)} attempts)") from error
        raise AssertionError("tenacity ends with an answer or an error")

    def _limit(self, error: BaseException | None) -> int:
        return _MAX_TIME_OUTS if isinstance(error, TimedOut) else self._patience.attempts

    def _enough(self, state: RetryCallState) -> bool:
        return stop_after_attempt(self._limit(state.outcome.exception() if state.outcome else None))(state)

    def _wait(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, Passing) and error.retry_after is not None:
            return min(error.retry_after, _MAX_RETRY_AFTER)
        return wait_random_exponential(self._patience.wait, max=20.0)(state)

    def _up(self) -> list[_Replica]:
        return [replica for replica in self._replicas if replica.up]

    async def _once(self, path: str, body: bytes, read: Callable[[Any], Answer]) -> Answer:
        replica = min(self._up(), key=lambda replica: replica.under_way, default=None)
        if replica is None:
            raise Gone("none of the servers answers")
        replica.under_way += 1
        try:
            status, headers, content = await self._watched(replica, path, body)
        except Gone as error:
            self._put_aside(replica, str(error))
            if not self._up():
                raise
            raise Passing(str(error)) from error
        finally:
            replica.under_way -= 1
        replica.last_sign = time.monotonic()
        check(status, headers, content, replica.target.url)
        try:
            return read(json.loads(content))
        except (ValueError, LookupError, TypeError) as error:
            raise Passing(f"the answer is not whole: {type(error).__name__}: {error}") from error

    async def _watched(self, replica: _Replica, path: str, body: bytes) -> tuple[int, Any, bytes]:
        """Wait for an answer, and look after a replica that gives no sign of life meanwhile."""
        exchange = asyncio.create_task(replica.post(path, body, self._patience.seconds))
        silence = min(_SILENT_SECONDS, self._patience.seconds)
        try:
            while True:
                await asyncio.wait({exchange, replica.hangs}, timeout=silence, return_when=asyncio.FIRST_COMPLETED)
                late = exchange.done() and isinstance(exchange.exception(), TimedOut)
                if exchange.done() and not late:
                    return exchange.result()
                silent = late or time.monotonic() - replica.last_sign >= silence
                if replica.hangs.done() or (silent and not await self._alive(replica)):
                    raise Gone(f"{replica.target.url} hangs: it generates nothing")
                if late:
                    return exchange.result()
        finally:
            exchange.cancel()

    def _put_aside(self, replica: _Replica, reason: str) -> None:
        """Use the others until this one answers again; one of a former endpoint will not be used again."""
        if replica.up and replica in self._replicas:
            replica.up = False
            replica.returning = asyncio.create_task(self._take_back(replica, reason))

    async def _take_back(self, replica: _Replica, reason: str) -> None:
        """Use a replica again once it answers, and report it until then: a report may come at a bad moment."""
        while replica in self._replicas:
            if self._up():
                self._link.doubt(self._generation, replica.target.url, reason)
            await asyncio.sleep(min(_RETURN_SECONDS, self._patience.seconds))
            if await self._alive(replica):
                replica.up = True
                return

    async def _alive(self, replica: _Replica) -> bool:
        """Whether a replica gets anything done; requests that doubt it together share one look."""
        if replica.look is None or replica.look.done():
            replica.look = asyncio.create_task(self._look(replica))
        return await asyncio.shield(replica.look)

    async def _look(self, replica: _Replica) -> bool:
        seconds = min(_PROBE_SECONDS, self._patience.seconds)
        loop = asyncio.get_running_loop()
        alive = await loop.run_in_executor(self._looks, answers, replica.target, seconds)
        if alive:
            replica.last_sign = time.monotonic()
        if alive and replica.hangs.done():
            replica.hangs = loop.create_future()
        elif not alive and not replica.hangs.done():
            replica.hangs.set_result(None)
        return alive
