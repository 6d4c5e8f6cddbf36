"""The names most like one that does not exist, as the errors of a profile say them: in brackets, amid a sentence."""

from collections.abc import Iterable

from resources.errors import near_names


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` (did you mean A or B?)`, or nothing where no name is near."""
    near = near_names(name, known)
    return f" (did you mean {' or '.join(near)}?)" if near else ""
