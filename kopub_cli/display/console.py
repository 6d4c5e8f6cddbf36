"""Where the commands print their tables."""

import os
import sys

from rich.console import Console

_PIPED = 200
"""Columns where there is no terminal: no table of ours is wider, so no word is broken."""


def table_console() -> Console:
    """A console as wide as the terminal, or as wide as any table where the output is piped."""
    console = Console()
    return console if console.is_terminal else Console(width=_PIPED)


def lasting_console() -> Console:
    """`table_console` on what standard output is now: Dagster leads it into a file while a step is at work."""
    try:
        shown = os.dup(sys.stdout.fileno())
    except OSError:
        return table_console()
    file = os.fdopen(shown, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)
    console = Console(file=file)
    return console if console.is_terminal else Console(file=file, width=_PIPED)
