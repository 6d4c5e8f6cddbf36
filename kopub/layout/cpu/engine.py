"""The layout engine of the cpu profile."""

from collections.abc import Iterable, Iterator
from importlib.metadata import version
from typing import ClassVar

from pydantic import Field

from kopub.fingerprints import CodeVersion
from kopub.layout.base import SPECK, SPECK_FIELD, LayoutDetector
from kopub.layout.regions import Layout
from kopub.pages.page import Page, room_for
from kopub.parallel import bounded_map, of_two_cores


class CpuLayout(LayoutDetector):
    """Layout from ink, rules and white space: no model, no download, any machine."""

    code_version: ClassVar[CodeVersion] = CodeVersion(
        "layout.cpu",
        {
            1: "the first release",
            2: "dark edges of a scan and frames around a page are no pictures; faint print is found",
            3: "a page with nothing but specks is blank",
            4: "a blank page that is dark all over has a reason, and is doubted",
            5: "pale boxes are found in uneven light, and what they hold stays together",
            6: "tables without upright rules are found, and letters at an edge are no rules",
            7: "formulas are text, and what dotted rules join around a table is a picture; it was lost",
            8: "lines of a sharpened photo are apart",
            9: "one row below a table's heading is a table, and letters that touch its rules are measured",
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

    def detect(self, pages: Iterable[Page]) -> Iterator[Layout]:
        from kopub.layout.cpu.detector import detect_page

        def work(page: Page) -> Layout:
            with room_for(page.data):
                return detect_page(page, self.speck)

        yield from bounded_map(work, pages, self.threads)
