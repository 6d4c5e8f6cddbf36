"""The interface of layout engines."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import ClassVar

from kopub.engine import Engine
from kopub.layout.regions import PageLayout
from kopub.pages.page import Page


class LayoutDetector(Engine):
    """Finds the regions of pages."""

    takes_upright: ClassVar[bool] = True
    """Whether pages are set upright before the engine sees them."""

    @abstractmethod
    def detect(self, pages: Iterable[Page]) -> Iterator[PageLayout]:
        """Yield one `PageLayout` for each page, in any order.

        Pages are taken lazily. A page that cannot be decoded is `quarantined`, one that cannot be processed is
        `failed`, and one without ink is `blank`; none of them stops the others. Raises `EngineError` if no page could
        be processed.
        """

    def reference(self, page: Page) -> PageLayout | None:
        """Return a page's layout computed by the model's own code in full precision.

        Self-tests compare with it; None if there is no such code. Raises `EngineError`.
        """
        return None

    def report(self) -> dict[str, float | str]:
        """Return figures of the last `detect`, such as the seconds of each stage."""
        return {}
