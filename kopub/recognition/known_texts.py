"""Texts known before recognition, which only reads the others, and samples to prove these."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rapidfuzz.distance import Levenshtein

from kopub.layout.regions import READ_TASKS, Region, Task
from kopub.pages.page import Page
from kopub.parallel import closed_after
from kopub.recognition.content import letters
from kopub.recognition.printed_parts import MARKUP, with_print
from kopub.recognition.regions import PageReading, RegionText, TextOrigin, page_reading
from kopub.states import LOST, State

_MOST_WAITING = 64
"""Most pages with nothing to read that may pile up while a recognizer takes pages and returns none."""
_GIVEN = "given"
"""`finish_reason` of a text that was known beforehand."""

_MOST_APART = 0.5
"""Most edits, relative to the longer of two texts, for both to show the same print; no reader makes more mistakes."""
_FEWEST_DIGITS = 4
"""Fewest digits that are also compared separately, because prices and dates may be wrong although all letters match."""

Read = Callable[[Iterable[tuple[Page, Sequence[Region]]]], Iterator[PageReading]]
"""`Recognizer.read`."""


@dataclass(frozen=True, slots=True)
class KnownText:
    """The text of a region and its origin; `content` is as in `RegionText.content`."""

    content: str
    origin: TextOrigin


@dataclass(frozen=True, slots=True)
class LineSample:
    """A line whose text is known but which is read anyway, as a test.

    `box` is (x1, y1, x2, y2) in pixels of the upright page.
    """

    text: str
    box: tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class PageToRead:
    """A page, its regions, and their known texts by index.

    The texts in `claimed` are accepted as long as the page's `samples` are read as expected. If one is not, the regions
    are read, and each keeps its claimed text only if its own reading agrees or is empty. `parts` complete the readings
    of regions, as `with_print` says, under the same conditions.
    """

    page: Page
    regions: Sequence[Region]
    known: Mapping[int, KnownText] = field(default_factory=dict)
    claimed: Mapping[int, KnownText] = field(default_factory=dict)
    samples: Sequence[LineSample] = ()
    parts: Mapping[int, str] = field(default_factory=dict)
    doubted: bool = False
    """Whether a sample was read differently from its known text."""

    @property
    def believed(self) -> Mapping[int, KnownText]:
        """The texts that need no reading."""
        return self.known if self.doubted else {**self.known, **self.claimed}

    @property
    def to_read(self) -> list[Region]:
        """The regions that a recognizer gets, even pictures and skipped ones, and samples."""
        believed = self.believed
        regions = [region for region in self.regions if region.index not in believed]
        if not self.doubted:
            first = 1 + max((region.index for region in self.regions), default=-1)
            for index, sample in enumerate(self.samples, first):
                regions.append(Region(index, "text", Task.TEXT, 1.0, sample.box))
        return regions


def agree(known: str, read: str) -> bool:
    """Return whether a text and a reading, allowing for mistakes, may show the same print."""
    a, b = (letters(MARKUP.sub("", text)).casefold() for text in (known, read))
    digits = "".join(filter(str.isdigit, a)), "".join(filter(str.isdigit, b))
    if len(digits[0]) >= _FEWEST_DIGITS and Levenshtein.normalized_distance(*digits) > _MOST_APART:
        return False
    return Levenshtein.normalized_distance(a, b) <= _MOST_APART


def known_texts(regions: Iterable[Region], reread: Collection[Task] = ()) -> dict[int, KnownText]:
    """Return the texts that layout found, except for tasks to be read again."""
    known: dict[int, KnownText] = {}
    for region in regions:
        is_wanted = region.task in READ_TASKS and region.task not in reread
        if is_wanted and region.text and region.text.strip():
            known[region.index] = KnownText(region.text, TextOrigin.LAYOUT)
    return known


def read_unknown(read: Read, pages: Iterable[PageToRead]) -> Iterator[PageReading]:
    """Yield one reading for each page, in any order.

    It holds the page's known texts, and what `read` makes of the rest. A page whose texts are all known, without
    samples, never reaches `read`, and `read` is not called if there are only such pages. Pages are taken lazily.
    Exceptions of `read` pass through.
    """
    split = _Router(iter(pages))
    goes_on = True
    while goes_on:
        if split.next_to_read():
            with closed_after(read(split.to_read())) as readings:
                for reading in readings:
                    if (whole := split.whole(reading)) is not None:
                        yield whole
                    yield from split.take_known()
            goes_on = split.gave_way or bool(split.doubted)
        else:
            goes_on = not split.exhausted
        yield from split.take_known()


class _Router:
    """The router that sends pages to a recognizer or past it."""

    def __init__(self, pages: Iterator[PageToRead]) -> None:
        self._pages = pages
        self._next: PageToRead | None = None
        self._requested: dict[str, PageToRead] = {}
        self._past: deque[PageReading] = deque()
        self.doubted: deque[PageToRead] = deque()
        """Pages that must be read again, because a sample contradicts their text."""
        self.exhausted = False
        self.gave_way = False
        """Whether the recognizer got no more pages only because too many others waited."""

    def next_to_read(self) -> bool:
        """Return whether a page to read comes before too many others have passed."""
        if self._next is None and self.doubted:
            self._next = self.doubted.popleft()
        while self._next is None and not self.exhausted and len(self._past) < _MOST_WAITING:
            page = next(self._pages, None)
            if page is None:
                self.exhausted = True
            elif page.to_read or not page.believed:
                self._next = page
            else:
                self._past.append(page_reading(page.page.page_id, _known_region_texts(page), ()))
        return self._next is not None

    def to_read(self) -> Iterator[tuple[Page, Sequence[Region]]]:
        """Yield the recognizer's pages, but end early if too many others wait."""
        self.gave_way = False
        while self.next_to_read():
            assert self._next is not None
            page, self._next = self._next, None
            if page.known or page.claimed or page.parts:
                self._requested[page.page.page_id] = page
            yield page.page, page.to_read
        self.gave_way = not self.exhausted

    def take_known(self) -> Iterator[PageReading]:
        """Yield the pages that bypassed the recognizer since the last call."""
        while self._past:
            yield self._past.popleft()

    def whole(self, reading: PageReading) -> PageReading | None:
        """Add the known texts to a reading; None if the page is read again.

        A page that was lost as a whole stays lost, with its reason.
        """
        page = self._requested.pop(reading.page_id, None)
        if page is None or (reading.state in LOST and not reading.regions):
            return reading
        own = {region.index for region in page.regions}
        if not page.doubted:
            lines = sorted((text for text in reading.regions if text.index not in own), key=lambda text: text.index)
            proofs = zip(lines, page.samples, strict=False)
            agreed = sum(line.state is not State.FAILED and agree(sample.text, line.content) for line, sample in proofs)
            if agreed < len(page.samples):
                self.doubted.append(replace(page, doubted=True))
                return None
        texts = _known_region_texts(page)
        for read in reading.regions:
            claimed = page.claimed.get(read.index)
            if read.index not in own:
                continue
            printed = claimed.content if claimed else page.parts.get(read.index)
            # Faint print is read as nothing, which says nothing against its text.
            agrees = printed is not None and (not letters(read.content) or agree(printed, read.content))
            if printed is None or (page.doubted and (read.state is State.FAILED or not agrees)):
                texts.append(read)
            elif claimed is None:
                texts.append(with_print(read, printed))
            else:
                texts.append(replace(read, content=printed, origin=claimed.origin, finish_reason=_GIVEN))
        return page_reading(reading.page_id, sorted(texts, key=lambda text: text.index), reading.crops)


def _known_region_texts(page: PageToRead) -> list[RegionText]:
    believed = page.believed
    texts: list[RegionText] = []
    for region in page.regions:
        if known := believed.get(region.index):
            text = RegionText(region.index, region.label, known.content, finish_reason=_GIVEN, attempts=0)
            texts.append(replace(text, origin=known.origin))
    return texts
