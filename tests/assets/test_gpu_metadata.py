"""GPU figures in the metadata of a materialization."""

from pathlib import Path
from typing import Any

import pytest

from tests.doubles.engines import OneRegionLayout
from tests.doubles.nvml_double import GIB, CardDouble, NvmlDouble
from tests.support.harness import Platform
from tests.support.sources.corpora import pages


class OnTheCard(OneRegionLayout):
    """A layout engine that runs on the first GPU."""

    @property
    def cards(self) -> tuple[str, ...]:
        return ("0",)


def metadata(platform: Platform, asset: str) -> list[dict[str, Any]]:
    result = platform.run("raw_pages,layout_regions", "shard_00", "shard_01")
    assert result.success
    events = [event for event in result.get_asset_materialization_events() if event.step_key == asset]
    # A shard is reported when it is published and again at the end of the step; the later event counts.
    found = {event.partition: event.step_materialization_data.materialization.metadata for event in events}
    return [{name: value.value for name, value in each.items()} for each in found.values()]


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    platform = Platform.of(tmp_path, [pages("a"), pages("b")])
    platform.engines["layout"] = OnTheCard(diary=str(tmp_path / "diary"))
    return platform


def test_each_shard_has_the_figures_of_its_engines_card(platform: Platform, monkeypatch: pytest.MonkeyPatch):
    card = CardDouble(busy=80, memory_busy=30, used=5 * GIB, joules_each_reading=1.5)
    NvmlDouble([card]).install(monkeypatch)
    shards = metadata(platform, "layout_regions")
    assert len(shards) == 2
    told = {"gpu_busy": 0.8, "gpu_busy_max": 0.8, "gpu_memory_busy": 0.3, "gpu_memory_used_peak_gib": 5.0}
    assert told.items() <= shards[0].items()
    assert card.readings > 0


def test_an_asset_without_a_card_has_none(platform: Platform, monkeypatch: pytest.MonkeyPatch):
    NvmlDouble([CardDouble(busy=80)]).install(monkeypatch)
    assert all("gpu_busy" not in shard for shard in metadata(platform, "raw_pages"))


def test_a_machine_without_nvml_makes_the_same_tables(platform: Platform, monkeypatch: pytest.MonkeyPatch):
    NvmlDouble(driver=False).install(monkeypatch)
    shards = metadata(platform, "layout_regions")
    assert [shard["ok"] for shard in shards] == [1, 1]
    assert all("gpu_busy" not in shard for shard in shards)
