"""The busy share of the cores, by the kernel's sums and by its processes."""

import time
from types import SimpleNamespace

import psutil
import pytest

from resources.profiling.observer import Cores


@pytest.mark.parametrize("sums", [True, False])
def test_work_is_seen(monkeypatch: pytest.MonkeyPatch, sums: bool):
    if not sums:
        monkeypatch.setattr(psutil, "cpu_times", lambda: (0.0, 0.0))
    cores = Cores()
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    assert 0 < cores.shares().busy <= 1


def test_what_the_host_takes_is_no_work_of_this_machine(monkeypatch: pytest.MonkeyPatch):
    times = SimpleNamespace(user=50.0, system=10.0, idle=15.0, iowait=5.0, steal=20.0)
    monkeypatch.setattr(psutil, "cpu_times_percent", lambda: times)
    assert Cores().shares() == (pytest.approx(0.6), pytest.approx(0.2))


def test_a_process_that_ended_takes_nothing_back(monkeypatch: pytest.MonkeyPatch):
    seconds = {1: 5.0, 2: 100.0}
    monkeypatch.setattr(psutil, "cpu_times", lambda: (0.0,))
    monkeypatch.setattr(
        psutil,
        "process_iter",
        lambda: [
            SimpleNamespace(pid=pid, cpu_times=lambda spent=spent: SimpleNamespace(user=spent, system=0.0))
            for pid, spent in seconds.items()
        ],
    )
    cores = Cores()
    seconds.pop(2)
    assert cores.shares() == (0.0, 0.0)
    seconds[1] = 6e6
    assert cores.shares() == (1.0, 0.0)
