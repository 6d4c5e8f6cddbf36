"""Reads cards on a thread while something works on them, and says what they did within a time."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from types import TracebackType
from typing import Self

from resources.gpu.cards import Card, NoGpuFigures, Reading

GIB = 2**30


@dataclass
class Readings:
    """Readings of some cards, each with its Unix time, in the order of time."""

    taken: list[tuple[float, tuple[Reading, ...]]] = field(default_factory=list)

    def within(self, start: float, end: float) -> list[tuple[Reading, ...]]:
        """The readings from `start` to `end`."""
        return [cards for at, cards in list(self.taken) if start <= at <= end]

    def joules(self, start: float, end: float) -> float | None:
        """What the cards used; None where one does not tell, or too little was read."""
        totals = []
        for cards in self.within(start, end):
            used = [card.joules for card in cards if card.joules is not None]
            if len(used) < len(cards):
                return None
            totals.append(sum(used))
        return totals[-1] - totals[0] if len(totals) > 1 else None

    def figures(self, start: float, end: float) -> dict[str, float]:
        """Return what is known of a time, for metadata: mean, median and most of each figure, and `gpu_joules`.

        `gpu_busy` and `gpu_memory_busy` (`_median`, `_max`) are shares of each card's time, 0 to 1;
        `gpu_memory_used_gib` (`_median_gib`, `_peak_gib`) is of all cards together.
        """
        taken = self.within(start, end)
        busy, memory_busy = ([getattr(card, of) for cards in taken for card in cards] for of in ("busy", "memory_busy"))
        used = [sum(card.memory for card in cards) / GIB for cards in taken]
        named = (
            (("gpu_busy", "gpu_busy_median", "gpu_busy_max"), busy),
            (("gpu_memory_busy", "gpu_memory_busy_median", "gpu_memory_busy_max"), memory_busy),
            (("gpu_memory_used_gib", "gpu_memory_used_median_gib", "gpu_memory_used_peak_gib"), used),
        )
        known = {
            name: figure(values)
            for names, values in named
            if values
            for name, figure in zip(names, (fmean, median, max), strict=True)
        }
        joules = self.joules(start, end)
        if joules is not None:
            known["gpu_joules"] = joules
        return {name: round(value, 3) for name, value in known.items()}


class Sampler:
    """Fills `readings` every `seconds` while it is entered; a driver that no longer answers ends it."""

    def __init__(self, cards: Sequence[Card], seconds: float) -> None:
        self.readings = Readings()
        self.problem = ""
        """Why there are no further readings."""
        self._cards, self._seconds = cards, seconds
        self._one_at_a_time = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="gpu-sampler", daemon=True)

    def __enter__(self) -> Self:
        if self._cards:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def take(self) -> float:
        """Read the cards besides the regular readings, so that a short time has a beginning and an end.

        Returns the Unix time of it.
        """
        with self._one_at_a_time:
            now = time.time()
            if self._cards and not self.problem:
                try:
                    self.readings.taken.append((now, tuple(card.read() for card in self._cards)))
                except NoGpuFigures as reason:
                    self.problem = str(reason)
            return now

    def _work(self) -> None:
        while not self.problem:
            self.take()
            if self._ended.wait(self._seconds):
                return
