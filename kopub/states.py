"""The states of pages, regions and queries, the reasons, and other phrases."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import date
from enum import StrEnum
from functools import partial
from numbers import Number
from string import Formatter
from typing import Any, Self


class State(StrEnum):
    OK = "ok"
    PARTIAL = "partial"
    """Made, except for regions that could not be read: the rest is used downstream, and the reason lists the losses.
    Final until somebody requests another try, unless a reason says that the next run tries again."""
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


class Reason(str):
    """A sentence that says why, with its form and its values.

    It is the English sentence wherever a text is wanted, as in a table. `form`, a template for `str.format`, is its
    code in the catalogues of other languages. A sentence without values needs no such object: it is its own form.
    An error among the values is what it says.
    """

    form: str
    values: Mapping[str, Any]

    def __new__(cls, form: str, says: str | None = None, /, **values: Any) -> Self:
        values = {name: str(value) if isinstance(value, Exception) else value for name, value in values.items()}
        # A stored reason says what it said; its form is never filled, because anybody may have written it.
        reason = super().__new__(cls, form.format(**values) if says is None else says)
        reason.form, reason.values = form, values
        return reason

    @classmethod
    def unpacked(cls, packed: str) -> Self:
        """Return the reason of a text from `packed`."""

        def read(parts: dict[str, Any]) -> Any:
            return cls(parts["form"], parts["says"], **parts["values"]) if "form" in parts else parts

        return json.loads(packed, object_hook=read)

    def packed(self) -> str:
        """Return the reason as JSON, with its form and values."""
        return json.dumps(self._parts(), ensure_ascii=False, default=str)

    def _parts(self) -> dict[str, Any]:
        values = {name: value._parts() if isinstance(value, Reason) else value for name, value in self.values.items()}
        return {"form": self.form, "says": str.__str__(self), "values": values}

    def __str__(self) -> str:
        return self  # so that the text of an error that was raised with a reason is the reason

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process need not know the classes of paths and the like.
        plain = {
            name: value if isinstance(value, str | Number | date) else str(value) for name, value in self.values.items()
        }
        return partial(Reason, self.form, str.__str__(self), **plain), ()


def joined(reasons: Iterable[str], form: str = "{first}; {then}") -> str:
    """Return several reasons as one; empty if there are none."""
    first, *others = *reasons, ""
    for then in others[:-1]:
        first = Reason(form, first=first, then=then)
    return first


def phrase(form: str, *values: Any) -> Reason:
    """Return a phrase for a person.

    The `values` fill the names in `form`, in the order of their first use.
    """
    names = dict.fromkeys(name for _, name, _, _ in Formatter().parse(form) if name)
    return Reason(form, **dict(zip(names, values, strict=True)))


def with_remedy(finding: str, remedy: str) -> Reason:
    """Return a line on what was found, and what to do about it."""
    return Reason("{finding}: {remedy}", finding=finding, remedy=remedy)


TRIES_AGAIN = "the next run tries again"
"""The words in the reason of a region that an engine lost to a limit of time or a busy server.

The next run reads such a page again without a request.
"""


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
