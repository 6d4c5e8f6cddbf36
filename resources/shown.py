"""Data of a corpus where a person reads it: as it is, but nothing in it steers a terminal or turns its writing."""

ELLIPSIS = "…"


def visible(text: str, most: int | None = None) -> str:
    """`text` in one line of at most `most` characters, with everything that does not print spelt out."""
    line = " ".join(text[: None if most is None else 4 * most].split())
    spelt = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    return spelt if most is None or len(spelt) <= most else f"{spelt[: most - 1]}{ELLIPSIS}"
