"""Reads regions with any program that takes a PNG on its standard input and writes text to its standard output."""

import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from kopub.engine import ProfileOnly
from kopub.errors import UndecodableImage
from kopub.fingerprints import CodeVersion, file_sha256
from kopub.layout.regions import Region, Task
from kopub.pages.page import Page
from kopub.recognition.base import Recognizer
from kopub.recognition.regions import PageReading, RegionText, cut_pictures, page_reading, pixel_box, skipped
from kopub.states import State


class CommandRecognizer(Recognizer):
    """One process for each region."""

    # In the recipe of every row. A new step, `2: "why results change"`, makes what was read before stale.
    code_version: ClassVar[CodeVersion] = CodeVersion("recognition.command", {1: "the first release"})
    # Fields that cannot change results, so another value makes nothing stale.
    speed_only: ClassVar[frozenset[str]] = frozenset({"timeout_seconds"})

    # The fields are the keys of the profile's section: their types and limits are checked when it is loaded.
    command: ProfileOnly[list[str]] = Field(min_length=1, description="The program and its arguments.")
    timeout_seconds: float = Field(default=60.0, gt=0, description="Longest time for one region.")

    def weights(self) -> dict[str, str]:
        """The program, so that another release of it makes what it read stale."""
        program = shutil.which(self.command[0])
        return {self.command[0]: file_sha256(Path(program)) if program else "missing"}

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        for page, regions in pages:
            yield self._read_page(page, regions)

    def _read_page(self, page: Page, regions: Sequence[Region]) -> PageReading:
        if not regions:
            return PageReading(page.page_id, State.BLANK)
        try:
            texts = tuple(self._read_region(page, region) for region in regions)
            crops = cut_pictures(page, regions)
        except UndecodableImage as error:
            return PageReading(page.page_id, error.state, str(error))
        # The page is `partial` where some regions failed, and `failed` where none gave text.
        return page_reading(page.page_id, texts, crops)

    def _read_region(self, page: Page, region: Region) -> RegionText:
        import cv2

        if region.task in (Task.SKIP, Task.ABANDON):
            return skipped(region.index, region.label)
        height, width = page.image.shape[:2]
        x1, y1, x2, y2 = pixel_box(region.bbox, width, height)
        _, png = cv2.imencode(".png", cv2.cvtColor(page.image[y1:y2, x1:x2], cv2.COLOR_RGB2BGR))
        try:
            done = subprocess.run(
                self.command, input=png.tobytes(), capture_output=True, timeout=self.timeout_seconds, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            return RegionText(region.index, region.label, "", State.FAILED, str(error), "error")
        return RegionText(region.index, region.label, done.stdout.decode("utf-8", "replace").strip())
