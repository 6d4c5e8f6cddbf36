"""The process that the kill test kills: one materialization of all assets."""

from pathlib import Path

from tests.doubles.engines import SlowReader
from tests.support.harness import Platform

PAGES = 12
SECONDS = 0.03
"""Seconds per page, enough for kills to hit every stage of a run."""


def build(home: str) -> None:
    platform = Platform(Path(home))
    diary = str(platform.home / "recognition.diary")
    platform.engines["recognition"] = SlowReader(diary=diary, seconds=SECONDS)
    assert platform.run(last="shard_01").success
