"""Which pages of a shard are read a second time. Pure.

The cap is one for the shard, however many client processes read it, and the same pages get it whatever order their
answers come in: the first ones of the shard, in its order, whose answers are not good.
"""

import math
from collections import deque
from dataclasses import dataclass, field

from resources.pages.page import Batch

_ROUNDING = 1e-9
"""A tenth of thirty pages is three, not a little less."""


@dataclass(slots=True)
class _Asked:
    """A page that was asked for. `wanted` is None until its answer is there, `granted` until it is decided."""

    number: int
    most: int
    wanted: bool | None = None
    granted: bool | None = None


@dataclass(slots=True)
class _Shard:
    """The pages of a shard from the first that is not decided on, and the second tries of those before."""

    began: int = 0
    spent: int = 0
    undecided: deque[_Asked] = field(default_factory=deque)


class SecondTries:
    """Second tries of at most `share` of the pages of a shard, 0 to 1, and of one page at least; none for 0.

    Of pages that are in no batch nobody knows how many will come: there a page counts those up to itself.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._shards: dict[Batch | None, _Shard] = {}
        self._of: dict[int, tuple[_Shard, _Asked]] = {}

    def began(self, number: int, batch: Batch | None) -> None:
        """A page is asked for; those of a batch in the order of its shard. `number` is no other page's."""
        shard = self._shards.setdefault(batch, _Shard())
        shard.began += 1
        asked = _Asked(number, self._most(shard.began if batch is None else batch.pages))
        shard.undecided.append(asked)
        self._of[number] = shard, asked

    def answered(self, number: int, wanted: bool) -> list[tuple[int, bool]]:
        """A page's first answer is there, and a second try is `wanted` or not.

        Returns the pages that this decides on, and whether each of them gets its second try: a page waits only as long
        as answers of pages before it can change that.
        """
        shard, asked = self._of.pop(number)
        asked.wanted = wanted
        asked.granted = None if wanted else False
        decided = []
        least = most = shard.spent
        for page in shard.undecided:
            if page.wanted and page.granted is None and (most < page.most or least >= page.most):
                page.granted = most < page.most
                decided.append((page.number, page.granted))
            least += page.granted is True
            most += page.granted is not False
        while shard.undecided and shard.undecided[0].granted is not None:
            shard.spent += shard.undecided.popleft().granted is True
        return decided

    def _most(self, pages: int) -> int:
        return max(1, math.floor(self._share * pages + _ROUNDING)) if self._share else 0
