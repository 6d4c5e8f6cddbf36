"""The common part of the recognizers of printed lines, which read in threads."""

import threading
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from kopub.errors import EngineError
from kopub.layout.regions import Region
from kopub.pages.page import Page, room_for
from kopub.parallel import bounded_map, of_two_cores
from kopub.recognition.base import Recognizer
from kopub.recognition.regions import PageReading

if TYPE_CHECKING:
    from kopub.recognition.print_reader import PrintReader


class PrintRecognizer(Recognizer):
    """Reads pages in threads, each with a reader of its own."""

    typical_seconds: ClassVar[float] = 0.03
    typical_seconds_per_megabyte: ClassVar[float] = 0.84
    speed_only: ClassVar[frozenset[str]] = frozenset({"threads", "page_seconds"})

    threads: int = Field(default=0, ge=0, description="Pages read at once; 0 means one per core.")
    page_seconds: float = Field(
        default=120.0,
        gt=0,
        description="Seconds of processor time that the reading of a page may take; its other regions fail, and the "
        "next run reads it again. Tesseract takes 1 to 6 for a page of text.",
    )

    def expected_seconds(self, megabytes: float) -> float:
        return super().expected_seconds(megabytes) * of_two_cores(self.threads)

    @abstractmethod
    def open_reader(self) -> "PrintReader":
        """Return a reader for one thread."""

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        if problems := self.lacks():
            raise EngineError(problems[0])
        from kopub.recognition.print_pages import read_page

        local = threading.local()
        readers: list[PrintReader] = []

        def work(item: tuple[Page, Sequence[Region]]) -> PageReading:
            if not hasattr(local, "reader"):
                local.reader = self.open_reader()
                readers.append(local.reader)
            with room_for(item[0].data):
                local.reader.limit(self.page_seconds)
                return read_page(local.reader, *item)

        try:
            yield from bounded_map(work, pages, self.threads)
        finally:
            for reader in readers:
                reader.close()
