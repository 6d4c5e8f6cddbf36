"""Assigns the pages of documents to shards, so that a change of one document changes one shard. Pure."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class PageRange:
    """Consecutive pages of a document: `count` of its `pages`, from `first`, counted from 0.

    A document that cannot be opened has 0 `pages`, and one range of one row with the `problem`, which `may_pass` when
    it is not in its bytes. `place` and `name` are those of its `Document`; its pages' ids begin with `id`. `converter`
    made a PDF of it first. `missing` pages are only counted in the file.
    """

    place: str
    name: str
    id: str
    sha256: str
    first: int
    count: int
    pages: int
    problem: str | None = None
    may_pass: bool = False
    attachments: int = 0
    converter: str | None = None
    missing: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """Names the range; it stays the same when the document changes or moves."""
        return self.id, self.first

    def as_json(self) -> dict[str, Any]:
        """The range as it is stored; what the first release did not know is there where it says something."""
        later = {
            field.name: field.default
            for field in fields(self)
            if field.name in ("may_pass", "attachments", "converter", "missing")
        }
        return {name: value for name, value in asdict(self).items() if name not in later or value != later[name]}


def first_pages(ranges: Iterable[PageRange], most: int) -> Iterator[PageRange]:
    """The ranges up to `most` pages; the last one may be cut."""
    for each in ranges:
        if most <= 0:
            return
        yield replace(each, count=min(each.count, most))
        most -= each.count


def pack(ranges: Iterable[PageRange], before: Sequence[Sequence[PageRange]], most: int) -> list[list[PageRange]]:
    """The ranges of every shard, given those that the shards had `before`. No range has more than `most` pages.

    A range stays in its shard, also when its document changed, unless the shard grows beyond twice
    `most` pages. All others fill new shards of at most `most` pages, in their order. A new shard takes the place of one
    that lost all ranges, or else comes last; one that nothing takes the place of is empty.
    """
    wanted = {each.key: each for each in ranges}
    shards = [_kept(old, wanted, 2 * most) for old in before]
    fresh = deque(_packed(wanted.values(), most))
    shards = [shard if shard or not fresh else fresh.popleft() for shard in shards]
    return [*shards, *fresh]


def _kept(old: Sequence[PageRange], wanted: dict[tuple[str, int], PageRange], most: int) -> list[PageRange]:
    """The ranges that stay in a shard; they are removed from `wanted`."""
    room = most - sum(each.count for each in old if wanted.get(each.key) == each)
    kept = []
    for each in old:
        now = wanted.get(each.key)
        if now is None or (now != each and now.count > room):
            continue
        room -= 0 if now == each else now.count
        kept.append(wanted.pop(each.key))
    return kept


def _packed(ranges: Iterable[PageRange], most: int) -> list[list[PageRange]]:
    """The ranges in their order, as many in each shard as fit."""
    shards: list[list[PageRange]] = []
    room = 0
    for each in ranges:
        if each.count > room:
            shards.append([])
            room = most
        shards[-1].append(each)
        room -= each.count
    return shards
