"""A running server as its clients see it: its URLs, health and metrics."""

import base64
import json
import struct
import time
import zlib
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

from kopub.errors import visible

Samples = defaultdict[str, float]
"""Sums by sample name over all labels, except labels that distinguish kinds, which are appended: `name/kind`."""


@dataclass(frozen=True, slots=True)
class Target:
    """One replica that takes requests.

    `runner` is generate, pooling (vectors) or classify (scores).
    """

    url: str
    api_key: str
    model: str
    runner: str
    images: bool


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server that takes requests: equal replicas at `urls`, and the model's name.

    `api_key` is "" for a server without one. `folder` and `boot` identify a start of a managed server; an external one
    has no folder.
    """

    urls: tuple[str, ...]
    api_key: str = field(repr=False)
    model: str
    runner: str = "generate"
    images: bool = True
    folder: Path | None = None
    boot: int = 0

    @property
    def targets(self) -> tuple[Target, ...]:
        """The target of each replica."""
        return tuple(Target(url, self.api_key, self.model, self.runner, self.images) for url in self.urls)

    def alive(self, seconds: float = 30.0) -> bool:
        """Return whether every replica generates something within `seconds`.

        A long queue does not count as hanging.
        """
        with ThreadPoolExecutor(len(self.urls)) as pool:
            return all(pool.map(lambda target: is_alive(target, seconds), self.targets))

    def samples(self) -> Samples:
        """Return all counters and gauges of the replicas, summed. Raises as `probe` does."""
        summed: Samples = defaultdict(float)
        try:
            for target in self.targets:
                for name, value in parse_metrics(_ask(target, "/metrics")).items():
                    summed[name] += value
        except ValueError as error:
            # A server that is not vLLM, or a proxy, may answer with a page of its own.
            raise BadProbe(HTTPStatus.OK, f"/metrics holds no figures ({visible(str(error), _WORDS)})") from None
        return summed


class Meter:
    """The measurement of a server's work from one report to the next."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._started = time.monotonic()
        self._before = endpoint.samples()

    def report(self, endpoint: Endpoint) -> dict[str, float | str]:
        """Return the figures since the last report, of `endpoint` or its replacement.

        If the server is gone, the figures are lost, but not the finished work.
        """
        try:
            after = endpoint.samples()
        except (UnreachableServer, BadProbe, TimeoutError) as error:
            return {"server_metrics": f"not available: {error}"}
        before, started = self._before, self._started
        self._before, self._started = after, time.monotonic()
        return {**summarize_metrics(before, after, self._started - started)}


class UnreachableServer(Exception):
    """The error that nothing listens at the URL, or not yet."""


class BadProbe(Exception):
    """An answer with a status other than 200, or without what was asked for."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(f"HTTP {status}: {words}")
        self.status = status


_WHITE = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAAAAACPAi4CAAAAKUlEQVR42u3MQREAAAwCIPuX1hD77SAA6VEEAoFAIBAIBAKBQCAQfA8Gpwvw4qrwDDIAAAAASUVORK5CYII="
)
"""64 x 64 white pixels: the smallest picture that the models accept without enlarging it much."""

_PROGRESS = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:request_success_total")
"""Counters that only a working engine increases."""

_SCRAPE_SECONDS = 5.0
"""Seconds for what the front process answers at once, however long the queue is, as /metrics."""

_POOLED = {"pooling": "/v1/embeddings", "classify": "/classify"}
"""The paths of servers that generate no text, by runner."""

_WORDS = 300
"""Most bytes of an error's body in a one-line message."""

# A proxy in the environment is meant for the outside world, never for one's own server.
_direct = build_opener(ProxyHandler({}))


def probe(target: Target, seconds: float) -> None:
    """Request one generated token, or one text embedded or scored.

    Raises `UnreachableServer`, `BadProbe` with the server's own words, or `TimeoutError`.
    """
    if path := _POOLED.get(target.runner):
        _ask(target, path, seconds, {"input": "a"})
        return
    content: list[dict[str, Any]] = [{"type": "text", "text": "a"}]
    if target.images:
        content.insert(0, {"type": "image_url", "image_url": {"url": _WHITE}})
    messages = [{"role": "user", "content": content}]
    _ask(target, "/v1/chat/completions", seconds, {"messages": messages, "max_tokens": 1})


@dataclass(frozen=True, slots=True)
class FirstRequests:
    """Requests of realistic size, `count` of each kind.

    `picture` is in pixels, (0, 0) for none, and `text` in tokens; texts are only for a pooling server.
    """

    picture: tuple[int, int]
    text: int
    count: int


_ANSWER = 16
"""Tokens of a first answer: enough steps to use every way of decoding."""


def warm_up(target: Target, requests: FirstRequests, seconds: float) -> None:
    """Warm the server up with requests of realistic size.

    All requests of a kind are sent at once, so that kernels are compiled before the first page. Each process that
    answers HTTP probably gets one of each kind, with which it loads its image processor. Raises as `probe` does.
    """
    with ThreadPoolExecutor(max(1, requests.count)) as pool:
        for of_kind in zip(*(_first_bodies(target, requests, number) for number in range(requests.count)), strict=True):
            list(pool.map(lambda request: _ask(target, request[0], seconds, request[1]), of_kind))


def _first_bodies(target: Target, requests: FirstRequests, number: int) -> list[tuple[str, dict[str, Any]]]:
    """Return the path and body of one request of each kind.

    Pictures and texts differ from `number` to `number`.
    """
    bodies: list[tuple[str, dict[str, Any]]] = []
    if all(requests.picture):
        # A striped grey PNG, written by hand because supervisors have no picture library.
        width, height = requests.picture
        row = b"\0" + bytes((37 * x + number) % 256 for x in range(width))
        header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
        png = b"\x89PNG\r\n\x1a\n"
        for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(row * height, 1)), (b"IEND", b"")):
            png += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        url = f"data:image/png;base64,{base64.b64encode(png).decode()}"
        picture = {"type": "image_url", "image_url": {"url": url}}
        content = [picture, {"type": "text", "text": "a"}]
        if target.runner == "pooling":
            system = {"role": "system", "content": [{"type": "text", "text": "a"}]}
            messages = [system, {"role": "user", "content": content[:1]}]
            bodies.append(("/v1/embeddings", {"messages": messages, "add_generation_prompt": True}))
        else:
            answer = {"max_tokens": _ANSWER, "ignore_eos": True, "temperature": 0}
            bodies.append(("/v1/chat/completions", {"messages": [{"role": "user", "content": content}], **answer}))
    if target.runner == "pooling" and requests.text:
        bodies.append(("/v1/embeddings", {"input": [(number + token) % 200 + 20 for token in range(requests.text)]}))
    return bodies


def is_alive(target: Target, seconds: float) -> bool:
    """Return whether the server generates or embeds anything within `seconds`.

    A probe may wait behind a long queue, so a server whose counters move meanwhile counts as alive.
    """
    before = _progress(target)
    try:
        probe(target, seconds)
    except TimeoutError:
        return before is not None and _progress(target) not in (None, before)
    except (UnreachableServer, BadProbe):
        return False
    return True


def version(target: Target) -> str:
    """Return the vLLM version that the server reports."""
    return str(json.loads(_ask(target, "/version"))["version"])


def served_models(target: Target) -> list[str]:
    """Return the model names that requests may use."""
    return [str(model["id"]) for model in json.loads(_ask(target, "/v1/models"))["data"]]


def _progress(target: Target) -> list[str] | None:
    try:
        return [line for line in _ask(target, "/metrics").splitlines() if line.startswith(_PROGRESS)]
    except (UnreachableServer, BadProbe, TimeoutError):
        return None


def _ask(target: Target, path: str, seconds: float = _SCRAPE_SECONDS, body: dict[str, Any] | None = None) -> str:
    """Get `path`, or post `body` there for the target's model. Raises as `probe` does."""
    request = Request(target.url + path)
    if body is not None:
        request.data = json.dumps({"model": target.model, **body}).encode()
        request.add_header("Content-Type", "application/json")
    if target.api_key:
        request.add_header("Authorization", f"Bearer {target.api_key}")
    try:
        with _direct.open(request, timeout=seconds) as response:
            return response.read().decode(errors="replace")
    except HTTPError as error:
        words = b""
        with suppress(OSError, HTTPException):  # a server that goes down may break its own words off
            words = error.read(_WORDS)
        raise BadProbe(error.code, " ".join(words.decode(errors="replace").split())) from None
    except URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise TimeoutError(f"no answer within {seconds:g} s") from None
        raise UnreachableServer(str(error.reason)) from None
    except TimeoutError:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
    except (OSError, HTTPException) as error:
        raise UnreachableServer(f"{type(error).__name__}: {error}") from None


_KINDS = {"vllm:request_success_total": "finished_reason"}
"""Samples whose sum over a label would say nothing."""

_COUNTS = {
    "prompt_tokens": "vllm:prompt_tokens_total",
    "generated_tokens": "vllm:generation_tokens_total",
    "preemptions": "vllm:num_preemptions_total",
    "prefix_cache_hits": "vllm:prefix_cache_hits_total",
    "image_cache_hits": "vllm:mm_cache_hits_total",
}

_TIMES = {
    "mean_in_server": "vllm:e2e_request_latency_seconds_sum",
    "mean_running": "vllm:request_inference_time_seconds_sum",
    "mean_waiting": "vllm:request_queue_time_seconds_sum",
}


def parse_metrics(text: str) -> Samples:
    """Parse the samples of the Prometheus text format."""
    from prometheus_client.parser import text_string_to_metric_families

    samples: Samples = defaultdict(float)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            kind = sample.labels.get(_KINDS.get(sample.name, ""))
            samples[f"{sample.name}/{kind}" if kind else sample.name] += sample.value
    return samples


def sum_by_name(samples: Samples) -> Samples:
    """Return the sums over all kinds of each name."""
    summed: Samples = defaultdict(float)
    for name, value in samples.items():
        summed[name.partition("/")[0]] += value
    return summed


def summarize_metrics(before: Samples, after: Samples, seconds: float) -> dict[str, float]:
    """Return the figures of `seconds` between two scrapes.

    The mean numbers of requests in the server, running and waiting are exact averages over the time (Little's law:
    request-seconds over seconds), not samples of a gauge.
    """
    added: Samples = defaultdict(float)
    for name, value in after.items():
        # A counter that fell was restarted from 0.
        added[name] = value - before[name] if value >= before[name] else value
    figures: dict[str, float] = {name: added[sample] for name, sample in _COUNTS.items()}
    for sample in sorted(name for name in added if name.startswith("vllm:request_success_total/") and added[name]):
        figures[f"finished_{sample.partition('/')[2]}"] = added[sample]
    if seconds > 0:
        figures |= {name: added[sample] / seconds for name, sample in _TIMES.items()}
        figures["prompt_tokens_per_second"] = figures["prompt_tokens"] / seconds
        figures["generated_tokens_per_second"] = figures["generated_tokens"] / seconds
    return figures
