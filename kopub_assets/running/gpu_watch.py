"""What the GPUs of an engine did while each shard of a step was made, for the shard's metadata."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from resources.engine import Engine
from resources.gpu.cards import NoGpuFigures, open_cards
from resources.gpu.sampler import Sampler

_SECONDS = 0.2
"""Between two readings of the cards: the shortest stage of a shard takes some seconds."""


@dataclass(frozen=True)
class GpuWatch:
    """Figures of the cards by the time in which a shard is made; none without a card."""

    sampler: Sampler = field(default_factory=lambda: Sampler((), _SECONDS))

    def window(self) -> Callable[[], dict[str, float]]:
        """Begin the time of a shard; call the result at its end for the figures."""
        start = self.sampler.take()
        return lambda: self.sampler.readings.figures(start, self.sampler.take())


@contextmanager
def gpu_watch(engines: Sequence[Engine], warn: Callable[[str], None]) -> Iterator[GpuWatch]:
    """Read the cards that the engines work on until the context ends. Without figures, say why and go on."""
    names = sorted({card for engine in engines for card in engine.cards})
    try:
        cards = open_cards(names) if names else []
    except NoGpuFigures as reason:
        warn(f"no figures of the GPU in the metadata: {reason}")
        cards = []
    with Sampler(cards, _SECONDS) as sampler:
        yield GpuWatch(sampler)
    if sampler.problem:
        warn(f"the figures of the GPU end early: {sampler.problem}")
