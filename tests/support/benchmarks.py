"""A benchmark of drawn pages with texts, and a platform whose reader knows them."""

from pathlib import Path
from typing import Any

from kopub.release.gates import Gates
from tests.doubles.engines import OneRegionLayout
from tests.doubles.readers import KnowingReader
from tests.support.harness import Platform
from tests.support.sources.corpora import page_image

TEXT = "가나다라마바사아자차카타파하 12,345원 ABCDEFGHIJ"


def write_pages(folder: Path, count: int) -> Path:
    """Write page images p_0.png, p_1.png, ... and their texts, each its own document."""
    folder.mkdir(parents=True, exist_ok=True)
    for at in range(count):
        (folder / f"p_{at}.png").write_bytes(page_image(at))
        (folder / f"p_{at}.txt").write_text(f"{TEXT} {at}", "utf-8")
    return folder


def reader(platform: Platform, answers: Path, **fields: Any) -> KnowingReader:
    """Return a reader that knows these answers and notes pages in the platform's diary."""
    diary = str(platform.home / "recognition.diary")
    return KnowingReader(answers=str(answers), diary=diary, **fields)


def guarded(platform: Platform, answers: Path, **gates: Any) -> None:
    """Make the benchmark in the folder `answers` a gate of the platform's corpus."""
    platform.engines["gates"] = Gates(benchmarks={"texts": str(answers)}, **gates)
    platform.engines["layout"] = OneRegionLayout(diary=str(platform.home / "layout.diary"))
    platform.engines["recognition"] = reader(platform, answers)
