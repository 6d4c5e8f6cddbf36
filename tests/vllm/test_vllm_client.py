"""The client and its worker pool against a misbehaving server: every job ends once."""

import asyncio
import itertools
import socket
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from aiohttp import web

from kopub.errors import EngineError
from kopub.vllm.client.client import Client, RetryPolicy
from kopub.vllm.client.requests import FairQueue, OversizedRequest, RefusedRequest, UnansweredRequest
from kopub.vllm.client.worker_pool import WorkerPool
from kopub.vllm.endpoint import Endpoint
from tests.doubles.asking import PATH, Asking, ask, body, words
from tests.doubles.http_double import HttpDouble, SentRequest, echo, error, says, truncated

HASTY = RetryPolicy(seconds=5.0, attempts=4, wait=0.001)
SOON = 60.0
"""Seconds for what takes well under one on an idle machine."""


@dataclass
class Servers:
    """A `ModelServer` over doubles: each restart moves to the next; replicas are not restarted."""

    doubles: list[HttpDouble]
    leases: int = 0
    restarts: list[Endpoint] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)

    @contextmanager
    def lease(self) -> Iterator[Endpoint]:
        self.leases += 1
        yield self._endpoint(0)

    def restart(self, endpoint: Endpoint) -> Endpoint:
        self.restarts.append(endpoint)
        if len(self.restarts) == len(self.doubles):
            raise EngineError("the server keeps dying")
        return self._endpoint(len(self.restarts))

    def restart_replica(self, endpoint: Endpoint, url: str, reason: str) -> Endpoint:
        self.reports.append(url)
        return endpoint

    def _endpoint(self, *at: int) -> Endpoint:
        return Endpoint(tuple(self.doubles[each].url for each in at), "secret", "glm", images=False)


class Pair(Servers):
    """Servers whose first two doubles are replicas of one server."""

    @contextmanager
    def lease(self) -> Iterator[Endpoint]:
        yield self._endpoint(0, 1)


class Moving(Pair):
    """A pair whose first replica moves to another URL once it is reported."""

    def restart_replica(self, endpoint: Endpoint, url: str, reason: str) -> Endpoint:
        super().restart_replica(endpoint, url, reason)
        return self._endpoint(2, 1)


class Fixed:
    """A source of servers that are never restarted."""

    def __init__(self, *urls: str) -> None:
        self._endpoint = Endpoint(urls, "secret", "glm", images=False)
        self.reports: list[str] = []

    async def current(self) -> tuple[int, Endpoint]:
        return 1, self._endpoint

    async def renew(self, generation: int, reason: str) -> None:
        raise EngineError(reason)

    def report_unhealthy(self, generation: int, url: str, reason: str) -> None:
        assert url in reason
        self.reports.append(reason)


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(SOON):
        while not condition():
            await asyncio.sleep(0.01)


def one(double: HttpDouble, retry: RetryPolicy = HASTY) -> str:
    async def run() -> str:
        async with Client(Fixed(double.url), 4, retry) as client:
            return await ask(client)

    return asyncio.run(run())


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_fault_that_passes_is_retried(status: int) -> None:
    async def reply(asked: SentRequest) -> web.StreamResponse:
        return error(status) if asked.number < 2 else says("good")

    with HttpDouble(reply) as double:
        assert one(double) == "good"
        assert len(double.asked) == 3


def test_retry_after_is_waited_for() -> None:
    async def reply(asked: SentRequest) -> web.StreamResponse:
        return says("good") if asked.number else error(429, "slow down", {"Retry-After": "0.2"})

    async def run(double: HttpDouble) -> float:
        async with Client(Fixed(double.url), 4, HASTY) as client:
            return (await client.post(PATH, body("x"), words, "page", 1.0))[1]

    with HttpDouble(reply) as double:
        assert asyncio.run(run(double)) >= 0.2


@pytest.mark.parametrize("cut", [True, False], ids=["cut", "truncated"])
def test_an_answer_that_is_not_whole_is_asked_for_again(cut: bool) -> None:
    async def reply(asked: SentRequest) -> web.StreamResponse:
        if asked.number < 2:
            if not cut:
                return truncated()
            asked.cut()
        return says("good")

    with HttpDouble(reply) as double:
        assert one(double) == "good"
        assert len(double.asked) == 3


def test_attempts_are_bounded_while_the_server_lives() -> None:
    async def reply(asked: SentRequest) -> web.StreamResponse:
        return error(500, "no luck")

    with HttpDouble(reply) as double:
        with pytest.raises(UnansweredRequest, match="HTTP 500: no luck"):
            one(double)
        assert len(double.asked) == HASTY.attempts
        assert double.probes == 1


def test_a_server_that_breaks_its_refusal_of_a_probe_off_is_lost() -> None:
    async def reply(asked: SentRequest) -> web.StreamResponse:
        return error(503, "going down")

    async def break_off(asked: SentRequest) -> web.StreamResponse:
        response = web.StreamResponse(status=503)
        await response.prepare(asked.request)
        await response.write(b"going")
        asked.cut()
        return response

    with HttpDouble(reply, break_off) as double, pytest.raises(EngineError, match="HTTP 503: going down"):
        one(double)


def test_an_answer_that_drips_is_given_up_in_time() -> None:
    async def drip(asked: SentRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        for _ in range(1000):
            if not response.prepared:
                await response.prepare(asked.request)
            await response.write(b" ")
            await asyncio.sleep(0.05)
        return response

    with HttpDouble(drip) as double:
        with pytest.raises(UnansweredRequest, match="no answer within"):
            one(double, RetryPolicy(seconds=0.3, attempts=9, wait=0.001))
        assert len(double.asked) == 2


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refusal_is_not_repeated(status: int) -> None:
    async def reply(asked: SentRequest) -> web.StreamResponse:
        return error(status, "image item exceeds the encoder cache")

    with HttpDouble(reply) as double:
        with pytest.raises(RefusedRequest, match="exceeds the encoder cache"):
            one(double)
        assert len(double.asked) == 1


@pytest.mark.parametrize(
    ("status", "message", "smaller"),
    [
        (413, "no", True),
        (400, "The decoder prompt (length 9000) is longer than the maximum model length of 8192.", True),
        (400, "This model's maximum context length is 8192 tokens. However, you requested 9000", True),
        (422, "The image item exceeds the pre-allocated encoder cache size 2048.", True),
        (400, "unknown field", False),
    ],
)
def test_a_refusal_says_whether_a_smaller_request_would_do(status: int, message: str, smaller: bool) -> None:
    async def reply(asked: SentRequest) -> web.StreamResponse:
        return error(status, message)

    with HttpDouble(reply) as double, pytest.raises(RefusedRequest) as refused:
        one(double)
    assert isinstance(refused.value, OversizedRequest) == smaller


def test_a_wrong_key_or_model_ends_everything() -> None:
    async def reply(asked: SentRequest) -> web.StreamResponse:
        return error(404, "the model `glm` does not exist")

    with HttpDouble(reply) as double, pytest.raises(EngineError, match=r"does not exist.*check the URL"):
        one(double)


def test_another_replica_answers_for_one_that_is_gone() -> None:
    with HttpDouble() as gone, HttpDouble() as good:
        gone.die()

        async def run() -> list[str]:
            async with Client(Fixed(gone.url, good.url), 4, HASTY) as client:
                return await asyncio.gather(*(ask(client, str(i)) for i in range(10)))

        assert len(asyncio.run(run())) == len(good.asked) == 10


def hanging(well: threading.Event) -> Callable[[SentRequest], Awaitable[web.StreamResponse]]:
    """Return a reply that hangs until `well` is set, too late for many requests."""

    async def reply(asked: SentRequest) -> web.StreamResponse:
        while not well.is_set():
            await asyncio.sleep(0.01)
        return says(asked.prompt)

    return reply


def test_a_replica_that_hangs_is_reported_and_used_again_once_it_answers() -> None:
    well = threading.Event()
    once = RetryPolicy(seconds=0.5, attempts=2, wait=0.001)  # a request survives one hang and nothing more

    async def run(bad: HttpDouble, good: HttpDouble) -> None:
        source = Fixed(bad.url, good.url)
        async with Client(source, 8, once) as client:
            assert len(await asyncio.gather(*(ask(client, str(i)) for i in range(12)))) == 12
            lost = len(bad.asked)
            assert lost == 4
            await until(lambda: len(source.reports) > 1)
            assert set(source.reports) == {f"{bad.url} hangs: it generates nothing"}
            await asyncio.gather(*(ask(client, str(i)) for i in range(12)))
            assert len(bad.asked) == lost
            well.set()
            async with asyncio.timeout(SOON):
                while len(bad.asked) == lost:
                    await ask(client)
            told = len(source.reports)
            await asyncio.gather(*(ask(client, str(i)) for i in range(12)))
            assert len(source.reports) == told

    with HttpDouble(hanging(well), probe=hanging(well)) as bad, HttpDouble() as good:
        asyncio.run(run(bad, good))


def test_what_a_replica_does_not_answer_in_time_is_not_lost_when_it_has_just_hung() -> None:
    never = threading.Event()

    async def last_words(asked: SentRequest) -> web.StreamResponse:
        if asked.number != 1:
            return await hanging(never)(asked)
        await asyncio.sleep(0.3)
        return says(asked.prompt)

    async def run(bad: HttpDouble, good: HttpDouble) -> list[str]:
        once = RetryPolicy(seconds=0.5, attempts=2, wait=0.001)
        async with Client(Fixed(bad.url, good.url), 4, once) as client:
            return await asyncio.gather(*(ask(client, str(i)) for i in range(4)))

    with HttpDouble(last_words, probe=hanging(never)) as bad, HttpDouble(parrot) as good:
        assert asyncio.run(run(bad, good)) == ["0", "1", "2", "3"]


def test_all_that_is_under_way_at_a_replica_leaves_it_when_one_request_finds_it_hanging(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    never, free = threading.Event(), threading.Event()
    monkeypatch.setattr("kopub.vllm.client.client._PROBE_SECONDS", 0.1)
    monkeypatch.setattr("kopub.vllm.client.client._SILENT_SECONDS", 3600)

    async def run(bad: HttpDouble, good: HttpDouble) -> list[str]:
        async with Client(Fixed(bad.url, good.url), 8, RetryPolicy(seconds=3600, wait=0.001)) as client:
            patient = [asyncio.create_task(ask(client, str(i))) for i in range(2)]
            await until(lambda: bad.asked and good.asked)
            monkeypatch.setattr("kopub.vllm.client.client._SILENT_SECONDS", 0.1)
            finder = asyncio.create_task(ask(client, "2"))
            await until(lambda: len(bad.asked) == 2)
            free.set()
            async with asyncio.timeout(SOON):
                return await asyncio.gather(*patient, finder)

    with HttpDouble(hanging(never), probe=hanging(never)) as bad, HttpDouble(hanging(free)) as good:
        assert asyncio.run(run(bad, good)) == ["0", "1", "2"]


def test_a_replica_that_takes_no_connection_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kopub.vllm.client.client._CONNECT_SECONDS", 0.2)

    async def run(url: str, good: HttpDouble) -> tuple[str, list[str]]:
        source = Fixed(url, good.url)
        async with Client(source, 4, HASTY) as client:
            return await ask(client), source.reports

    with socket.socket() as full, socket.socket() as only, HttpDouble() as good:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        only.connect(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        assert asyncio.run(run(url, good)) == ("read 0", [f"{url} takes no connection"])


def test_what_is_under_way_is_bounded() -> None:
    async def slow(asked: SentRequest) -> web.StreamResponse:
        await asyncio.sleep(0.01)
        return says("ok")

    async def run(url: str) -> None:
        async with Client(Fixed(url), 3, HASTY) as client:
            await asyncio.gather(*(ask(client, str(i)) for i in range(20)))

    with HttpDouble(slow) as double:
        asyncio.run(run(double.url))
        assert double.most_under_way == 3


def served(slots: int, asks: list[tuple[str, float]]) -> list[str]:
    """Return flows in the order served, when all ask at once for one loop step."""

    async def run() -> list[str]:
        queue, order = FairQueue(slots), []

        async def one(flow: str, cost: float) -> None:
            async with queue.slot(flow, cost):
                order.append(flow)
                await asyncio.sleep(0)

        await asyncio.gather(*(one(*each) for each in asks))
        return order

    return asyncio.run(run())


def test_a_page_of_many_regions_does_not_hold_up_the_others() -> None:
    order = served(2, [*[("dense", 1.0)] * 60, *[("a", 1.0)] * 2, *[("b", 1.0)] * 2])
    assert max(at for at, flow in enumerate(order) if flow != "dense") < 12
    assert Counter(order) == {"dense": 60, "a": 2, "b": 2}


def test_a_costly_region_delays_its_own_page_only() -> None:
    order = served(1, [("table", 6000.0), ("table", 100.0), *[(page, 100.0) for page in "abcdef"]])
    assert order.index("table") == 0
    assert order[-1] == "table"


def test_a_large_page_is_not_starved_by_a_stream_of_small_ones() -> None:
    async def run() -> int:
        queue, served = FairQueue(1), Counter[str]()

        async def one(flow: str) -> None:
            async with queue.slot(flow, 1.0):
                served[flow] += 1
                await asyncio.sleep(0)

        large = [asyncio.create_task(one("large")) for _ in range(20)]
        small = 0
        while not all(task.done() for task in large):
            small += 1
            await asyncio.gather(one(f"small{small}"), one(f"small{small}"))
        return small

    assert asyncio.run(run()) <= 21


def test_a_cancelled_turn_gives_its_slot_back() -> None:
    async def run() -> None:
        queue = FairQueue(1)

        async def hold() -> None:
            async with queue.slot("a", 1.0):
                await asyncio.sleep(60)

        holder, waiter = asyncio.create_task(hold()), asyncio.create_task(hold())
        await asyncio.sleep(0)
        for task in (waiter, holder):
            task.cancel()
        await asyncio.gather(holder, waiter, return_exceptions=True)
        async with asyncio.timeout(5), queue.slot("b", 1.0):
            pass

    asyncio.run(run())


def lost(job: list[str], reason: str) -> tuple[str, ...]:
    return ("lost", job[0], reason)


def pool(servers: Servers, slots: int = 8, processes: int = 1, **kill: str) -> WorkerPool[Any, Any, tuple[str, ...]]:
    return WorkerPool(servers, partial(Asking, **kill), lost, slots, HASTY, processes=processes)


async def parrot(asked: SentRequest) -> web.StreamResponse:
    return says(asked.prompt)


def jobs(count: int) -> list[list[str]]:
    return [[f"{job}.{word}" for word in range(3)] for job in range(count)]


def test_every_job_comes_back_once_from_several_processes() -> None:
    with HttpDouble(parrot) as double:
        results = list(pool(Servers([double]), processes=2).run(jobs(20)))
        assert sorted(results) == sorted(map(tuple, jobs(20)))
        assert len(double.asked) == 60


def test_jobs_are_taken_as_the_server_answers() -> None:
    taken = []

    def stream() -> Iterator[list[str]]:
        for job in jobs(200):
            taken.append(job)
            yield job

    with HttpDouble(parrot) as double:
        results = pool(Servers([double]), slots=2).run(stream())
        next(results)
        # Two jobs are under way, two wait, and each preparing thread holds one.
        assert len(taken) <= 8
        assert len(list(results)) == 199


def test_no_server_is_started_for_no_work() -> None:
    servers = Servers([HttpDouble()])
    assert list(pool(servers).run([])) == []
    assert servers.leases == 0


@pytest.mark.parametrize("page", [b"<!doctype html>\n<title>Not here</title>\n", b"\xff\xfe"], ids=["HTML", "no text"])
def test_a_server_with_another_page_in_place_of_figures_is_used_without_them(
    page: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def front_page(request: web.Request) -> web.Response:
        return web.Response(body=page)

    monkeypatch.setattr("tests.doubles.http_double._metrics", front_page)
    with HttpDouble(parrot) as double:
        results = list(pool(Servers([double])).run(jobs(3)))
    assert sorted(results) == sorted(map(tuple, jobs(3)))


def test_a_job_that_cannot_be_prepared_leaves_the_others() -> None:
    with HttpDouble(parrot) as double:
        results = list(pool(Servers([double])).run([["raise"], *jobs(3)]))
    assert [result for result in results if result[0] == "lost"] == [
        ("lost", "raise", "preparing it failed: ValueError: cannot be prepared")
    ]
    assert len(results) == 4


def test_what_no_job_can_be_prepared_without_ends_the_run() -> None:
    with HttpDouble(parrot) as double, pytest.raises(EngineError, match="the disk is full"):
        list(pool(Servers([double])).run([["full"], *jobs(3)]))


def test_a_server_that_dies_is_restarted_once_and_only_what_was_in_flight_is_sent_again() -> None:
    with ExitStack() as stack:
        second = stack.enter_context(HttpDouble(parrot))

        async def die_at_ten(asked: SentRequest) -> web.StreamResponse:
            if asked.number == 10:
                first.die_soon()
            if asked.number >= 10:
                await asyncio.sleep(60)
            return says(asked.prompt)

        first = stack.enter_context(HttpDouble(die_at_ten))
        servers = Servers([first, second])
        results = list(pool(servers, slots=4).run(jobs(10)))
        assert sorted(results) == sorted(map(tuple, jobs(10)))
        assert len(servers.restarts) == 1
        answered = {asked.prompt for asked in first.asked[:10]}
        again = [asked.prompt for asked in second.asked]
        assert len(again) == len(set(again)) == 20
        assert answered.isdisjoint(again)


def test_a_server_that_hangs_is_replaced() -> None:
    async def never(asked: SentRequest) -> web.StreamResponse:
        await asyncio.sleep(600)
        return says("never seen")

    with HttpDouble(never, probe=never) as hanging, HttpDouble(parrot) as good:
        servers = Servers([hanging, good])
        brisk = RetryPolicy(seconds=0.5, attempts=4, wait=0.001)
        results = list(WorkerPool(servers, Asking, lost, 4, brisk, processes=1).run(jobs(4)))
        assert sorted(results) == sorted(map(tuple, jobs(4)))
        assert len(servers.restarts) == 1


def test_two_processes_that_lose_the_server_together_lead_to_one_restart() -> None:
    with HttpDouble() as gone, HttpDouble(parrot) as good:
        gone.die()
        servers = Servers([gone, good])
        assert len(list(pool(servers, processes=2).run(jobs(12)))) == 12
        assert len(servers.restarts) == 1


def test_a_replica_that_came_back_at_another_url_is_used_there() -> None:
    with HttpDouble(parrot) as gone, HttpDouble(parrot) as good, HttpDouble(parrot) as moved:
        gone.die()
        servers = Moving([gone, good, moved])
        given: list[list[str]] = []

        def stream() -> Iterator[list[str]]:
            deadline = time.monotonic() + SOON
            for number in itertools.count():
                if len(moved.asked) > 5:
                    return
                assert time.monotonic() < deadline, "it was never used"
                given.append([f"{number}.0"])
                yield given[-1]

        results = list(pool(servers, processes=2).run(stream()))
        assert sorted(results) == sorted(map(tuple, given))
        assert servers.reports == [gone.url]
        assert servers.restarts == []


def test_pages_are_prepared_while_a_replica_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    well = threading.Event()
    monkeypatch.setattr("kopub.vllm.client.client._SILENT_SECONDS", 0.1)

    given: list[list[str]] = []

    def stream() -> Iterator[list[str]]:
        while not well.is_set():
            given.append([f"{len(given)}.0"])
            yield given[-1]

    with HttpDouble(hanging(well), probe=hanging(well)) as bad, HttpDouble(parrot) as good:
        servers = Pair([bad, good])
        retry = RetryPolicy(seconds=3600, wait=0.001)
        coming = WorkerPool(servers, Asking, lost, 4, retry, processes=1, threads=1).run(stream())
        results = []
        while not bad.probes:
            results.append(next(coming))
        results += [next(coming) for _ in range(30)]  # more than were prepared
        assert servers.reports == []
        well.set()
        assert sorted([*results, *coming]) == sorted(map(tuple, given))


def test_a_server_that_cannot_be_restarted_ends_the_run_with_its_reason() -> None:
    with HttpDouble() as gone:
        gone.die()
        with pytest.raises(EngineError, match="keeps dying"):
            list(pool(Servers([gone])).run(jobs(3)))


def test_a_request_that_outlives_no_server_is_given_up() -> None:
    async def poison(asked: SentRequest) -> web.StreamResponse:
        if asked.prompt == "poison":
            asked.double.die_soon()
            await asyncio.sleep(60)
        return says(asked.prompt)

    with ExitStack() as stack:
        doubles = [stack.enter_context(HttpDouble(poison)) for _ in range(4)]
        results = list(pool(Servers(doubles), slots=1).run([["poison"], ["fine"]]))
    assert ("fine",) in results
    assert any(result[0] == "lost" and "died 3 times" in result[2] for result in results)


def test_a_killed_client_process_is_replaced_and_its_other_jobs_are_done(tmp_path: Path) -> None:
    marker = tmp_path / "kills"
    with HttpDouble(echo) as double:
        results = list(pool(Servers([double]), processes=2, kill="5.0", marker=str(marker)).run(jobs(12)))
    assert len(results) == 12
    assert [result[:2] for result in results if result[0] == "lost"] == [("lost", "5.0")]
    assert len(marker.read_text()) == 2


@pytest.mark.slow
def test_client_processes_may_die_as_often_as_a_run_has_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = ["5.0" if job % 6 == 5 else f"{job}.0" for job in range(24)]
    monkeypatch.setattr("kopub.vllm.client.worker_pool._JOBS_PER_DEATH", 2)
    with HttpDouble(echo) as double:
        results = list(pool(Servers([double]), processes=2, kill="5.0").run([word] for word in kills))
        assert sorted(result[0] == "lost" for result in results) == [False] * 20 + [True] * 4
        with pytest.raises(EngineError, match="keep dying"):
            list(pool(Servers([double]), processes=2, kill="5.0").run([["5.0"]] * 24))


def test_a_result_that_cannot_travel_is_a_bug_and_says_so() -> None:
    with HttpDouble(parrot) as double, pytest.raises(EngineError, match="cannot be handed over"):
        list(pool(Servers([double]), processes=2).run([["unpicklable"]]))


def test_a_caller_that_stops_early_leaves_nothing_running() -> None:
    before = set(psutil.Process().children())
    with HttpDouble(parrot) as double:
        results = pool(Servers([double]), processes=2).run(jobs(50))
        next(results)
        assert len(set(psutil.Process().children()) - before) == 2
        results.close()  # type: ignore[attr-defined]
        assert set(psutil.Process().children()) <= before
