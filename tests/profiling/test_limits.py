"""What limits a stage, and which keys of the profile are named for it."""

import pytest

from resources.profiling.timeline import Split, limit

KEYS = ("in_flight", "processes", "server.max_num_seqs", "server.gpus", "line_height")


@pytest.mark.parametrize(
    ("section", "split", "busy", "cores", "name", "keys"),
    [
        ("recognition", Split(working=95, waiting=5), 0.9, 0.5, "GPU", ("server.gpus", "line_height")),
        ("recognition", Split(working=50, waiting=50), 0.5, 0.95, "cores", ("line_height",)),
        ("recognition", Split(working=50, waiting=50), 0.5, 0.3, "requests", KEYS[:3]),
        ("recognition", Split(starting=60, working=40), 0.4, 0.3, "start", ()),
        ("layout", Split(platform=100), None, 0.9, "cores", ()),
        (None, Split(platform=100), 0.0, 0.2, "one core", ()),
    ],
    ids=["gpu", "host", "clients", "start", "cpu", "one thread"],
)
def test_the_limit_of_a_stage(
    section: str | None, split: Split, busy: float | None, cores: float, name: str, keys: tuple[str, ...]
):
    found = limit(section, 100.0, split, busy, cores, KEYS)
    assert (found.name, found.keys) == (name, keys)
    assert found.why


def test_a_short_stage_tells_nothing():
    assert limit("layout", 0.4, Split(working=0.4), 1.0, 1.0, KEYS).name == ""
