"""Code in the content of a region: lines between fences of backticks, as in markdown. Pure."""

import re
from collections.abc import Iterator
from typing import NamedTuple

_FENCE = re.compile(r"[ \t]*(`{3,})[ \t]*([\w+#.-]*)[ \t]*")
_TICKS = re.compile(r"`{3,}")


class Passage(NamedTuple):
    """Lines of a content: code without its fences, in a `language` if one is named, or other text."""

    text: str
    is_code: bool = False
    language: str = ""


def passages(content: str, unclosed: bool = False) -> Iterator[Passage]:
    """The passages of a content in their order. With `unclosed`, a fence that nothing closes holds all that follows."""
    lines = content.split("\n")
    loose: list[str] = []
    at = 0
    while at < len(lines):
        opening = _FENCE.fullmatch(lines[at])
        end = _closing(lines, at, opening[1], unclosed) if opening else None
        if opening is None or end is None:
            loose.append(lines[at])
            at += 1
            continue
        if loose:
            yield Passage("\n".join(loose))
            loose = []
        yield Passage("\n".join(lines[at + 1 : end]), True, opening[2])
        at = end + 1
    if loose:
        yield Passage("\n".join(loose))


def _closing(lines: list[str], opening: int, ticks: str, unclosed: bool) -> int | None:
    """Where the fence is closed: a line of at least as many backticks and nothing else."""
    for at in range(opening + 1, len(lines)):
        line = lines[at].strip()
        if len(line) >= len(ticks) and set(line) == {"`"}:
            return at
    return len(lines) if unclosed else None


def fenced(code: str, language: str = "") -> str:
    """Code between fences that nothing in it closes."""
    longest = max((len(ticks) for ticks in _TICKS.findall(code)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{code}\n{fence}"


def without_fences(content: str) -> str:
    """A content as it is printed: code without the fences around it."""
    return "\n".join(passage.text for passage in passages(content))
