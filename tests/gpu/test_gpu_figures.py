"""Figures of GPUs, read through NVML and recorded in the metadata of a shard."""

import inspect
import sys

import pytest

from kopub.gpu import GIB, GpuReading, NoGpuFigures, Readings, Sampler, open_cards
from tests.doubles.nvml_double import CardDouble, NvmlDouble
from tests.support.installed import imported
from tests.support.waiting import until


def test_the_double_has_the_interface_of_the_package():
    pynvml = imported("pynvml")
    for name in (name for name in dir(NvmlDouble) if name.startswith("nvml")):
        real = list(inspect.signature(getattr(pynvml, name)).parameters)
        double = list(inspect.signature(getattr(NvmlDouble, name)).parameters)[1:]
        assert len(double) <= len(real), name
    assert issubclass(pynvml.NVMLError, Exception)


def test_a_card_is_read_by_index_and_by_uuid(monkeypatch: pytest.MonkeyPatch):
    NvmlDouble(
        [CardDouble(), CardDouble(busy=40, memory_busy=15, used=3 * GIB, millijoules=2500, uuid="GPU-7")]
    ).install(monkeypatch)
    by_index, by_uuid = open_cards(["1", "GPU-7"])
    assert by_index.read() == by_uuid.read() == GpuReading(busy=0.4, memory_busy=0.15, memory=3 * GIB, joules=2.5)
    assert (by_index.model, by_index.memory) == ("NVIDIA Double", 80 * GIB)
    assert len(open_cards()) == 2


def test_a_card_that_does_not_tell_its_energy_tells_the_rest(monkeypatch: pytest.MonkeyPatch):
    NvmlDouble([CardDouble(busy=100, millijoules=None)]).install(monkeypatch)
    (card,) = open_cards()
    assert card.read() == GpuReading(busy=1.0, memory_busy=0.0, memory=0, joules=None)


def test_without_cards_the_reason_is_said(monkeypatch: pytest.MonkeyPatch):
    NvmlDouble(driver=False).install(monkeypatch)
    with pytest.raises(NoGpuFigures, match="no GPU answers here: NVML Shared Library Not Found"):
        open_cards()
    NvmlDouble([]).install(monkeypatch)
    with pytest.raises(NoGpuFigures, match="this machine has no GPU"):
        open_cards()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NoGpuFigures, match="nvidia-ml-py is not installed"):
        open_cards()


def test_figures_are_those_of_their_time():
    def card(busy: float, memory: int, joules: float | None = None) -> GpuReading:
        return GpuReading(busy, busy / 2, memory * GIB, joules)

    readings = Readings(
        [
            (1.0, (card(1.0, 70, 10.0), card(1.0, 1, 10.0))),
            (2.0, (card(0.6, 10, 20.0), card(0.0, 2, 15.0))),
            (3.0, (card(0.8, 20, 30.0), card(0.4, 1, 20.0))),
            (4.0, (card(1.0, 90, 99.0), card(1.0, 1, 99.0))),
        ]
    )
    assert readings.figures(1.5, 3.5) == {
        "gpu_busy": 0.45,
        "gpu_busy_median": 0.5,
        "gpu_busy_max": 0.8,
        "gpu_memory_busy": 0.225,
        "gpu_memory_busy_median": 0.25,
        "gpu_memory_busy_max": 0.4,
        "gpu_memory_used_gib": 16.5,
        "gpu_memory_used_median_gib": 16.5,
        "gpu_memory_used_peak_gib": 21.0,
        "gpu_joules": 15.0,
    }
    assert readings.figures(5.0, 6.0) == {}
    silent = Readings([(1.0, (card(0.5, 1),)), (2.0, (card(0.5, 1),))])
    assert "gpu_joules" not in silent.figures(0.0, 3.0)
    assert silent.figures(0.0, 3.0)["gpu_busy"] == 0.5


def test_a_driver_that_goes_ends_the_figures_and_nothing_else(monkeypatch: pytest.MonkeyPatch):
    NvmlDouble([CardDouble(busy=50)], fails_after=2).install(monkeypatch)
    with Sampler(open_cards(), 0.001) as sampler:
        until(lambda: sampler.problem, 30)
    assert sampler.problem == "NVML: GPU is lost"
    assert len(sampler.readings.taken) == 2
