"""Characters that stand for those that a font draws and does not name."""

NAMELESS = "\ufffd"
"""Stands for any of them."""
_CODES = range(0xF0000, 0x100000)


def nameless(code: int) -> str:
    """Return what stands for a font's `code`, so that it is told from others."""
    return chr(_CODES[code % len(_CODES)])


def is_nameless(char: str) -> bool:
    """Return whether a character only stands for one that is printed."""
    return char == NAMELESS or ord(char) in _CODES
