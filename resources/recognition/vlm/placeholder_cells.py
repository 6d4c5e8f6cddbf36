"""Words that a model puts into empty cells of a table: `None`, `N/A`, `null`. Pure."""

import re

_CELL = re.compile(r"(<t[dh][^>]*>)([^<]*)(</t[dh]>)", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"\s*(?:none|n/?a|null|nan)\s*", re.IGNORECASE)
"""No dash and no dot: in Korean statistics they are printed, and mean none, zero or not known."""
_TAG = re.compile(r"<[^<>]*>")
_LATIN = re.compile(r"[A-Za-z]")
_CHARACTER = re.compile(r"\S")


def without_placeholders(table: str) -> str:
    """A table's HTML with the placeholders taken out that the page cannot hold.

    A table with Latin letters in another cell may have printed them: it comes back as it is.
    """
    if not any(_PLACEHOLDER.fullmatch(cell[2]) for cell in _CELL.finditer(table)):
        return table
    others = _CELL.sub(lambda cell: "" if _PLACEHOLDER.fullmatch(cell[2]) else cell[2], table)
    if _LATIN.search(_TAG.sub(" ", others)):
        return table
    return _CELL.sub(lambda cell: cell[1] + cell[3] if _PLACEHOLDER.fullmatch(cell[2]) else cell[0], table)


def count_placeholders(table: str) -> int:
    """How many cells hold a placeholder."""
    return sum(_PLACEHOLDER.fullmatch(cell[2]) is not None for cell in _CELL.finditer(table))


def is_bare(table: str) -> bool:
    """Whether a table's HTML has no character in any cell."""
    return "<t" in table.lower() and not _CHARACTER.search(_TAG.sub("", table).replace("&nbsp;", " "))
