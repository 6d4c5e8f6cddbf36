"""Signs that a model wrote on where nothing more is printed, in an answer that it ended by itself. Pure."""

import re

from resources.layout.regions import Task

_NUMBER = re.compile(r"\d[\d.,]*")
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
    digits = next(filter(None, map(_multiplied, _NUMBER.findall(text))), None)
    if digits is not None or task is not Task.TABLE:
        return digits
    cells = _CELLS.search(text)
    return cells[0] if cells else None


def _multiplied(number: str) -> str | None:
    """The run in a number; not in a fraction, as 0.1333333333333333 is printed."""
    found = _DIGITS.search(number.partition(".")[0] if number.count(".") == 1 else number)
    return found[0] if found else None


def described(run: str) -> str:
    """The run in words."""
    empty = run.count("></t")
    return f"{empty} empty cells one after the other" if empty else f"the digits {run[:12]}… multiply"
