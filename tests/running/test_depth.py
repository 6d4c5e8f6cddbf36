"""A page meets its engine within few frames, so that a reader of a stack sees the way it came."""

import inspect
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

import kopub
from kopub.layout.regions import Region
from kopub.pages.page import Page
from kopub.recognition.regions import PageReading
from tests.doubles.engines import Diary, SlowReader
from tests.support.harness import Platform
from tests.support.sources.corpora import pages

PRODUCT = tuple(str(Path(kopub.__file__).parents[1] / package) for package in ("kopub/", "kopub_assets/", "resources/"))
MOST_FRAMES, MOST_GENERATORS = 10, 4


class DepthReader(SlowReader):
    """A reader that notes the product's frames on the stack when it has its first page."""

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        for number, page in enumerate(pages):
            for info in inspect.stack(0) if number == 0 else ():
                if info.filename.startswith(PRODUCT):
                    kind = "generator" if info.frame.f_code.co_flags & inspect.CO_GENERATOR else "function"
                    Diary(f"{self.diary}.stack").note(f"{kind} {info.function}")
            yield from super().read([page])


class SpanningReader(DepthReader):
    spans_shards: ClassVar[bool] = True


@pytest.mark.parametrize("reader", [DepthReader, SpanningReader])
def test_a_page_meets_its_engine_within_few_frames(tmp_path: Path, reader: type[DepthReader]):
    platform = Platform.of(tmp_path, [pages("a_1")])
    platform.engines["recognition"] = reader(diary=str(tmp_path / "diary"))
    assert platform.run("raw_pages,layout_regions,ocr_results").success
    frames = Diary(str(tmp_path / "diary.stack")).pages
    assert "generator make_shards" in frames, "or the test looks at nothing"
    assert len(frames) <= MOST_FRAMES
    assert sum(frame.startswith("generator ") for frame in frames) <= MOST_GENERATORS
