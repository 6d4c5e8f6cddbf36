"""Readings as the tables of the platform say them, made of what a test names."""

from resources.evaluation.benchmark import Reading
from resources.layout.regions import Task
from resources.layout.tasks import DEFAULT_TASKS
from resources.recognition.read_regions import ReadRegion
from resources.states import State


def region(
    content: str,
    label: str = "text",
    box: tuple[int, int, int, int] = (0, 0, 1000, 1000),
    index: int = 0,
    score: float = 1.0,
) -> ReadRegion:
    """A region that was read; `box` in parts of 1,000."""
    x1, y1, x2, y2 = map(float, box)
    task: Task = DEFAULT_TASKS[label]
    return ReadRegion(index, label, task, score, (x1, y1, x2, y2), box, None, content, State.OK)


def reading(*regions: ReadRegion, text: str | None = None, markdown: str | None = None) -> Reading:
    """A page that was read whole; its text and markdown are those of its regions unless they are given."""
    joined = "\n\n".join(each.content or "" for each in regions)
    return Reading(State.OK, None, joined if markdown is None else markdown, joined if text is None else text, regions)
