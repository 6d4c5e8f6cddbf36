"""The GPUs of this machine by NVML: their names, readings and figures over time.

NVML comes with the driver; its Python package is `nvidia-ml-py`. PyTorch would open a context.
"""

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any, Self

from kopub.errors import EngineError
from kopub.states import phrase


class NoGpuFigures(Exception):
    """The lack of readings on this machine; the message says why."""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """A card at one moment.

    `busy` is the share of the last moments in which a kernel ran, 0 to 1, and `memory_busy` that in which its memory
    was read or written; `memory` is the bytes in use by all processes; `joules` is the energy used since the driver was
    loaded, None if the card does not report it.
    """

    busy: float
    memory_busy: float
    memory: int
    joules: float | None


@dataclass(frozen=True)
class GpuCard:
    """A GPU: its name in CUDA_VISIBLE_DEVICES, its model, its memory in bytes."""

    name: str
    model: str
    memory: int
    handle: Any

    def __str__(self) -> str:
        return f"{self.model} ({self.memory / 2**30:.0f} GB)"

    def read(self) -> GpuReading:
        """Read the card. Raises `NoGpuFigures` when the driver no longer answers."""
        import pynvml

        try:
            rates = pynvml.nvmlDeviceGetUtilizationRates(self.handle)
            memory = int(pynvml.nvmlDeviceGetMemoryInfo(self.handle).used)
        except pynvml.NVMLError as error:
            raise NoGpuFigures(f"NVML: {error}") from None
        try:
            joules = pynvml.nvmlDeviceGetTotalEnergyConsumption(self.handle) / 1000
        except pynvml.NVMLError:
            # Not every card counts its energy.
            joules = None
        return GpuReading(int(rates.gpu) / 100, int(rates.memory) / 100, memory, joules)


def open_cards(names: Sequence[str] | None = None) -> list[GpuCard]:
    """Return the cards with these indexes or UUIDs, by default all of the machine.

    Raises `NoGpuFigures`. NVML stays open until the process ends, since it costs nothing and others may be using it.
    """
    try:
        import pynvml
    except ImportError:
        raise NoGpuFigures("the package nvidia-ml-py is not installed") from None
    try:
        pynvml.nvmlInit()
        if names is None:
            names = [str(index) for index in range(pynvml.nvmlDeviceGetCount())]
        cards = []
        for name in names:
            if name.isdigit():
                handle = pynvml.nvmlDeviceGetHandleByIndex(int(name))
            else:
                handle = pynvml.nvmlDeviceGetHandleByUUID(name)
            model = pynvml.nvmlDeviceGetName(handle)
            cards.append(GpuCard(name, str(model), int(pynvml.nvmlDeviceGetMemoryInfo(handle).total), handle))
    except pynvml.NVMLError as error:
        raise NoGpuFigures(phrase("no GPU answers here: {error}", str(error))) from None
    if not cards:
        raise NoGpuFigures("this machine has no GPU")
    return cards


def largest_card() -> GpuCard | None:
    """Return the card with the most memory; None without a visible one."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return None
    try:
        return max(open_cards(), key=lambda card: card.memory)
    except NoGpuFigures:
        return None


GIB = 2**30


@dataclass
class Readings:
    """Readings of some cards, each with its Unix time, in order of time."""

    taken: list[tuple[float, tuple[GpuReading, ...]]] = field(default_factory=list)

    def within(self, start: float, end: float) -> list[tuple[GpuReading, ...]]:
        """Return the readings from `start` to `end`."""
        return [cards for at, cards in list(self.taken) if start <= at <= end]

    def joules(self, start: float, end: float) -> float | None:
        """Return the energy that the cards used, or None if unknown."""
        totals = []
        for cards in self.within(start, end):
            joules = [card.joules for card in cards if card.joules is not None]
            if len(joules) < len(cards):
                return None
            totals.append(sum(joules))
        return totals[-1] - totals[0] if len(totals) > 1 else None

    def figures(self, start: float, end: float) -> dict[str, float]:
        """Return mean, median and maximum of each figure, and `gpu_joules`, for a period.

        `gpu_busy` and `gpu_memory_busy` (`_median`, `_max`) are shares of each card's time, 0 to 1;
        `gpu_memory_used_gib` (`_median_gib`, `_peak_gib`) is for all cards together.
        """
        busy: list[float] = []
        memory_busy: list[float] = []
        memory: list[float] = []
        for cards in self.within(start, end):
            for card in cards:
                busy.append(card.busy)
                memory_busy.append(card.memory_busy)
            memory.append(sum(card.memory for card in cards) / GIB)
        series = (
            (("gpu_busy", "gpu_busy_median", "gpu_busy_max"), busy),
            (("gpu_memory_busy", "gpu_memory_busy_median", "gpu_memory_busy_max"), memory_busy),
            (("gpu_memory_used_gib", "gpu_memory_used_median_gib", "gpu_memory_used_peak_gib"), memory),
        )
        figures: dict[str, float] = {}
        for names, values in series:
            if values:
                figures |= zip(names, (fmean(values), median(values), max(values)), strict=True)
        joules = self.joules(start, end)
        if joules is not None:
            figures["gpu_joules"] = joules
        return {name: round(value, 3) for name, value in figures.items()}


class Sampler:
    """A context that adds to `readings` every `seconds`.

    It stops when the driver no longer answers.
    """

    def __init__(self, cards: Sequence[GpuCard], seconds: float) -> None:
        self.readings = Readings()
        self.problem = ""
        """The reason why there are no further readings."""
        self._cards, self._seconds = cards, seconds
        self._one_at_a_time = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="gpu-sampler", daemon=True)

    def __enter__(self) -> Self:
        if self._cards:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def take(self) -> float:
        """Read the cards between the regular readings, and return the Unix time.

        This gives a short period a beginning and an end.
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


def named_gpus(indexes: Sequence[int]) -> tuple[str, ...]:
    """Return the names of GPUs from their indexes among the visible ones. Raises `EngineError`."""
    if (names := _visible_gpus()) is None:
        return tuple(str(index) for index in indexes)
    if missing := [index for index in indexes if index >= len(names)]:
        visible = os.environ["CUDA_VISIBLE_DEVICES"]
        form = "GPU {gpu} is asked for, but CUDA_VISIBLE_DEVICES is {visible!r}; change the server's `gpus`"
        raise EngineError(form, missing[0], visible)
    return tuple(names[index] for index in indexes)


def all_gpus() -> tuple[str, ...]:
    """Return the names of every GPU that this process may use.

    Raises `EngineError` if there is none.
    """
    if (names := _visible_gpus()) is not None:
        if not names:
            raise EngineError("the server's `gpus` are all, and CUDA_VISIBLE_DEVICES hides every one")
        return names
    try:
        return tuple(card.name for card in open_cards())
    except NoGpuFigures as error:
        raise EngineError("the server's `gpus` are all, and {reason}; list their indexes", error) from None


def _visible_gpus() -> tuple[str, ...] | None:
    """Return the names in CUDA_VISIBLE_DEVICES; None if it is not set."""
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if allowed is None else tuple(name.strip() for name in allowed.split(",") if name.strip())
