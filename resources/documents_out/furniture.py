"""Running heads and feet and page numbers of a document. Pure.

A label alone takes no text out: what stands at the edge of one page only may be its last sentence.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from resources.documents_out.document import DocumentPage
from resources.recognition.read_regions import ReadRegion

LABELS = frozenset({"header", "footer", "number", "header_image", "footer_image"})
_MISLABELLED = frozenset({"text", "paragraph_title", "aside_text"})
_PAGE_NUMBER = re.compile(
    r"[\W_]*(?:page|p\.)?[\W_]*(?:[0-9]{1,4}|[ivxlcdm]{1,8})(?:[\W_]*[0-9]{1,4})?\s*(?:쪽|페이지)?[\W_]*", re.IGNORECASE
)
_NEAR = 10
"""Heights of two heads on their pages, in parts of 1,000: they are one where they differ by no more."""
_LEVEL = 4
"""The same of lines that layout did not take for heads."""
_SHARE = 0.1
"""Share of a document's pages on which a head stands at one height, or says one thing; two pages at least."""
_EDGE = 150
"""Within this of the edge of a page, in parts of 1,000, stands a head that layout took for text."""

Place = tuple[int, int]
"""Number of a page and index of a region."""


def furniture(pages: Sequence[DocumentPage]) -> set[Place]:
    """The running heads, feet and page numbers of a document.

    A page number is what layout calls so and looks so. A head or foot repeats: others stand at its height, or say the
    same but for numbers. In a document of one page, layout is believed. The outermost line of a page that layout took
    for text is a head too, where heads of other pages stand at its height, or others of its height are numbers alone
    or say the same.
    """
    labelled = [(page, region) for page in pages for region in page.regions if region.label in LABELS]
    enough = max(2, _SHARE * len(pages))
    heights, said = _heights(labelled), _said(labelled)
    heads = [
        (page, region)
        for page, region in labelled
        if len(pages) == 1
        or (region.label == "number" and _PAGE_NUMBER.fullmatch(region.content or ""))
        or len(heights.near(region, _NEAR)) >= enough
        or len(said[_without_digits(region)]) >= enough
    ]
    found = {(page.number, region.index) for page, region in heads}
    edges = [(page, region) for page in pages for region in _edges(page, found)]
    repeated = _said(edges)
    heads += [
        (page, region)
        for page, region in edges
        if _PAGE_NUMBER.fullmatch(region.content or "") or len(repeated[_without_digits(region)]) > 1
    ]
    sure = _heights(heads)
    return found | {
        (page.number, region.index)
        for page, region in edges
        if len(sure.near(region, _LEVEL)) >= enough and region.bbox_2d[3] - region.bbox_2d[1] <= sure.tallest + _LEVEL
    }


class _Heights:
    """The pages that have a head at a height."""

    def __init__(self) -> None:
        self.pages: dict[int, set[int]] = defaultdict(set)
        self.tallest = 0

    def near(self, region: ReadRegion, reach: int) -> set[int]:
        middle = _middle(region)
        return set().union(*(self.pages.get(middle + off, ()) for off in range(-reach, reach + 1)))


def _heights(regions: Iterable[tuple[DocumentPage, ReadRegion]]) -> _Heights:
    heights = _Heights()
    for page, region in regions:
        heights.pages[_middle(region)].add(page.number)
        heights.tallest = max(heights.tallest, region.bbox_2d[3] - region.bbox_2d[1])
    return heights


def _said(regions: Iterable[tuple[DocumentPage, ReadRegion]]) -> dict[str, set[int]]:
    said: dict[str, set[int]] = defaultdict(set)
    for page, region in regions:
        said[_without_digits(region)].add(page.number)
    said.pop("", None)
    return said


def _edges(page: DocumentPage, found: set[Place]) -> list[ReadRegion]:
    """The uppermost and the lowest line of text at the edges of a page."""
    lines = [region for region in page.regions if (page.number, region.index) not in found]
    if not lines:
        return []
    upper = min(lines, key=lambda region: region.bbox_2d[1])
    lower = max(lines, key=lambda region: region.bbox_2d[3])
    return [
        region
        for region in (upper, lower)
        if region.label in _MISLABELLED
        and "\n" not in (region.content or "").strip()
        and (region.bbox_2d[3] < _EDGE or region.bbox_2d[1] > 1000 - _EDGE)
    ]


def _middle(region: ReadRegion) -> int:
    return (region.bbox_2d[1] + region.bbox_2d[3]) // 2


def _without_digits(region: ReadRegion) -> str:
    return re.sub(r"[\d\W_]+", "", region.content or "")
