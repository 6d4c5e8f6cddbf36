"""Readings as the platform's tables hold them, made from a few values."""

from kopub.boxes import Box
from kopub.evaluation.benchmark import SampleReading
from kopub.layout.regions import DEFAULT_TASKS, Task
from kopub.states import State
from kopub.texts.regions import Region


def region(
    content: str,
    label: str = "text",
    box: tuple[int, int, int, int] = (0, 0, 1000, 1000),
    index: int = 0,
    score: float = 1.0,
) -> Region:
    """Return a region that was read; `box` is in thousandths of the page."""
    x1, y1, x2, y2 = map(float, box)
    task: Task = DEFAULT_TASKS[label]
    return Region(index, label, task, score, Box(x1, y1, x2, y2), Box(*box), None, content, State.OK)


def reading(*regions: Region, text: str | None = None, markdown: str | None = None) -> SampleReading:
    """Return a fully read page; text and markdown default to its regions' joined contents."""
    joined = "\n\n".join(each.content or "" for each in regions)
    return SampleReading(
        State.OK, None, joined if markdown is None else markdown, joined if text is None else text, regions
    )
