"""The retry plan: what is tried after a bad answer, another size, other sampling or the region in parts. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

from resources.layout.regions import Task
from resources.recognition.vlm.answers import Problem


@dataclass(frozen=True, slots=True)
class Attempt:
    """One way to request a region.

    `to_lines` sends no more pixels than its lines need, where that is known and wanted. `scale` is relative to the
    usual size of its image, `all_room` gives the answer all tokens that the context leaves, and `parts` is the number
    of strips that the region is cut into.
    """

    to_lines: bool = False
    scale: float = 1.0
    temperature: float = 0.0
    all_room: bool = False
    parts: int = 1


FIRST_ATTEMPT = Attempt(to_lines=True)
_FULL_SIZE = Attempt()
"""What a region is asked with whose image is not scaled down to its lines."""
_WARM = Attempt(temperature=0.3, all_room=True)
"""Enough to leave the path that greedy decoding takes, and still almost greedy."""
_PLANS = MappingProxyType(
    {
        # Half, then a quarter of the pixels; a table's small print would not survive the quarter.
        Problem.TOO_LARGE: (Attempt(scale=0.7), Attempt(scale=0.5), Attempt(parts=2, all_room=True)),
        # A request that is refused for another reason than its size is refused at any size.
        Problem.REFUSED: (),
        Problem.CUT: (Attempt(all_room=True), Attempt(parts=2, all_room=True), Attempt(parts=4, all_room=True)),
        # Another size gives other image tokens, which leads a greedy model out of a loop.
        Problem.LOOP: (Attempt(scale=0.8), _WARM, Attempt(parts=2)),
        # Another size reads the digits and the cells anew.
        Problem.RUNAWAY: (Attempt(scale=1.25), Attempt(scale=0.8)),
        Problem.EMPTY: (Attempt(scale=1.5), Attempt(scale=0.75), _WARM),
        Problem.SCRIPT: (Attempt(scale=1.25), _WARM),
    }
)
_WHOLE = frozenset({"chart", "seal", "vertical_text"})
"""Labels of regions that are one picture, or whose lines run from top to bottom."""
_REFUSALS = frozenset({Problem.TOO_LARGE, Problem.REFUSED})
_TABLE_TOO_LARGE = (Attempt(scale=0.7), Attempt(parts=2, all_room=True), Attempt(parts=4, all_room=True))


def may_be_cut(task: Task, label: str) -> bool:
    """Whether strips of a region, from top to bottom, say what the whole of it does."""
    return task is not Task.FORMULA and label not in _WHOLE


def next_attempt(
    task: Task, label: str, problem: Problem, made: Sequence[Attempt], scaled_down: bool = False
) -> Attempt | None:
    """The next attempt of the plan for a problem that was not `made` yet; None at the end of the plan.

    A region whose first image was `scaled_down` to its lines is asked again at full size first, unless the server
    refuses it.
    """
    plan = _TABLE_TOO_LARGE if problem is Problem.TOO_LARGE and task is Task.TABLE else _PLANS[problem]
    if scaled_down and problem not in _REFUSALS:
        plan = (_FULL_SIZE, *plan)
    left = (attempt for attempt in plan if attempt not in made)
    return next((attempt for attempt in left if attempt.parts == 1 or may_be_cut(task, label)), None)
