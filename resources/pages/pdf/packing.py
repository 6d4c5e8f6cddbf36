"""Which pages of which PDFs make up which shard, so that a change of one PDF is a change of one shard. Pure."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive pages of a PDF: `count` of its `pages`, from `first`, counted from 0.

    A PDF that cannot be opened has no pages and one run of one row, with the `problem`.
    `place`, `name` and `id` are those of its `Document`.
    """

    place: str
    name: str
    id: str
    sha256: str
    first: int
    count: int
    pages: int
    problem: str | None = None

    @property
    def at(self) -> tuple[str, int]:
        """What stays the same when the PDF changes."""
        return self.place, self.first


def place_runs(runs: Iterable[Run], before: Sequence[Sequence[Run]], most: int) -> list[list[Run]]:
    """The runs of every shard, by those that the shards had `before`. No run has more than `most` pages.

    A run stays in its shard, a changed one too unless the shard grows beyond twice `most`. All
    others make new shards of at most `most` pages, in their order. A shard that lost everything
    gives its place to a new one, or else to the last, so that no other shard moves.
    """
    wanted = {run.at: run for run in runs}
    shards = [_kept(old, wanted, 2 * most) for old in before]
    fresh = deque(_packed(wanted.values(), most))
    shards = [shard if shard or not fresh else fresh.popleft() for shard in shards]
    shards += fresh
    at = 0
    while at < len(shards):
        if shards[at]:
            at += 1
        elif (last := shards.pop()) and at < len(shards):
            shards[at] = last
    return shards


def _kept(old: Sequence[Run], wanted: dict[tuple[str, int], Run], most: int) -> list[Run]:
    """What stays of a shard, taken out of `wanted`."""
    room = most - sum(run.count for run in old if wanted.get(run.at) == run)
    kept = []
    for run in old:
        now = wanted.get(run.at)
        if now is None or (now != run and now.count > room):
            continue
        room -= 0 if now == run else now.count
        kept.append(wanted.pop(run.at))
    return kept


def _packed(runs: Iterable[Run], most: int) -> list[list[Run]]:
    """The runs in their order, as many in each shard as fit."""
    shards: list[list[Run]] = []
    room = 0
    for run in runs:
        if run.count > room:
            shards.append([])
            room = most
        shards[-1].append(run)
        room -= run.count
    return shards
