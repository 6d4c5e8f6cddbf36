"""The interface of layout engines."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import ClassVar

from kopub.engine import Engine
from kopub.layout.regions import Layout
from kopub.pages.page import Page

SPECK = 0.005
"""Largest speck as a share of the sides of the page: 12 x 17 pixels on A4 at 300 dpi, a dot of a millimetre.

Any line of text, down to 7 points, has a larger mark (`benchmarks/reading/blank_pages.py`).
"""
SPECK_FIELD = (
    "Share of the width and of the height of the page that a speck may have: a page with nothing but specks is blank. "
    "0 counts every mark as writing."
)


class LayoutDetector(Engine):
    """Finds the regions of pages."""

    takes_upright: ClassVar[bool] = True
    """Whether pages are set upright before the engine sees them."""

    @abstractmethod
    def detect(self, pages: Iterable[Page]) -> Iterator[Layout]:
        """Yield one `Layout` for each page, in any order.

        Pages are taken lazily. A page that cannot be decoded is `quarantined`, one that cannot be processed is
        `failed`, and one without ink is `blank`; none of them stops the others. Raises `EngineError` if no page could
        be processed.
        """

    def reference(self, page: Page) -> Layout | None:
        """Return a page's layout computed by the model's own code in full precision.

        Self-tests compare with it; None if there is no such code. Raises `EngineError`.
        """
        return None

    def report(self) -> dict[str, float | str]:
        """Return figures of the last `detect`, such as the seconds of each stage."""
        return {}
