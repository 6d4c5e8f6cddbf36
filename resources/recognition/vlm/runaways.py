"""Signs that a model wrote on where nothing more is printed, in an answer that it ended by itself. Pure."""

import re

from resources.layout.regions import Task

_DIGITS = re.compile(r"(\d{1,3})(?:[,.]?\1){11,}")
"""One to three digits twelve times over: a number whose digits multiplied. Few numbers are printed so."""
_CELLS = re.compile(r"(?:(?:</tr>)?(?:<tr>)?<t[dh]></t[dh]>){300,}")
"""Empty cells one after the other. The largest forms on one page have some 300."""


def runaway(text: str, task: Task) -> str | None:
    """The first run of multiplied digits or of empty cells in an answer whose tables are HTML; None without one.

    It may be printed so: another reading with the same run says that it is.
    """
    if task is Task.FORMULA:
        return None
    found = _DIGITS.search(text) or (_CELLS.search(text) if task is Task.TABLE else None)
    return found[0] if found else None


def described(run: str) -> str:
    """The run in words."""
    empty = run.count("></t")
    return f"{empty} empty cells one after the other" if empty else f"the digits {run[:12]}… multiply"
