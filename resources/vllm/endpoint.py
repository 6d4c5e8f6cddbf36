"""A running server as its clients see it, in any process."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from resources.vllm.server_metrics import Samples, parse, report, total
from resources.vllm.supervisor.probe import BadProbe, NotListening, Target, is_alive, metrics_text


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`urls` are equal replicas; `model` is the name that requests carry; `api_key` is "" for a server without one.

    `folder` and `boot` tell which start of a managed server this is; an external one has no folder.
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
        """Whether every replica generates something within `seconds`; a long queue is no hang."""
        with ThreadPoolExecutor(len(self.urls)) as pool:
            return all(pool.map(lambda target: is_alive(target, seconds), self.targets))

    def samples(self) -> Samples:
        """All counters and gauges of the replicas now, summed. Raises as `probe.probe` does."""
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
