"""What the attempts at a region, or at its parts, came to: readings, judged, joined and settled. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from resources.layout.regions import Region, Task
from resources.recognition.readings import RegionText
from resources.recognition.vlm.answers import Defect, Problem, confirmed, tidy
from resources.recognition.vlm.chat_requests import Answer
from resources.recognition.vlm.tables_html import join_tables
from resources.states import State


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of one attempt at a region: the model's own words, and `text`, the same without its marks.

    `scale` is that of the image that was read.
    """

    answer: Answer
    text: str
    defect: Defect | None
    seconds: float
    scale: float

    @property
    def sound(self) -> str:
        """The part of the text before its defect."""
        return self.text if self.defect is None else self.text[: self.defect.sound]


@dataclass(frozen=True, slots=True)
class Settled:
    """What the attempts at a part, or at a whole region, came to. `doubt` says why a reading that stands is unsure."""

    reading: Reading
    attempts: int
    seconds: float
    failed: bool = False
    doubt: str | None = None


def no_reading(problem: Problem, reason: str, scale: float) -> Reading:
    """The reading of an attempt without an answer."""
    return Reading(Answer("", "error", 0), "", Defect(problem, reason, 0), 0.0, scale)


def is_confirmed(readings: Sequence[Reading], task: Task) -> bool:
    """Whether an earlier attempt had the same problem as the last one, and both show what is printed."""
    last = readings[-1]
    return last.defect is not None and any(
        confirmed(last.defect.problem, last.text, earlier.text, task)
        for earlier in readings[:-1]
        if earlier.defect is not None and earlier.defect.problem is last.defect.problem
    )


def joined(task: Task, parts: Sequence[Reading]) -> Reading:
    """Parts of a region as one reading, with the first defect of a part."""
    join = join_tables if task is Task.TABLE else "\n".join
    text = join([tidy(part.sound, task) for part in parts])
    bad = next((part for part in parts if part.defect is not None), None)
    answer = Answer(text, bad.answer.finish_reason if bad else "stop", sum(part.answer.tokens for part in parts))
    defect = Defect(bad.defect.problem, bad.defect.reason, len(text)) if bad and bad.defect else None
    return Reading(answer, text, defect, max(part.seconds for part in parts), min(part.scale for part in parts))


def seconds_of(readings: Sequence[Reading]) -> float:
    """Seconds of all attempts together."""
    return sum(reading.seconds for reading in readings)


def settled_text(region: Region, reading: Reading, attempts: int, seconds: float, reused: bool = False) -> RegionText:
    """The text of a good or confirmed reading; a confirmed empty one makes the region blank."""
    empty = reading.defect is not None and reading.defect.problem is Problem.EMPTY and not reading.text.strip()
    return RegionText(
        region.index,
        region.label,
        tidy(reading.text, region.task),
        State.BLANK if empty else State.OK,
        "two attempts read nothing" if empty else None,
        reading.answer.finish_reason,
        attempts,
        seconds,
        reading.scale,
        reused,
    )


def doubted(readings: Sequence[Reading]) -> Settled | None:
    """The shortest reading that only ran away, with the doubt: what multiplies makes an answer longer."""
    ran_away = [each for each in readings if each.defect is not None and each.defect.problem is Problem.RUNAWAY]
    if not ran_away:
        return None
    shortest = min(ran_away, key=lambda reading: len(reading.text))
    assert shortest.defect is not None
    doubt = f"{shortest.defect.reason}, and no other reading agrees"
    return Settled(shortest, len(readings), seconds_of(readings), doubt=doubt)


def whole(task: Task, parts: Sequence[Settled]) -> Settled:
    """The parts of a region as one; it failed where one did, and is empty where all are."""
    reading = joined(task, [part.reading for part in parts])
    failed = next((number for number, part in enumerate(parts, 1) if part.failed), None)
    if failed is not None:
        defect = parts[failed - 1].reading.defect
        assert defect is not None
        reason = f"part {failed} of {len(parts)}: {defect.reason}"
        reading = replace(reading, defect=Defect(defect.problem, reason, len(reading.text)))
    elif reading.text.strip():
        reading = replace(reading, defect=None)
    attempts, seconds = max(part.attempts for part in parts), max(part.seconds for part in parts)
    return Settled(reading, attempts, seconds, failed is not None, next((p.doubt for p in parts if p.doubt), None))


def failed_text(region: Region, settled: Settled) -> RegionText:
    """What is sound of a region that failed, and why it did."""
    reading = settled.reading
    assert reading.defect is not None
    return RegionText(
        region.index,
        region.label,
        tidy(reading.sound, region.task),
        State.FAILED,
        reading.defect.reason,
        reading.answer.finish_reason,
        settled.attempts,
        settled.seconds,
        reading.scale,
    )
