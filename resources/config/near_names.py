"""The names most like one that does not exist."""

from collections.abc import Iterable

_ALIKE, _SUGGESTED = 0.6, 3
"""A name with more than two of five characters wrong is another name; two that changed places count as one."""


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """Up to three of the `known` names, the nearest by edit distance first."""
    from rapidfuzz import process
    from rapidfuzz.distance import OSA

    found = process.extract(name, list(known), scorer=OSA.normalized_similarity, limit=_SUGGESTED, score_cutoff=_ALIKE)
    return [str(candidate) for candidate, _, _ in found]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` (did you mean A or B?)`, or nothing where no name is near."""
    near = near_names(name, known)
    return f" (did you mean {' or '.join(near)}?)" if near else ""
