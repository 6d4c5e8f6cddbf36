"""The interface of layout engines."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import ClassVar

from resources.engine import Engine
from resources.layout.regions import PageLayout
from resources.pages.page import Page


class LayoutDetector(Engine):
    """Finds the regions of pages."""

    takes_upright: ClassVar[bool] = True
    """True where pages are set upright before it sees them."""

    @abstractmethod
    def detect(self, pages: Iterable[Page]) -> Iterator[PageLayout]:
        """Yield one `PageLayout` for each page, in any order.

        Pages are taken lazily. A page that cannot be decoded is `quarantined`, one that cannot be worked on is
        `failed`, one without ink is `blank`; none of them stops the others. Raises `EngineError` when no page could be
        done.
        """

    def reference(self, page: Page) -> PageLayout | None:
        """Return the layout of a page by the model's own code in full precision.

        A self-test compares with it; None where there is no such code. Raises `EngineError`.
        """
        return None

    def report(self) -> dict[str, float | str]:
        """Return figures of the last `detect`, such as the seconds of each stage."""
        return {}
