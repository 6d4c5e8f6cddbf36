"""Layout on the CPU: page segmentation without weights."""

from collections.abc import Iterable, Iterator
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from resources.code_version import CodeVersion
from resources.errors import UndecodableImage
from resources.layout.base import LayoutDetector
from resources.layout.cpu.formulas import find_formulas
from resources.layout.cpu.labelling import label_blocks
from resources.layout.cpu.segmentation import Segmentation, segment
from resources.layout.ink import SPECK, SPECK_FIELD, has_writing
from resources.layout.lighting import readable_grey
from resources.layout.regions import PageLayout, Region, Task
from resources.pages.page import Page
from resources.parallel import bounded_map, of_two_cores
from resources.states import State

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_TASKS = {"table": Task.TABLE, "display_formula": Task.FORMULA, "image": Task.SKIP, "chart": Task.SKIP}
"""All else is read as text, running heads and page numbers too: on a CPU they cost next to nothing."""


class CpuLayout(LayoutDetector):
    """Regions from ink, rules and white space (recursive XY-cut): no model, no download, any machine."""

    code_version: ClassVar[CodeVersion] = CodeVersion(
        "layout.cpu",
        {
            1: "the first release",
            2: "dark edges of a scan and frames around a page are no pictures; faint print is found",
            3: "a page with nothing but specks is blank",
        },
    )
    typical_seconds: ClassVar[float] = 0.15
    speed_only: ClassVar[frozenset[str]] = frozenset({"threads"})

    threads: int = Field(default=0, ge=0, description="Pages worked on at once; 0 means one per core.")
    speck: float = Field(default=SPECK, ge=0, lt=0.1, description=SPECK_FIELD)

    def weights(self) -> dict[str, str]:
        return {"opencv": version("opencv-python-headless")}

    def expected_seconds(self, megabytes: float) -> float:
        return super().expected_seconds(megabytes) * of_two_cores(self.threads)

    def detect(self, pages: Iterable[Page]) -> Iterator[PageLayout]:
        yield from bounded_map(partial(detect_page, speck=self.speck), pages, self.threads)


def detect_page(page: Page, speck: float = SPECK) -> PageLayout:
    """The layout of one page; a page that cannot be used says so in its state."""
    import cv2

    try:
        gray, has_ink = readable_grey(page.image)
    except UndecodableImage as error:
        return PageLayout(page.page_id, error.state, str(error))
    if not has_ink or not has_writing(gray, speck):
        return PageLayout(page.page_id, State.BLANK)
    try:
        boxes = list(_labelled(segment(gray), gray))
    except cv2.error as error:
        return PageLayout(page.page_id, State.FAILED, f"the page cannot be segmented: {error.err}")
    if not boxes:
        return PageLayout(page.page_id, State.FAILED, "the page has ink, but no text, table or picture was found")
    regions = (Region(index, label, _TASKS.get(label, Task.TEXT), 1.0, box) for index, (box, label) in enumerate(boxes))
    return PageLayout(page.page_id, State.OK, regions=tuple(regions))


def _labelled(
    found: Segmentation, gray: "NDArray[np.uint8]"
) -> Iterator[tuple[tuple[float, float, float, float], str]]:
    """Boxes in pixels of the full page, with their labels, in reading order."""
    labels = label_blocks(found)
    formulas = {formula.blocks[0]: formula for formula in find_formulas(found, labels, gray)}
    inside = {place for formula in formulas.values() for place in formula.blocks}
    height, width = gray.shape
    for place, (block, label) in enumerate(zip(found.blocks, labels, strict=True)):
        if place in formulas:
            parts = formulas[place].parts
        elif place in inside:
            continue
        else:
            # Half-size pixels cut off the soft edge of the letters; one more on each side brings it back.
            x1, y1, x2, y2 = block.box
            grown = (x1 - 1, y1 - 1, x2 + 1, y2 + 1)
            parts = ((tuple(edge / found.scale for edge in grown), label),)
        for (x1, y1, x2, y2), part in parts:
            yield (max(0.0, x1), max(0.0, y1), min(float(width), x2), min(float(height), y2)), part
