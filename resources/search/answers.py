"""What a search answers: the pages that were found, each with its passage, and what is to be said of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from resources.errors import KopubError
from resources.search.highlight import Match
from resources.search.page_view import PageView, RegionView
from resources.search.search_options import Mode


class CannotSearch(KopubError):
    """A question that cannot be answered, or tables that it cannot be compared with."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A page that answers.

    `score` is of the mode: of BM25 the sum over the question's words, of vectors their dot product, of a fusion the
    sum of reciprocal ranks. Scores of two modes cannot be compared. `figure` is the figure of the page that was found,
    if one was; it is among the regions of `match` too.
    """

    rank: int
    score: float
    page: PageView
    match: Match
    figure: RegionView | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The pages found, best first.

    `mode` is how they were ranked, never `auto`; `chosen` says why it was taken, where nobody asked for one.
    `matches_well` is False where no page reaches the floor, and None where that cannot be judged. `searched` counts
    the pages that could have been found. `notes` say what was not searched, or could not be kept for the next search.
    """

    query: str
    mode: Mode
    chosen: str
    hits: tuple[Hit, ...]
    matches_well: bool | None
    searched: int
    notes: tuple[str, ...]


def as_json(answer: Answer) -> dict[str, Any]:
    """An answer as JSON values: what `kopub search --json` prints."""
    return {
        "query": answer.query,
        "mode": answer.mode,
        "chosen": answer.chosen,
        "matches_well": answer.matches_well,
        "searched": answer.searched,
        "notes": list(answer.notes),
        "hits": [*map(_hit_json, answer.hits)],
    }


def _hit_json(hit: Hit) -> Mapping[str, Any]:
    page, passage = hit.page, hit.match.passage
    matching = [page.regions[at] for at in hit.match.regions]
    of_passage = None if hit.match.best is None else page.regions[hit.match.best].index
    return {
        "rank": hit.rank,
        "score": hit.score,
        "page_id": page.page_id,
        "doc_id": page.doc_id,
        "page_no": page.page_no,
        "shard": page.shard,
        "passage": passage.text,
        "marks": [list(mark) for mark in passage.marks],
        "passage_region": of_passage,
        "regions": [_region_json(region) for region in matching],
        "figure": hit.figure and _region_json(hit.figure),
    }


def _region_json(region: RegionView) -> Mapping[str, Any]:
    return {"index": region.index, "label": region.label, "bbox_2d": list(region.box), "text": region.text}
