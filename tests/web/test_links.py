"""Links from Dagster's UI to the reading room, and refused addresses."""

from pathlib import Path

import pytest

from kopub.config.choices import ReadingRoom
from kopub.config.settings import Settings
from kopub.errors import ConfigError
from tests.support.cpu_engines import CPU
from tests.support.harness import Platform
from tests.support.sources.corpora import pages


def links(platform: Platform) -> list[object]:
    result = platform.run("raw_pages", "shard_00", "shard_01")
    assert result.success
    events = result.get_asset_materialization_events()
    made = [event.step_materialization_data.materialization.metadata for event in events]
    return list(dict.fromkeys(metadata["reading_room"].value for metadata in made if "reading_room" in metadata))


def test_every_shard_that_is_made_leads_to_its_documents(tmp_path: Path):
    platform = Platform.of(tmp_path, [pages("a_1"), pages("b_1")], [])
    assert links(platform) == [
        "http://127.0.0.1:3030/documents?shard=shard_00",
        "http://127.0.0.1:3030/documents?shard=shard_01",
    ]


def test_the_address_is_that_of_the_profile(tmp_path: Path):
    room = Settings.of(tmp_path, {**CPU, "reading_room": {"url": "http://localhost:8080/"}}).reading_room
    assert room.of_shard("shard_07") == "http://localhost:8080/documents?shard=shard_07"
    assert (room.port, ReadingRoom(url="http://[::1]:3031").port) == (8080, 3031)
    none = Settings.of(tmp_path, {**CPU, "reading_room": {"url": None}}).reading_room
    assert (none.of_shard("shard_07"), none.port) == (None, 3030)
    far = Settings.of(tmp_path, {**CPU, "reading_room": {"url": "https://pages.example"}}).reading_room
    assert far.port == 3030


@pytest.mark.parametrize("url", ["", "pages.example", "ftp://pages.example", "http://", "http://a:port", "http://a?b"])
def test_what_is_no_address_is_one_line(tmp_path: Path, url: str):
    with pytest.raises(ConfigError, match=r"reading_room\.url"):
        Settings.of(tmp_path, {**CPU, "reading_room": {"url": url}})
