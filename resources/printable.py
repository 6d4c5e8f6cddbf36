"""Data of a corpus where a person reads it: as it is, but nothing in it steers a terminal or turns its writing.

`visible` is for a value on a line of its own or in a sentence, `quoted` for an id in a sentence that must show where
it ends, `blanked` for a text in which places are marked, `first_line` for what a library said, `counted` for a number
of things, `without_paths` for what leaves this machine, `harmless` for a prompt.
"""

import re
from pathlib import PurePosixPath

ELLIPSIS = "…"
_ROOT = r"(?:file://)?(?:~?/|[A-Za-z]:\\{1,2})"
_PATH = re.compile(
    rf"""(?P<quote>['"`])(?P<quoted>{_ROOT}[^'"`]*[/\\][^'"`]*)(?P=quote)"""
    rf"""|(?<![\w/:.<~]){_ROOT}[^\s'"`,;:()\[\]<>]*[/\\][^\s'"`,;:()\[\]<>]*"""
)
"""An absolute path of two steps at least, in quotes or up to a blank; no part of a URL or a tag."""
_MODEL_MARK = re.compile(r"<(?=[|｜])|(?<=[|｜])>")
"""Special tokens of chat models are `<|name|>`, of some with full-width bars: a blank makes text of them."""


def visible(text: str, most: int | None = None) -> str:
    """`text` in one line of at most `most` characters, with everything that does not print spelt out."""
    line = " ".join(text[: None if most is None else 4 * most].split())
    whole = spelt(line)
    return whole if most is None or len(whole) <= most else f"{whole[: most - 1]}{ELLIPSIS}"


def spelt(text: str) -> str:
    """`text` with everything that does not print spelt out, bytes that are no UTF-8 among it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def quoted(text: str, most: int = 40) -> str:
    """`text` in quotes, its end left off when it is long; one that does not print whole is spelt in ASCII."""
    whole = repr(text) if text.isprintable() else ascii(text)
    return whole if len(whole) <= most else f"{whole[:most]}{ELLIPSIS}"


def blanked(text: str) -> str:
    """`text` at its length, with a blank for everything that does not print: places in it stay where they are."""
    return "".join(char if char.isprintable() else " " for char in text)


def counted(count: int, one: str, many: str = "") -> str:
    """`1 page`, `2 pages`, `1,000 pages`; `many` where it is no plain plural."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def first_line(error: Exception | str) -> str:
    """The first line of a library's message, which may go on for many, or be empty."""
    return str(error).strip().partition("\n")[0]


def without_paths(text: str) -> str:
    """`text` with the name of a file for its path on this machine, and an ellipsis for the path of a folder or program.

    What a library says of a file names the folders of whoever ran it.
    """

    def named(path: re.Match[str]) -> str:
        quote = path["quote"] or ""
        name = PurePosixPath((path["quoted"] or path[0]).replace("\\", "/")).name
        return f"{quote}{name if '.' in name.strip('.') else ELLIPSIS}{quote}"

    return _PATH.sub(named, text)


def harmless(text: str, most: int | None = None) -> str:
    """`text` in one line of at most `most` characters, without control characters and marks that end a turn."""
    shown = "".join(char if char.isprintable() else " " for char in text)
    line = " ".join(_MODEL_MARK.sub(_with_blank, shown).split())
    return line if most is None or len(line) <= most else f"{line[: most - 1]}…"


def _with_blank(mark: re.Match[str]) -> str:
    return "< " if mark[0] == "<" else " >"
