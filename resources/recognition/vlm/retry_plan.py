"""What is tried after a bad answer: another size, another sampling, parts. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

from resources.layout.regions import Task
from resources.recognition.vlm.answers import Problem


@dataclass(frozen=True, slots=True)
class Try:
    """One way to ask for a region: its size, how it is sampled, whether all room is given, in how many parts."""

    scale: float = 1.0
    temperature: float = 0.0
    all_room: bool = False
    parts: int = 1


FIRST = Try()
_WARM = Try(temperature=0.3, all_room=True)
"""Enough to leave the path that greedy decoding takes, and still almost greedy."""
_LADDERS = MappingProxyType(
    {
        # Half, then a quarter of the pixels; a table's small print would not survive the quarter.
        Problem.TOO_LARGE: (Try(scale=0.7), Try(scale=0.5), Try(parts=2, all_room=True)),
        # What has another reason than its size stays refused at any.
        Problem.REFUSED: (),
        Problem.CUT: (Try(all_room=True), Try(parts=2, all_room=True), Try(parts=4, all_room=True)),
        # Another size gives other image tokens, which is what leads a greedy model out of a loop.
        Problem.LOOP: (Try(scale=0.8), _WARM, Try(parts=2)),
        Problem.EMPTY: (Try(scale=1.5), Try(scale=0.75), _WARM),
        Problem.SCRIPT: (Try(scale=1.25), _WARM),
    }
)
_TABLE_TOO_LARGE = (Try(scale=0.7), Try(parts=2, all_room=True), Try(parts=4, all_room=True))


def next_try(task: Task, problem: Problem, made: Sequence[Try]) -> Try | None:
    """The next rung for a problem that is not among the tries `made`; None at the top of the ladder.

    A formula is never taken apart.
    """
    rungs = _TABLE_TOO_LARGE if problem is Problem.TOO_LARGE and task is Task.TABLE else _LADDERS[problem]
    return next((rung for rung in rungs if rung not in made and (rung.parts == 1 or task is not Task.FORMULA)), None)
