"""The four states a page, region or query can end in; there is no fifth, and no gap."""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum


class State(StrEnum):
    OK = "ok"
    BLANK = "blank"
    """Nothing to make: an empty page, a page without text. Final."""
    FAILED = "failed"
    """Could not be made this time; the reason says why. Retried by the next materialization."""
    QUARANTINED = "quarantined"
    """Bytes that cannot be used. Reported, and not retried until they change."""


FINAL = (State.OK, State.BLANK, State.QUARANTINED)
"""Ends that a later materialization leaves as they are while the inputs are the same."""


def count_states(states: Iterable[str]) -> dict[str, int]:
    """How many rows ended in each state; every state is a key, so that zeros plot too."""
    seen = Counter(states)
    return {state.value: seen[state.value] for state in State}
