"""The HTTP client of model servers: bounded requests in flight, retries, fairness between jobs.

An error is the request's own fault (`RefusedRequest`), a transient fault (retried here), or a lost server. In the last
case the client gets a new endpoint and sends the request again. If one of several replicas is lost, the client reports
it and uses the others until it answers again.
"""

import asyncio
import io
import json
import random
import time
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import aiohttp

from kopub.states import Reason
from kopub.vllm.client.requests import (
    AnswerTimeout,
    BusyServer,
    FairQueue,
    LostServer,
    TransientError,
    UnansweredRequest,
    check,
    message_of,
)
from kopub.vllm.endpoint import Endpoint, Target, is_alive

Answer = TypeVar("Answer")

_MAX_DEATHS = 3
"""Servers that may die while working on one request before the request itself is suspected."""
_MAX_TIME_OUTS = 2
"""Timeouts after which a request to a living server is given up."""
_MAX_RETRY_AFTER = 60.0
"""Most seconds that a server may ask to wait; a longer wait is an error of its clock or of a proxy."""
_MAX_WAIT = 20.0
"""Most seconds between two attempts, which double from one to the next."""
_CONNECT_SECONDS = 10.0
_PROBE_SECONDS = 30.0
"""Seconds for a probe: a server under full load generates a token within a few seconds, one that hangs never does."""
_SILENT_SECONDS = 60.0
"""Seconds without any answer after which a server is probed."""
_RECOVERY_SECONDS = 5.0
"""Seconds between two probes of a lost replica, whose restart takes a minute."""


class ModelServer(Protocol):
    """The provider that starts and restarts model servers.

    `lease` and `restart` raise `EngineError` if no server is available.
    """

    def lease(self) -> AbstractContextManager[Endpoint]:
        """Return an endpoint that is kept running until the context ends."""
        ...

    def restart(self, endpoint: Endpoint) -> Endpoint:
        """Return the endpoint that replaces one that died or hangs."""
        ...

    def restart_replica(self, endpoint: Endpoint, url: str, reason: str) -> Endpoint:
        """Request a restart of the replica at `url` if it hangs; others stay used.

        Returns the present endpoint at once. May be called again until the replica answers.
        """
        ...


class EndpointSource(Protocol):
    """The source of a client's endpoint; each new endpoint has a higher `generation`."""

    async def current(self) -> tuple[int, Endpoint]: ...

    async def renew(self, generation: int, reason: str) -> None:
        """Return once there is an endpoint newer than `generation`."""
        ...

    def report_unhealthy(self, generation: int, url: str, reason: str) -> None:
        """Report a lost replica of `generation` while others answer. Returns at once."""
        ...


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The limits of one request.

    They are the `seconds` for one answer, the `attempts` in total, and the seconds to `wait` before the first retry.
    """

    seconds: float = 600.0
    attempts: int = 5
    wait: float = 0.5


class _Replica:
    """One URL of an endpoint, with its connections and its health."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.up = True
        self.in_flight = 0
        self.last_answer = time.monotonic()
        self.probe: asyncio.Task[bool] | None = None
        self.hangs: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done if the last probe found that the replica generates nothing."""
        self.recovery: asyncio.Task[None] | None = None
        headers = {"Content-Type": "application/json"}
        if target.api_key:
            headers["Authorization"] = f"Bearer {target.api_key}"
        # The queue already bounds the requests in flight, and a second bound would only hide it.
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=headers)

    async def close(self) -> None:
        for task in (self.probe, self.recovery):
            if task is not None:
                task.cancel()
        await self._session.close()

    async def post(self, path: str, body: bytes, seconds: float) -> tuple[int, Any, bytes]:
        """Return status, headers and body of the answer. Raises `LostServer` or `TransientError`."""
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=_CONNECT_SECONDS)
        try:
            async with self._session.post(self.target.url + path, data=io.BytesIO(body), timeout=timeout) as response:
                return response.status, response.headers, await response.read()
        except aiohttp.ClientConnectorError as error:
            reason = error.os_error.strerror or error.os_error
            says = Reason("nobody listens at {url}: {error}", url=self.target.url, error=str(reason))
            raise LostServer(says) from error
        except aiohttp.ConnectionTimeoutError as error:
            raise LostServer(Reason("{url} takes no connection", url=self.target.url)) from error
        except TimeoutError as error:
            raise AnswerTimeout(Reason("no answer within {seconds:.0f} s", seconds=seconds)) from error
        except aiohttp.ClientError as error:
            says = Reason("the connection was cut: {error}", error=str(error) or type(error).__name__)
            raise TransientError(says) from error


class Client:
    """A client in one event loop, which sends each request to the least busy replica."""

    def __init__(self, source: EndpointSource, slots: int, retry: RetryPolicy) -> None:
        self.queue = FairQueue(slots)
        self._retries = 0
        self._source = source
        self._retry = retry
        self._generation = 0
        self._replicas: list[_Replica] = []
        self._former: list[_Replica] = []
        # The loop's own threads are not used, because probing a hanging server would keep one from preparing pages.
        self._probes = ThreadPoolExecutor(thread_name_prefix="probe")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for replica in (*self._former, *self._replicas):
            await replica.close()
        self._probes.shutdown(wait=False, cancel_futures=True)

    async def model(self) -> str:
        """Return the model's name for requests, once there is an endpoint."""
        return (await self._source.current())[1].model

    async def post(
        self, path: str, body: bytes, read: Callable[[Any], Answer], flow: Hashable, cost: float
    ) -> tuple[Answer, float]:
        """Send `body`, and return the answer, converted by `read`, with its seconds.

        `read` raises `LookupError`, `TypeError` or `ValueError` for an unexpected answer; the request is then sent
        again. Raises `RefusedRequest`, `UnansweredRequest`, or `EngineError` if no request can be answered.
        """
        async with self.queue.slot(flow, cost):
            started = time.perf_counter()
            for _ in range(_MAX_DEATHS):
                generation, endpoint = await self._source.current()
                if generation != self._generation:
                    # Requests to the former replicas end on their own.
                    self._generation = generation
                    self._former += self._replicas
                    self._replicas = [_Replica(target) for target in endpoint.targets]
                try:
                    answer = await self._send_with_retries(path, body, read)
                    return answer, time.perf_counter() - started
                except LostServer as error:
                    self._retries += 1
                    await self._source.renew(generation, str(error))
            raise UnansweredRequest(Reason("the server died {times} times while it worked on this", times=_MAX_DEATHS))

    def take_retries(self) -> int:
        """Return the number of requests sent again since the last call."""
        count, self._retries = self._retries, 0
        return count

    async def _send_with_retries(self, path: str, body: bytes, read: Callable[[Any], Answer]) -> Answer:
        """Send a request until it is answered or its attempts are used up.

        Raises `LostServer` if no replica is left, else `RefusedRequest` or `UnansweredRequest`.
        """
        attempts = 0
        while True:
            attempts += 1
            try:
                return await self._send_once(path, body, read)
            except TransientError as error:
                limit = _MAX_TIME_OUTS if isinstance(error, AnswerTimeout) else self._retry.attempts
                if attempts >= limit:
                    if not any([await self._is_alive(replica) for replica in self._usable()]):
                        raise LostServer(str(error)) from error
                    says = Reason("{reason} (after {count} attempts)", reason=str(error), count=limit)
                    raise BusyServer(says) from error
                # Chance keeps requests that failed together from coming again together.
                seconds = random.uniform(0, min(self._retry.wait * 2 ** (attempts - 1), _MAX_WAIT))
                if error.retry_after is not None:
                    seconds = min(error.retry_after, _MAX_RETRY_AFTER)
            await asyncio.sleep(seconds)
            self._retries += 1

    def _usable(self) -> list[_Replica]:
        return [replica for replica in self._replicas if replica.up]

    async def _send_once(self, path: str, body: bytes, read: Callable[[Any], Answer]) -> Answer:
        replica = min(self._usable(), key=lambda replica: replica.in_flight, default=None)
        if replica is None:
            raise LostServer("none of the servers answers")
        replica.in_flight += 1
        try:
            status, headers, content = await self._send_watched(replica, path, body)
        except LostServer as error:
            # The others are used until this one answers, unless it is a former one.
            if replica.up and replica in self._replicas:
                replica.up = False
                replica.recovery = asyncio.create_task(self._await_recovery(replica, str(error)))
            if not self._usable():
                raise
            raise TransientError(str(error)) from error
        finally:
            replica.in_flight -= 1
        replica.last_answer = time.monotonic()
        check(status, headers, content, replica.target.url)
        try:
            return read(json.loads(content))
        except (ValueError, LookupError, TypeError) as error:
            # A gateway may send its error, or a page of its own, with status 200.
            what = f"{type(error).__name__}: {error}; the server says {message_of(content)}"
            raise TransientError(Reason("the answer is not whole: {error}", error=what)) from error

    async def _send_watched(self, replica: _Replica, path: str, body: bytes) -> tuple[int, Any, bytes]:
        """Wait for an answer, and probe the replica if it answers nothing meanwhile."""
        exchange = asyncio.create_task(replica.post(path, body, self._retry.seconds))
        silence = min(_SILENT_SECONDS, self._retry.seconds)
        try:
            while True:
                await asyncio.wait({exchange, replica.hangs}, timeout=silence, return_when=asyncio.FIRST_COMPLETED)
                late = exchange.done() and isinstance(exchange.exception(), AnswerTimeout)
                if exchange.done() and not late:
                    return exchange.result()
                silent = late or time.monotonic() - replica.last_answer >= silence
                if replica.hangs.done() or (silent and not await self._is_alive(replica)):
                    raise LostServer(Reason("{url} hangs: it generates nothing", url=replica.target.url))
                if late:
                    return exchange.result()
        finally:
            exchange.cancel()

    async def _await_recovery(self, replica: _Replica, reason: str) -> None:
        """Report a replica again and again, as a report may be lost, until it answers."""
        while replica in self._replicas:
            if self._usable():
                self._source.report_unhealthy(self._generation, replica.target.url, reason)
            await asyncio.sleep(min(_RECOVERY_SECONDS, self._retry.seconds))
            if await self._is_alive(replica):
                replica.up = True
                return

    async def _is_alive(self, replica: _Replica) -> bool:
        """Return whether a replica generates anything; concurrent callers share one probe."""
        if replica.probe is None or replica.probe.done():
            replica.probe = asyncio.create_task(self._probe(replica))
        return await asyncio.shield(replica.probe)

    async def _probe(self, replica: _Replica) -> bool:
        seconds = min(_PROBE_SECONDS, self._retry.seconds)
        loop = asyncio.get_running_loop()
        alive = await loop.run_in_executor(self._probes, is_alive, replica.target, seconds)
        if alive:
            replica.last_answer = time.monotonic()
        if alive and replica.hangs.done():
            replica.hangs = loop.create_future()
        elif not alive and not replica.hangs.done():
            replica.hangs.set_result(None)
        return alive
