"""A double of NVML behind the names of `pynvml`, whose readings a test sets."""

import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

GIB = 2**30


class NVMLError(Exception):
    """Stands for `pynvml.NVMLError`."""


@dataclass
class CardDouble:
    """A card: percent of time that cores and memory are busy, bytes and millijoules used.

    A card whose `millijoules` are None does not support energy readings.
    """

    busy: int = 0
    memory_busy: int = 0
    used: int = 0
    millijoules: int | None = 0
    uuid: str = "GPU-0"
    model: str = "NVIDIA Double"
    total: int = 80 * GIB
    joules_each_reading: float = 0.0
    readings: int = 0


@dataclass
class NvmlDouble:
    """The NVML functions that the platform uses; after `fails_after` readings the GPU is lost."""

    cards: list[CardDouble] = field(default_factory=lambda: [CardDouble()])
    driver: bool = True
    fails_after: int | None = None

    def install(self, monkeypatch: pytest.MonkeyPatch) -> "NvmlDouble":
        """Replace the package `pynvml` until the test ends."""
        module = ModuleType("pynvml")
        for name in dir(self):
            if name.startswith("nvml"):
                setattr(module, name, getattr(self, name))
        module.NVMLError = NVMLError  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "pynvml", module)
        return self

    def nvmlInit(self) -> None:
        if not self.driver:
            raise NVMLError("NVML Shared Library Not Found")

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> CardDouble:
        if index >= len(self.cards):
            raise NVMLError("Invalid Argument")
        return self.cards[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> CardDouble:
        return next(card for card in self.cards if card.uuid == uuid)

    def nvmlDeviceGetName(self, handle: CardDouble) -> str:
        return handle.model

    def nvmlDeviceGetMemoryInfo(self, handle: CardDouble, version: Any = None) -> SimpleNamespace:
        return SimpleNamespace(total=handle.total, used=handle.used, free=handle.total - handle.used)

    def nvmlDeviceGetUtilizationRates(self, handle: CardDouble) -> SimpleNamespace:
        handle.readings += 1
        if self.fails_after is not None and handle.readings > self.fails_after:
            raise NVMLError("GPU is lost")
        return SimpleNamespace(gpu=handle.busy, memory=handle.memory_busy)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: CardDouble) -> int:
        if handle.millijoules is None:
            raise NVMLError("Not Supported")
        handle.millijoules += round(1000 * handle.joules_each_reading)
        return handle.millijoules
