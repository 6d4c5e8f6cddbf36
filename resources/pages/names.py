"""Names as people order them."""

import re


def natural(name: str) -> list[str | int]:
    """Sort key that puts part-2 before part-10."""
    return [int(part) if at % 2 else part for at, part in enumerate(re.split(r"(\d+)", name))]
