"""How far what an engine makes of the samples is from what it should make. Pure."""

import unicodedata
from collections.abc import Mapping, Sequence

import numpy as np
from rapidfuzz.distance import Levenshtein

from resources.diff.compare import match
from resources.layout.regions import Region
from resources.pages.queries import Query

SAME_BOX = 0.8
"""IoU from which two boxes are one; a region of a line of text moves by less than that between precisions."""


def character_error_rate(read: Mapping[str, str], printed: Mapping[str, str]) -> float:
    """Edits by printed characters over all pages together, after NFC and without white space; a lost page is all wrong.

    White space is left out because a line may be broken anywhere.
    """
    edits = characters = 0
    for page_id, text in printed.items():
        wanted = _bare(text)
        edits += min(Levenshtein.distance(_bare(read.get(page_id, "")), wanted), len(wanted))
        characters += len(wanted)
    return edits / characters if characters else 0.0


def regions_alike(found: Sequence[Region], expected: Sequence[Region]) -> float:
    """The share of the regions of both that have a partner of the same label at the same place; 1 for none at all."""
    pairs = match([region.bbox for region in found], [region.bbox for region in expected])
    same = sum(found[i].label == expected[j].label and overlap >= SAME_BOX for i, j, overlap in pairs)
    total = len(found) + len(expected)
    return 2 * same / total if total else 1.0


def recall(
    pages: Mapping[str, np.ndarray], queries: Mapping[str, np.ndarray], asked: Sequence[Query], at: int
) -> float:
    """The share of questions one of whose pages is among the first `at`; a page that ties counts as after all others.

    Without the tie rule, vectors that are all the same would find something.
    """
    if not pages or not asked:
        return 0.0
    ids, matrix = list(pages), np.stack(list(pages.values()))
    hits = 0
    for query in asked:
        if query.query_id in queries:
            scores = dict(zip(ids, matrix @ queries[query.query_id], strict=True))
            best = max((scores[page] for page in query.ground_truth if page in scores), default=None)
            hits += best is not None and sum(score >= best for score in scores.values()) <= at
    return hits / len(asked)


def _bare(text: str) -> str:
    return "".join(unicodedata.normalize("NFC", text).split())
