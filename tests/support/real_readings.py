"""Real pages with regions of every kind, and invariants of all their readings."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from kopub.layout.regions import Region, Task
from kopub.pages.arrow import open_pages
from kopub.pages.page import Page
from kopub.recognition.regions import PageReading, RegionText
from kopub.states import State
from kopub.texts.markdown import page_markdown

_SAMPLES = Path(__file__).resolve().parents[2] / "samples" / "corpus"
Work = list[tuple[Page, list[Region]]]


def sample_work(count: int) -> Work:
    """Return the first pages of the samples with their regions."""
    path = sorted(_SAMPLES.glob("*.arrow"))[0]
    file = open_pages(path, "arrow")
    rows = [file.row(index) for index in range(count)]
    pages = [Page(str(row.id), bytes(row.image)) for row in rows if row.image is not None]
    return [(page, _regions(page)) for page in pages]


def _regions(page: Page) -> list[Region]:
    """Return six strips as text, table and formula regions, and one as an image."""
    height, width = page.image.shape[:2]
    boxes = [(200.5, 300.2 + 250 * row, 1000.7, 520.9 + 250 * row) for row in range(6)]
    tasks = [*[Task.TEXT] * 4, Task.TABLE, Task.FORMULA, Task.SKIP]
    labels = [*["text"] * 4, "table", "display_formula", "image"]
    assert boxes[-1][3] < height
    assert boxes[-1][2] < width
    return [
        Region(i, label, task, 0.9, box)
        for i, (label, task, box) in enumerate(zip(labels, tasks, [*boxes, boxes[0]], strict=True))
    ]


def assert_whole(work: Work, readings: Sequence[PageReading]) -> list[RegionText]:
    """Assert that the readings are complete, and return the texts of all regions."""
    assert Counter(reading.page_id for reading in readings) == Counter(page.page_id for page, _ in work)
    for reading in readings:
        assert [text.index for text in reading.regions] == list(range(7))
        assert len(reading.crops) == 1
        assert all(text.state in (State.OK, State.FAILED, State.BLANK) for text in reading.regions)
        assert page_markdown(reading.regions, reading.crops)
    texts = [text for reading in readings for text in reading.regions]
    assert any(text.content for text in texts)
    assert all(text.reason for text in texts if text.state is State.FAILED)
    return texts
