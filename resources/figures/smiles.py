"""Formulas of molecules in SMILES. Pure."""

import re
from typing import Any

_SMILES = re.compile(r"[A-Za-z0-9@+\-\[\]()=#$:./\\%*~]{2,1000}")
_ATOM = re.compile(r"\[[A-Za-z]|[BCNOPSFIbcnops]")
_BOUND = re.compile(r"[0-9()=#\[\]]|[A-Z].*[A-Z]")
"""A ring, branch or bond, or two atoms: a word of prose in small letters has none of them."""


def smiles_of(value: Any) -> str | None:
    """A value where it can be the SMILES of a molecule; None for everything else."""
    text = value.strip() if isinstance(value, str) else ""
    if not _SMILES.fullmatch(text) or not _ATOM.search(text) or not _BOUND.search(text):
        return None
    return text if text.count("(") == text.count(")") and text.count("[") == text.count("]") else None
