"""GPUs as NVML sees them. NVML comes with the driver; its Python package is `nvidia-ml-py`."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class NoGpuFigures(Exception):
    """There is nothing to read here; the message says why."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A card at one moment.

    `busy` is the share of the last instants in which a kernel ran, 0 to 1, `memory_busy` that in which its memory was
    read or written; `memory` is bytes in use by everybody; `joules` is what the card has used since its driver was
    loaded, None where the card does not tell.
    """

    busy: float
    memory_busy: float
    memory: int
    joules: float | None


@dataclass(frozen=True)
class Card:
    """One GPU: its name as CUDA_VISIBLE_DEVICES has it, its model, its memory in bytes."""

    name: str
    model: str
    memory: int
    handle: Any

    def __str__(self) -> str:
        return f"{self.model} ({self.memory / 2**30:.0f} GB)"

    def read(self) -> Reading:
        """The card now. Raises `NoGpuFigures` when the driver no longer answers."""
        import pynvml

        try:
            used = pynvml.nvmlDeviceGetUtilizationRates(self.handle)
            memory = int(pynvml.nvmlDeviceGetMemoryInfo(self.handle).used)
        except pynvml.NVMLError as error:
            raise NoGpuFigures(f"NVML: {error}") from None
        return Reading(int(used.gpu) / 100, int(used.memory) / 100, memory, self._joules())

    def _joules(self) -> float | None:
        import pynvml

        try:
            return pynvml.nvmlDeviceGetTotalEnergyConsumption(self.handle) / 1000
        except pynvml.NVMLError:
            return None


def open_cards(names: Sequence[str] | None = None) -> list[Card]:
    """The cards of these names (indexes or UUIDs), all of the machine when left out. Raises `NoGpuFigures`.

    NVML stays open until the process ends: it costs nothing, and other readers may use it.
    """
    try:
        import pynvml
    except ImportError:
        raise NoGpuFigures("the package nvidia-ml-py is not installed") from None
    try:
        pynvml.nvmlInit()
        if names is None:
            names = [str(index) for index in range(pynvml.nvmlDeviceGetCount())]
        cards = [_card(name) for name in names]
    except pynvml.NVMLError as error:
        raise NoGpuFigures(f"no GPU answers here: {error}") from None
    if not cards:
        raise NoGpuFigures("this machine has no GPU")
    return cards


def largest_card() -> Card | None:
    """The card of this machine with most memory; None without one, or where CUDA_VISIBLE_DEVICES hides them all."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return None
    try:
        return max(open_cards(), key=lambda card: card.memory)
    except NoGpuFigures:
        return None


def _card(name: str) -> Card:
    import pynvml

    by_index = name.isdigit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(int(name)) if by_index else pynvml.nvmlDeviceGetHandleByUUID(name)
    model = pynvml.nvmlDeviceGetName(handle)
    return Card(name, str(model), int(pynvml.nvmlDeviceGetMemoryInfo(handle).total), handle)
