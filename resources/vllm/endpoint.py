"""A running server as its clients see it, in any process, and its figures."""

import time
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from resources.vllm.supervisor.probe import BadProbe, NotListening, Target, is_alive, metrics_text

Samples = defaultdict[str, float]
"""Sums by sample name over all labels but those that tell kinds apart, which follow the name as `name/kind`."""

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


def parse(text: str) -> Samples:
    """Samples of Prometheus' text format."""
    from prometheus_client.parser import text_string_to_metric_families

    samples: Samples = defaultdict(float)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            kind = sample.labels.get(_KINDS.get(sample.name, ""))
            samples[f"{sample.name}/{kind}" if kind else sample.name] += sample.value
    return samples


def total(parts: Iterable[Samples]) -> Samples:
    """Return the sum over replicas."""
    summed: Samples = defaultdict(float)
    for part in parts:
        for name, value in part.items():
            summed[name] += value
    return summed


def by_name(samples: Samples) -> Samples:
    """Return the sums over kinds too."""
    summed: Samples = defaultdict(float)
    for name, value in samples.items():
        summed[name.partition("/")[0]] += value
    return summed


def difference(before: Samples, after: Samples) -> Samples:
    """Return what was added to each counter.

    One that fell was started anew with its server, so all of it was.
    """
    added: Samples = defaultdict(float)
    for name, value in after.items():
        added[name] = value - before[name] if value >= before[name] else value
    return added


def report(before: Samples, after: Samples, seconds: float) -> dict[str, float]:
    """Return the figures of `seconds` between two scrapes that are worth a plot.

    The mean numbers of requests in the server, running and waiting are exact averages over the time
    (Little's law: request-seconds over seconds), not samples of a gauge.
    """
    added = difference(before, after)
    figures: dict[str, float] = {name: added[sample] for name, sample in _COUNTS.items()}
    for sample in sorted(name for name in added if name.startswith("vllm:request_success_total/") and added[name]):
        figures[f"finished_{sample.partition('/')[2]}"] = added[sample]
    if seconds > 0:
        figures |= {name: added[sample] / seconds for name, sample in _TIMES.items()}
        figures["prompt_tokens_per_second"] = figures["prompt_tokens"] / seconds
        figures["generated_tokens_per_second"] = figures["generated_tokens"] / seconds
    return figures


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`urls` are equal replicas; `model` is the name that requests carry.

    `api_key` is "" for a server without one. `folder` and `boot` tell which start of a managed server this is; an
    external one has no folder.
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
        """One for each replica."""
        return tuple(Target(url, self.api_key, self.model, self.runner, self.images) for url in self.urls)

    def alive(self, seconds: float = 30.0) -> bool:
        """Return whether every replica generates something within `seconds`; a long queue is no hang."""
        with ThreadPoolExecutor(len(self.urls)) as pool:
            return all(pool.map(lambda target: is_alive(target, seconds), self.targets))

    def samples(self) -> Samples:
        """Return all counters and gauges of the replicas now, summed. Raises as `probe.probe` does."""
        return total(parse(metrics_text(target)) for target in self.targets)


class Meter:
    """Measures what a server does from one report to the next."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._started = time.monotonic()
        self._before = endpoint.samples()

    def report(self, endpoint: Endpoint) -> dict[str, float | str]:
        """Figures since the last report, of `endpoint` or the one that replaced it.

        A server that is gone costs the figures, not the finished work.
        """
        try:
            after = endpoint.samples()
        except (NotListening, BadProbe, TimeoutError) as error:
            return {"server_metrics": f"not available: {error}"}
        before, started = self._before, self._started
        self._before, self._started = after, time.monotonic()
        return {**report(before, after, self._started - started)}
