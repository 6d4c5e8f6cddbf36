"""Layout that is known beforehand, for pictures of one table, one formula or one line."""

from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from resources.code_version import CodeVersion
from resources.errors import EngineError, SourceError, UndecodableImage
from resources.fingerprints import fingerprint
from resources.layout.base import LayoutDetector
from resources.layout.given.column import Named, named_regions
from resources.layout.regions import LABELS, PageLayout, Region, Task
from resources.pages.page import Page
from resources.pages.pixels.images import inspect
from resources.pages.places.corpus_place import CorpusPlace
from resources.resource import ProfileOnly
from resources.states import State

_WHOLE = (0.0, 0.0, 1.0, 1.0)


class GivenLayout(LayoutDetector):
    """Passes on the regions that the corpus' column `regions` names for each page; finds none by itself."""

    code_version: ClassVar[CodeVersion] = CodeVersion("layout.given", {1: "the first release"})
    speed_only: ClassVar[frozenset[str]] = frozenset({"home", "index"})
    takes_upright: ClassVar[bool] = False

    home: ProfileOnly[str] = Field(
        default="", description="Folder with the index of the corpus; the profile's own when left out."
    )
    index: ProfileOnly[str] = Field(
        default="", description="Folder or URL of an index that nodes share; corpus.url when left out."
    )

    def weights(self) -> dict[str, str]:
        """The regions themselves: a corpus that names others makes other rows."""
        try:
            return {"regions": fingerprint(self._regions)}
        except SourceError:
            return {"regions": "missing"}

    def detect(self, pages: Iterable[Page]) -> Iterator[PageLayout]:
        try:
            regions = self._regions
        except SourceError as error:
            raise EngineError(f"layout.engine given: {error}") from None
        for page in pages:
            yield _layout(page, regions.get(page.page_id))

    @cached_property
    def _regions(self) -> Named:
        return named_regions(CorpusPlace(Path(self.home), self.index))


def _layout(page: Page, named: list[dict[str, Any]] | None) -> PageLayout:
    try:
        info = inspect(page.data)
        found = tuple(_region(at, region, info.width, info.height) for at, region in enumerate(named or ()))
    except UndecodableImage as error:
        return PageLayout(page.page_id, error.state, str(error))
    except (KeyError, TypeError, ValueError) as error:
        return PageLayout(page.page_id, State.FAILED, f"the corpus names a region that cannot be used: {error}")
    if not found:
        return PageLayout(page.page_id, State.FAILED, "the corpus names no region of this page")
    return PageLayout(page.page_id, State.OK, regions=found)


def _region(index: int, named: dict[str, Any], width: int, height: int) -> Region:
    """Raises `ValueError` for a label, a task or a box that is none."""
    label, box = named["label"], tuple(named["bbox"] or _WHOLE)
    if label not in LABELS:
        raise ValueError(f"{label!r:.40} is no label")
    if len(box) != 4 or not all(0 <= edge <= 1 for edge in box) or box[0] >= box[2] or box[1] >= box[3]:
        raise ValueError(f"{list(box)!r:.80} is no box of shares")
    x1, y1, x2, y2 = box
    return Region(index, label, Task(named["task"]), 1.0, (x1 * width, y1 * height, x2 * width, y2 * height))
