"""Figures of a room for Prometheus: pages by state, scores, and requests."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kopub.web.own_pages import App, Message, Receive, Scope, Send

if TYPE_CHECKING:
    from kopub.web.room import Room

PATH = "/metrics"


class RoomMetrics(Collector):
    """What a room shows and answers, in a registry of its own."""

    def __init__(self, room: "Room") -> None:
        self._room = room
        self.registry = CollectorRegistry()
        self.registry.register(self)
        labels = ("door", "status")
        self.requests = Counter("kopub_requests", "Requests answered.", labels, registry=self.registry)
        self.seconds = Histogram(
            "kopub_request_seconds", "Seconds until a request was answered.", ("door",), registry=self.registry
        )

    def collect(self) -> Iterator[Metric]:
        """Yield the figures of the corpus as the room shows it."""
        now = self._room.now
        yield GaugeMetricFamily("kopub_corpus_pages", "Pages of the corpus.", len(now.corpus.pages))
        yield GaugeMetricFamily("kopub_corpus_shards", "Shards of the corpus.", len(now.corpus.shards))
        shards = GaugeMetricFamily("kopub_table_shards", "Shards of a table that are made.", labels=["table"])
        rows = GaugeMetricFamily("kopub_table_rows", "Rows of a table by state.", labels=["table", "state"])
        for table in now.tables:
            shards.add_metric([table.name], table.made)
            for state, count in table.states.items():
                rows.add_metric([table.name, str(state)], count)
        yield from (shards, rows)
        doubtful = GaugeMetricFamily("kopub_listed_pages", "Pages to look at, by list.", labels=["list"])
        for name, pages in now.lists.items():
            doubtful.add_metric([name], len(pages))
        yield doubtful
        scores = GaugeMetricFamily("kopub_score", "Scores of the current tables.", labels=["kind", "of", "metric"])
        for score in now.scores:
            scores.add_metric([score.kind, score.of, score.metric], score.value)
        yield scores


class CountedRequests:
    """An ASGI middleware that counts the requests to `app` by door and status."""

    def __init__(self, app: App, metrics: RoomMetrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        began, status = time.monotonic(), 500
        door = "api" if scope["path"].startswith("/api/") else "room"

        async def seen(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._app(scope, receive, seen)
        finally:
            self._metrics.requests.labels(door, str(status)).inc()
            self._metrics.seconds.labels(door).observe(time.monotonic() - began)
