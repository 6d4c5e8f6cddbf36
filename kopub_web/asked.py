"""What an address asks for, and what is shown for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kopub_web.addresses import Addresses
from kopub_web.languages import Texts

LONGEST_QUERY = 2000
"""Characters of a question: some servers and browsers refuse longer addresses."""
_LONGEST = 4096
"""Characters of any other value."""
_MOST = 10**7
_DIGITS = 7


@dataclass(frozen=True)
class Asked:
    """The values of an address, the texts of the language that the browser asked for, and addresses to link to."""

    values: Mapping[str, str]
    t: Texts
    to: Addresses
    sources: Mapping[str, str] = field(default_factory=dict)
    """The name of the source by shard, where the corpus has several; empty where it has one."""

    def text(self, name: str) -> str:
        return self.values.get(name, "")[:_LONGEST]

    def number(self, name: str, least: int = 1) -> int:
        """A whole number from `least` on; `least` where there is none."""
        given = self.values.get(name, "")
        # Python refuses to read a number of thousands of digits.
        return max(least, min(int(given[:_DIGITS]), _MOST)) if given.isdecimal() else least

    def flag(self, name: str) -> bool:
        return self.values.get(name, "") == "1"


@dataclass(frozen=True)
class Shown:
    """A template and its values."""

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True)
class Pager:
    """One part of a long list: its number from 1, the last one's, and the addresses of those beside it."""

    at: int
    last: int
    previous: str | None
    next: str | None


def part(count: int, size: int, asked: Asked, address: Any) -> tuple[slice, Pager]:
    """The part of `count` things that is asked for by `part`; `address(part=…)` is that of another part."""
    last = max(1, -(-count // size))
    at = min(asked.number("part"), last)
    before = address(part=at - 1) if at > 1 else None
    after = address(part=at + 1) if at < last else None
    return slice((at - 1) * size, at * size), Pager(at, last, before, after)
