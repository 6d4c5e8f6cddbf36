"""The platform as Ray nodes load it, with a reader that a test can hold."""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import dagster as dg
from definitions import definitions_of
from resources.layout.regions import Region
from resources.pages.page import Page
from resources.recognition.regions import PageReading
from tests.doubles.engines import SlowReader
from tests.support.harness import Platform

READ_FIRST = 3
GO = "go"


class HeldReader(SlowReader):
    """A reader that waits for a file after the first pages of a shard."""

    speed_only: ClassVar[frozenset[str]] = SlowReader.speed_only | {"go"}

    go: str

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        return super().read(self._held(pages))

    def _held(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[tuple[Page, Sequence[Region]]]:
        for number, page in enumerate(pages):
            while number >= READ_FIRST and not Path(self.go).exists():
                time.sleep(0.05)
            yield page


def platform_of(home: Path) -> Platform:
    platform = Platform(home)
    diary = str(home / "recognition.diary")
    platform.engines["recognition"] = HeldReader(diary=diary, go=str(home / GO), prompt="read")
    return platform


def definitions_at(home: Path) -> dg.Definitions:
    return definitions_of(replace(platform_of(home).settings, shards_per_run=1))


@dg.definitions
def defs() -> dg.Definitions:
    """Return the definitions that Ray nodes load, whose home is in their environment."""
    return definitions_at(Path(os.environ["KOPUB_HOME"]))
