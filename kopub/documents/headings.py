"""Finds the titles of a document with their levels, and its running heads and feet."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import IntEnum

from kopub.documents.document import Block, BlockKind, DocumentPage
from kopub.documents.joins import one_line
from kopub.documents.outline import LETTERS
from kopub.recognition.regions import TextOrigin
from kopub.texts.regions import Region

_DEEPEST = 6
"""The deepest level of a heading in markdown."""
_NUMERAL = r"[0-9IVXⅠ-ⅿ一二三四五六七八九十]+"


class _Rank(IntEnum):
    """Kinds of title numbers from the uppermost down, as Korean documents nest them."""

    PART = 0
    CHAPTER = 1
    SECTION = 2
    ARTICLE = 3
    ROMAN = 4
    DECIMAL = 5
    """`1.`; `1.1` and deeper numbers rank between it and the next kind."""
    LETTER = 20
    BRACKET = 21
    LETTER_BRACKET = 22
    BRACKETS = 23
    LETTER_BRACKETS = 24
    CIRCLE = 25
    LETTER_CIRCLE = 26


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
        (_Rank.LETTER_BRACKET, rf"[{LETTERS}]\)"),
        (_Rank.BRACKETS, r"\([0-9]{1,2}\)|[⑴-⒇]"),
        (_Rank.LETTER_BRACKETS, rf"\([{LETTERS}]\)|[㈎-㈛]"),
        (_Rank.CIRCLE, r"[①-⑳]"),
        (_Rank.LETTER_CIRCLE, r"[㉮-㉻ⓐ-ⓩ]"),
        (_Rank.LETTER, rf"[{LETTERS}]\.(?=\s)"),
    )
)
_DECIMAL = re.compile(r"([0-9]{1,3}|[A-Z](?=\.[0-9]))((?:\.[0-9]{1,3})*)(?:\.(?=[^\s\d])|\.?(?=\s|$))")
_MOST_DOTS = 8
_ALONE = re.compile(
    r"제\S{1,3}[장편부절]|[0-9]{1,2}장|(?:부록|별첨)\S?|(?:chapter|part|appendix)\S{1,4}", re.IGNORECASE
)


def with_levels(blocks: Sequence[Block]) -> list[Block]:
    """Return the blocks, each title with its level.

    A title whose file says its level has that; the tags of a PDF may count the document's own title. The first title
    is the document's own, at level 1, if it has no number and stands on the first page. Each kind of number that the
    document uses is a level, in the usual order. A title without a number is one level below the numbered one before
    it; a title that layout calls a document's title begins a chapter.
    """
    titles = [block for block in blocks if block.kind is BlockKind.TITLE]
    ranks = [rank_of(block.text) for block in titles]
    single: set[str] = set()
    lower: set[str] = set()
    for title, rank in zip(titles, ranks, strict=True):
        number = _DECIMAL.match(title.text.lstrip())
        if number and rank is not None and _Rank.DECIMAL <= rank < _Rank.LETTER:
            (lower if rank > _Rank.DECIMAL else single).add(number[1])
    if lower and not lower & single:
        # The document has numbers like `1.1` but no `1` above any of them: its single numbers were misread.
        ranks = [_Rank.DECIMAL + 1 if rank == _Rank.DECIMAL else rank for rank in ranks]
    used = sorted({rank for rank in ranks if rank is not None})
    named = bool(titles) and is_named(blocks, titles[0])
    top = 2 if named or not used or used[0] > _Rank.CHAPTER else 1
    levels = {rank: top + at for at, rank in enumerate(used)}
    tagged: set[int] = set()
    for block in titles:
        if block.level and block.parts[0].region.origin is TextOrigin.TEXT_LAYER:
            tagged.add(block.level)
    last, leveled, ranked = None, [], iter(ranks)
    for block in blocks:
        if block.kind is not BlockKind.TITLE:
            leveled.append(block)
            continue
        rank = next(ranked)
        if block.level:
            is_tagged = block.parts[0].region.origin is TextOrigin.TEXT_LAYER
            level = last = block.level + (named and 1 in tagged if is_tagged else top - 1)
        elif rank is not None:
            level = last = levels[rank]
        elif block.label == "doc_title":
            level, last = (1 if named and block is titles[0] else top), None
        else:
            level = max(2, top) if last is None else last + 1
        leveled.append(replace(block, level=min(level, _DEEPEST)))
    return leveled


def is_named(blocks: Sequence[Block], title: Block) -> bool:
    """Return whether `title`, the first one, is the title of the document."""
    return title.label == "doc_title" and title.page == blocks[0].page and rank_of(title.text) is None


def rank_of(title: str) -> int | None:
    """Return the rank of a title's number, smaller for upper levels; None without one."""
    title = title.lstrip()
    for rank, pattern in _NUMBERS:
        if pattern.match(title):
            return rank
    number = _DECIMAL.match(title)
    return None if number is None else _Rank.DECIMAL + min(number[2].count("."), _MOST_DOTS)


def is_number_alone(title: str) -> bool:
    """Return whether a title is a number alone: `제 2 장`, `부록 B`, `Chapter 3`.

    It then belongs to the title that follows. The part between 제 and 장 is often misread, so any short word will do.
    """
    return _ALONE.fullmatch("".join(one_line(title).split())) is not None


_FURNITURE_LABELS = frozenset({"header", "footer", "number", "header_image", "footer_image"})
_MISLABELLED = frozenset({"text", "paragraph_title", "aside_text"})
_PAGE_NUMBER = re.compile(
    r"[\W_]*+(?:page|p\.)?[\W_]*+(?:[0-9]{1,4}|[ivxlcdm]{1,8})(?:[\W_]*+[0-9]{1,4})?\s*+(?:쪽|페이지)?[\W_]*",
    re.IGNORECASE,
)
_NEAR = 10
"""Heads on different pages are at one height if they differ by no more, in parts of 1,000 of the page."""
_SAME_LEVEL = 4
"""The same for lines that layout did not take for heads."""
_SHARE = 0.1
"""Least share of a document's pages that have a head at one height or with one text; at least two pages."""
_EDGE = 150
"""A head that layout took for text is at most this far from the edge of its page, in parts of 1,000."""

Place = tuple[int, int]
"""Number of a page and index of a region."""


def find_furniture(pages: Sequence[DocumentPage]) -> set[Place]:
    """Return the running heads, feet and page numbers of a document.

    A page number is a region that layout labels as one and that looks like one. A head or foot repeats: others stand
    at its height, or have the same text apart from numbers; so a document of one page has none. The outermost line of a
    page that layout took for text is a head too if heads of other pages stand at its height, or if other such lines at
    its height are only numbers or repeat one text.
    """
    labelled = [(page, region) for page in pages for region in page.regions if region.label in _FURNITURE_LABELS]
    enough = max(2, _SHARE * len(pages))
    heights, texts = _Heights(labelled), _texts_by_page(labelled)
    heads: list[tuple[DocumentPage, Region]] = []
    for page, region in labelled:
        is_page_number = region.label == "number" and _PAGE_NUMBER.fullmatch(region.content or "")
        repeats = len(heights.near(region, _NEAR)) >= enough or len(texts[_without_digits(region)]) >= enough
        if is_page_number or repeats:
            heads.append((page, region))
    furniture = {(page.number, region.index) for page, region in heads}

    # The uppermost and lowest lines that layout took for text, at the edges of pages.
    edges: list[tuple[DocumentPage, Region]] = []
    for page in pages:
        lines: list[Region] = []
        for region in page.regions:
            if (page.number, region.index) not in furniture and region.origin is not TextOrigin.UNPRINTED:
                lines.append(region)
        if not lines:
            continue
        upper = min(lines, key=lambda region: region.box_2d.y1)
        lower = max(lines, key=lambda region: region.box_2d.y2)
        for region in (upper, lower):
            is_line = region.label in _MISLABELLED and "\n" not in (region.content or "").strip()
            if is_line and (region.box_2d.y2 < _EDGE or region.box_2d.y1 > 1000 - _EDGE):
                edges.append((page, region))
    repeated = _texts_by_page(edges)
    for page, region in edges:
        if _PAGE_NUMBER.fullmatch(region.content or "") or len(repeated[_without_digits(region)]) > 1:
            heads.append((page, region))
    sure = _Heights(heads)
    for page, region in edges:
        if len(sure.near(region, _SAME_LEVEL)) >= enough and region.box_2d.height <= sure.tallest + _SAME_LEVEL:
            furniture.add((page.number, region.index))
    return furniture


class _Heights:
    """The pages that have a head at each height."""

    def __init__(self, heads: Iterable[tuple[DocumentPage, Region]]) -> None:
        self._pages: dict[int, set[int]] = defaultdict(set)
        self.tallest = 0
        for page, head in heads:
            self._pages[(head.box_2d.y1 + head.box_2d.y2) // 2].add(page.number)
            self.tallest = max(self.tallest, head.box_2d.height)

    def near(self, region: Region, reach: int) -> set[int]:
        """Return the pages with a head at most `reach` from the height of a region."""
        middle = (region.box_2d.y1 + region.box_2d.y2) // 2
        pages: set[int] = set()
        for height in range(middle - reach, middle + reach + 1):
            pages.update(self._pages.get(height, ()))
        return pages


def _texts_by_page(regions: Iterable[tuple[DocumentPage, Region]]) -> dict[str, set[int]]:
    pages: dict[str, set[int]] = defaultdict(set)
    for page, region in regions:
        pages[_without_digits(region)].add(page.number)
    pages.pop("", None)
    return pages


def _without_digits(region: Region) -> str:
    return re.sub(r"[\d\W_]+", "", region.content or "")
