"""The recognition protocol."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence

from resources.engine import Engine
from resources.layout.regions import Region
from resources.pages.page import Page
from resources.recognition.characters import KOREAN
from resources.recognition.readings import PageReading


class Recognizer(Engine):
    """Reads the regions of pages."""

    @property
    def expected_scripts(self) -> frozenset[str]:
        """The scripts of the pages that it is to read, by `characters.script_of`: a text in others looks wrong."""
        return KOREAN

    @abstractmethod
    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        """Yield one `PageReading` per page, in any order, while taking pages lazily.

        Regions whose task is `skip` or `abandon` come back with empty content and finish_reason
        "skipped". A region that fails leaves the others: the page is then `partial`, and `failed` when
        no region gave text (`readings.page_state`). Raises `EngineError` when the engine cannot run at all.
        """

    def report(self) -> dict[str, float | str]:
        """Figures of the last `read`, for plots."""
        return {}
