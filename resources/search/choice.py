"""Which mode a search takes where nobody asks for one: what was measured best on this corpus."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from resources.search.search_options import Mode

Scores = Callable[[], "Measured"]
"""How well each retriever finds pages in the tables as they are now."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The mean nDCG@10 by retriever over a number of questions; empty where nothing was measured."""

    ndcg: Mapping[str, float]
    questions: int


NOTHING = Measured({}, 0)


def best_mode(measured: Measured, choices: Collection[Mode]) -> tuple[Mode, str]:
    """The mode and why: the best measured one of `choices`, which are in the order that decides between equals.

    Where nothing was measured it is the first of them: a fusion was never the worst of those that were compared.
    """
    scored = [mode for mode in choices if mode in measured.ndcg]
    if not scored:
        return next(iter(choices)), "nothing was measured on these tables"
    best = max(scored, key=lambda mode: measured.ndcg[mode])
    return best, f"best of {measured.questions} questions, nDCG@10 {measured.ndcg[best]:.3f}"
