"""Texts of regions that are known before recognition: the recognizer is asked for the others only. Pure."""

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from resources.layout.regions import READ_TASKS, Region, Task
from resources.pages.page import Page
from resources.recognition.readings import Origin, PageReading, RegionText, page_reading
from resources.states import LOST

_MOST_WAITING = 64
"""Pages without anything to read that pile up while a recognizer takes pages and gives none."""
_GIVEN = "given"
"""`finish_reason` of a text that was known."""

Read = Callable[[Iterable[tuple[Page, Sequence[Region]]]], Iterator[PageReading]]
"""`Recognizer.read`."""


@dataclass(frozen=True, slots=True)
class KnownText:
    """The text of a region, in the form of `RegionText.content`, and who found it."""

    content: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class PageToRead:
    """A page, its regions, and by their index the texts that are known of them."""

    page: Page
    regions: Sequence[Region]
    known: Mapping[int, KnownText] = field(default_factory=dict)

    @property
    def unknown(self) -> list[Region]:
        """The regions that a recognizer is given: also pictures, which it cuts out, and what is not read."""
        return [region for region in self.regions if region.index not in self.known]


def known_texts(regions: Iterable[Region], reread: Collection[Task] = ()) -> dict[int, KnownText]:
    """The texts that a layout engine found, by region, but for those whose task is to be read again."""
    return {
        region.index: KnownText(region.text, Origin.LAYOUT)
        for region in regions
        if region.text and region.text.strip() and region.task in READ_TASKS and region.task not in reread
    }


def read_unknown(read: Read, pages: Iterable[PageToRead]) -> Iterator[PageReading]:
    """One reading for each page, in any order: what is known of it, and what `read` makes of the rest.

    A page of which everything is known never reaches `read`, and `read` is not called for such pages alone. Pages are
    taken lazily. What `read` raises passes through.
    """
    split = _Split(iter(pages))
    goes_on = True
    while goes_on:
        if split.next_to_read():
            with closing(_closable(read(split.to_read()))) as readings:
                for reading in readings:
                    yield split.whole(reading)
                    yield from split.take_known()
            goes_on = split.gave_way
        else:
            goes_on = not split.exhausted
        yield from split.take_known()


class _Split:
    """Pages on their way: to a recognizer, or past it."""

    def __init__(self, pages: Iterator[PageToRead]) -> None:
        self._pages = pages
        self._next: PageToRead | None = None
        self._asked: dict[str, PageToRead] = {}
        self._past: deque[PageReading] = deque()
        self.exhausted = False
        self.gave_way = False
        """Whether the recognizer was given no more only because too many pages waited."""

    def next_to_read(self) -> bool:
        """Whether a page with something to read is the next one, reached before too many have passed."""
        while self._next is None and not self.exhausted and len(self._past) < _MOST_WAITING:
            page = next(self._pages, None)
            if page is None:
                self.exhausted = True
            elif page.unknown or not page.known:
                self._next = page
            else:
                self._past.append(page_reading(page.page.page_id, _texts(page), ()))
        return self._next is not None

    def to_read(self) -> Iterator[tuple[Page, Sequence[Region]]]:
        """What the recognizer is given; ends early where too many pages wait that it never sees."""
        self.gave_way = False
        while self.next_to_read():
            assert self._next is not None
            page, self._next = self._next, None
            if page.known:
                self._asked[page.page.page_id] = page
            yield page.page, page.unknown
        self.gave_way = not self.exhausted

    def take_known(self) -> Iterator[PageReading]:
        """The pages that went past the recognizer since the last call."""
        while self._past:
            yield self._past.popleft()

    def whole(self, reading: PageReading) -> PageReading:
        """A reading with the texts that were known; a page that was lost as a whole stays so, with its reason."""
        page = self._asked.pop(reading.page_id, None)
        if page is None or (reading.state in LOST and not reading.regions):
            return reading
        texts = sorted((*reading.regions, *_texts(page)), key=lambda text: text.index)
        return page_reading(reading.page_id, texts, reading.crops)


def _closable(readings: Iterable[PageReading]) -> Generator[PageReading, None, None]:
    """`readings`, which are closed when this is."""
    yield from readings


def _texts(page: PageToRead) -> list[RegionText]:
    return [
        RegionText(region.index, region.label, known.content, finish_reason=_GIVEN, attempts=0, origin=known.origin)
        for region in page.regions
        if (known := page.known.get(region.index)) is not None
    ]
