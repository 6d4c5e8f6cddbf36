"""Data of a corpus where a person reads it: as it is, but nothing in it steers a terminal or turns its writing.

`visible` is for a value on a line of its own or in a sentence, `quoted` for an id in a sentence that must show where
it ends, `blanked` for a text in which places are marked, `first_line` for what a library said, `counted` for a number
of things.
"""

ELLIPSIS = "…"


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
