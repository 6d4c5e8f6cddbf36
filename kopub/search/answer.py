"""The answer of a search: the pages found, each with its best passage."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kopub.errors import KopubError
from kopub.search.options import Mode
from kopub.search.pages import PlacedText, View


class CannotSearch(KopubError):
    """The error that a question cannot be answered, or cannot be compared with the tables."""


class NotInCorpus(CannotSearch):
    """The error that a search is limited to an unknown document or shard."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The pages found, best first, and how they were ranked.

    `mode` is how they were ranked, never `auto`; `chosen` says why the mode was taken, if nobody asked for one.
    `matches_well` is False if no page reaches the floor, and None if that cannot be judged. `searched` counts the pages
    that could have been found. `notes` say what was not searched, or could not be cached for the next search.
    """

    query: str
    mode: Mode
    chosen: str
    hits: "tuple[Hit, ...]"
    matches_well: bool | None
    searched: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hit:
    """A page that was found.

    `score` depends on the mode: for BM25 it is the sum over the question's words, for vectors their dot product, for a
    fusion the sum of reciprocal ranks. Scores of different modes cannot be compared. `also` are the pages with the same
    picture, byte for byte, that were found after it. `by` are the ways of searching that put the page of a fusion among
    their first ten, such as `bm25` and `meaning`. `figure` is the figure that was found on the page, if any; it is
    also among the regions of `match`. `matches_well` is None where only the answer as a whole can be judged.
    """

    rank: int
    score: float
    page: View
    match: "Match"
    also: tuple[View, ...] = ()
    figure: PlacedText | None = None
    by: tuple[str, ...] = ()
    matches_well: bool | None = None


def as_json(answer: Answer) -> dict[str, Any]:
    """Return an answer as JSON values, as `kopub search --json` prints them."""
    hits: list[dict[str, Any]] = []
    for hit in answer.hits:
        page, match = hit.page, hit.match
        hits.append(
            {
                "rank": hit.rank,
                "score": hit.score,
                "matches_well": hit.matches_well,
                **_place_json(page),
                "also": [*map(_place_json, hit.also)],
                "passage": match.passage.text,
                "marks": [list(mark) for mark in match.passage.marks],
                "passage_region": None if match.best is None else page.regions[match.best].index,
                "regions": [_region_json(page.regions[at]) for at in match.regions],
                "by": list(hit.by),
                "figure": hit.figure and _region_json(hit.figure),
            }
        )
    return {
        "query": answer.query,
        "mode": answer.mode,
        "chosen": answer.chosen,
        "matches_well": answer.matches_well,
        "searched": answer.searched,
        "notes": list(answer.notes),
        "hits": hits,
    }


def _place_json(page: View) -> dict[str, Any]:
    return {"page_id": page.page_id, "doc_id": page.doc_id, "page_no": page.page_no, "shard": page.shard}


def _region_json(region: PlacedText) -> Mapping[str, Any]:
    return {"index": region.index, "label": region.label, "bbox_2d": list(region.box_2d), "text": region.text}


LONGEST = 240
"""Most characters of a passage: some four lines."""
Span = tuple[int, int]
"""(start, end) in characters."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a page's text.

    `marks` are the spans that match words of the query.
    """

    text: str
    marks: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Match:
    """The best passage of a page, and the regions with words of the query.

    Regions are given by their position in the list. `best` is the region of the passage, or None if no region has a
    word. `share` is how much of the query's words the region has, from 0 to 1.
    """

    passage: Passage
    regions: tuple[int, ...]
    best: int | None = None
    share: float = 0.0


_WORD = re.compile(r"[^\W_]+")
_HANGUL = re.compile("[가-힣]")
_STEM = 2
"""Fewest syllables for the beginning of a Korean word to count; it must also be half of the word."""
_MATCHING = 0.5
"""A region matches if it has at least this share of the best region's weight."""


@dataclass(frozen=True)
class QueryWords:
    """The words of a query, and the beginnings that find them on a page."""

    stems: dict[str, str] = field(default_factory=dict)
    """Every beginning that counts as a word of the query, with that word, in lower case.

    None is longer than a passage, because the beginnings of a single word of 20,000 syllables would take 300 MB.
    """

    @classmethod
    def of(cls, query: str) -> "QueryWords":
        stems: dict[str, str] = {}
        for word in _WORD.findall(_lower(unicodedata.normalize("NFKC", query))):
            shortest = max(_STEM, (len(word) + 1) // 2) if _HANGUL.search(word) else len(word)
            for length in range(min(shortest, len(word)), min(len(word), LONGEST) + 1):
                stems.setdefault(word[:length], word)
        return cls(stems)

    def marks(self, text: str) -> list[tuple[int, int, str]]:
        """Return (start, end, word of the query) for every match in `text`.

        `text` is in NFC. The longest match comes first at each place.
        """
        lowered = _lower(text)
        longest = max(map(len, self.stems), default=0)
        first = {stem[0] for stem in self.stems}
        marks: list[tuple[int, int, str]] = []
        at = 0
        while at < len(lowered):
            if lowered[at] not in first:
                at += 1
                continue
            for end in range(min(at + longest, len(lowered)), at, -1):
                stem = lowered[at:end]
                if stem not in self.stems:
                    continue
                before, after = lowered[max(0, at - 1) : at], lowered[end : end + 1]
                if _HANGUL.match(stem):
                    # Hangul may be inside a word, because blanks are lost or nouns joined.
                    is_word = end - at >= _STEM or not _HANGUL.match(before)
                else:
                    # Other words must be whole, but may be next to Hangul, such as a particle.
                    is_word = not any(char.isalnum() and not _HANGUL.match(char) for char in (before, after))
                if is_word:
                    marks.append((at, end, self.stems[stem]))
                    at = end - 1
                    break
            at += 1
        return marks


def best_passage(words: QueryWords, texts: Sequence[str]) -> Match:
    """Return the best passage of a page whose regions have these texts, in NFC.

    It is the beginning of the page if no word of the query is on it.
    """
    marks = [words.marks(text) for text in texts]
    weights = [*map(_weight, marks)]
    best = max(weights, default=0)
    if not best:
        return Match(Passage(shortened(" ".join(" ".join(texts).split()))), ())
    place = weights.index(best)
    matching = tuple(at for at, weight in enumerate(weights) if weight >= _MATCHING * best)
    most = sum(map(len, set(words.stems.values())))

    # The passage is the stretch of that region's text that matches most of the query, from one of the marks on, with
    # some text before it.
    text, of_text = texts[place], marks[place]
    weight_of_stretch, first = 0, 0
    for at, (start, _, _) in enumerate(of_text):
        weight = _weight([mark for mark in of_text[at : at + LONGEST] if mark[1] <= start + LONGEST])
        if weight > weight_of_stretch:
            weight_of_stretch, first = weight, at
    start = of_text[first][0]
    last = max(end for _, end, _ in of_text[first:] if end <= max(start + LONGEST, of_text[first][1]))
    left = max(0, start - max(0, LONGEST - (last - start)) // 3)
    right = min(len(text), max(last, left + LONGEST))
    left, right = _to_blank(text, left, start, -1), _to_blank(text, right, last, 1)
    before, after = "… " if left else "", " …" if right < len(text) else ""
    shift = len(before) - left
    inside = tuple((a + shift, b + shift) for a, b, _ in of_text if left <= a and b <= right)
    # Each white space character becomes one blank, so that marks keep their places.
    stretch = re.sub(r"\s", " ", text[left:right])
    return Match(Passage(f"{before}{stretch}{after}", inside), matching, place, best / most)


def passage_at(words: QueryWords, texts: Sequence[str], start: int, end: int) -> Match | None:
    """Return the passage from `start` to `end` of a page whose regions have these texts.

    A page's text is those of its regions, a blank line apart. None if the passage is in no region.
    """
    begin = 0
    for place, text in enumerate(texts):
        if not text:
            continue
        if start < begin + len(text):
            passage = shortened(" ".join(text[max(0, start - begin) : end - begin].split()))
            marks = tuple((mark_start, mark_end) for mark_start, mark_end, _ in words.marks(passage))
            return Match(Passage(passage, marks), (place,), place) if passage else None
        begin += len(text) + len("\n\n")
    return None


def shortened(text: str) -> str:
    """Return the beginning of a text, at most as long as a passage."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _weight(marks: Sequence[tuple[int, int, str]]) -> int:
    """Return the weight of the marks: the sum of each query word's longest match."""
    most: dict[str, int] = {}
    for start, end, word in marks:
        most[word] = max(most.get(word, 0), end - start)
    return sum(most.values())


def _to_blank(text: str, at: int, bound: int, step: int) -> int:
    """Return the nearest word boundary from `at` towards `bound`, else `at`."""
    if at in (0, len(text)):
        return at
    for place in range(at, bound, -step):
        if text[place - 1].isspace() or text[place].isspace():
            return place
    return at


def _lower(text: str) -> str:
    """Return the text in lower case, with every character at the same position."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(lower if len(lower := char.lower()) == 1 else char for char in text)
