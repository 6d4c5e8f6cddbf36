"""Text of a page within a prompt: nothing in it is a mark of the model. Pure."""

import re

_MARK = re.compile(r"<(?=[|｜])|(?<=[|｜])>")
"""Special tokens of chat models are `<|name|>`, of some with full-width bars: a blank makes text of them."""


def harmless(text: str, most: int | None = None) -> str:
    """`text` in one line of at most `most` characters, without control characters and marks that end a turn."""
    shown = "".join(char if char.isprintable() else " " for char in text)
    line = " ".join(_MARK.sub(_apart, shown).split())
    return line if most is None or len(line) <= most else f"{line[: most - 1]}…"


def _apart(mark: re.Match[str]) -> str:
    return "< " if mark[0] == "<" else " >"
