"""The states in which a page, region or query ends, without gaps."""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum


class State(StrEnum):
    OK = "ok"
    PARTIAL = "partial"
    """Made, but for some regions that could not be read: what was read flows on, the reason lists the rest. Final
    until somebody asks for another try."""
    BLANK = "blank"
    """Nothing to make: an empty page, a page without text. Final."""
    FAILED = "failed"
    """Could not be made this time; the reason says why. Retried by the next materialization."""
    QUARANTINED = "quarantined"
    """Bytes that cannot be used. Reported, and not retried until they change."""


MADE = (State.OK, State.PARTIAL)
"""Ends with something that flows on into the tables below, search and release."""
LOST = (State.FAILED, State.QUARANTINED)
"""Ends with nothing, although there was something to make."""
FINAL = (State.OK, State.PARTIAL, State.BLANK, State.QUARANTINED)
"""Ends that a later materialization leaves as they are while the inputs are the same."""


def count_states(states: Iterable[str]) -> dict[str, int]:
    """Return how many rows ended in each state.

    Every state is a key, so that zeros plot too.
    """
    seen = Counter(states)
    return {state.value: seen[state.value] for state in State}


def decisive(states: Mapping[str, str]) -> str | None:
    """Return the asset that decides a page's state.

    Its states are by asset in the order the assets are made. It is the first that lost the page, lost a part of it, or
    found nothing; None where all are ok.
    """
    for ends in (LOST, (State.PARTIAL,), (State.BLANK,)):
        if ended := next((asset for asset, state in states.items() if state in ends), None):
            return ended
    return None
