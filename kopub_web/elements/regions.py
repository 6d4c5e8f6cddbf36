"""The regions of a page as they are shown: on its picture and as text beside it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

import kopub
from kopub_web.elements import markup
from kopub_web.elements.hues import hue
from resources.recognition.readings import Origin
from resources.search.answer import QueryWords

Piece = tuple[bool, str]
"""(marked, text)."""


@dataclass(frozen=True, slots=True)
class ShownRegion:
    """A region: `box` is (x1, y1, x2, y2) on a grid of 0 to 1000; `held` says that it has words of the question.

    `table` is its HTML where a table was read; `pieces` are its text, cut where words of the question stand.
    `from_pdf` says that the text is that of the PDF's text layer.
    """

    index: int
    label: str
    hue: str
    box: tuple[int, int, int, int]
    held: bool
    state: str | None
    reason: str | None
    is_read: bool
    is_formula: bool
    content: str
    pieces: Sequence[Piece]
    table: Markup | None
    from_pdf: bool


def shown_regions(page: kopub.Page, words: QueryWords | None = None) -> list[ShownRegion]:
    """The regions of a page in reading order, the words of a question marked. Raises `StoreError`."""
    return [_shown(region, words) for region in page.regions]


def _shown(region: kopub.Region, words: QueryWords | None) -> ShownRegion:
    content = region.content or ""
    text = region.text
    marks = [] if words is None else [(start, end) for start, end, _ in words.marks(text)]
    is_formula = region.task == "formula" and bool(content)
    is_table = markup.is_table(content)
    return ShownRegion(
        index=region.index,
        label=region.label,
        hue=hue(region.label),
        box=region.box_2d,
        held=bool(marks),
        state=region.state and region.state.value,
        reason=region.reason,
        is_read=region.content is not None and region.task not in ("skip", "abandon"),
        is_formula=is_formula,
        content=content,
        pieces=list(pieces(text, marks)),
        table=markup.table(content) if is_table else None,
        from_pdf=region.origin == Origin.TEXT_LAYER,
    )


def pieces(text: str, marks: Sequence[tuple[int, int]]) -> Iterator[Piece]:
    """The text in order, cut where a mark begins or ends."""
    at = 0
    for start, end in marks:
        yield False, text[at:start]
        yield True, text[start:end]
        at = end
    yield False, text[at:]
