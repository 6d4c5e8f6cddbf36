"""Where two texts differ, for the eye. Pure."""

from collections.abc import Sequence

from rapidfuzz.distance import Levenshtein, Prefix

from resources.printable import visible

Marked = list[tuple[str, bool]]
"""A text in pieces; True for those that the other text has not."""

_SHOWN = 400
"""Characters of a text that are shown; the page of a whole shard must still open."""
_BEFORE = 40
"""Characters before the first difference, to find the place."""
_ISLAND = 2
"""Equal characters between two differences that are no more than chance."""


def marked(old: str, new: str, most: int = _SHOWN) -> tuple[Marked, Marked]:
    """Both texts from a little before their first difference on, at most `most` characters, what differs marked."""
    old, new = (" ".join(text.split()) for text in (old, new))
    start = max(0, Prefix.similarity(old, new) - _BEFORE)
    a, b = (visible(text[start : start + most]) for text in (old, new))
    sides: tuple[Marked, Marked] = ([], [])
    for code in Levenshtein.opcodes(a, b):
        other = code.tag != "equal"
        _add(sides[0], a[code.src_start : code.src_end], other)
        _add(sides[1], b[code.dest_start : code.dest_end], other)
    return tuple(  # pyright: ignore[reportReturnType]
        _whole(_joined(side), start > 0, len(text) > start + most) for side, text in zip(sides, (old, new), strict=True)
    )


def _add(side: Marked, text: str, other: bool) -> None:
    if text:
        side.append((text, other))


def _joined(side: Marked) -> Marked:
    """Without islands: three marked letters in a word read worse than the word marked."""
    joined: Marked = []
    for at, (text, other) in enumerate(side):
        island = not other and len(text) <= _ISLAND and 0 < at < len(side) - 1
        kind = other or island
        if joined and joined[-1][1] == kind:
            joined[-1] = joined[-1][0] + text, kind
        else:
            joined.append((text, kind))
    return joined


def _whole(side: Marked, cut_before: bool, cut_after: bool) -> Marked:
    before: Sequence[tuple[str, bool]] = [("…", False)] if cut_before else []
    after: Sequence[tuple[str, bool]] = [("…", False)] if cut_after else []
    return [*before, *side, *after]
