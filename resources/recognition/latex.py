"""LaTeX of formulas. Pure."""

_DELIMITERS = (("$$", "$$"), ("\\[", "\\]"), ("\\(", "\\)"), ("$", "$"))


def without_delimiters(formula: str) -> str:
    """A formula without the delimiters around it; `formula` has no white space at its ends."""
    for start, end in _DELIMITERS:
        if formula.startswith(start) and formula.endswith(end) and len(formula) > len(start) + len(end):
            return formula[len(start) : -len(end)].strip()
    return formula
