"""A reader that knows the answers of a benchmark, and can misread some on purpose."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from kopub.fingerprints import CodeVersion
from kopub.layout.regions import Region
from kopub.pages.page import Page
from kopub.recognition.base import Recognizer
from kopub.recognition.regions import PageReading, RegionText
from kopub.states import State
from tests.doubles.engines import Diary


class KnowingReader(Recognizer):
    """Reads the text file `<answers>/<page id>.txt` as the text of a page's first region.

    The first `wrong` characters of every page are read as `?`, and every blank as `blank`. The pages `fail` cannot be
    read. It notes each page in the diary.
    """

    code_version: ClassVar[CodeVersion] = CodeVersion("recognition.knowing_reader", {1: "a double"})
    speed_only: ClassVar[frozenset[str]] = frozenset({"diary", "answers", "die_after"})

    answers: str
    diary: str
    wrong: int = 0
    fail: str = ""
    version: int = 1
    blank: str = " "
    die_after: int = -1

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        for page, regions in pages:
            if self.die_after == len(Diary(self.diary).pages):
                raise KeyboardInterrupt
            Diary(self.diary).note(page.page_id)
            if page.page_id in self.fail.split():
                yield PageReading(page.page_id, State.FAILED, "asked to fail")
                continue
            text = (Path(self.answers) / f"{page.page_id}.txt").read_text("utf-8")
            said = ("?" * self.wrong + text[self.wrong :]).replace(" ", self.blank)
            yield PageReading(page.page_id, State.OK, None, (RegionText(regions[0].index, regions[0].label, said),))
