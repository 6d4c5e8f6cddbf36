"""Titles of a document and their levels, by the numbers that Korean documents give them. Pure."""

import re
from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum

from resources.documents_out.document import Block, Kind
from resources.documents_out.line_joints import one_line

_DEEPEST = 6
"""What markdown has."""
_NUMERAL = r"[0-9IVXⅠ-ⅿ一二三四五六七八九十]+"


class _Rank(IntEnum):
    """Numbers of titles from the uppermost down, as Korean documents nest them."""

    PART = 0
    CHAPTER = 1
    SECTION = 2
    ARTICLE = 3
    ROMAN = 4
    DECIMAL = 5
    """`1.`; `1.1` and what is below lie between it and the next."""
    LETTER = 20
    BRACKET = 21
    LETTER_BRACKET = 22
    BRACKETS = 23
    LETTER_BRACKETS = 24
    CIRCLE = 25
    LETTER_CIRCLE = 26


_LETTERS = "가나다라마바사아자차카타파하"
_NUMBERS: tuple[tuple[_Rank, re.Pattern[str]], ...] = tuple(
    (rank, re.compile(pattern, re.IGNORECASE))
    for rank, pattern in (
        (_Rank.PART, rf"제\s?{_NUMERAL}\s?[편부](?=\s|$)|part\s+{_NUMERAL}\b"),
        (_Rank.CHAPTER, rf"제\s?{_NUMERAL}\s?장|[0-9]+\s?장(?=[.\s]|$)|chapter\s+{_NUMERAL}\b"),
        (_Rank.CHAPTER, r"(?:부록|별첨|appendix)\s?[0-9A-ZⅠ-Ⅻ]?(?=[.:\s]|$)"),
        (_Rank.SECTION, rf"제\s?{_NUMERAL}\s?절"),
        (_Rank.ARTICLE, rf"제\s?{_NUMERAL}\s?[조관항](?=[\s(의]|$)"),
        (_Rank.ROMAN, r"[Ⅰ-Ⅻ]+(?=[.\s]|$)|[IVX]+\.(?=\s)"),
        (_Rank.BRACKET, r"[0-9]{1,2}\)"),
        (_Rank.LETTER_BRACKET, rf"[{_LETTERS}]\)"),
        (_Rank.BRACKETS, r"\([0-9]{1,2}\)|[⑴-⒇]"),
        (_Rank.LETTER_BRACKETS, rf"\([{_LETTERS}]\)|[㈎-㈛]"),
        (_Rank.CIRCLE, r"[①-⑳]"),
        (_Rank.LETTER_CIRCLE, r"[㉮-㉻ⓐ-ⓩ]"),
        (_Rank.LETTER, rf"[{_LETTERS}]\.(?=\s)"),
    )
)
_DECIMAL = re.compile(r"([0-9]{1,3}|[A-Z](?=\.[0-9]))((?:\.[0-9]{1,3})*)(?:\.(?=[^\s\d])|\.?(?=\s|$))")
_MOST_DOTS = 8
_ALONE = re.compile(
    r"제\S{1,3}[장편부절]|[0-9]{1,2}장|(?:부록|별첨)\S?|(?:chapter|part|appendix)\S{1,4}", re.IGNORECASE
)


def with_levels(blocks: Sequence[Block]) -> list[Block]:
    """The blocks, each title with its level.

    The first title is that of the document, level 1, when it has no number and stands on the first page. The kinds of
    numbers that the document uses are its levels, in their usual order. A title without a number is below the numbered
    one before it; one that layout calls a document's title begins a chapter.
    """
    titles = [block for block in blocks if block.kind is Kind.TITLE]
    ranks = _ranks([block.text for block in titles])
    used = sorted({rank for rank in ranks if rank is not None})
    named = bool(titles) and is_named(blocks, titles[0])
    top = 2 if named or not used or used[0] > _Rank.CHAPTER else 1
    levels = {rank: top + at for at, rank in enumerate(used)}
    last, leveled, ranked = None, [], iter(ranks)
    for block in blocks:
        if block.kind is not Kind.TITLE:
            leveled.append(block)
            continue
        rank = next(ranked)
        if rank is not None:
            level = last = levels[rank]
        elif block.label == "doc_title":
            level, last = (1 if named and block is titles[0] else top), None
        else:
            level = max(2, top) if last is None else last + 1
        leveled.append(replace(block, level=min(level, _DEEPEST)))
    return leveled


def _ranks(titles: Sequence[str]) -> list[int | None]:
    """The rank of each title. Where `1.1` goes on from no `1`, a single number is one that was misread."""
    ranks = [rank_of(title) for title in titles]
    decimals = [
        (found[1], rank > _Rank.DECIMAL)
        for title, rank in zip(titles, ranks, strict=True)
        if rank is not None and _Rank.DECIMAL <= rank < _Rank.LETTER and (found := _DECIMAL.match(title.lstrip()))
    ]
    lower = {number for number, is_lower in decimals if is_lower}
    if lower and not any(number in lower for number, is_lower in decimals if not is_lower):
        return [_Rank.DECIMAL + 1 if rank == _Rank.DECIMAL else rank for rank in ranks]
    return ranks


def is_named(blocks: Sequence[Block], title: Block) -> bool:
    """Whether a title, the first one, is that of the document."""
    return title.label == "doc_title" and title.page == blocks[0].page and rank_of(title.text) is None


def rank_of(title: str) -> int | None:
    """Which kind of number a title begins with, smaller for the upper ones; None for none."""
    title = title.lstrip()
    for rank, pattern in _NUMBERS:
        if pattern.match(title):
            return rank
    found = _DECIMAL.match(title)
    return None if found is None else _Rank.DECIMAL + min(found[2].count("."), _MOST_DOTS)


def is_number_alone(title: str) -> bool:
    """Whether a title is only the number of the one that follows: `제 2 장`, `부록 B`, `Chapter 3`.

    What stands between 제 and 장 is often misread, so any short word will do.
    """
    return _ALONE.fullmatch("".join(one_line(title).split())) is not None
