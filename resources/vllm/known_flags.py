"""Whether the vLLM that is installed knows every flag that a profile leads to."""

import re
import subprocess
from collections.abc import Sequence

from resources.errors import EngineError
from resources.printable import first_line

_SECONDS = 300.0
"""vLLM's imports, cold, on a slow disk."""
_FLAG = re.compile(r"(?<![\w-])-[\w-]+")


def listed_flags(program: Sequence[str]) -> frozenset[str]:
    """The flags of `program`, a command that ends in `serve`. Raises `EngineError` when it cannot list them."""
    command = [*program, "--help=all"]
    try:
        listing = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"`{' '.join(command)}` does not answer: {first_line(error)}") from None
    flags = frozenset(_FLAG.findall(listing.stdout))
    if listing.returncode or not flags:
        said = (listing.stderr or listing.stdout).strip().rpartition("\n")[2] or "no message"
        raise EngineError(f"`{' '.join(command)}` ended with status {listing.returncode}: {said}")
    return flags


def unknown_flags(arguments: Sequence[str], known: frozenset[str]) -> list[str]:
    """The flags among `arguments` that are not `known`, in their order.

    `--flag.key` sets a key of `--flag`, and vLLM takes `_` for `-`. Short flags are not looked at: a value may hang on.
    """
    flags = dict.fromkeys(_named(word) for word in arguments if word.startswith("--"))
    return [flag for flag in flags if flag not in known]


def _named(word: str) -> str:
    return word.partition("=")[0].partition(".")[0].replace("_", "-")
