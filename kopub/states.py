"""The states in which a page, region or query can end; each ends in one."""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum


class State(StrEnum):
    OK = "ok"
    PARTIAL = "partial"
    """Made, except for regions that could not be read: the rest is used downstream, and the reason lists the losses.
    Final until somebody requests another try."""
    BLANK = "blank"
    """Nothing to make: an empty page, a page without text. Final."""
    FAILED = "failed"
    """Could not be made this time; the reason says why. Retried by the next materialization."""
    QUARANTINED = "quarantined"
    """Bytes that cannot be used. Reported, and not retried until they change."""


MADE = (State.OK, State.PARTIAL)
"""States with a result, which the tables downstream, search and the release use."""
LOST = (State.FAILED, State.QUARANTINED)
"""States without a result although there was something to make."""
FINAL = (State.OK, State.PARTIAL, State.BLANK, State.QUARANTINED)
"""States that a later materialization leaves as they are while the inputs are the same."""


TRIES_AGAIN = "the next run tries again"
"""The words in the reason of a region that was lost to a limit of time: its page is read again without a request."""


def count_states(states: Iterable[str]) -> dict[str, int]:
    """Return how many rows ended in each state.

    Every state is a key, so that zeros are plotted too.
    """
    counts = Counter(states)
    return {state.value: counts[state.value] for state in State}


def decisive(states: Mapping[str, str]) -> str | None:
    """Return the asset that decides a page's state.

    `states` are by asset, in the order in which the assets are made. The first asset that lost the page, lost a part of
    it or found nothing decides; None if all are ok.
    """
    for ends in (LOST, (State.PARTIAL,), (State.BLANK,)):
        if ended := next((asset for asset, state in states.items() if state in ends), None):
            return ended
    return None
