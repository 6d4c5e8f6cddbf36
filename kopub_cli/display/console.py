"""Where the commands print their tables."""

from rich.console import Console

_PIPED = 200
"""Columns where there is no terminal: no table of ours is wider, so no word is broken."""


def table_console() -> Console:
    """A console as wide as the terminal, or as wide as any table where the output is piped."""
    console = Console()
    return console if console.is_terminal else Console(width=_PIPED)
